"""The replicated record in terms of fragments. Pure.

The record's placement is keyed by query and by the rest of a fragment's name: ``orderer.0.a`` and
``root.0`` of a query. Two other things are placed like fragments. ``registration`` of a query is
the task to create its topics and to register it in Kafka. The proxies of streams serve all queries,
so they have a name of their own in place of the query (``STREAMS``). So do the orderers of children
that several queries share (``CHILDREN``).

A replica of a child is aggregated on the node of its orderer, and this has no placement of its own:
the orderer's log would otherwise cross the network twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from slackwater.control.applied import AppliedQuery, from_text
from slackwater.control.control_object import ApplyQuery
from slackwater.control.control_state import (
    CHILDREN,
    OF_NO_QUERY,
    STREAMS,
    ControlState,
    PlacementEntry,
    Wanted,
)
from slackwater.control.placement import FragmentSpec
from slackwater.control.readers import in_circles, serves
from slackwater.deployment.children import planned
from slackwater.deployment.sharing import is_same
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.errors import UsageError
from slackwater.model.kinds import HOST, KINDS, is_hosted, query_of
from slackwater.model.names import (
    PROXY,
    OrdererName,
    ProxyName,
    base_of,
    earlier_generations,
    generation_of,
    is_within,
    kind_of,
    own_name,
    some_of,
)
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.runtime.service.registry_entries import check_ranges

REGISTRATION: Final = "registration"
SITE: Final = "site"
"""The label of nodes that a stream's ``site`` refers to."""
PARSED_MAX: Final = 2_048
"""Number of definitions that are kept in parsed form."""


@lru_cache(PARSED_MAX)
def parsed(name: str, text: str) -> AppliedQuery | str:
    """The query of a definition, or why it cannot be read."""
    try:
        query = from_text(name, text)
    except ValueError as error:
        return str(error)
    try:
        deployment = query.deployment
        spec = deployment.queries[name]
        check_ranges(QueryDefinition(name, 0, 0, spec.bucket_us(), spec))
        deployment.stages(name)
        deployment.deadline_us(name)
        list(_of_query(deployment, name))
        list(_proxies(deployment, {}))
    except Exception as error:  # noqa: BLE001 -- clients may send anything
        return f"it is inconsistent: {type(error).__name__} {error}".rstrip()
    return query


def why_unreadable(operation: ApplyQuery) -> str:
    """Why an operation's definition cannot be read; empty if it can."""
    found = parsed(operation.query, operation.definition)
    return found if isinstance(found, str) else ""


def applied_queries(state: ControlState) -> dict[str, AppliedQuery]:
    """The recorded queries that this version can read and that are consistent, by name.

    Two halves of a split network may have recorded queries that define a stream differently, or a
    query and the deletion of another one that it reads. The first query by name keeps its stream.
    The others, and queries whose source is not there, are left out.
    """
    return _split_by_consistency(state)[0]


def not_applied(state: ControlState) -> dict[str, str]:
    """Why recorded queries do not run, by name."""
    return _split_by_consistency(state)[1]


def _split_by_consistency(state: ControlState) -> tuple[dict[str, AppliedQuery], dict[str, str]]:
    found: dict[str, AppliedQuery] = {}
    reasons: dict[str, str] = {}
    streams: dict[str, StreamSpec] = {}
    for name in state.live_queries():
        query = parsed(name, state.queries[name].definition)
        if isinstance(query, str):
            reasons[name] = f"its definition cannot be read: {query}"
            continue
        needed = query.deployment.streams
        names = next((each.deployment.names for each in found.values()), query.deployment.names)
        differing = [s for s, spec in needed.items() if streams.get(s, spec) != spec]
        if differing:
            reasons[name] = f"another query has stream {differing[0]} with another definition"
        elif query.deployment.names != names:
            reasons[name] = "other queries have another prefix"
        else:
            streams |= needed
            found[name] = query
    while True:
        lacking = [name for name, query in found.items() if _lacks(query, found)]
        for name in lacking:
            reasons[name] = "a query that it reads is not there, or has another definition"
            del found[name]
        circles = in_circles(deployment_of(found).queries.values())
        if circles:  # each half has changed one of its queries
            name = max(circles, key=lambda each: (generation_of(each), each))
            reasons[name] = "it reads a query that reads it"
            del found[name]
        elif not lacking:
            return found, reasons


