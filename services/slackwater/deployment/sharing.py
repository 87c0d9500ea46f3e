"""Decides which queries read the same children.

Queries over the same sources often differ only in their windows and aggregates: a dashboard has a
panel per minute and one per hour. Separate children would write the same buckets and the same
deltas. Such queries share one set of children, named after the first of them. Each query has its
own roots, which compute its windows from the common deltas. This is slicing shared by several
windows (Li et al., "No pane, no gain", SIGMOD Record 2005; Traub et al., "Scotty", ICDE 2018) over
Fargo's children. The children treat a root of another query like a root of another part.

Queries share if everything is equal that determines the content, the time or the place of a delta:
the sources, ``where``, ``select``, ``join``, the first deadline, margin and policies, the numbers
of replicas, children and parts, and the figures that only some aggregates bring along. Windows may
differ, since the edges of all are cut points; windows that would add cut points within a bucket of
the usual width do not share. Queries without a window do not share, because their roots read the
readings themselves.

Sharing is fixed when a query is registered. A query that is registered later, or was registered by
an earlier version, keeps the children that its definition names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.names import base_of
from slackwater.primitives.aggregates import others_of
from slackwater.primitives.windows import Grid, window_edges

EDGES_MAX: Final = 3
"""Maximum arithmetic progressions of window edges per set of children. Cut points are counted by
inclusion-exclusion, whose cost doubles with each progression."""


def share(deployment: Deployment, registered: Mapping[str, QuerySpec] | None = None) -> Deployment:
    """Return the deployment with the children that each query reads.

    ``registered`` queries keep the children in their definitions; the others share among
    themselves.
    """
    registered = registered or {}
    queries = {
        name: _as_registered(query, registered[name])
        if name in registered
        else without_sharing(query)
        for name, query in deployment.queries.items()
    }
    for group in _groups(deployment, (q for q in queries.values() if q.name not in registered)):
        if len(group.members) > 1:
            of = group.members[0]
            windows = tuple(dict.fromkeys(group.windows))
            for name in group.members:
                children_of = "" if name == of else of
                queries[name] = replace(
                    queries[name],
                    children_of=children_of,
                    cut_windows=windows,
                    shared_by=tuple(group.members),
                )
    return replace(deployment, queries=queries)


def without_sharing(query: QuerySpec) -> QuerySpec:
    """Return the query as declared in the deployment file."""
    return replace(query, children_of="", cut_windows=(), shared_by=())


def is_same(one: QuerySpec, other: QuerySpec) -> bool:
    """Whether these are generations of one query with one definition."""
    return _without_generation(one) == _without_generation(other)


def _without_generation(query: QuerySpec) -> QuerySpec:
    return replace(without_sharing(query), name=base_of(query.name))


@dataclass(slots=True)
class _Group:
    members: list[str]
    windows: list[WindowSpec]


def _groups(deployment: Deployment, queries: Iterable[QuerySpec]) -> Iterable[_Group]:
    found: dict[Hashable, list[_Group]] = {}
    for query in queries:
        if query.window is None:
            continue
        key = _key(deployment, query, query.window)
        for group in found.setdefault(key, []):
            if len(window_edges([*group.windows, query.window])) <= EDGES_MAX:
                group.members.append(query.name)
                group.windows.append(query.window)
                break
        else:
            found[key].append(_Group([query.name], [query.window]))
    return (group for groups in found.values() for group in groups)


def _key(deployment: Deployment, query: QuerySpec, window: WindowSpec) -> Hashable:
    """Return the sharing key: queries with equal keys may share."""
    return (
        query.sources,
        query.where,
        query.select,
        query.join,
        Grid(query.bucket_us(), window).progressions,
        deployment.deadline_us(query.name, 1),
        query.margin_us,
        (query.failure_policy, query.stabilization_policy),
        (query.replicas, query.children, query.parts),
        others_of(query.aggregate),
    )


def _as_registered(query: QuerySpec, registered: QuerySpec) -> QuerySpec:
    return replace(
        query,
        children_of=registered.children_of,
        cut_windows=registered.cut_windows,
        shared_by=registered.shared_by,
    )
