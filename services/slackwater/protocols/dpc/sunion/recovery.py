"""Start and recovery of an orderer (DPC section 4.5).

A crashed node of the paper restarts with empty buffers, and its upstream neighbours send what they
kept. Here the logs keep everything, so an orderer needs only its position. Its state record holds
an approximate one: the record is written periodically, and the records that the orderer appended
since would be repeated. Its own logs, read from there to their ends, show the exact position
(trace-1). Without logs of its own an orderer takes the position from its peers, or else from the
results (rule-26).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

    E0 (``start_time``) is the initial watermark of each log: a reading below it is in no window,
    even if it lies in E0's bucket. ``offsets`` are the beginnings of the logs. Ids begin at 0, so
    if retention has deleted the first records of a log, the loss is a gap (trace-15).
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


def with_added_logs(
    state: OrdererState, config: OrdererConfig, start_time: int, beginnings: Sequence[int]
) -> OrdererState | None:
    """The state in the logs of ``config``, if it was written in these or in fewer of them.

    A stream gets another log when a partition is added to its topic (rule-30). That log is read
    from its beginning: its first watermark is not below the end of a bucket that was emitted
    without it, so a reading in it is in none of these buckets. The result is None if the state
    names a log that ``config`` lacks, or lacks all logs of a stream: another definition wrote it.
    """
    known = {positions.stream: positions for positions in state.streams}
    streams = {name for log, name in zip(config.logs, config.names, strict=True) if log in known}
    if not known.keys() <= {*config.logs} or streams != {*config.names}:
        return None
    first = initial_state(config, start_time, beginnings)
    return replace(state, streams=tuple(known.get(at.stream, at) for at in first.streams))


def is_within(state: OrdererState, ends: Sequence[int]) -> bool:
    """True if no position of the state record is beyond the end of its log."""
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
    """Find the ends of the contiguous prefixes of an orderer's own logs (trace-1).

    ``stable`` and ``live`` yield (offset, record) from the state record's offsets to the end.
    Records of a zombie do not count (rule-10): a writer that continued after them would leave a
    hole for its readers. The START that supersedes the zombie may lie before the state record's
    offset. The incarnation in force is therefore taken from the first record read, which was
    written by the writer of the state record.

    An incomplete bucket is emitted again as a whole: if retention has deleted some of its readings
    meanwhile, the remaining pieces would not match (trace-15).
    """
    frontier = Position(state.frontier)
    next_id = begun_id = state.last_id + 1
    inc = writer = -1
    for offset, record in stable:
        if offset == state.stable_offset and state.last_id >= 0:
            # Written by the state record's writer: a smaller incarnation after it is a zombie's.
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

    The hole lies where a record was damaged, or where retention deleted records that no aggregator
    had read; the position of the state record may be beyond it. The results end at ``answered_to``,
    the smallest S of all parts (us of event time; None: a part has no answer). All buckets from
    there on are computed again from the sources and appended to the stable log. ``own_log`` has the
    log's records so far, up to the offset ``own_end``; the new START takes their place.
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

    ``own`` is (beginning, end) of the replica's stable log and of its live log. The ``peers`` read
    the same logs, and have positions within them (``is_within``). If the stable log holds records,
    the state is the initial one, and ``recover`` finds the position. If not, the replica starts at
    the frontier of the most advanced peer, since that peer's log has all records before it. Without
    a peer it starts at the beginnings of the sources. The exception is a stable log that is empty
    because retention has deleted its records: the replica then starts at ``answered_to``, where the
    results end.
    """
    first = initial_state(config, start_time, beginnings)
    (beginning, end), (_, live_end) = own
    if beginning < end:
        return first
    known = tuple(peers)
    if known:
        furthest = max(known, key=lambda p: p.frontier)
        first = replace(furthest, fragment=config.fragment, placement=config.placement)
    elif end and answered_to is not None:
        frontier = max(config.grid.bucket_start(answered_to), first.frontier)
        first = replace(first, frontier=frontier, live_frontier=frontier)
    return replace(first, stable_offset=end, live_offset=live_end)


def skip_unneeded(
    first: OrdererState,
    others: Iterable[OrdererState],
    *,
    start_time: int,
    extents: Mapping[str, tuple[int, int]],
) -> OrdererState:
    """Skip records of the source logs that lie before a new orderer's start (trace-42).

    A source log has the readings of days, and a new query needs those from ``start_time`` (E0, us)
    on. If neither the stable line nor the watermark of another orderer is beyond E0, its state
    record has a position before every reading that the new one needs, with the next id and the
    incarnation there. To continue from it gives the same input as to read the log from its
    beginning. Of several positions the last one is taken. ``extents`` has (beginning, end) of each
    log in which records may be skipped; a position outside is not used, nor is one in a log that
    ``first`` has read already, as a peer's state has.
    """
    known: dict[str, list[SourcePosition]] = {}
    for other in others:
        if other.frontier <= start_time:
            for of in other.streams:
                known.setdefault(of.stream, []).append(of.rebuild)

    def latest(at: StreamPositions) -> StreamPositions:
        beginning, end = extents.get(at.stream, (0, -1))
        found = [
            position
            for position in known.get(at.stream, ())
            if position.boundary <= start_time
            # Without a next id or an incarnation nothing of the log had been read.
            and position.next_id >= 0 <= position.inc
            and beginning <= position.offset <= end
        ]
        last = max(found, key=lambda position: position.offset, default=at.next)
        if at.next.inc >= 0 or last.offset <= at.next.offset:
            return at
        last = replace(last, boundary=start_time)
        return StreamPositions(at.stream, last, last, last)

    return replace(first, streams=tuple(map(latest, first.streams)))


@dataclass(slots=True)
class SoleWriter:
    """Detects another writer of the stable log from its own delivery offsets.

    A log has one writer (rule-6), so the offsets of its deliveries are contiguous. A zombie that
    receives no heartbeat of its successor finds a missing offset: at the latest that of the
    successor's START. It then ends, before its state record covers records that readers drop.
    """

    next_offset: int

    def delivered(self, offset: int) -> bool:
        """Record a delivery at ``offset``; False if another writer has written since the last."""
        alone = offset == self.next_offset
        self.next_offset = offset + 1
        return alone