def _lacks(query: AppliedQuery, found: Mapping[str, AppliedQuery]) -> bool:
    """Whether the query reads one that is not there, or no longer has what the query needs."""
    view = query.deployment
    sources = view.queries[query.query].sources
    for source in (source for source in sources if source not in view.streams):
        generations = [each for name, each in found.items() if base_of(name) == source]
        if not any(_is_read_by(view, source, each) for each in generations):
            return True
    return False


def _is_read_by(view: Deployment, source: str, query: AppliedQuery) -> bool:
    """Whether the reader that was defined with ``view`` can read this generation of a source."""
    known, deployment = view.query_read(source), query.deployment
    if known is not None and is_same(known, deployment.queries[query.query]):
        return True
    return generation_of(query.query) > 0 and serves(view, deployment, source)


def deleted_since(generations: Mapping[str, int], state: ControlState) -> list[str]:
    """Those of these queries that have been deleted, by the generations of their former entries.

    The tombstone of a deletion may have been dropped. ``generation_unused`` is then greater than
    the generation of its entry. A query that is not in the record although its generation is not
    smaller has been recorded by controllers that are out of reach.
    """
    return [
        name
        for name, generation in generations.items()
        if (
            generation < state.generation_unused
            if name not in state.queries
            else state.queries[name].wanted == Wanted.DELETED.value
        )
    ]


def lacks_queries(state: ControlState, record: ControlState) -> bool:
    """Whether a state cannot have followed from a record: a live query is older there, or not.

    Entries of a query only become greater, until its tombstone is dropped.
    """
    return any(
        record.queries[name].generation >= state.generation_unused
        if name not in state.queries
        else state.queries[name] < record.queries[name]
        for name in record.live_queries()
    )


def deployment_of(applied: Mapping[str, AppliedQuery]) -> Deployment:
    """All recorded queries with their streams; ``clock: wall`` if there are none."""
    deployment = Deployment("wall", {}, {})
    for name, query in applied.items():
        added = query.deployment
        deployment = replace(
            deployment,
            clock=added.clock,
            names=added.names,
            http=added.http if added.is_posted else deployment.http,
            streams={**deployment.streams, **added.streams},
            queries={**deployment.queries, name: added.queries[name]},
        )
    return deployment


def fragment_specs(state: ControlState) -> list[FragmentSpec]:
    """What is to run, for the planner.

    For a paused query these are its registration and the proxies of its streams. The roots of a new
    generation follow when the earlier generation has ended (rule-29). The registration of a deleted
    query, if it had been placed, has to carry out the deletion in Kafka.
    """
    applied = applied_queries(state)
    running = (
        spec
        for name, query in applied.items()
        if state.queries[name].wanted == Wanted.RUNNING.value
        for spec in _of_query(
            query.deployment, name, has_earlier=bool(earlier_generations(name, applied))
        )
    )
    specs = list({(spec.query, spec.fragment): spec for spec in running}.values())
    placed = (
        n for n in state.queries_wanted(Wanted.DELETED) if (n, REGISTRATION) in state.placement
    )
    specs += [FragmentSpec(n, REGISTRATION, REGISTRATION) for n in (*applied, *placed)]
    specs += _proxies(deployment_of(applied), state.placement)
    return specs


