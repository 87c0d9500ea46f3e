"""The orderer: SUnion, its operators and SOutput over the source logs of one child.

DPC section 4.2: an SUnion sorts the tuples of its input streams into *buckets* of event time. A
bucket is stable when every stream's boundary has passed its end; its content is then a pure
function of the logs, so that all replicas emit the same. A bucket that is not stable at its
deadline is emitted TENTATIVE from what is there (section 4.3).

The core has the two lines of ``line.py``. Each has a cursor in every source log. The stable line's
output goes to the replica's stable log, which covers event time contiguously and once; what the
live line emits while the lines are apart goes to the live log (rule 8). So an orderer's logs need
neither UNDO nor REC_DONE: those are written at the root, where a consumer can see them (R3).

No clock, no Kafka: ``receive`` and ``catch_up`` take records, ``step`` takes the time and returns
effects, to be carried out in their order. What surrounds it in a process, its start, its state
records and its logs, is ``slackwater.sessions.orderer``; whoever runs that polls the input before
each step (R11), and steps again at ``wake_at``, or at once while ``busy``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slackwater.model.names import UNPREFIXED, Names
from slackwater.model.records import (
    Gap,
    Hole,
    Kind,
    OrderedRecord,
    OrdererState,
    Position,
    ResultBatch,
    SourceColumns,
    SourcePosition,
    SourceRecord,
    StreamPositions,
)
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.chain import (
    ResultCursor,
    Unread,
    live_columns,
    live_gaps,
    live_missing,
    passed,
)
from slackwater.protocols.dpc.cursor import SourceCursor
from slackwater.protocols.dpc.downstream import Downstream, near_buckets_default
from slackwater.protocols.dpc.ends import step_us_max
from slackwater.protocols.dpc.inputs import InputLog, Inputs, ProbeEnds
from slackwater.protocols.dpc.line import (
    LINES,
    PROCESS,
    Answer,
    Line,
    LineName,
    Policy,
    ReadToEnd,
    Schedule,
    Wait,
)
from slackwater.protocols.dpc.log_cursor import Cursor, LiveCursor
from slackwater.protocols.dpc.operators import Operators
from slackwater.protocols.dpc.staggering import Stagger, lease_us_default
from slackwater.protocols.dpc.states import LineState


@dataclass(frozen=True, slots=True)
class Emit:
    """Append ``record`` to the stable or the live log, after all that was appended before."""

    line: LineName
    record: OrderedRecord


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write the state record soon: the line has parked (rule 5)."""


Effect = Emit | ProbeEnds[int] | SaveState


@dataclass(frozen=True, slots=True)
class OrdererConfig:
    """What an orderer is told at its start.

    ``logs`` names each log it reads (``sw.source.<log>``), ``names`` the stream or query of the
    deployment file that ``missing`` shall name. A part of a query is two logs, the stable and then
    the tentative topic; ``results`` has the number of the first, and what is promised of the part
    before its first record: no row below that time. The bounds are rule 12's H and the size of a
    piece (R32).
    """

    fragment: str
    child: int
    replica: int
    logs: tuple[str, ...]
    names: tuple[str, ...]
    grid: Grid
    schedule: Schedule
    ahead_buckets_max: int = 600
    ahead_bytes_max: int = 256 << 20
    parked_lookahead_buckets: int = 16
    backlog_records_max: int = 1000
    buckets_per_step_max: int = 8
    seek_period_us: int = 100_000
    policy: Policy = PROCESS
    replicas: int = 1
    """Of the child: they take turns at catching up (``staggering.py``)."""
    turn_lease_us: int = lease_us_default
    near_buckets_max: int = near_buckets_default
    """So far behind the stable line the roots may be when the lines join (``downstream.py``)."""
    disorders_us: tuple[int, ...] = ()
    """The ``disorder`` of each log's stream, how far a skipped reading may lie ahead; (): none."""
    lateness: Callable[[int], int] = field(default=lambda _e: 0)
    """How far apart the promises of healthy inputs may be (rule 15): so much more is held of those
    that are ahead. A cursor that had to let go of it would never be attached, nor the lines one."""
    in_time_us: int = 0
    """Event time that goes by until a deadline: so late an input is still healthy (rule 14)."""
    results: Mapping[int, int] = field(default_factory=dict)
    backlog_rows_max: int = 100_000
    """In a result topic each row is a record, and a window may have many."""
    topics: Names = UNPREFIXED
    """What the logs are called in which holes are told."""

    def apart_us(self, e: int) -> int:
        """How far inputs may be apart at event time e that all are in time."""
        return self.lateness(e) + self.in_time_us

    @property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The logs of each input, in order: one of a stream, two of a query's part."""
        behind = {log + 1 for log in self.results}
        return tuple(
            (i, i + 1) if i in self.results else (i,)
            for i in range(len(self.logs))
            if i not in behind
        )


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an orderer's own logs say of it (rule 25): the end of their contiguous prefixes."""

    frontier: Position
    next_id: int
    live_frontier: int


