"""Decides which queries read the same children.

Queries over the same sources often differ only in their windows and aggregates: a dashboard has a
panel per minute and one per hour. Separate children would write the same buckets and the same
deltas. Such queries share one set of children, named after the first of them. Each query has its
own roots, which compute its windows from the common deltas. This is slicing shared by several
windows (Li et al., "No pane, no gain", SIGMOD Record 2005; Traub et al., "Scotty", ICDE 2018) over
Fargo's children. The children treat a root of another query like a root of another part.

Queries share if everything is equal that determines the content, the time or the place of a delta:
the sources, ``where``, ``select``, ``join``, the first deadline, margin and policies, the numbers
of replicas, children and parts, and the figures and states that only some aggregates bring along.
Windows may differ, since the edges of all are cut points; windows that would add cut points within
a bucket of the usual width do not share. Queries without a window do not share, because their roots
read the readings themselves.

Queries that are new together share among themselves (``share``). A query that is applied while
others run may *join* the children of one of them (``share_applied``), since these go on as they
are: the edges of its windows must be cut points already, and its aggregates must need no figure
that the deltas do not have. It begins when the children have begun, at a cut point (trace-50).

What a query reads is in its definition, and does not change. Nobody joins the children of a
definition without ``child_aggregates``: it is of an earlier version, or of a later generation.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.names import base_of, generation_of
from slackwater.primitives.aggregates import figures_of, others_of, states_of
from slackwater.primitives.windows import Grid, window_edges

EDGES_MAX: Final = 3
"""Maximum arithmetic progressions of window edges per set of children. Cut points are counted by
inclusion-exclusion, whose cost doubles with each progression."""


def share(deployment: Deployment, registered: Mapping[str, QuerySpec] | None = None) -> Deployment:
    """Return the deployment with the children that each query reads.

    ``registered`` queries keep the children in their definitions, and one copy of their parts if
    they have one; the others share among themselves.
    """
    registered = registered or {}
    queries = {
        name: _as_registered(query, registered[name])
        if name in registered
        else without_sharing(query)
        for name, query in deployment.queries.items()
    }
    new = [query for query in queries.values() if query.name not in registered]
    for group in _groups(deployment, new):
        found = _sharing(queries, group)
        if len(found) > 1:
            found = {name: replace(q, shared_by=(*found,)) for name, q in found.items()}
        elif generation_of(group.members[0]):
            continue
        queries |= found
    return replace(deployment, queries=queries)


def readers_of(children_of: str, queries: Iterable[QuerySpec]) -> tuple[QuerySpec, ...]:
    """The queries that read this query's children, in the given order."""
    return tuple(query for query in queries if query.child_query == children_of)


def share_applied(
    deployment: Deployment,
    starts: Mapping[str, int | None],
    running: Deployment,
    started: Mapping[str, int],
) -> tuple[Deployment, list[str]]:
    """Return the deployment with the children that queries read which are applied now.

    Args:
        deployment: has the queries, and all that they read.
        starts: the new queries in topological order, with their starts (us of event time); None
            for the first reading.
        running: the queries whose children they may join, with their streams; none if they start
            at another time than now.
        started: their starts, us; without those that began with what was there. The children of
            one that starts later have no deltas yet.

    Returns:
        The deployment, and the new queries in the order in which to apply them: what a query reads
        is before it, and so is the query that has its children. That is the one that starts first.
    """
    queries = dict(deployment.queries)
    alone: list[QuerySpec] = []
    for name, start in starts.items():
        query = queries[name] = without_sharing(queries[name])
        of = None
        if start is not None:
            begun = [q for q in running.queries.values() if started.get(q.name, start) <= start]
            of = next((q for q in begun if _fits(deployment, query, running, q)), None)
        if of is not None:
            queries[name] = _joined(query, of)
        elif deployment.clock == "wall" and _is_open(deployment, query):
            alone.append(query)
    for group in _groups(deployment, sorted(alone, key=lambda each: starts[each.name] or 0)):
        queries |= _sharing(queries, group)
    order: dict[str, None] = {}
    for name in starts:
        if queries[name].child_query in starts:
            order[queries[name].child_query] = None
        order[name] = None
    return replace(deployment, queries=queries), [*order]


