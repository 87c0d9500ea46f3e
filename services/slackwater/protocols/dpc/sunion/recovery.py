"""Start and recovery of an orderer (DPC section 4.5).

A crashed node of the paper restarts with empty buffers and its upstream neighbours send what they
kept. Here the logs keep everything, so an orderer needs only its position: its state record holds
an approximate one, and its own logs after it the exact one (trace-1). The record alone does not
suffice: it is written periodically, and records appended since would be repeated. Without own logs
the position comes from peers (rule-26), else from the results (rule-11).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slackwater.model.records import (
    Kind,
    OrderedRecord,
    OrdererState,
    Position,
    SourcePosition,
    StreamPositions,
)
from slackwater.protocols.dpc.sunion.config import OrdererConfig, Recovered


def initial_state(config: OrdererConfig, start_time: int, offsets: Sequence[int]) -> OrdererState:
    """The state of a fragment that never ran: both lines at the bucket of E0 (trace-24).

    E0 stands for the promise made so far: a reading below it is in no window, not even where its
    bucket is that of E0. Ids begin at 0, so where retention has cut a log before the first record
    was read, the loss is a gap (trace-15) and not an empty time.
    """
    start = config.grid.bucket_start(start_time)
    watermarks = {i: at for log, at in config.results.items() for i in (log, log + 1)}

    def position(log: int, offset: int) -> SourcePosition:
        if log in watermarks:
            return SourcePosition(offset, 0, -1, max(start_time, watermarks[log]))
        return SourcePosition(offset, 0 if offset else -1, -1, start_time)

    return OrdererState(
        config.fragment,
        frontier=start,
        last_id=-1,
        live_frontier=start,
        stable_offset=0,
        live_offset=0,
        streams=tuple(
            StreamPositions(log, at, at, at)
            for i, (log, offset) in enumerate(zip(config.logs, offsets, strict=True))
            for at in [position(i, offset)]
        ),
        placement=config.placement,
    )


def is_within(state: OrdererState, logs: Sequence[str], ends: Sequence[int]) -> bool:
    """True if the state is of these logs, and its positions are within them."""
    if [positions.stream for positions in state.streams] != [*logs]:
        return False
    return all(
        position.offset <= end
        for positions, end in zip(state.streams, ends, strict=True)
        for position in (positions.next, positions.rebuild, positions.live)
    )


def recover(
    state: OrdererState,
    stable: Iterable[tuple[int, OrderedRecord]],
    live: Iterable[tuple[int, OrderedRecord]],
) -> Recovered:
    """Find the end of the contiguous prefix of the own logs, from the state record on (trace-1).

    ``stable`` and ``live`` yield (offset, record) from the state record's offsets to the end.
    Records of a zombie do not count (rule-10): a writer that continued after them would leave a
    hole for its readers. The START that fences the zombie may lie before the state record's offset,
    so the first record read is one of the state's own writer.

    An incomplete bucket is emitted again as a whole: if retention has removed some of its readings
    meanwhile, the remaining pieces would not match (trace-15).
    """
    frontier = Position(state.frontier)
    next_id = begun_id = state.last_id + 1
    inc = writer = -1
    for offset, record in stable:
        if offset == state.stable_offset and state.last_id >= 0:
            # The last record of the state's writer: later ones of smaller incarnations are dropped.
            inc = writer = offset if record.kind is Kind.START else record.inc
        if record.kind is Kind.START:
            inc = offset
            if record.frontier is not None:
                frontier, next_id = record.frontier, record.first_id
                begun_id = next_id
            continue
        if record.kind is Kind.VOID or record.inc < inc:
            continue
        if Position(record.bucket_start, record.piece) != frontier:
            continue
        if record.piece == 0:
            begun_id = next_id
        frontier = after(record)
        next_id = max(next_id, record.last_id + 1)
    live_frontier = state.live_frontier
    for _offset, record in live:
        if record.kind is Kind.START:
            writer = max(writer, record.inc)
        elif record.inc < writer or record.kind is Kind.VOID:
            continue
        elif record.piece == record.pieces - 1:
            live_frontier = max(live_frontier, record.bucket_end)
    if frontier.piece:
        frontier, next_id = Position(frontier.bucket_start), begun_id
    return Recovered(frontier, next_id, max(live_frontier, frontier.bucket_start))


def after(record: OrderedRecord) -> Position:
    """Return the position after a record: the next piece, or the next bucket (trace-32)."""
    if record.kind is Kind.INSERTION and record.piece + 1 < record.pieces:
        return Position(record.bucket_start, record.piece + 1)
    return Position(record.bucket_end)


def replay_from(
    config: OrdererConfig,
    state: OrdererState,
    beginnings: Sequence[int],
    *,
    start_time: int,
    answered_to: int | None,
    own_log: Iterable[OrderedRecord],
    own_end: int,
) -> OrdererState:
    """The state to replay from for a replica whose log has a hole (rule-11).

    Its own state record may lie beyond the hole, where a record was damaged or retention took what
    no aggregator had read. All records still needed begin where the results end: at
    ``answered_to``, the smallest S of the root's parts (None: no part has answered). From there on
    they are computed again from the sources and appended to ``own_log``, whose old records no
    longer count.
    """
    first = initial_state(config, start_time, beginnings)
    wanted = config.grid.bucket_start(start_time if answered_to is None else answered_to)
    frontier = min(max(wanted, first.frontier), state.frontier)
    last_id = max((r.last_id for r in own_log if r.bucket_end <= frontier), default=-1)
    return replace(
        first,
        frontier=frontier,
        last_id=last_id,
        live_frontier=state.live_frontier,
        stable_offset=own_end,
        live_offset=state.live_offset,
        streams=tuple(
            replace(again, live=was.live)
            for again, was in zip(first.streams, state.streams, strict=True)
        ),
    )


def first_state(
    config: OrdererConfig,
    beginnings: Sequence[int],
    *,
    start_time: int,
    own: Sequence[tuple[int, int]],
    peers: Iterable[OrdererState],
    answered_to: int | None,
) -> OrdererState:
    """The initial state of a replica without a state record (rule-26).

    At the frontier of the peer that has come furthest: what lies before is in that peer's log. Else
    at the sources' beginnings; but a stable log that has an end and no records is not new, and goes
    on where the results end. ``own`` is (beginning, end) of its stable and of its live log; what
    they hold, ``recover`` finds.
    """
    first = initial_state(config, start_time, beginnings)
    (beginning, end), (_, live_end) = own
    if beginning < end:
        return first
    logs = list(config.logs)
    known = [p for p in peers if [s.stream for s in p.streams] == logs]
    if known:
        furthest = max(known, key=lambda p: p.frontier)
        first = replace(furthest, fragment=config.fragment, placement=config.placement)
    elif end and answered_to is not None:
        frontier = max(config.grid.bucket_start(answered_to), first.frontier)
        first = replace(first, frontier=frontier, live_frontier=frontier)
    return replace(first, stable_offset=end, live_offset=live_end)


@dataclass(slots=True)
class SoleWriter:
    """Detects another writer of the stable log from its own delivery offsets.

    A log has one writer (rule-6), so the offsets of its deliveries follow each other. A zombie that
    does not see its successor in the heartbeats sees a step here, at the latest where the
    successor's START lies, and ends before it has written a state record that counts what no
    reader has counted.
    """

    next_offset: int

    def delivered(self, offset: int) -> bool:
        """Record a delivery at ``offset``; False if another writer wrote before it."""
        alone = offset == self.next_offset
        self.next_offset = offset + 1
        return alone
