"""Commands that change queries at run time: requests to a controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from slackwater.cli.common import emit, warn
from slackwater.cli.controls import Reach
from slackwater.cli.show import describe, latest_of, registered, unknown_query
from slackwater.codec.results import format_time
from slackwater.control.applied import AppliedQuery, Start, from_text, to_text
from slackwater.control.control_object import (
    ApplyQuery,
    DeleteQuery,
    Operation,
    ResumeQuery,
)
from slackwater.control.control_state import ControlState, QueryEntry, Wanted
from slackwater.control.generations import as_generation
from slackwater.control.recorded import applied_queries, deployment_of
from slackwater.controller.client import ControlClient
from slackwater.controller.links import LinkError
from slackwater.deployment.fragments import seen_of
from slackwater.deployment.parse import check_deployment
from slackwater.deployment.sharing import is_same, share_applied
from slackwater.machine.starting import StartLines
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import CheckFailed, EnvironmentProblem, UsageError
from slackwater.model.names import (
    PROXY,
    Names,
    base_of,
    earlier_generations,
    generation_of,
    kind_of,
    latest_generation,
    some_of,
)
from slackwater.primitives.windows import Grid
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.settings import settings

READY_S_MAX = 60.0
_LOOK_S = 0.2


def parse_start(text: str) -> Start:
    """Parse the start of a query: ``now``, ``beginning``, or a time, in UTC without an offset."""
    if text == "now":
        return "now"
    if text == "beginning":
        return "beginning"
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--from {text}: choose now, beginning or a time such as 2026-05-01T12:00:00Z"
        ) from None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000)


def queries_of(
    file: Path, only: Sequence[str], site: str | None = None
) -> tuple[Deployment, list[str]]:
    """Return the deployment of a file, and the names of the queries to apply in their order."""
    micro_batch = settings().aggregator_mode == "micro-batch"
    checked = check_deployment(file, micro_batch=micro_batch, site=site)
    for warning in checked.warnings:
        warn(f"warning: {warning}")
    deployment = checked.deployment
    if unknown := [name for name in only if name not in deployment.queries]:
        there = ", ".join(deployment.queries)
        raise UsageError(f"{file} has no query {unknown[0]}, only {there}")
    return deployment, [q.name for q in deployment.in_order() if not only or q.name in only]


def apply_queries(
    reach: Reach,
    deployment: Deployment,
    names: Sequence[str],
    start: Start,
    find: Callable[[], Registry] | None = None,
) -> list[str]:
    """Request the queries that do not run, or whose definition differs; return their names.

    A query that runs with another definition is changed: the name is that of the new generation.
    So is one that has not taken in partitions of a topic with ``partitions: fixed``; these are
    found in the registry that ``find`` returns, if it is given.
    """
    return asyncio.run(_apply(reach, deployment, names, start, find))


async def _apply(
    reach: Reach,
    deployment: Deployment,
    names: Sequence[str],
    start: Start,
    find: Callable[[], Registry] | None,
) -> list[str]:
    accepted = []
    known = None if find is None else _TakenIn(find)
    try:
        async with reach.connect("query apply") as client:
            recorded = (await client.state()).state
            starts = _starts(deployment, names, recorded, start)
            running = _running(recorded) if start == "now" else {}
            begun = {n: at for n, q in running.items() if isinstance(at := q.start, int)}
            deployment, new = share_applied(deployment, starts, deployment_of(running), begun)
            for name in _in_order(names, new):
                latest = latest_generation(name, recorded.live_queries())
                if latest is not None and _runs(recorded, deployment, name, latest):
                    if why := _not_taken_in(deployment.queries[name], latest, deployment, known):
                        emit(f"query {name} {why}")
                        how = "lacks partitions, so it is changed"
                        accepted.append(
                            await _change(client, recorded, deployment, name, start, how)
                        )
                        continue
                    is_paused = _is_paused(recorded.queries[latest])
                    emit(f"query {name} {_paused(name) if is_paused else 'runs already'}")
                    continue
                if latest is not None or latest_generation(name, recorded.queries) is not None:
                    accepted.append(await _change(client, recorded, deployment, name, start))
                    continue
                at_us = starts[name]
                begins: Start = "beginning" if at_us is None else at_us
                text = to_text(AppliedQuery(name, deployment, begins))
                try:
                    await _request(client, ApplyQuery(name, text))
                except UsageError:
                    again = await _continued(client, recorded, deployment, name, start)
                    if again is None:
                        raise
                    accepted.append(again)
                    continue
                emit(f"query {name} is accepted")
                accepted.append(name)
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None
    return accepted


async def _continued(
    client: ControlClient, recorded: ControlState, deployment: Deployment, name: str, start: Start
) -> str | None:
    """Apply a refused query as the next generation of a deleted one; None if there is none.

    The record forgets deleted queries, the registry does not. Only a deleted query of this name has
    results that a next generation can continue, so nothing else is admitted by the second request.
    """
    if not recorded.generation_unused:
        return None  # nothing has been forgotten
    try:
        return await _change(client, recorded, deployment, name, start)
    except UsageError:
        return None


async def _change(
    client: ControlClient,
    recorded: ControlState,
    deployment: Deployment,
    name: str,
    start: Start,
    how_it_runs: str = "runs with another definition, so it is changed",
) -> str:
    """Apply the next generation of a query that runs otherwise than declared, or was deleted."""
    runs = latest_generation(name, recorded.live_queries()) is not None
    how = how_it_runs if runs else "was deleted"
    if start != "now":
        raise UsageError(
            f"query {name} {how}, and it continues its results: --from is for new queries"
        )
    changed, generation = as_generation(deployment, name, recorded)
    await _request(client, ApplyQuery(generation, to_text(AppliedQuery(generation, changed))))
    number = generation_of(generation)
    if runs:
        emit(
            f"query {name} is changed: generation {number} is accepted; it replaces the running one"
            " at the first window without a stable answer, as soon as it is ready"
        )
    else:
        emit(
            f"query {name} was deleted: generation {number} is accepted; it continues the results"
            " at the first window without a stable answer"
        )
    return generation


def _starts(
    deployment: Deployment, names: Sequence[str], recorded: ControlState, start: Start
) -> dict[str, int | None]:
    """Return the starts of the new queries among ``names``, us; None for the first reading.

    The next window is one time, so that all nodes register the query with the same one. With
    ``clock: data`` now is not known here: the query begins with what the source logs hold.
    """
    new = [name for name in names if latest_generation(name, recorded.queries) is None]
    if start != "now":
        return dict.fromkeys(new, None if start == "beginning" else start)
    now_us = None if deployment.clock == "data" else SystemClock().now_us()
    return {name: next_window(deployment.queries[name], now_us) for name in new}


def next_window(query: QuerySpec, now_us: int | None) -> int | None:
    """Return the start (us) of a query that begins at its next window; None if now is not known."""
    if now_us is None:
        return None
    grid = Grid(query.bucket_us(), query.units(query.bucket_us()))
    return grid.window_end(grid.last_window_holding(now_us))


def _running(recorded: ControlState) -> dict[str, AppliedQuery]:
    """The queries that run, whose children new ones may read."""
    running = recorded.queries_wanted(Wanted.RUNNING)
    return {name: each for name, each in applied_queries(recorded).items() if name in running}


def _in_order(names: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the names with the new ones in their order, each after what it reads."""
    left, order = list(new), []
    for name in names:
        if name not in new:
            order.append(name)
            continue
        while name in left:
            order.append(left.pop(0))
    return order


