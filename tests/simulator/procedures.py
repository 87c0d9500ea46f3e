"""Procedures of sessions in virtual time: their requests, answered by the model of Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulator.process import Process

from slackwater.model.errors import SlackwaterError
from slackwater.model.merged import MergedRecord
from slackwater.model.names import Names, RootName
from slackwater.model.records import Kind, OrderedRecord
from slackwater.sessions.requests import (
    AwaitRead,
    BeginIncarnation,
    Beginnings,
    ClaimPart,
    Ends,
    FindIncarnation,
    FindReaders,
    Log,
    OpenTransactions,
    Ordered,
    OtherTurns,
    PrepareTransactions,
    Procedure,
    ReadCopies,
    ReadMerged,
    ReadOrdered,
    ReadOrdererStates,
    ReadPanes,
    ReadPart,
    ReadStates,
    Request,
    StoreState,
)

if TYPE_CHECKING:
    from tests.simulator.world import World

RETRY_US = 20_000
"""Time that a process waits for an unavailable broker."""

TURN_US = 1_000
"""Time of other sessions' turns."""

T = TypeVar("T")


def perform(
    process: Process,
    procedure: Procedure[T],
    then: Callable[[T], None],
    failed: Callable[[SlackwaterError], None] | None = None,
) -> None:
    """Run a procedure for ``process``, while it lives; ``then`` receives its value.

    ``failed`` receives its error; not all procedures may raise one. An error of ``make_start`` is
    raised inside the procedure, as by the real host.
    """

    def go_on(step: Callable[[], Request]) -> None:
        try:
            request = step()
        except StopIteration as ended:
            then(ended.value)
        except SlackwaterError as error:
            if failed is None:
                raise
            failed(error)
        else:
            ask(request)

    def answered(answer: Any) -> None:
        go_on(lambda: procedure.send(answer))

    def refused() -> None:
        go_on(lambda: procedure.throw(SlackwaterError("fenced")))

    def ask(request: Request) -> None:
        if not process.has_broker:
            process.later(RETRY_US, lambda: ask(request))
            return
        if not isinstance(request, BeginIncarnation):
            _answer(process, request, answered, refused)
            return
        try:
            start = request.make_start(
                _ordered(process.world, request.log, request.read_from, None)
            )
        except SlackwaterError as error:
            refusal = error
            go_on(lambda: procedure.throw(refusal))
        else:
            _send(process, request.log, start, answered)

    answered(None)


def _answer(
    process: Process, request: Request, then: Callable[[Any], None], refused: Callable[[], None]
) -> None:
    world = process.world
    match request:
        case Beginnings(logs):
            then({log: world.log_at(log).beginning for log in logs})
        case Ends(logs, isolation):
            committed = isolation == "read_committed"
            found = {log: world.log_at(log) for log in logs}
            then({at: log.stable_end if committed else log.end for at, log in found.items()})
        case AwaitRead(_, offset):
            process.await_read(offset, lambda: then(None))
        case ReadStates(query, _, fits):
            then(world.queries[query].newest_states(fits))
        case ReadOrdererStates(_, frontier_max):
            queries = world.queries.values()
            then([state for query in queries for state in query.orderer_states(frontier_max)])
        case FindReaders(query):
            then([reader.name for reader in world.queries[query].readers])
        case ReadPart(query, part, fits):
            of = world.queries[query]
            own = of.newest_states(fits).get(RootName(query, part).process)
            then((own, of.root_states_of_others(part)))
        case PrepareTransactions():
            then(None)
        case OpenTransactions():
            process.fence(lambda: then(None))
        case ClaimPart(state):
            process.claim(state, lambda: then(None), refused)
        case ReadCopies(query, part):
            then(world.queries[query].copies(part))
        case ReadPanes(query, part):
            then(world.queries[query].stored(part))
        case ReadMerged(log, records_max):
            merged = world.log_at(log)
            last = merged.read(max(merged.beginning, merged.end - records_max), records_max)
            then([record for _, record in last if isinstance(record, MergedRecord)])
        case OtherTurns():
            process.later(TURN_US, lambda: then(None))
        case ReadOrdered(log, start, end):
            then(_ordered(world, log, start, end))
        case FindIncarnation(log, inc):
            found_there = _ordered(world, log, inc, inc + 1)
            then(any(record.kind is Kind.START for _, record in found_there))
        case StoreState(query, state, part):
            _send(process, (Names().state(query), part), state, lambda _: then(None))


def _ordered(world: World, at: Log, start: int | None, end: int | None) -> list[Ordered]:
    log = world.log_at(at)
    start = log.beginning if start is None else max(start, log.beginning)
    records = log.read(start, (log.end if end is None else end) - start)
    return [(offset, value) for offset, value in records if isinstance(value, OrderedRecord)]


def _send(process: Process, at: Log, value: object, then: Callable[[int], None]) -> None:
    log = process.world.log_at(at)
    process.producer.send(log, value, lambda offset: process.later(0, lambda: then(offset)))
