"""Checks of an operation before it is recorded. Pure.

A refused operation changes nothing, and the reason names a remedy. Carrying out an admitted
operation may still fail (a full disk, a missing topic); it is then retried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from slackwater.control.applied import AppliedQuery, from_text
from slackwater.control.control_object import (
    AcknowledgeView,
    ApplyQuery,
    DeleteQuery,
    MoveFragment,
    Operation,
    PauseQuery,
    ResumeQuery,
)
from slackwater.control.control_state import OF_NO_QUERY, ControlState, Wanted
from slackwater.control.generations import is_changing, why_no_change
from slackwater.control.recorded import (
    applied_queries,
    deployment_of,
    fragment_specs,
    process_of,
    why_unreadable,
)
from slackwater.deployment.deadlines import brought_forward
from slackwater.deployment.fragments import with_query
from slackwater.deployment.sharing import is_same, why_not_joined, without_sharing
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.names import base_of, generation_of


@dataclass(frozen=True, slots=True)
class RunningQueries:
    """The queries that run, or are about to run, on this machine or on all nodes.

    Attributes:
        deployment: its queries, paused ones too, and their streams.
        deadlines_us: the first deadline with which each query is registered, us after normal time.
        deleted: the deleted queries; None if only the name is known. A query of such a name
            continues the results of the deleted one, as its next generation.
        paused: names of its paused queries.
    """

    deployment: Deployment
    deadlines_us: Mapping[str, int]
    deleted: Mapping[str, QuerySpec | None]
    paused: Collection[str] = ()


def why_refused(operation: Operation, known: RunningQueries) -> str:
    """Return why an operation is refused; empty if it is admitted."""
    match operation:
        case ApplyQuery(name, text):
            try:
                applied = from_text(name, text)
            except ValueError as error:
                return f"query {name}: the definition cannot be read: {error}"
            return next(_against(applied, known), "")
        case DeleteQuery(name):
            return _unknown(name, known) or next(_read_by(name, known.deployment), "")
        case PauseQuery(name) | ResumeQuery(name):
            return _unknown(name, known)
        case AcknowledgeView():
            return ""
        case _:
            return "this controller is part of `slackwater up`, which has one machine"


def why_refused_on_nodes(operation: Operation, state: ControlState) -> str:
    """Return why controllers of nodes refuse an operation; empty if they admit it.

    The replicated object itself refuses operations on unknown queries and nodes.
    """
    if not isinstance(operation, ApplyQuery | DeleteQuery | PauseQuery | ResumeQuery):
        return ""
    if isinstance(operation, ApplyQuery) and (why := why_unreadable(operation)):
        return f"query {operation.query}: the definition cannot be read: {why}"
    applied = applied_queries(state)
    deployment = deployment_of(applied)
    if isinstance(operation, ApplyQuery) and not applied:
        first = from_text(operation.query, operation.definition)
        deployment = Deployment(first.deployment.clock, {}, {}, first.deployment.names)
    elif operation.query not in deployment.queries and not isinstance(operation, ApplyQuery):
        return ""
    known = RunningQueries(
        deployment,
        {
            # A client's file may lack queries that read a changed one.
            name: min(query.deployment.deadline_us(name), deployment.deadline_us(name))
            for name, query in applied.items()
        },
        dict.fromkeys(state.queries_wanted(Wanted.DELETED)),
        paused=state.queries_wanted(Wanted.PAUSED),
    )
    return why_refused(operation, known)


def why_refused_of_client(operation: Operation, state: ControlState) -> str:
    """As ``why_refused_on_nodes``, for requests of clients: also what nodes could never do."""
    match operation:
        case ApplyQuery(name, text) if not why_unreadable(operation):
            declared = from_text(name, text).deployment
            read = [declared.streams[s] for s in declared.source_streams(name)]
            files = [
                s.name
                for s in read
                if s.topic is None and s.mqtt is None and s.http is None and not s.elsewhere
            ]
            if files:
                return (
                    f"query {name} reads {', '.join(files)} from files, which `slackwater ingest`"
                    " can send to `slackwater up` only: declare topic, mqtt or http"
                )
        case MoveFragment(query, fragment, node):
            there = {s.fragment for s in fragment_specs(state) if s.query == query}
            is_known = query in (*OF_NO_QUERY, *state.live_queries())
            if (there or is_known) and fragment not in there:
                names = ", ".join(sorted(process_of(query, each) for each in there)) or "none"
                return f"there is no {process_of(query, fragment)}; there are: {names}"
            entry = state.nodes.get(node)
            if entry is not None and entry.draining and not entry.left:
                return f"node {node} is draining, and takes no fragments until it is started again"
    return why_refused_on_nodes(operation, state)


def _unknown(name: str, known: RunningQueries) -> str:
    if name in known.deployment.queries:
        return ""
    there = ", ".join(sorted(known.deployment.queries)) or "none"
    return f"there is no query {name}; there are: {there}"


def _read_by(name: str, deployment: Deployment) -> Iterator[str]:
    """Readers of a query's results go on with another generation of it, if there is one."""
    query, queries = base_of(name), deployment.queries
    readers = [each.name for each in queries.values() if query in each.sources]
    if readers and not is_changing(query, queries):
        yield f"query {name} is read by {', '.join(sorted(readers))}: delete that first"


def _against(applied: AppliedQuery, known: RunningQueries) -> Iterator[str]:
    """Yield the reasons against a query."""
    name, added, running = applied.query, applied.deployment, known.deployment
    spec = added.queries[name]
    if name in running.queries:
        if without_sharing(running.queries[name]) != without_sharing(spec):
            yield (
                f"query {name} runs with another definition; another client may have changed it:"
                " see `slackwater query show`, and apply the file again"
            )
        return
    if not spec.has_children and (why := why_not_joined(spec, added, running)):
        yield (
            f"query {name} cannot read the children of query {spec.child_query}: {why}; another"
            " client may have changed queries: apply the file again"
        )
    if generation_of(name):
        yield from why_no_change(spec, added, running, known.paused, known.deleted)
    if name in known.deleted:
        yield (
            f"query {name} has been deleted, and its topics keep its results: its next generation"
            " can continue them, or give the new query another name"
        )
    if added.clock != running.clock:
        yield f"query {name} needs clock: {added.clock}, and this deployment has {running.clock}"
    if added.names != running.names:
        yield f"query {name} is of a deployment with another prefix"
    for source in spec.sources:
        if source in added.streams:
            if running.streams.get(source, added.streams[source]) != added.streams[source]:
                yield f"query {name}: stream {source} runs with another definition"
        elif (read := running.query_read(source)) is None:
            yield f"query {name} reads query {source}, which does not run: apply that first"
        elif is_changing(source, running.queries):
            yield (
                f"query {name} reads query {source}, which is being changed: wait until its new"
                " generation answers, and apply it again"
            )
        elif (meant := added.query_read(source)) is None or not is_same(read, meant):
            yield f"query {name} reads query {source}, which runs with another definition"
    yield from (f"{reason}, or leave it out" for reason in _brought_forward(added, name, known))


def _brought_forward(added: Deployment, name: str, known: RunningQueries) -> Iterator[str]:
    try:
        both = with_query(known.deployment, added, name)
        yield from brought_forward(both, known.deadlines_us)
    except KeyError:
        return  # the query reads one that is not there, which has been reported
