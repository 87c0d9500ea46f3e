"""The orderer: SUnion, its operators and SOutput over the source logs of one child.

DPC section 4.2: an SUnion sorts the tuples of its input streams into *buckets* of event time. A
bucket is stable when every stream's boundary has passed its end; its content is then a pure
function of the logs, so that all replicas emit the same. A bucket that is not stable at its
deadline is emitted TENTATIVE from the input that is present (section 4.3).

The core has the two lines of ``common/line.py``. Each has a cursor in every source log. The stable
line's output goes to the replica's stable log, which covers event time contiguously and once. The
live line's output, while the lines are apart, goes to the live log (rule-8). So an orderer's logs
need neither UNDO nor REC_DONE: the root writes these, into the results that consumers read
(trace-3).

The core uses no clock and no Kafka: the methods of ``logs`` take records, ``step`` takes the time
and returns effects, to be executed in order. The session (``slackwater.sessions.orderer``) starts
the core, writes its state records and appends to its logs. The caller polls the input before each
step (trace-11), and steps again at ``wake_at``, or at once while ``busy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.model.limits import NEVER
from slackwater.model.records import Gap, Hole, Kind, OrderedRecord, OrdererState, SourceColumns
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.ends import STEP_US_MAX
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import AnswerTentatively, Line, LineName, ReadToEnd, Wait
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.reconcile.downstream import Downstream
from slackwater.protocols.dpc.reconcile.staggering import Stagger
from slackwater.protocols.dpc.sunion.config import Effect, Emit, OrdererConfig, Recovered, SaveState
from slackwater.protocols.dpc.sunion.empty_runs import last_alike
from slackwater.protocols.dpc.sunion.live_inputs import LiveInputs
from slackwater.protocols.dpc.sunion.logs import OrdererLogs
from slackwater.protocols.dpc.sunion.operators import Operators


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

    It is always built from a state record and the orderer's own logs; at a first start the state is
    ``recovery.initial_state``.

    Args:
        config: the orderer's configuration.
        operators: Join, Filter and Map, and how a bucket is packed.
        state: the state record.
        recovered: the ends of the orderer's own logs.
        inc: offset of this writer's START in its stable log.
        suppress_until: by the index of a log, its end offset at START. Nothing tentative is sent
            until the live line has read all logs to there (trace-6).
    """

    def __init__(
        self,
        config: OrdererConfig,
        operators: Operators,
        state: OrdererState,
        recovered: Recovered,
        *,
        inc: int,
        suppress_until: Mapping[int, int],
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
        self.logs = OrdererLogs(config, self.line, state, self._lookback_us, suppress_until)
        self._live = LiveInputs(config, self.logs.live, self._lookback_us)
        self.stagger = Stagger(config.replica, config.replicas, config.turn_lease_us)
        near_us = config.near_buckets_max * config.grid.w_us
        self.downstream = Downstream(near_us, config.turn_lease_us)
        self._held_back = False
        self._stepped_at: int | None = None
        self._seek_asked_at = NEVER
        self.busy = False
        self.wake_at: int | None = None
        self.counters = _Counters()
        self.logs.pass_all()

    # What comes in.

    def ends(self, ends: Mapping[int, int | None], fetched_at: int) -> None:
        """Record end offsets requested at ``fetched_at``; None if the broker gave no answer."""
        self.counters.skipped += self.logs.ends(ends, fetched_at)
        self._note_read()

    # What goes out.

    @property
    def is_in_normal_operation(self) -> bool:
        """True if the lines are joined and no bucket but the next one can be emitted."""
        return not (self.line.forked or self.suppress_tentative or self.busy)

    @property
    def awaits_input(self) -> bool:
        """True if the next bucket lacks an input; meaningful in normal operation only."""
        start = self.line.live_next
        end = self._config.grid.next_cut(start)
        return any(self._live.passed_to(logs, start) < end for logs in self._config.inputs)

    def step(self, now: int) -> list[Effect]:
        """Do what is due at ``now`` (us of wall time), live work first (trace-14)."""
        effects: list[Effect] = []
        self.busy = False
        passed_us = 0 if self._stepped_at is None else max(now - self._stepped_at, 0)
        self._stepped_at = now
        self._note_read(passed_us)
        self._held_back = not self.stagger.may_catch_up(
            now, needs=self.logs.has_to_catch_up, progress=self.line.stable_next
        )
        self._answer(now, effects)
        if self.line.stable_next < self.line.live_next and self._take_stable(now, effects):
            self.busy = True
        self.logs.pass_all()
        self.logs.check_excess()
        self._look_for_backlog(now, effects)
        return effects

    def _answer(self, now: int, effects: list[Effect]) -> None:
        """Emit, in order, the buckets due at the live line's position."""
        for _ in range(self._config.buckets_per_step_max):
            self._adopt_stable_state()
            if self._stable_may_emit(now) and self._take_stable(now, effects):
                continue
            if self.suppress_tentative:
                self.wake_at = None
                return
            start = self.line.live_next
            live_to = [self._live.passed_to(logs, start) for logs in self._config.inputs]
            is_tentative = self._live.passes_tentatively(live_to, start)
            excused = self.logs.far_ahead()
            match self.line.judge(now, live_to, tentative=is_tentative, excused=excused):
                case Wait(until):
                    self.wake_at = until
                    return
                case ReadToEnd(inputs):
                    self._ask(inputs, effects)
                    self.wake_at = now + STEP_US_MAX
                    return
                case AnswerTentatively(missing):
                    self._emit_tentative(missing, self._run_end(now, missing, excused), effects)
        self.busy = True

    def _stable_may_emit(self, now: int) -> bool:
        """True if the lines have met, and the stable line may emit the next bucket for both.

        Forked lines that have met stay apart while the roots have corrections to read before the
        bucket (trace-33). They do not if the live line is suppressed or suspended: it would emit
        nothing, and waiting would gain nothing.
        """
        line = self.line
        if line.stable_next != line.live_next or not line.forked:
            return line.stable_next == line.live_next
        if self.suppress_tentative or self._config.policy.stabilization == "suspend":
            return True
        return not self.downstream.is_awaited(now, line.stable_next)

    def _adopt_stable_state(self) -> None:
        """Give the live line the records that it has skipped, once the lines have met (rule-13).

        Otherwise the stream would stay missing until the line has passed the event times that the
        skipped records may have.
        """
        if self.line.forked and self.line.stable_next == self.line.live_next:
            self.logs.adopt_stable_state()

    def _ask(self, inputs: tuple[int, ...], effects: list[Effect]) -> None:
        logs = (log for i in inputs for log in self._config.inputs[i])
        self._ask_logs(logs, effects)

    def _ask_logs(self, logs: Iterable[int], effects: list[Effect]) -> None:
        wanted = self.logs.inputs.probe(logs)
        if wanted:
            effects.append(ProbeEnds(wanted))

    def _note_read(self, passed_us: int = 0) -> None:
        """Pass to the line the inputs that have been read to requested ends."""
        deadline = self._config.schedule.deadline
        for input_, fetched_at in self.logs.inputs.read_through(deadline, passed_us):
            self.line.note_read(input_, fetched_at)

    # Stable line.

    def _take_stable(self, now: int, effects: list[Effect]) -> bool:
        """Emit the stable line's next bucket, or run of empty ones, if it is complete."""
        stable_to = min(c.boundary for c in self.logs.stable)
        if self._config.reached is not None:
            stable_to = min(stable_to, self._config.reached())
        if not self.line.stable_ready(stable_to):
            return False
        if self.line.try_join(now, stable_to, attached=all(c.attached for c in self.logs.stable)):
            self.downstream.forget()
        start = self.line.stable_next
        end = self._config.grid.next_cut(start)
        nearest = self.logs.nearest_reading(LineName.STABLE, start)
        if nearest >= end:
            end = max(end, self._config.grid.bucket_start(min(stable_to, nearest)))
            if start < self.line.live_next:
                end = min(end, self.line.live_next)  # the lines may still stay apart from there on
            end = self._within_loss(start, end)
            records = []
        else:
            back = start - self._lookback_us
            columns = [c.columns(back, end) for c in self.logs.stable]
            records = self._content(Kind.INSERTION, columns, start, end)
        if not records:
            records = [self._empty(start, end)]
        gap = tuple(self._gap([c.gaps for c in self.logs.stable], start, end))
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
        for cursor in self.logs.stable:
            cursor.pass_to(end)
        return True

    def _gap(
        self, affected: Iterable[Iterable[tuple[int, int, Gap]]], start: int, end: int
    ) -> Iterator[Gap]:
        """The gaps of each log that may affect the bucket [start, end) (rule-28)."""
        if start - self._lookback_us < self._config.lost_until:
            yield from (Gap(name, 1) for name in dict.fromkeys(self._config.names))
        for name, gaps in zip(self._config.names, affected, strict=True):
            for low, high, gap in gaps:
                if low < end and high > start - self._lookback_us:
                    yield Gap(name, gap.lost)

    def _within_loss(self, start: int, end: int) -> int:
        """The end of a run of empty buckets of which all, or none, may have lost readings."""
        lost_until = self._config.lost_until
        return min(end, lost_until) if start < lost_until else end

    # Live line.

    def _run_end(self, now: int, missing: tuple[int, ...], excused: Sequence[int]) -> int:
        """The end of the run of empty buckets that the next bucket begins; its own end if none."""
        config, line, start = self._config, self.line, self.line.live_next
        grid, end = config.grid, config.grid.next_cut(start)
        # No run if the lines have met: the live line stays one bucket ahead (rule-18). None while
        # logs are unread since the start: later buckets may be suppressed (trace-6). None over
        # results: the answers that are read name their own missing inputs.
        have_met = not missing and line.stable_next == start
        if have_met or config.results or self.logs.inputs.has_unread:
            return end
        nearest = self.logs.nearest_reading(LineName.LIVE, start)
        if nearest < end:
            return end
        present = [logs for i, logs in enumerate(config.inputs) if i not in missing]
        limit = min([nearest, *(self._live.passed_to(logs, start) for logs in present)])
        limit = self._within_loss(start, limit)

        def is_alike(bucket: int) -> bool:
            live_to = [self._live.passed_to(logs, bucket) for logs in config.inputs]
            verdict = line.copy().judge(now, live_to, excused=excused, start=bucket)
            return verdict == AnswerTentatively(missing)

        return last_alike(grid, end, grid.bucket_start(limit), is_alike)

    def _emit_tentative(self, missing: tuple[int, ...], end: int, effects: list[Effect]) -> None:
        forking = not self.line.forked
        start = self.line.live_next
        names = self._live.missing(missing, start, end)
        columns = list(self._live.columns(start - self._lookback_us, end))
        records = self._content(Kind.TENTATIVE, columns, start, end)
        gap = tuple(self._gap(self._live.gaps(), start, end))
        effects.extend(
            Emit(LineName.LIVE, replace(record, missing=names, gap=gap))
            for record in records or [self._empty(start, end)]
        )
        self.counters.tentative += 1
        self.line.live_answered(end)
        if self.line.state is LineState.UP_FAILURE:
            self.downstream.forget()
        if forking:
            self.counters.forks += 1
            for stream in range(len(self.logs.stable)):
                self.logs.park(LineName.STABLE, stream)
            effects.append(SaveState())

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
                states=piece.states,
            )
            for i, piece in enumerate(pieces)
        ]

    def _empty(self, start: int, end: int) -> OrderedRecord:
        config = self._config
        return OrderedRecord(Kind.BOUNDARY, config.child, config.replica, self._inc, start, end)

    def wanted(self) -> dict[tuple[LineName, int], int]:
        """Offsets for catch-up readers: (line, log) -> offset, for parked cursors to be fed."""
        return self.logs.wanted(held_back=self._held_back)

    def _look_for_backlog(self, now: int, effects: list[Effect]) -> None:
        """Request the ends of the logs that lag behind the live line, to seek past a backlog.

        Only while the lines are forked, and at most once in ``seek_period_us`` (rule-13).
        """
        if not self.line.forked or now - self._seek_asked_at < self._config.seek_period_us:
            return
        self._seek_asked_at = now
        self._ask_logs(self.logs.behind_the_live_line(), effects)

    # Status for other components.

    @property
    def suppress_tentative(self) -> bool:
        """True while tentative output is suppressed: unread input may complete it.

        Stable output is not suppressed: it is final. Reading a stream past the live line's next
        bucket suffices: its cursor may be parked there (rule-12; trace-6, trace-11).
        """
        inputs, grid = self.logs.inputs, self._config.grid
        return inputs.has_unread and inputs.is_unread(grid.next_cut(self.line.live_next))

    @property
    def held_bytes(self) -> int:
        """Approximate bytes held by the cursors (guarantee-5)."""
        return self.logs.held_bytes

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Holes in the source logs; their writers send again (rule-11)."""
        return self.logs.holes

    def snapshot(self, stable_offset: int, live_offset: int) -> OrdererState:
        """The state record; write it once all that was appended so far is in the orderer's logs.

        The arguments are the offsets after the last delivered records. ``recover`` begins one
        record before the end of the stable log: that record has the incarnation in force there.
        """
        return OrdererState(
            self._config.fragment,
            frontier=self.line.stable_next,
            last_id=self._next_id - 1,
            live_frontier=self.line.live_next,
            stable_offset=max(stable_offset - 1, 0),
            live_offset=live_offset,
            streams=self.logs.positions(),
            placement=self._config.placement,
        )
