"""Divides the logs of a query among its children, and checks what the file declares of them.

How many logs a topic has is known when the query is registered (``divided``). Before that the file
is checked without it, and plans assume a number (``planned``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import SITES, QueryShape
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.child_logs import (
    ChildLogs,
    ChildrenError,
    LogGroups,
    LogRange,
    check_groups,
    dealt,
    named,
    of_sources,
)
from slackwater.model.deployment import Deployment, QuerySpec, StreamSpec

_OF_ORDER: Final = {"first", "last"}
"""Aggregates for which the order of equal times counts."""


def _keeps_order(window: object, aggregates: Iterable[str]) -> bool:
    """Whether equal times must stay in the order of the logs, over all children."""
    return window is None or not _OF_ORDER.isdisjoint(aggregates)


def divided(
    deployment: Deployment, query: QuerySpec, partitions_of: Mapping[str, int]
) -> ChildLogs:
    """Return the child of each log; ``partitions_of``: the streams that read topics.

    Raises:
        ChildrenError: the logs that are there cannot be divided as declared.
    """
    if query.children == 1 and not query.child_groups:
        return of_sources(query.sources, 1)
    counts = {source: _logs_of(deployment, source, partitions_of) for source in query.sources}
    in_order = _keeps_order(query.window, query.aggregate)
    if query.child_groups:
        return named(query.child_groups, counts, in_order=in_order)
    return dealt(counts, query.children, in_order=in_order)


def planned(deployment: Deployment, query: QuerySpec) -> ChildLogs:
    """Return the children as if each topic had the fewest partitions that suit the declaration."""
    least = dict.fromkeys(deployment.streams, query.children)
    if query.child_groups:
        least = dict.fromkeys(deployment.streams, 1)
        for _, of in query.child_groups:
            for each in map(LogRange.parse, of):
                last = each.first if each.last is None else each.last
                least[each.source] = max(least.get(each.source, 1), last + 1)
    return divided(deployment, query, least)


def _logs_of(deployment: Deployment, source: str, partitions_of: Mapping[str, int]) -> int:
    read = deployment.query_read(source)
    if read is not None:
        return read.parts
    return 1 if deployment.streams[source].topic is None else partitions_of[source]


def children_of(
    shape: QueryShape,
    streams: Mapping[str, StreamSpec],
    queries: Mapping[str, QuerySpec],
    place: Place,
    findings: Findings,
) -> tuple[int, LogGroups]:
    """Return the number of children and the logs of each, if they are named; adds errors."""
    at = (*place, "children")
    if shape.join is not None and shape.children != 1:
        findings.error(at, "a join has one child: one orderer must read both streams")
        return 1, ()
    counts: dict[str, int | None] = {}
    for source in shape.from_:
        if source in queries:
            counts[source] = queries[source].parts
        else:
            stream = streams.get(source)
            counts[source] = None if stream is None or stream.topic is not None else 1
    if isinstance(shape.children, int):
        known = [count for count in counts.values() if count is not None]
        if len(known) == len(counts) and shape.children > sum(known):
            reason = f"{shape.children} children, but only {sum(known)} logs for them"
            findings.error(at, reason)
        return shape.children, ()
    try:
        groups = (
            _by_site(shape.from_, streams)
            if shape.children == SITES
            else tuple(shape.children.items())
        )
        check_groups(groups, counts, in_order=_keeps_order(shape.window, shape.aggregates))
    except ChildrenError as error:
        findings.error((*at, *(() if shape.children == SITES else error.place)), str(error))
        return 1, ()
    return len(groups), groups


def _by_site(sources: tuple[str, ...], streams: Mapping[str, StreamSpec]) -> LogGroups:
    found: dict[str, tuple[str, ...]] = {}
    for source in sources:
        site = streams[source].site if source in streams else ""
        if not site:
            raise ChildrenError(f"needs a site of each stream, and {source} has none")
        found[site] = (*found.get(site, ()), source)
    return tuple(found.items())