def why_not_joined(query: QuerySpec, deployment: Deployment, running: Deployment) -> str:
    """Return why a query cannot read the children in its definition; empty if it can.

    Args:
        query: it reads the children of another query.
        deployment: has it, and all that it reads.
        running: the queries that run, with their streams.
    """
    readers = readers_of(query.child_query, running.queries.values())
    if not readers:
        return "no query runs that reads them"
    for of in readers:
        if query == _joined(query, of) and _fits(deployment, query, running, of):
            return ""
    return "they have other contents or other cut points"


def _fits(deployment: Deployment, query: QuerySpec, running: Deployment, of: QuerySpec) -> bool:
    """Whether a new query can read the children of a running one as they are."""
    window, of_window = query.window, of.window
    if window is None or of_window is None or not of.child_aggregates:
        return False
    if running.clock != "wall":
        return False  # the width of their buckets is that of a history (also in ``share_applied``)
    streams = [deployment.streams.get(name) for name in query.sources]
    if not _is_open(deployment, query) or streams != [*map(running.streams.get, query.sources)]:
        return False
    if _key(deployment, query, window) != _key(running, of, of_window):
        return False
    return {*figures_of(query.aggregate)} <= {*figures_of(of.child_aggregates)}


def _is_open(deployment: Deployment, query: QuerySpec) -> bool:
    """Whether a query may share that is applied at run time.

    A query that is read may be changed meanwhile, and children with `partitions: fixed` have
    perhaps not taken in all partitions. Pairs of a join have perhaps a reading from before the
    later one of two starts.
    """
    streams = [deployment.streams.get(name) for name in query.sources]
    return (
        query.join is None
        and not query.spans_sites  # its start is common to all places
        and all(
            spec is not None and (spec.topic is None or spec.topic.partitions != "fixed")
            for spec in streams
        )
    )


def _joined(query: QuerySpec, of: QuerySpec) -> QuerySpec:
    """Return the query as it reads the children of a running one."""
    return replace(
        query,
        children_of=of.child_query,
        cut_windows=of.cut_windows or tuple(filter(None, [of.window])),
        child_aggregates=of.child_aggregates,
    )


def _sharing(queries: Mapping[str, QuerySpec], group: _Group) -> dict[str, QuerySpec]:
    """Return the queries of a group; its first one has the children, and others may join them."""
    first, *others = group.members
    aggregates = (each for name in group.members for each in queries[name].aggregate)
    of = replace(
        queries[first],
        cut_windows=tuple(dict.fromkeys(group.windows)) if others else (),
        child_aggregates=tuple(dict.fromkeys(aggregates)),
    )
    return {first: of} | {name: _joined(queries[name], of) for name in others}


def without_sharing(query: QuerySpec) -> QuerySpec:
    """Return the query as declared in the deployment file."""
    return replace(
        query, children_of="", cut_windows=(), shared_by=(), child_aggregates=(), had_alerts=False
    )


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
        if query.window is None or query.spans_sites:
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
        deployment.deadline_us(query.name),
        query.margin_us,
        (query.failure_policy, query.stabilization_policy),
        (query.replicas, query.children, query.child_groups, query.parts),
        others_of(query.aggregate),
        states_of(query.aggregate),
    )


def _as_registered(query: QuerySpec, registered: QuerySpec) -> QuerySpec:
    return replace(
        query,
        # One copy was the default of earlier versions; a second one comes with a change.
        copies=min(query.copies, registered.copies),
        children_of=registered.children_of,
        cut_windows=registered.cut_windows,
        shared_by=registered.shared_by,
        child_aggregates=registered.child_aggregates,
        had_alerts=not query.alerts and registered.delivers,
    )
