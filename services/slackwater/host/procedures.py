"""Runs the procedures of sessions on Kafka: their requests one after the other, each in a thread.

A procedure is a generator that yields requests and receives their answers. It runs in the event
loop, because it changes its session, which belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from slackwater.codec.ordered_records import encode_ordered
from slackwater.codec.state_records import encode_state
from slackwater.host.decoding import decode, decode_ordered_record
from slackwater.model.errors import SlackwaterError
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Kind, RootState
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.runtime.logs.incarnation import append_and_wait, has_begun, start_incarnation
from slackwater.runtime.logs.transport import (
    Log,
    NoAnswerError,
    RawRecord,
    Transport,
    Writer,
    read_range,
    read_to_end,
)
from slackwater.runtime.service.others import read_other_orderers
from slackwater.runtime.service.panes import read_panes
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.state import read_copies, read_part, read_states
from slackwater.sessions.effects import CommitRecords
from slackwater.sessions.requests import (
    AtCentre,
    AwaitRead,
    BeginIncarnation,
    Beginnings,
    ClaimPart,
    Ends,
    FindDefinition,
    FindIncarnation,
    FindReaders,
    OpenTransactions,
    Ordered,
    OtherTurns,
    PrepareTransactions,
    Procedure,
    ReadCopies,
    ReadLatest,
    ReadMerged,
    ReadOrdered,
    ReadOrdererStates,
    ReadPanes,
    ReadPart,
    ReadStates,
    Request,
    StoreState,
)

T = TypeVar("T")

READ_AGAIN_S: Final = 0.001
"""Interval at which a take-over looks whether the live consumer has read to the end. It lasts for
some milliseconds, and nothing reports a position behind the last record."""


class Committer(Protocol):
    """Fences other copies of a fragment and commits its transactions."""

    async def prepare(self) -> None:
        """Connect for a later ``open``, without a fence; see ``PrepareTransactions``."""
        ...

    async def open(self) -> None:
        """Fence all other copies and prepare for commits; see ``OpenTransactions``."""
        ...

    async def commit(self, commit: Commit | CommitRecords, emitted_at: int) -> None:
        """Commit a transaction with its state record, or its position, atomically (rule-23).

        ``emitted_at`` is the wall time (us) written to its results.
        """
        ...

    async def claim(self, state: RootState) -> None:
        """Commit a state record without answers; see ``ClaimPart``."""
        ...

    async def close(self) -> None:
        """Release all resources within a bounded time; never raises."""
        ...


async def perform(
    procedure: Procedure[T],
    transport: Transport,
    writer: Callable[[], Writer],
    committer: Committer | None = None,
    read_to: Callable[[], Awaitable[Mapping[Log, int]]] | None = None,
    centre: Transport | None = None,
) -> T:
    """Run a procedure to its end and return its value.

    The error of a failed request is raised inside the procedure, which handles it or ends with it.
    Records are written through the writer that ``writer`` returns. ``read_to`` returns the
    positions of the session's live consumer. ``centre``: the Kafka that a site's fragment asks.
    """
    answer: Any = None
    error: SlackwaterError | None = None
    while True:
        try:
            request = procedure.send(answer) if error is None else procedure.throw(error)
        except StopIteration as ended:
            value: T = ended.value
            return value
        answer, error = None, None
        try:
            if isinstance(request, PrepareTransactions | OpenTransactions | ClaimPart):
                assert committer is not None, "it has no transactions"
                await _transact(request, committer)
            elif isinstance(request, OtherTurns):
                await asyncio.sleep(0)
            elif isinstance(request, AwaitRead):
                assert read_to is not None, "there is no live consumer"
                await _await_read(request, read_to)
            elif isinstance(request, AtCentre):
                assert centre is not None, "it has no centre"
                answer = await asyncio.to_thread(_answer, request.request, centre, writer)
            else:
                answer = await asyncio.to_thread(_answer, request, transport, writer)
        except SlackwaterError as failed:
            error = failed


async def _transact(
    request: PrepareTransactions | OpenTransactions | ClaimPart, committer: Committer
) -> None:
    match request:
        case PrepareTransactions():
            await committer.prepare()
        case OpenTransactions():
            await committer.open()
        case ClaimPart(state):
            await committer.claim(state)


async def _await_read(
    request: AwaitRead, read_to: Callable[[], Awaitable[Mapping[Log, int]]]
) -> None:
    try:
        async with asyncio.timeout(request.timeout_us / 1e6):
            while (await read_to()).get(request.log, -1) < request.offset:  # noqa: ASYNC110
                await asyncio.sleep(READ_AGAIN_S)
    except TimeoutError as error:
        topic, partition = request.log
        raise NoAnswerError(f"{topic}:{partition} is not read to {request.offset}") from error


def _answer(request: Request, transport: Transport, writer: Callable[[], Writer]) -> Any:
    timeout_s = request.timeout_us / 1e6
    match request:
        case Beginnings(logs):
            return transport.beginning_offsets(logs, timeout_s=timeout_s)
        case Ends(logs, isolation):
            return transport.end_offsets(logs, isolation=isolation, timeout_s=timeout_s)
        case ReadStates(query, parts, fits):
            return read_states(transport, query, parts, timeout_s=timeout_s, fits=fits)
        case ReadOrdererStates(names, frontier_max):
            return read_other_orderers(transport, names, frontier_max, timeout_s=timeout_s)
        case FindReaders(query):
            return [each.name for each in Registry(transport).readers(query, ())]
        case ReadPart(query, part, fits):
            return read_part(transport, query, part, timeout_s=timeout_s, fits=fits)
        case ReadCopies(query, part):
            return read_copies(transport, query, part, timeout_s=timeout_s)
        case ReadPanes(query, part, keys_only):
            return read_panes(transport, query, part, keys_only=keys_only, timeout_s=timeout_s)
        case ReadMerged(log, records_max):
            return _read_merged(log, records_max, transport, timeout_s)
        case FindDefinition(query):
            return Registry(transport).all_queries().get(query)
        case ReadLatest(log):
            written = read_to_end(transport, log, isolation="read_committed", timeout_s=timeout_s)
            return {raw.key: raw.value for raw in written if raw.key is not None}
        case ReadOrdered():
            return _read_ordered(request, transport, timeout_s)
        case BeginIncarnation():
            return _begin_incarnation(request, transport, writer(), timeout_s)
        case FindIncarnation(log, inc):
            return has_begun(transport, log, inc, is_start)
        case StoreState(query, state, part):
            log, key = (transport.names.state(query), part), state.fragment.encode()
            append_and_wait(writer(), log, encode_state(state), key, timeout_s=timeout_s)
            return None


def _read_ordered(request: ReadOrdered, transport: Transport, timeout_s: float) -> list[Ordered]:
    log, start, end = request.log, request.start, request.end
    if start is None:
        start = transport.beginning_offsets([log], timeout_s=timeout_s)[log]
    if end is None:
        end = transport.end_offsets([log], timeout_s=timeout_s)[log]
    found: list[Ordered] = []
    for raw in read_range(transport, log, start, end, idle_s_max=timeout_s):
        _take(found, raw)
    return found


def _read_merged(
    log: Log, records_max: int, transport: Transport, timeout_s: float
) -> list[MergedRecord]:
    begin = transport.beginning_offsets([log], timeout_s=timeout_s)[log]
    end = transport.end_offsets([log], timeout_s=timeout_s)[log]
    start = max(begin, end - records_max)
    read = read_range(transport, log, start, end, idle_s_max=timeout_s)
    found = (decode("merged", raw.log, raw.offset, raw.value) for raw in read)
    return [record for record in found if isinstance(record, MergedRecord)]


def _begin_incarnation(
    request: BeginIncarnation, transport: Transport, writer: Writer, timeout_s: float
) -> int:
    found: list[Ordered] = []
    return start_incarnation(
        transport,
        writer,
        request.log,
        lambda: encode_ordered(request.make_start(found)),
        read_from=request.read_from,
        visit=lambda raw: _take(found, raw),
        timeout_s=timeout_s,
    )


def _take(found: list[Ordered], raw: RawRecord) -> None:
    """Append the record with its offset; a record that cannot be decoded is skipped."""
    record = decode_ordered_record(raw)
    if record is not None:
        found.append((raw.offset, record))


def is_start(raw: RawRecord) -> bool:
    """Return whether the record is the START of an orderer's incarnation."""
    record = decode_ordered_record(raw)
    return record is not None and record.kind is Kind.START
