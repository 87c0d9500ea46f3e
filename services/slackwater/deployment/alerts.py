"""Checks of the section ``alerts``; a valid rule is added to the definition of its query.

A rule on a stream belongs to the first query of the file that the stream reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slackwater.deployment.findings import Findings
from slackwater.deployment.queries import Written
from slackwater.deployment.shapes import AlertShape
from slackwater.deployment.shaping import check_name, did_you_mean, exactly_one, shaped
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import Deployment
from slackwater.primitives.expression_text import ExpressionError
from slackwater.primitives.expressions import compile_predicate


def with_alerts(
    alerts: Mapping[str, Any], deployment: Deployment, written: Written, findings: Findings
) -> Deployment:
    """Return the deployment with the rules of the file; errors are added to ``findings``.

    ``deployment`` has the valid streams and queries, ``written`` all of the file.
    """
    queries = dict(deployment.queries)
    for name, value in alerts.items():
        place: Place = ("alerts", name)
        check_name(name, place, findings)
        shape = shaped(AlertShape, value, place, findings)
        if shape is None or not exactly_one(shape, ("when", "missing"), place, findings):
            continue
        checked = _of_rows if shape.when is not None else _of_stream
        query = checked(shape, deployment, written, place, findings)
        if query is not None:
            spec = _spec(name, shape)
            queries[query] = replace(queries[query], alerts=(*queries[query].alerts, spec))
    return replace(deployment, queries=queries)


def _spec(name: str, shape: AlertShape) -> AlertSpec:
    if shape.when is None:
        return AlertSpec(name, stream=shape.stream, missing_us=shape.missing)
    return AlertSpec(name, shape.when, shape.for_ or 1, shape.tentative or "wait")


def _of_rows(
    shape: AlertShape, deployment: Deployment, written: Written, place: Place, findings: Findings
) -> str | None:
    """Check a rule on the rows of a query; return the query if it is valid, and the rule too."""
    if shape.stream is not None:
        findings.error((*place, "stream"), "is for missing; when has a query")
    if shape.query is None:
        findings.error((*place, "query"), "is required: when is a condition on its rows")
        return None
    if shape.query not in written.queries:
        meant = did_you_mean(shape.query, written.queries)
        findings.error((*place, "query"), f"there is no query {shape.query!r}{meant}")
        return None
    if shape.query not in deployment.queries or shape.when is None:
        return None  # the query has errors of its own
    try:
        compile_predicate(shape.when, deployment.fields_of(shape.query))
    except ExpressionError as error:
        shown = shape.when if len(shape.when) <= 60 else shape.when[:57] + "..."
        findings.error((*place, "when"), f"{shown!r}: {error}")
        return None
    return shape.query


def _of_stream(
    shape: AlertShape, deployment: Deployment, written: Written, place: Place, findings: Findings
) -> str | None:
    """Check a rule on a stream; return the query whose windows show it."""
    others = {"query": shape.query, "for": shape.for_, "tentative": shape.tentative}
    for name in (name for name, given in others.items() if given is not None):
        findings.error((*place, name), "is for when; missing has a stream")
    stream = shape.stream
    if stream is None:
        findings.error((*place, "stream"), "is required: missing is how long it has been missing")
        return None
    if stream not in written.streams:
        meant = did_you_mean(stream, written.streams)
        findings.error((*place, "stream"), f"there is no stream {stream!r}{meant}")
        return None
    known = (name for name in written.queries if name in deployment.queries)
    reached = (name for name in known if stream in deployment.source_streams(name))
    found = next(reached, None)
    if found is None and deployment.queries.keys() == written.queries.keys():
        findings.error((*place, "stream"), f"no query reads {stream}, so no window lacks it")
    return found