def _runs(recorded: ControlState, deployment: Deployment, name: str, latest: str) -> bool:
    try:
        applied = from_text(latest, recorded.queries[latest].definition)
    except ValueError:
        return False
    return is_same(applied.deployment.queries[latest], deployment.queries[name])


class _TakenIn:
    """What the registry tells of partitions: read if a query needs it, once for all queries."""

    def __init__(self, find: Callable[[], Registry]) -> None:
        self._registry = cache(find)
        self.definitions = cache(lambda: self._registry().all_queries())
        self.logs_of = cache(lambda stream: self._registry().partitions(stream) or 0)


def _not_taken_in(
    query: QuerySpec, latest: str, deployment: Deployment, known: _TakenIn | None
) -> str:
    """Return which partitions of ``partitions: fixed`` a query lacks; empty if none (rule-30).

    ``latest`` is its generation that runs. The partitions are those that have a source log.
    """
    streams = [deployment.streams[name] for name in query.sources if name in deployment.streams]
    fixed = [s.name for s in streams if s.topic is not None and s.topic.partitions == "fixed"]
    if not fixed:
        return ""
    if known is None:
        warn(
            f"query {query.name} reads {', '.join(fixed)} with `partitions: fixed`: give"
            " --bootstrap to take in added partitions"
        )
        return ""
    queries = known.definitions()
    of = queries.get(latest)
    taken_in = {} if of is None else queries.get(of.spec.child_query, of).partitions
    lacking = [
        f"reads {count} of the {there} partitions of {stream}"
        for stream, count in taken_in.items()
        if (there := known.logs_of(stream)) > count
    ]
    return " and ".join(lacking)


