"""Queries that read the same children.

Queries over the same sources often differ in their windows and aggregates only: a dashboard has a
panel for each minute and one for each hour. Their orderers would write the same buckets, and their
aggregators the same figures. Such queries share one set of children, named after the first of
them, and each has roots of its own, which make its windows of the common deltas. This is slicing
shared by several windows (Li et al., "No pane, no gain", SIGMOD Record 2005; Traub et al.,
"Scotty", ICDE 2018) over Fargo's children. To the
children a root of another query is what a root of another part is.

Queries share if all on which the content, the time or the place of a delta depends is equal: the
sources, ``where``, ``select``, ``join``, the first deadline, margin and policies, and the numbers
of replicas, children and parts. Windows may differ, since their edges are cut points for all; those
that would add cut points to a bucket of the usual width do not share. Queries without a window do
not share, for their roots read the readings themselves.

Sharing is fixed when a query is registered. A query that is registered later, or was registered by
an earlier version, keeps the children that its definition names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.primitives.windows import Grid, window_edges

EDGES_MAX: Final = 3
"""Progressions of window edges in one set of children: they are counted by inclusion and exclusion,
at a cost that doubles with each."""


def share(deployment: Deployment, registered: Mapping[str, QuerySpec] | None = None) -> Deployment:
    """Return the deployment with the children that each query reads.

    ``registered`` queries keep what their definitions say; the others share among themselves.
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
    """The query as it stands in the deployment file."""
    return replace(query, children_of="", cut_windows=(), shared_by=())


def as_in_last_run(deployment: Deployment, children_of: Mapping[str, str]) -> Deployment:
    """Return the deployment with the children that its queries read in the last run.

    This predicts which fragments there are, before the registry can be read. ``children_of`` has
    the query whose children a query read, for all queries of that run; the others share as queries
    that are added. The windows of the children are not known here.
    """
    known = {
        name: replace(query, children_of="" if children_of[name] == name else children_of[name])
        for name, query in deployment.queries.items()
        if name in children_of
    }
    return share(deployment, known)


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
    """Queries with equal keys may share."""
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
    )


def _as_registered(query: QuerySpec, registered: QuerySpec) -> QuerySpec:
    return replace(
        query,
        children_of=registered.children_of,
        cut_windows=registered.cut_windows,
        shared_by=registered.shared_by,
    )