@dataclass(slots=True)
class _Grid:
    """The grid as the Line's units: buckets touch, so each begins where the one before ends."""

    grid: Grid

    def end(self, start: int) -> int:
        return self.grid.next_cut(start)

    def following(self, start: int) -> int:
        return self.grid.next_cut(start)

    def news_from(self, start: int) -> int:
        return start


@dataclass(slots=True)
class _Counters:
    insertions: int = 0
    tentative: int = 0
    readings: int = 0
    forks: int = 0
    skipped: int = 0


class OrdererCore:
    """One replica of one child's orderer.

    Built from a state record and what the own logs add to it, always: a first start is the
    recovery of ``initial_state``.

    Args:
        config: what it is told.
        operators: Filter and Map, and how a bucket is packed.
        state: the state record.
        recovered: where the own logs end.
        inc: offset of this writer's START in its stable log.
        mute_until: per stream, the end of its log seen at START; until the live line has read all
            of them nothing is sent (R6).
    """

    def __init__(
        self,
        config: OrdererConfig,
        operators: Operators,
        state: OrdererState,
        recovered: Recovered,
        *,
        inc: int,
        mute_until: Mapping[int, int],
    ) -> None:
        self._config = config
        self._operators = operators
        self._inc = inc
        self._next_id = recovered.next_id
        start = recovered.frontier.bucket_start
        self.line = Line(
            len(config.inputs),
            _Grid(config.grid),
            config.schedule,
            start,
            recovered.live_frontier,
            config.policy,
        )
        self._lookback_us = operators.lookback_us
        apart = recovered.live_frontier > start
        self._stable: list[Cursor] = []
        self._live: list[LiveCursor] = []
        for log, positions in enumerate(state.streams):
            self._open(log, positions.rebuild, positions.live if apart else positions.rebuild)
        cursors = zip(self._live, self._stable, strict=True)
        self._inputs: Inputs[int, Cursor] = Inputs(
            {i: InputLog(live, of, self._backlog_max(i)) for i, (live, of) in enumerate(cursors)},
            config.inputs,
            mute_until,
        )
        self.stagger = Stagger(config.replica, config.replicas, config.turn_lease_us)
        near_us = config.near_buckets_max * config.grid.w_us
        self.downstream = Downstream(near_us, config.turn_lease_us)
        self._held_back = False
        self._stepped_at: int | None = None
        self._seek_asked_at = -(2**62)
        self.busy = False
        self.wake_at: int | None = None
        self.counters = _Counters()
        self._pass_all()

    def _open(self, log: int, stable: SourcePosition, live: SourcePosition) -> None:
        """The two lines' cursors in one log."""
        config = self._config
        name, disorder_us = (
            config.names[log],
            config.disorders_us[log] if config.disorders_us else 0,
        )
        if log in config.results:
            self._stable.append(ResultCursor(stable, name, strict=True))
            self._live.append(ResultCursor(live, name, strict=False))
        elif log - 1 in config.results:
            self._stable.append(Unread())
            self._live.append(ResultCursor(live, name, strict=False))
        else:
            bounds = {"disorder_us": disorder_us, "lookback_us": self._lookback_us}
            self._stable.append(SourceCursor(stable, strict=True, **bounds))
            self._live.append(SourceCursor(live, strict=False, **bounds))

    # What comes in.

    def begin_at(self, beginnings: Sequence[int]) -> None:
        """Before anything is read: retention may have been there first (rule 28)."""
        self._inputs.begin_at(dict(enumerate(beginnings)))

    def live_at(self, stream: int, offset: int) -> None:
        """The live consumer reads the log for others already: its next record is at ``offset``."""
        self._inputs.live_at(stream, offset)

    def needs(self, stream: int, offset: int) -> bool:
        """Would a record of the live consumer at ``offset`` be looked at? Else need not be read."""
        return self._inputs.needs(stream, offset)

    def receive(self, stream: int, offset: int, record: SourceRecord) -> None:
        """A record from the live consumer: it feeds the attached cursors (rule 12)."""
        for _, cursor in self._inputs.receive(stream, offset):
            cursor.offer(offset, record)
        self._bound(stream)

    def catch_up(self, line: LineName, stream: int, offset: int, record: SourceRecord) -> None:
        """A record from the catch-up reader of one line: it feeds that line's parked cursor."""
        cursor = self._inputs.replaying(line, stream, offset)
        if cursor is not None:
            cursor.offer(offset, record)
            self._inputs.attach(line, stream)

    # What comes in from result topics: offsets have holes, where markers of transactions lie.

    def receive_results(self, stream: int, batch: ResultBatch) -> None:
        """A window from the live consumer: it feeds the attached cursors (rule 12)."""
        for _, cursor in self._inputs.receive_batch(stream, batch.offset, batch.next_offset):
            cursor.offer(batch.offset, batch)
        self._bound(stream)

    def catch_up_results(self, line: LineName, stream: int, batch: ResultBatch) -> None:
        """A window from the catch-up reader of one line, which reads in order from its cursor."""
        cursor = self._cursors(line)[stream]
        if not cursor.attached and batch.next_offset > cursor.offset:
            cursor.offer(batch.offset, batch)
            self._inputs.attach(line, stream)

    def read_to(self, stream: int, position: int) -> None:
        """The live consumer has handed over all that can be seen below ``position`` (R11)."""
        for _, cursor in self._inputs.read_to(stream, position):
            if isinstance(cursor, ResultCursor):
                cursor.read_to(position)

    def caught_up_to(self, line: LineName, stream: int, position: int) -> None:
        """The catch-up reader of one line has handed over all below ``position``."""
        cursor = self._cursors(line)[stream]
        if isinstance(cursor, ResultCursor) and not cursor.attached:
            cursor.read_to(position)
            self._inputs.attach(line, stream)

    def position_gone(self, line: LineName, stream: int, beginning: int) -> None:
        """Retention took the record a parked cursor needs next (rule 28)."""
        self._inputs.position_gone(line, stream, beginning)

    def ends(self, ends: Mapping[int, int | None], fetched_at: int) -> None:
        """The ends of some logs as of ``fetched_at``; None: the broker gave no answer."""
        self._inputs.answer(ends, fetched_at)
        for stream, end in ends.items():
            cursor = self._live[stream]
            behind = cursor.boundary < self.line.live_next
            if end is not None and behind and self._is_backlog(stream, end):
                self.counters.skipped += end - cursor.offset
                cursor.seek(end)
        self._note_read()

    def _is_backlog(self, stream: int, end: int) -> bool:
        ahead = end - self._live[stream].offset
        return self.line.forked and ahead > self._backlog_max(stream)

    def _backlog_max(self, stream: int) -> int:
        config = self._config
        is_rows = stream in config.results or stream - 1 in config.results
        return config.backlog_rows_max if is_rows else config.backlog_records_max

    # What goes out.

    @property
    def is_in_normal_operation(self) -> bool:
        """The lines are one, and nothing else is to be done than the next bucket."""
        return not (self.line.forked or self.mute or self.busy)

    @property
    def awaits_input(self) -> bool:
        """In normal operation: does the next bucket lack an input?"""
        start = self.line.live_next
        end = self._config.grid.next_cut(start)
        return any(self._passed(logs, start) < end for logs in self._config.inputs)

    def step(self, now: int) -> list[Effect]:
        """Do what is due at ``now`` (us of wall time), live work first (R14)."""
        effects: list[Effect] = []
        self.busy = False
        passed_us = 0 if self._stepped_at is None else max(now - self._stepped_at, 0)
        self._stepped_at = now
        self._note_read(passed_us)
        self._held_back = not self.stagger.may_catch_up(
            now, needs=self._has_to_catch_up, progress=self.line.stable_next
        )
        self._answer(now, effects)
        if self.line.stable_next < self.line.live_next and self._take_stable(now, effects):
            self.busy = True
        self._pass_all()
        self._look_for_backlog(now, effects)
        return effects

    def _answer(self, now: int, effects: list[Effect]) -> None:
        """Emit, in order, what both lines have at the live line's place."""
        for _ in range(self._config.buckets_per_step_max):
            self._mend()
            if self._may_be_one(now) and self._take_stable(now, effects):
                continue
            if self.mute:
                self.wake_at = None
                return
            start = self.line.live_next
            live_to = [self._passed(logs, start) for logs in self._config.inputs]
            is_tentative = self._passes_tentatively(live_to)
            excused = self._far_ahead()
            match self.line.judge(now, live_to, tentative=is_tentative, excused=excused):
                case Wait(until):
                    self.wake_at = until
                    return
                case ReadToEnd(inputs):
                    self._ask(inputs, effects)
                    self.wake_at = now + step_us_max
                    return
                case Answer(missing):
                    self._emit_tentative(missing, effects)
        self.busy = True

    def _may_be_one(self, now: int) -> bool:
        """May the stable line say the live line's next bucket, so that nobody says it tentatively?

        Not while the roots have corrections to read in front of it (R33). A live line that says
        nothing, because it is mute or suspended, has nothing to gain by that.
        """
        line = self.line
        if line.stable_next != line.live_next or not line.forked:
            return line.stable_next == line.live_next
        if self.mute or self._config.policy.stabilization == "suspend":
            return True
        return not self.downstream.is_awaited(now, line.stable_next)

    def _mend(self) -> None:
        """Where the lines have met, the stable one has what the live one once left out (rule 13).

        It would else miss it for as long as a stream's readings may be out of order.
        """
        if self.line.forked and self.line.stable_next == self.line.live_next:
            for live, stable in zip(self._live, self._stable, strict=True):
                if isinstance(live, SourceCursor) and isinstance(stable, SourceCursor):
                    live.mend(stable)

    def _far_ahead(self) -> list[int]:
        """Streams whose live cursor is parked ahead of a line that is suspended (rule 12).

        They are not read on, so nothing can be said of their silence.
        """
        if self._config.policy.stabilization != "suspend":
            return []
        end = self._config.grid.next_cut(self.line.live_next)
        ahead = [not c.attached and c.boundary >= end for c in self._live]
        return [i for i, logs in enumerate(self._config.inputs) if any(ahead[log] for log in logs)]

    def _passed(self, logs: tuple[int, ...], start: int) -> int:
        """How far an input is complete for the live line, tentatively or not."""
        if len(logs) == 1:
            return self._live[logs[0]].passed(start)
        return passed(start, self._live_pair(logs))

    def _passes_tentatively(self, live_to: Sequence[int]) -> Callable[[int], bool] | None:
        """Tells of an input whether only its tentative topic passes the next bucket (R13)."""
        if not self._config.results:
            return None
        start = self.line.live_next
        end = self._config.grid.next_cut(start)

        def is_tentative(i: int) -> bool:
            logs = self._config.inputs[i]
            if len(logs) == 1:
                return False
            stable, _ = self._live_pair(logs)
            return live_to[i] >= end > stable.reach(start)

        return is_tentative

    def _live_pair(self, logs: tuple[int, ...]) -> tuple[ResultCursor, ResultCursor]:
        stable, tentative = (self._live[log] for log in logs)
        assert isinstance(stable, ResultCursor)
        assert isinstance(tentative, ResultCursor)
        return stable, tentative

    def _ask(self, inputs: tuple[int, ...], effects: list[Effect]) -> None:
        logs = (log for i in inputs for log in self._config.inputs[i])
        self._ask_logs(logs, effects)

    def _ask_logs(self, logs: Iterable[int], effects: list[Effect]) -> None:
        wanted = self._inputs.probe(logs)
        if wanted:
            effects.append(ProbeEnds(wanted))

    def _note_read(self, passed_us: int = 0) -> None:
        """Tell the line which inputs have been read to ends that were asked for."""
        for input_, fetched_at in self._inputs.read_through(passed_us):
            self.line.note_read(input_, fetched_at)

    # Stable line.

    def _take_stable(self, now: int, effects: list[Effect]) -> bool:
        """Emit the stable line's next bucket, or run of empty ones, if it is complete."""
        stable_to = min(c.boundary for c in self._stable)
        if not self.line.stable_ready(stable_to):
            return False
        if self.line.try_join(now, stable_to, attached=all(c.attached for c in self._stable)):
            self.downstream.forget()
        start = self.line.stable_next
        end = self._config.grid.next_cut(start)
        nearest = self._nearest(start)
        if nearest >= end:
            end = max(end, self._config.grid.bucket_start(min(stable_to, nearest)))
            if start < self.line.live_next:
                end = min(end, self.line.live_next)  # what is beyond may be the live line's
            records = []
        else:
            back = start - self._lookback_us
            columns = [c.columns(back, end) for c in self._stable]
            records = self._content(Kind.INSERTION, columns, start, end)
        if not records:
            records = [self._empty(start, end)]
        gap = tuple(self._gap([c.gaps for c in self._stable], start, end))
        for record in records:
            stamped = replace(
                record,
                first_id=self._next_id,
                last_id=self._next_id + record.readings - 1,
                gap=gap,
            )
            effects.append(Emit(LineName.STABLE, stamped))
            self._next_id = stamped.last_id + 1
            self.counters.readings += stamped.last_id - stamped.first_id + 1
        self.counters.insertions += 1
        self.line.stable_answered(end)
        for cursor in self._stable:
            cursor.pass_to(end)
        return True

    def _nearest(self, start: int) -> int:
        """Nothing that is buffered lies between ``start`` and this time, and no gap does."""
        times = [t for c in self._stable if (t := c.next_reading(start)) is not None]
        back = start - self._lookback_us
        times += [max(g[0], start) for c in self._stable for g in c.gaps if g[1] > back]
        return min(times, default=2**62)

    def _gap(
        self, felt: Iterable[Iterable[tuple[int, int, Gap]]], start: int, end: int
    ) -> Iterator[Gap]:
        """Readings that retention took, of each log, and [start, end) may have needed (rule 28)."""
        for name, gaps in zip(self._config.names, felt, strict=True):
            for low, high, gap in gaps:
                if low < end and high > start - self._lookback_us:
                    yield Gap(name, gap.lost)

    # Live line.

    def _emit_tentative(self, missing: tuple[int, ...], effects: list[Effect]) -> None:
        forking = not self.line.forked
        start = self.line.live_next
        end = self._config.grid.next_cut(start)
        names = self._missing(missing, start, end)
        columns = list(self._live_columns(start - self._lookback_us, end))
        records = self._content(Kind.TENTATIVE, columns, start, end)
        gap = tuple(self._gap(self._live_gaps(), start, end))
        effects.extend(
            Emit(LineName.LIVE, replace(record, missing=names, gap=gap))
            for record in records or [self._empty(start, end)]
        )
        self.counters.tentative += 1
        self.line.live_answered()
        if self.line.state is LineState.UP_FAILURE:
            self.downstream.forget()
        if forking:
            self.counters.forks += 1
            for stream in range(len(self._stable)):
                self._park(LineName.STABLE, stream)
            effects.append(SaveState())

    def _missing(self, inputs: tuple[int, ...], start: int, end: int) -> tuple[str, ...]:
        """Inputs that have not passed, and what the tentative answers of others lack (R20)."""
        names = {self._config.names[self._config.inputs[i][0]] for i in inputs}
        for logs in self._config.inputs:
            if len(logs) > 1:
                names.update(live_missing(*self._live_pair(logs), start, end))
        return tuple(sorted(names))

    def _live_gaps(self) -> Iterator[Iterable[tuple[int, int, Gap]]]:
        """What each log has lost, where the live line has no better version of it."""
        for logs in self._config.inputs:
            if len(logs) == 1:
                yield self._live[logs[0]].gaps
            else:
                yield live_gaps(*self._live_pair(logs))
                yield ()

    def _live_columns(self, start: int, end: int) -> Iterator[Iterable[tuple[SourceColumns, int]]]:
        for logs in self._config.inputs:
            if len(logs) == 1:
                yield self._live[logs[0]].columns(start, end)
            else:
                yield live_columns(*self._live_pair(logs), start, end)

    def _content(
        self,
        kind: Kind,
        columns: Sequence[Iterable[tuple[SourceColumns, int]]],
        start: int,
        end: int,
    ) -> list[OrderedRecord]:
        config = self._config
        pieces = self._operators.bucket(columns, start, end)
        return [
            OrderedRecord(
                kind,
                config.child,
                config.replica,
                self._inc,
                start,
                end,
                piece=i,
                pieces=len(pieces),
                keys=piece.keys,
                offsets=piece.offsets,
                fields=piece.fields,
                values=piece.values,
                stimes=piece.stimes,
                key_index=piece.key_index,
            )
            for i, piece in enumerate(pieces)
        ]

    def _empty(self, start: int, end: int) -> OrderedRecord:
        config = self._config
        return OrderedRecord(Kind.BOUNDARY, config.child, config.replica, self._inc, start, end)

    # Cursors.

    def _cursors(self, line: LineName) -> Sequence[Cursor]:
        return self._stable if line is LineName.STABLE else self._live

    def _next_of(self, line: LineName) -> int:
        return self.line.stable_next if line is LineName.STABLE else self.line.live_next

    def _park(self, line: LineName, stream: int) -> None:
        self._cursors(line)[stream].park()
        self._inputs.attach_parked(line, stream)

    def _lookahead_us(self, line: LineName) -> int:
        config = self._config
        if line is LineName.STABLE and self.line.forked:
            return config.parked_lookahead_buckets * config.grid.w_us
        return config.ahead_buckets_max * config.grid.w_us

    def _bound(self, stream: int) -> None:
        """Park the cursors that have read too far ahead of their line (rules 12, G5).

        What they keep behind it for a join does not count: to park would read it again.
        """
        for line in LINES:
            cursor = self._cursors(line)[stream]
            start = self._next_of(line)
            if not cursor.attached or cursor.boundary < self._config.grid.next_cut(start):
                continue
            span = self._lookahead_us(line) + self._config.apart_us(start)
            held_max = self._config.ahead_bytes_max // len(self._config.logs)
            if cursor.buffered_to - start > span or cursor.bytes_held > held_max:
                self._park(line, stream)

    def wanted(self) -> dict[tuple[LineName, int], int]:
        """Where the catch-up readers shall read: (line, stream) -> offset, for hungry cursors."""
        wanted = {}
        for line in LINES:
            if line is LineName.STABLE and self._held_back:
                continue  # another replica's turn; live work is not concerned (D12)
            parked = self._inputs.parked(line)
            if not parked:
                continue
            start = self._next_of(line)
            span = self._lookahead_us(line) // 2 + self._config.apart_us(start)
            held_max = self._config.ahead_bytes_max // len(self._config.logs) // 2
            for stream, cursor in parked:
                hungry = cursor.boundary < self._config.grid.next_cut(start)
                if hungry or (cursor.buffered_to - start < span and cursor.bytes_held < held_max):
                    wanted[line, stream] = cursor.offset
        return wanted

    @property
    def _has_to_catch_up(self) -> bool:
        """Are the lines apart, and is there in the logs what the stable line waited for?"""
        if not self.line.forked or all(cursor.attached for cursor in self._stable):
            return False
        end = self._config.grid.next_cut(self.line.stable_next)
        return all(cursor.boundary >= end for cursor in self._live)

    def _pass_all(self) -> None:
        for line in LINES:
            for cursor in self._cursors(line):
                cursor.pass_to(self._next_of(line))

    def _look_for_backlog(self, now: int, effects: list[Effect]) -> None:
        """Ask how far a returning stream's log reaches, to seek past a backlog (rule 13)."""
        if not self.line.forked or now - self._seek_asked_at < self._config.seek_period_us:
            return
        behind = tuple(
            i
            for i, cursor in enumerate(self._live)
            if cursor.boundary < self.line.live_next and not self._inputs.is_probed(i)
        )
        self._seek_asked_at = now
        self._ask_logs(behind, effects)

    # What others want to know.

    @property
    def live_offsets(self) -> list[int]:
        """Where the live consumer starts in each log."""
        return list(self._inputs.positions.values())

    @property
    def mute(self) -> bool:
        """Says nothing tentative yet: unread input may hold what would be missing (R6, R11).

        What is stable is said at once, it cannot be wrong. A stream that the live line has read
        past its next bucket is read far enough: its cursor may be parked there (rule 12).
        """
        inputs, grid = self._inputs, self._config.grid
        return inputs.has_unread and inputs.is_unread(grid.next_cut(self.line.live_next))

    @property
    def asks_positions(self) -> bool:
        """Does it matter now how far the readers of result topics are, beyond the last record?"""
        return any(isinstance(self._live[log], ResultCursor) for log in self._inputs.awaited)

    @property
    def held_bytes(self) -> int:
        """About what the cursors hold in memory (G5)."""
        return sum(c.bytes_held + c.bytes_behind for line in LINES for c in self._cursors(line))

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Holes in the source logs: their writers send again (rule 11)."""
        return tuple(
            Hole(self._config.topics.source(log), 0, cursor.hole_inc)
            for log, cursor in zip(self._config.logs, self._stable, strict=True)
            if cursor.hole_inc is not None
        )

    def snapshot(self, stable_offset: int, live_offset: int) -> OrdererState:
        """The state record; what was appended so far is in the own logs when it is written.

        The offsets are the ends of what has been delivered. The last record before the end is the
        first that ``recover`` reads: it tells the incarnation that holds there.
        """
        return OrdererState(
            self._config.fragment,
            frontier=self.line.stable_next,
            last_id=self._next_id - 1,
            live_frontier=self.line.live_next,
            stable_offset=max(stable_offset - 1, 0),
            live_offset=live_offset,
            streams=tuple(
                StreamPositions(log, of.next, of.rebuild, live.rebuild)
                for log, stable, live in zip(
                    self._config.logs, self._stable, self._live, strict=True
                )
                for of in [live if isinstance(stable, Unread) else stable]
            ),
        )