def print_recorded(reach: Reach) -> None:
    """Run ``query list --controllers``: the queries in the record that controllers keep.

    Raises:
        EnvironmentProblem: no controller answers.
    """
    live = _recorded(reach, "query list")
    if not live:
        emit("no query is registered")
    for name, entry in live.items():
        spec = from_text(name, entry.definition).deployment.queries[name]
        emit(describe(name, spec, generation_of(name), is_paused=_is_paused(entry)))


def print_recorded_query(reach: Reach, name: str) -> None:
    """Run ``query show --controllers``: a query in the record that controllers keep.

    ``start`` is what it was applied with; its start time and width are in the registry only.

    Raises:
        EnvironmentProblem: no controller answers.
        UsageError: there is no query of this name.
    """
    live = _recorded(reach, "query show")
    applied = {each: from_text(each, entry.definition) for each, entry in live.items()}
    found = latest_of(name, applied)
    if found is None:
        raise unknown_query(name, applied)
    entry = live[found.query]
    values = {
        "name": found.query,
        "generation": generation_of(found.query),
        "start": found.start,
        "spec": found.deployment.queries[found.query].to_json(),
        "deployment": json.loads(entry.definition)["deployment"],
    }
    if _is_paused(entry):
        values["state"] = "paused"
    emit(json.dumps(values, indent=2))


def _paused(name: str) -> str:
    return f"is paused: `slackwater query resume {name}` continues it"


def _is_paused(entry: QueryEntry) -> bool:
    return entry.wanted == Wanted.PAUSED.value


def _recorded(reach: Reach, command: str) -> dict[str, QueryEntry]:
    """Return the queries in the record that are not deleted."""
    state = recorded_state(reach, command)
    return {name: state.queries[name] for name in state.live_queries()}


def recorded_state(reach: Reach, command: str) -> ControlState:
    """Return the record that controllers keep; ``command`` is the name of the connection.

    Raises:
        EnvironmentProblem: no controller answers.
    """
    return asyncio.run(_state(reach, command))


async def _state(reach: Reach, command: str) -> ControlState:
    try:
        async with reach.connect(command) as client:
            return (await client.state()).state
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None


def request_each(reach: Reach, make: Callable[[str], Operation], query: str) -> None:
    """Request an operation on all generations of a query; during a change there are two.

    The latest generation is requested first: it would replace an earlier one that has stopped.
    With ``ResumeQuery`` the order is reversed.

    Raises:
        UsageError: the operation is refused.
        EnvironmentProblem: no controller answers.
    """
    asyncio.run(_request_each(reach, make, query))


