"""Converts the content of a deployment file to a deployment.

Streams are checked first, then queries, each after the queries that it reads. Each is checked by
itself, so that all errors are reported together. What a query depends on is looked up among the
valid streams and queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slackwater.deployment.advice import advise
from slackwater.deployment.alerts import with_alerts
from slackwater.deployment.bounds import CHAIN_QUERIES_MAX
from slackwater.deployment.findings import Findings
from slackwater.deployment.listening import check_listening
from slackwater.deployment.queries import (
    MARGIN_DEFAULT_US,
    MARGIN_MICRO_BATCH_US,
    QueryChecker,
    Written,
)
from slackwater.deployment.shapes import FileShape, SiteShape
from slackwater.deployment.shaping import check_name, shaped
from slackwater.deployment.sites import check_sites, with_sites
from slackwater.deployment.streams import StreamChecker
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.deployment import Deployment
from slackwater.model.names import UNPREFIXED, Names


def check_content(content: Any, findings: Findings, *, micro_batch: bool) -> Deployment | None:
    """Return the deployment; None if it has errors, which are added to ``findings``."""
    top = shaped(FileShape, content, (), findings)
    names = UNPREFIXED if top is None else Names(top.prefix)
    # An error at the top level, such as a wrong apiVersion, must not hide errors below it.
    written = Written(_section(content, "streams"), _section(content, "queries"))
    clock = content.get("clock") if isinstance(content, dict) else None
    stream_checker = StreamChecker(names, findings, clock)
    streams = {
        name: spec
        for name, value in written.streams.items()
        if (spec := stream_checker.stream(name, value)) is not None
    }
    http = check_listening(None if top is None else top.http, streams, findings)
    sites = check_sites(_site_shapes(content, findings), streams, findings)
    margin_us = MARGIN_MICRO_BATCH_US if micro_batch else MARGIN_DEFAULT_US
    query_checker = QueryChecker(written, streams, findings, margin_us, clock, sites)
    for name in _in_order(written.queries, findings):
        query_checker.check(name, written.queries[name])
    queries = with_sites(query_checker.queries, streams, sites)
    valid = Deployment("wall", streams, queries, names, http, sites)
    deployment = with_alerts(_section(content, "alerts"), valid, written, findings)
    if top is None or findings.any():
        return None
    deployment = replace(deployment, clock=top.clock)
    advise(deployment, findings)
    return None if findings.any() else deployment


def _site_shapes(content: Any, findings: Findings) -> dict[str, SiteShape]:
    found: dict[str, SiteShape] = {}
    for name, value in _section(content, "sites").items():
        check_name(name, ("sites", name), findings)
        shape = shaped(SiteShape, value, ("sites", name), findings)
        if shape is not None:
            found[name] = shape
    return found


def _section(content: Any, name: str) -> Mapping[str, Any]:
    section = content.get(name) if isinstance(content, dict) else None
    return section if isinstance(section, dict) else {}


def _in_order(queries: Mapping[str, Any], findings: Findings) -> list[str]:
    """Return the queries in topological order; report a cycle at the entry that closes it."""
    depth: dict[str, int] = {}
    open_: list[str] = []

    def visit(name: str) -> None:
        open_.append(name)
        below = 0
        for i, source in enumerate(_written_sources(queries[name])):
            place: Place = ("queries", name, "from", i)
            if source in open_:
                circle = " -> ".join([*open_[open_.index(source) :], source])
                findings.error(place, f"queries read each other in a cycle: {circle}")
            elif source in queries:
                if source not in depth and len(open_) <= CHAIN_QUERIES_MAX:
                    visit(source)
                below = max(below, depth.get(source, CHAIN_QUERIES_MAX))
        if below == CHAIN_QUERIES_MAX:
            reason = f"is the end of a chain of more than {CHAIN_QUERIES_MAX} queries"
            findings.error(("queries", name, "from"), reason)
        depth[open_.pop()] = below + 1

    for name in queries:
        if name not in depth:
            visit(name)
    return list(depth)


def _written_sources(query: Any) -> list[str]:
    """Return the names in a query's ``from``; entries that are not text are omitted."""
    written = query.get("from") if isinstance(query, dict) else None
    return [name for name in written if isinstance(name, str)] if isinstance(written, list) else []