def _sites(deployment: Deployment, sources: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The node labels preferred by fragments that read these streams or queries."""
    streams = [deployment.streams[name] for name in sources if name in deployment.streams]
    return tuple(sorted({(SITE, stream.site) for stream in streams if stream.site}))


def _of_query(
    deployment: Deployment, name: str, *, has_earlier: bool = False
) -> Iterator[FragmentSpec]:
    """A query's fragments in hosts. Those of children prefer the sites of their streams."""
    query = deployment.queries[name]
    is_joinable = query.shared_by or query.child_aggregates
    logs = planned(deployment, query)
    for kind in KINDS.values():
        if kind.process != HOST or (kind.follows and has_earlier):
            continue
        for n, copies in enumerate(kind.groups(query)):
            sites = _sites(deployment, logs.streams_of(n) if kind.is_shared else ())
            for process in copies:
                if kind.is_shared and is_joinable:
                    group = f"{query.child_query}.{n}"
                    yield FragmentSpec(CHILDREN, own_name(process), group, sites)
                else:
                    rest = process.removeprefix(f"{kind.name}/{name}.")
                    yield FragmentSpec(name, f"{kind.name}.{rest}", f"{kind.name}.{n}", sites)


def _proxies(
    deployment: Deployment, placement: Mapping[tuple[str, str], PlacementEntry]
) -> Iterator[FragmentSpec]:
    """The proxies; a proxy with a spool stays on its first node, since its data are there."""
    for stream in deployment.streams.values():
        for name in stream.proxy_names:
            entry = placement.get((STREAMS, str(name)))
            has_spool = stream.topic is None and entry is not None
            bound = entry.node if has_spool and entry is not None else ""
            group, sites = f"{stream.name}/{name.share}", _sites(deployment, [stream.name])
            yield FragmentSpec(STREAMS, str(name), group, sites, bound)


def process_of(query: str, fragment: str) -> str:
    """The name under which ``status`` shows a placed fragment: ``root/climate.0``."""
    if query == STREAMS:
        return ProxyName.parse(fragment).process
    if query == CHILDREN:
        return OrdererName.parse(fragment).process
    if fragment == REGISTRATION:
        return f"{REGISTRATION}/{query}"
    kind, _, rest = fragment.partition(".")
    return f"{kind}/{query}.{rest}"


def key_of(process: str) -> tuple[str, str]:
    """The key of a fragment in the record; the inverse of ``process_of``.

    Not for orderers of shared children, whose names do not tell them: ``key_in`` has these too.

    Raises:
        UsageError: it is not the name of a fragment.
    """
    kind, name = kind_of(process), own_name(process)
    if kind == PROXY:
        return STREAMS, str(ProxyName.parse(name))
    if kind == REGISTRATION:
        return name, REGISTRATION
    if is_hosted(process):
        query = query_of(process)
        return query, f"{kind}.{name.removeprefix(f'{query}.')}"
    raise UsageError(f"{process}: not a fragment, such as root/climate.0; see `node list`")


def key_in(state: ControlState, process: str) -> tuple[str, str]:
    """The key of a fragment that is to run in this state.

    Raises:
        UsageError: none has this name; the message has the names that are nearest to it.
    """
    specs = fragment_specs(state)
    found = {process_of(s.query, s.fragment): (s.query, s.fragment) for s in specs}
    if process in found:
        return found[process]
    names = sorted(found)
    if of_it := [name for name in names if is_within(name, process)]:
        raise UsageError(f"{process} is not one fragment: name one of {some_of(of_it)}")
    near = get_close_matches(process, names, 1)
    there = f"the nearest is {near[0]}" if near else f"there are: {some_of(names) or 'none'}"
    raise UsageError(f"there is no fragment {process}; {there} (`slackwater node list` has all)")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one node is to run: placement numbers, by the names of fragments (``process_of``).

    ``registered`` has the wanted state of each query that the node registers, deleted ones too;
    ``registrations`` has the placement numbers of this task, by query.
    """

    fragments: Mapping[str, int] = field(default_factory=dict)
    proxies: Mapping[str, int] = field(default_factory=dict)
    registered: Mapping[str, Wanted] = field(default_factory=dict)
    registrations: Mapping[str, int] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        """All placement numbers, by name."""
        named = {f"{REGISTRATION}/{query}": n for query, n in self.registrations.items()}
        return {**self.fragments, **self.proxies, **named}


def assignment(state: ControlState, node: str) -> Assignment:
    """What a node is to run according to a state of the record."""
    applied = applied_queries(state)
    wanted = {process_of(s.query, s.fragment) for s in fragment_specs(state)}
    fragments: dict[str, int] = {}
    proxies: dict[str, int] = {}
    registered: dict[str, Wanted] = {}
    registrations: dict[str, int] = {}
    for (query, fragment), entry in _placed_on(state, node):
        name = process_of(query, fragment)
        if fragment == REGISTRATION:
            state_wanted = Wanted(state.queries[query].wanted)
            if state_wanted is Wanted.DELETED or query in applied:
                registered[query] = state_wanted
                registrations[query] = entry.number
        elif name in wanted:
            (proxies if kind_of(name) == PROXY else fragments)[name] = entry.number
    return Assignment(fragments, proxies, registered, registrations)


def _placed_on(state: ControlState, node: str) -> Iterable[tuple[tuple[str, str], PlacementEntry]]:
    for key, entry in sorted(state.placement.items()):
        query = state.queries.get(key[0])
        is_known = key[0] in OF_NO_QUERY or (
            query is not None and entry.generation <= query.generation
        )
        if entry.node == node and is_known:
            yield key, entry