async def _request_each(reach: Reach, make: Callable[[str], Operation], query: str) -> None:
    try:
        async with reach.connect("query") as client:
            recorded = (await client.state()).state
            live = recorded.live_queries()
            named = [name for name in live if base_of(name) == query]
            if make is DeleteQuery and len(named) > 1 and (readers := _readers(recorded, query)):
                # Deleting the last generation would cancel the change, and the query would run on.
                raise UsageError(
                    f"query {query} is read by {', '.join(readers)}: delete that first, or cancel"
                    f" the change with `slackwater query delete {max(named, key=generation_of)}`"
                )
            if query in live and generation_of(query) and not earlier_generations(query, live):
                raise UsageError(
                    f"{query} has replaced the earlier generation: name the query,"
                    f" {base_of(query)}, to change its state"
                )
            if make is DeleteQuery and (earlier := earlier_generations(query, live)):
                # A change is cancelled. If it is complete when the request arrives, nothing is.
                await _request(client, DeleteQuery(query, beside=earlier[0]))
                return
            last_first = make is not ResumeQuery
            for name in sorted(named, key=generation_of, reverse=last_first) or [query]:
                try:
                    await _request(client, make(name))
                except UsageError:
                    # A change may have been completed since the record was read.
                    live = (await client.state()).state.live_queries()
                    if len(named) < 2 or name in live:
                        raise
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None


def _readers(recorded: ControlState, query: str) -> list[str]:
    """The recorded queries that read a query's results."""
    found = []
    for name in recorded.live_queries():
        with suppress(ValueError):  # it cannot be read by this version
            applied = from_text(name, recorded.queries[name].definition)
            if query in applied.deployment.queries[name].sources:
                found.append(name)
    return found


def request(reach: Reach, operation: Operation) -> None:
    """Request one operation of a controller.

    Raises:
        UsageError: the operation is refused.
        EnvironmentProblem: no controller answers.
    """
    asyncio.run(_request_alone(reach, operation))


async def _request_alone(reach: Reach, operation: Operation) -> None:
    try:
        async with reach.connect("query") as client:
            await _request(client, operation)
    except LinkError as error:
        raise EnvironmentProblem(f"{error}: {reach.advice}") from None


async def _request(client: ControlClient, operation: Operation) -> None:
    response = (await client.request(operation)).response
    if response.refusal:
        there = f"; there are: {', '.join(response.known)}" if response.known else ""
        raise UsageError(f"{response.refusal}{there}")


def wait_ready(cluster: Cluster, topics: Names, names: Sequence[str]) -> None:
    """Wait until these queries run, and print the start of their event time.

    Raises:
        CheckFailed: a query is not ready within ``READY_S_MAX``.
    """
    listener = HeartbeatListener(KafkaTransport(cluster, topics)).start()
    found: dict[str, QueryDefinition] = {}
    ready: set[str] = set()
    clock = SystemClock()
    lines = StartLines(clock.now_us() / 1e6)

    def missing() -> list[str]:
        now_registered = registered(cluster, topics)
        found.update({n: q for n, q in now_registered.items() if n in names})
        specs = {name: query.spec for name, query in found.items()}
        expected = dict.fromkeys(seen_of(specs, listener.all()).values())
        ready.update(name for name in expected if listener.ready(name))
        fragments = [name for name in expected if kind_of(name) != PROXY]
        lacking = [f"query {name} (not registered)" for name in names if name not in found]
        lacking += [name for name in fragments if name not in ready]
        if not lacking and any(earlier_generations(name, now_registered) for name in names):
            lacking.append("an earlier generation")
        return lacking

    try:
        for _ in range(int(READY_S_MAX / _LOOK_S)):
            if not (lacking := missing()):
                break
            for line in lines.waiting(some_of(lacking), clock.now_us() / 1e6):
                emit(line)
            listener.wait_for(lambda _view: False, _LOOK_S)
        else:
            raise CheckFailed(
                f"not ready after {READY_S_MAX:g} s: {some_of(lacking)}: `slackwater status`"
                " shows the reasons"
            )
    finally:
        listener.stop()
    for name in names:
        if generation_of(name):
            emit(f"query {base_of(name)} runs as generation {generation_of(name)}")
            continue
        emit(f"query {name} runs; its event time starts at {format_time(found[name].e0_us)}")
