"""An orderer replica: the product's core, driven as its shell drives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulator.kafka import PositionGoneError
from tests.simulator.process import Process
from tests.simulator.resultlogs import ResultLogs
from tests.simulator.sources import decoded

from slackwater.model.records import (
    Hole,
    Kind,
    OrderedRecord,
    OrdererState,
)
from slackwater.primitives.deltas import KeyTable
from slackwater.protocols.dpc.line import LineName
from slackwater.protocols.dpc.operators import Operators
from slackwater.protocols.dpc.orderer import Append, FetchEnds, OrdererCore, Recovered, SaveState
from slackwater.protocols.dpc.recovery import SoleWriter, first_state, recover, say_again

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery

SAVE_PERIOD_US = 1_000_000
CATCH_UP_RECORDS_MAX = 20
CATCH_UP_WAIT_US = 3_000
STEP_US = 200


@dataclass(slots=True)
class _Pending:
    state: OrdererState
    appended: int


class SimOrderer(Process):
    """One incarnation of replica ``replica`` of ``child``."""

    def __init__(self, query: SimQuery, child: int, replica: int) -> None:
        super().__init__(query.world, query.orderer_name(child, replica))
        self.query, self.child, self.replica = query, child, replica
        self.config = query.orderer_config(child, replica)
        self.inputs = list(query.inputs(child))
        self.sources = [of.log for of in self.inputs]
        self.own = [query.ordered_log(child, replica, line) for line in (0, 1)]
        self._results = ResultLogs(self)
        self.core: OrdererCore | None = None
        self.inc = -1
        self._sole = SoleWriter(0)
        self.deaf_to: set[str] = set()
        """Streams that the live consumer does not fetch any more (R34)."""
        self._positions: list[int] = []
        self._appended = self._delivered = 0
        self._delivered_to = [0, 0]
        self._pending: _Pending | None = None
        self._saved_at = 0
        self._save_period_us = self.world.config.paced(SAVE_PERIOD_US)
        self._ending = False

    # Start: rule 25.

    def start(self) -> None:
        if not self.world.broker.up:
            self.later(20_000, self.start)
            return
        state = self.query.orderer_state(self.name)
        if state is None:
            state = first_state(
                self.config,
                [log.beginning for log in self.sources],
                e0=self.world.config.e0_us,
                own=[(log.beginning, log.end) for log in self.own],
                peers=self.query.peer_states(self.child),
                answered_to=self.query.answered_to,
            )
        stable = self._own_records(LineName.STABLE, state.stable_offset)
        live = self._own_records(LineName.LIVE, state.live_offset)
        recovered = recover(state, stable, live)
        start = self._start_record(-1, recovered)
        self.producer.send(
            self.own[0],
            start,
            lambda offset: self._run(lambda: self._begun(offset, state, recovered)),
        )

    def _own_records(self, line: LineName, offset: int) -> list[tuple[int, OrderedRecord]]:
        log = self.own[line]
        records = log.read(max(offset, log.beginning), log.end)
        return [(at, value) for at, value in records if isinstance(value, OrderedRecord)]

    def _start_record(self, inc: int, recovered: Recovered) -> OrderedRecord:
        at = recovered.frontier
        return OrderedRecord(
            Kind.START,
            self.child,
            self.replica,
            inc,
            at.bucket_start,
            at.bucket_start,
            first_id=recovered.next_id,
            last_id=recovered.next_id - 1,
            frontier=at,
        )

    def _begun(self, inc: int, state: OrdererState, recovered: Recovered) -> None:
        if not self.world.broker.up:
            self.later(20_000, lambda: self._begun(inc, state, recovered))
            return
        self.inc = inc
        self._sole = SoleWriter(inc + 1)
        self._append(LineName.LIVE, self._start_record(inc, recovered))
        operators = Operators(
            self.query.config.fields,
            None,
            None,
            KeyTable(),
            join=self.query.config.join,
            rows=self.query.config.rows,
            piece_bytes_max=self.world.config.piece_bytes_max,
        )
        mute_until = {i: log.stable_end for i, log in enumerate(self.sources)}
        self.core = OrdererCore(
            self.config, operators, state, recovered, inc=inc, mute_until=mute_until
        )
        self.core.begin_at([log.beginning for log in self.sources])
        self._positions = self.core.live_offsets
        self._saved_at = self.now
        for log in self.sources:
            self.watch(log)
        self.world.works(self)
        self.turn()

    # The loop.

    def turn(self) -> None:
        core = self.core
        if core is None:
            return
        try:
            read = self._read_live(core) + self._read_parked(core)
        except PositionGoneError:
            self.world.restart(self)  # its consumer may not go on elsewhere by itself
            return
        self._results.ask_positions(core, self._positions)
        now = self.now
        self.query.turns.tell(self)
        self.query.places.tell(self)
        effects = core.step(now)
        self.query.turns.say(self, core.stagger.word())
        for effect in effects:
            match effect:
                case Append(line, record):
                    self._append(line, record)
                case FetchEnds(streams):
                    self._fetch_ends(core, streams)
                case SaveState():
                    self._saved_at = 0
        self._look_after(core, now)
        cost = STEP_US + read * self.world.config.record_us
        if core.busy or self._is_behind:
            self.turn_in(cost)
        elif self._has_parked_records(core):
            self.turn_in(max(CATCH_UP_WAIT_US, cost))
        if core.wake_at is not None:
            self.turn_in(max(core.wake_at - now, cost))

    @property
    def _is_behind(self) -> bool:
        places = zip(self.config.logs, self._positions, self.sources, strict=True)
        return any(at < log.stable_end for name, at, log in places if name not in self.deaf_to)

    def _has_parked_records(self, core: OrdererCore) -> bool:
        """Without them there is no need to look again: what is appended wakes the loop."""
        return self.world.broker.up and any(
            offset < self.sources[i].stable_end for (_, i), offset in core.wanted().items()
        )

    def _read_live(self, core: OrdererCore) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for i, log in enumerate(self.sources):
            if self.config.logs[i] in self.deaf_to:
                continue
            if i in self._results.numbers:
                rows, self._positions[i] = self._results.read_live(core, i, self._positions[i])
                count += rows
                continue
            at = max(self._positions[i], log.beginning)
            for offset, value in log.read(at, self.world.config.live_records_max):
                self._positions[i] = offset + 1
                if core.needs(i, offset):
                    count += 1
                    core.receive(i, offset, decoded(self.config.logs[i], value))
        return count

    def _read_parked(self, core: OrdererCore) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for (line, i), wanted in core.wanted().items():
            if i in self._results.numbers:
                count += self._results.read_parked(core, line, i, wanted)
                continue
            log = self.sources[i]
            try:
                records = log.read(wanted, CATCH_UP_RECORDS_MAX)
            except PositionGoneError:
                core.position_gone(line, i, log.beginning)
                continue
            for offset, value in records:
                core.catch_up(line, i, offset, decoded(self.config.logs[i], value))
                count += 1
        return count

    def _append(self, line: LineName, record: OrderedRecord) -> None:
        self._appended += 1

        def delivered(offset: int) -> None:
            if line is LineName.STABLE and not self._sole.delivered(offset):
                self.world.scheduler.after(0, lambda: self.world.restart(self))
                return
            self._delivered += 1
            self._delivered_to[line] = offset + 1

        self.producer.send(self.own[line], record, delivered)

    def _fetch_ends(self, core: OrdererCore, streams: tuple[int, ...]) -> None:
        asked_at = self.now
        if not self.world.broker.up:
            wait = self.world.config.margin_us // 2
            self.later(wait, lambda: self._ends(core, dict.fromkeys(streams), asked_at))
            return

        def answer() -> None:
            ends: dict[int, int | None] = {i: self.sources[i].stable_end for i in streams}
            self._ends(core, ends, asked_at)

        self.later(self.world.scheduler.between(500, 3_000), answer)

    def _ends(self, core: OrdererCore, ends: dict[int, int | None], asked_at: int) -> None:
        core.ends(ends, asked_at)
        self.turn_in(0)

    def _look_after(self, core: OrdererCore, now: int) -> None:
        if self._pending is not None and self._delivered >= self._pending.appended:
            self.producer.send(self.query.state_log, self._pending.state)
            self._pending = None
        if self._pending is None and now - self._saved_at >= self._save_period_us:
            self._saved_at = now
            self._pending = _Pending(self._snapshot(core), self._appended)
        state = "UP_FAILURE" if core.mute else core.line.state.value
        self.world.heartbeats.say(self, state, core.holes)
        hole = Hole(self.query.ordered_topic(self.child), 2 * self.replica, self.inc)
        if self.world.heartbeats.is_hole(hole) and not self._ending:
            self._ending = True
            self._say_again(core)

    def _snapshot(self, core: OrdererCore) -> OrdererState:
        offsets = [to or self.inc for to in self._delivered_to]
        return core.snapshot(*offsets)

    def _say_again(self, core: OrdererCore) -> None:
        own = self._own_records(LineName.STABLE, 0)
        state = say_again(
            self.config,
            self._snapshot(core),
            [log.beginning for log in self.sources],
            e0=self.world.config.e0_us,
            answered_to=self.query.answered_to,
            own_log=[record for _, record in own],
            own_end=self.own[LineName.STABLE].end,
        )
        self.producer.send(self.query.state_log, state, lambda _: self._end_soon())

    def _end_soon(self) -> None:
        self.world.scheduler.after(0, lambda: self.world.restart(self))
