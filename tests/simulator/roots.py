"""A root copy: the product's session, with the model of Kafka as its host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tests.simulator.clock import Act
from tests.simulator.heartbeats import beat_of_state
from tests.simulator.history import StoredRecord
from tests.simulator.kafka import FencedError, Log, Open
from tests.simulator.log_reader import LogReader
from tests.simulator.procedures import perform
from tests.simulator.process import observe

from slackwater.host.host import RESIGN_S_MAX
from slackwater.model.names import ONLY, Names, RootName, base_of
from slackwater.model.records import (
    Heartbeat,
    OrdererState,
    RootState,
)
from slackwater.protocols.dpc.soutput.answers import rows_of
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.flux.pair import SUSPECT_US, PairRole
from slackwater.sessions.effects import (
    Effect,
    Fail,
    FetchEnds,
    LogLine,
    Perform,
    Rebuild,
    StorePane,
    WriteState,
)
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    EarlierEnded,
    EndsFetched,
    HeartbeatReceived,
    HeartbeatReturned,
    Received,
    Record,
    RecordDelivered,
    ResignRequested,
)
from slackwater.sessions.requests import Log as At
from slackwater.sessions.root import RootSession
from slackwater.sessions.session import Report

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery

STEP_US = 200
RECORD_US = 20
BEAT_US = 40_000
"""Interval of the heartbeats of a copy."""
FENCE_US_MAX = 15_000


class Life(NamedTuple):
    """Identifies a process of a copy, as its number and its start do."""

    number: int
    began: int


class SimRoot(LogReader):
    """One copy of part ``part``, under the next placement number or a given one.

    The heartbeats of two copies to each other are in a log: each sends one every
    ``config.paced(BEAT_US)``, and reads those of both.
    """

    session: RootSession

    def __init__(
        self,
        query: SimQuery,
        part: int,
        placement: int | None = None,
        *,
        copy: int = ONLY,
        is_recorded: bool = False,
    ) -> None:
        super().__init__(query.world, RootName(query.name, part, copy).process)
        self.query, self.part, self.copy = query, part, copy
        self.placement = self.world.next_placement() if placement is None else placement
        self._history_clock = query.history_clock()
        self.session = RootSession(
            query.root_config(
                part, self.placement, self._history_clock, copy=copy, is_recorded=is_recorded
            ),
            windowed=not query.config.rows,
            suspect_us=query.config.paced(SUSPECT_US),
        )
        self.awaits_end = self.session.config.has_earlier
        """Whether it waits for the end of the earlier generation."""
        self._id = f"root-{base_of(query.name)}-{part}"
        self._epoch = -1
        self.deaf_to: set[tuple[int, int]] = set()
        """(child, replica) whose deltas the live consumer no longer fetches."""
        forms = self.session.inputs
        self.logs = {at: self.world.log_at(at) for at, of in forms.items() if of != "states"}
        self._states = next((at for at, of in forms.items() if of == "states"), None)
        self._of = dict(zip(self.logs, self.session.config.logs, strict=False))
        self.life = Life(self.placement, self.world.scheduler.now)
        self._beats = query.beats(part)
        self._beats_at = self._beats.end
        self._last_beats: dict[Life, Heartbeat] = {}
        """The other copy's last heartbeat in each of its lives."""
        self._was_ready = False
        self._is_leaving = False

    @property
    def core(self) -> RootCore | None:
        """The core; None until the start is complete."""
        return self.session.core if self._works else None

    @property
    def answers(self) -> bool:
        """Whether it answers."""
        return self._works and self.session.pair.role is PairRole.ANSWERING

    @property
    def is_ready(self) -> bool:
        """Whether it answers, or could answer at once."""
        return self._works and self.session.is_ready

    def start(self) -> None:
        perform(self, self.session.start(), self.begin, self.stay_down)

    def begin(self, effects: Sequence[Effect]) -> None:
        self.query.installed(self.part, self.session)
        if self._states is not None:
            self.watch(self.world.log_at(self._states))
            self.watch(self._beats)
            self._beat()
        super().begin(effects)

    def fence(self, then: Act) -> None:
        """Fence, as a producer does when it starts; with two copies this takes a while."""
        if self.copy == ONLY:
            self._epoch = self.world.broker.fence(self._id)
            then()
            return
        scheduler = self.world.scheduler

        def act() -> None:
            if not self.has_broker:
                self.later(10_000, act)
                return
            self._epoch = self.world.broker.fence(self._id)
            self.later(scheduler.between(500, FENCE_US_MAX), then)

        self.later(scheduler.between(500, FENCE_US_MAX), act)

    def await_read(self, offset: int, then: Act) -> None:
        """Wait until the live consumer has read the state records below ``offset``."""
        self._read_pair()
        if self._states is not None and self._positions[self._states] >= offset:
            then()
        else:
            self.later(2_000, lambda: self.await_read(offset, then))

    def claim(self, state: RootState, then: Act, refused: Act) -> None:
        """Commit a state record alone, unless another copy has fenced this one."""
        world = self.world
        if not self.has_broker:
            self.later(10_000, lambda: self.claim(state, then, refused))
            return
        try:
            records: list[tuple[Log[object], object]] = [(self.query.state_log(self.part), state)]
            transaction = world.broker.begin(self._id, self._epoch, records)
            world.broker.commit(self._id, self._epoch, transaction)
        except FencedError:
            refused()
            return
        if state.resigned:
            self.query.resigned(self.part, state)
        else:
            self.query.taken_over(self.part, state)
        self.later(world.scheduler.between(1_000, 8_000), then)

    # The other copy.

    def stop(self) -> None:
        """End as planned: hand the part over if the session can, as a host does on SIGTERM."""
        if not self._works or self.session.take(ResignRequested(self.now)) is None:
            self.world.kill(self.name)
            return
        self._is_leaving = True
        self.turn_in(0)
        self.later(round(RESIGN_S_MAX * 1e6), lambda: self.world.restart(self))

    def hand_over(self) -> None:
        """Let the other copy take over, if it could at once; then follow."""
        if self.speaks and self._works and self.session.take(ResignRequested(self.now)) is not None:
            self.turn_in(0)

    def report_dead(self) -> None:
        """Send the report of a supervisor that the process of this life has ended."""
        self._beats.append((self.name, self.life, self.world.scheduler.now, None))

    def _beat(self) -> None:
        report = self.session.report() if self._works else None
        beat = (self.name, self.life, self.now, report)
        self.producer.send(self._beats, beat)
        self.later(self.query.config.paced(BEAT_US), self._beat)

    def _read_pair(self) -> None:
        """Read what the other copy tells, and what has been committed."""
        if self._states is None or not self.has_broker:
            return
        for offset, beat in self._beats.read(self._beats_at, 10_000):
            self._beats_at = offset + 1
            assert isinstance(beat, tuple)
            self._take_beat(*beat)
        log, at = self.world.log_at(self._states), self._positions[self._states]
        states, self._positions[self._states] = log.read_visible(at, 1_000)
        for offset, state in states:
            assert isinstance(state, OrdererState | RootState)
            self.session.take(Received(self._states, offset, state))

    def _take_beat(self, name: str, life: Life, sent_at: int, report: Report | None) -> None:
        known = self._last_beats.get(life)
        if life == self.life:
            self.session.take(HeartbeatReturned(sent_at))
        elif report is not None:
            beat = self._last_beats[life] = Heartbeat(
                name, life.number, life.began, sent_at, -1, ready=report.ready,
                states=report.states, detail=report.detail,
            )  # fmt: skip
            self.session.take(HeartbeatReceived(beat, self.now))
        elif known is not None and self._works:
            self.session.take(HeartbeatReceived(known.as_dead(), self.now))

    # The loop.

    def turn(self) -> None:
        if not self._works:
            return
        session, core = self.session, self.session.core
        read = self._read_live() + self._read_parked()
        self._read_heartbeats()
        self._read_pair()
        if self.awaits_end and self.has_broker and not self.query.has_earlier:
            self.awaits_end = False
            session.take(EarlierEnded())
            self.world.judge()
        now = self.now
        self._carry_out(session.step(now))
        if self.has_broker:
            self.world.heartbeats.emit(self, session)
            if session.pair.role is PairRole.ANSWERING:
                self.query.places.emit(self, core)
        if self.copy != ONLY and self.is_ready != self._was_ready:
            self._was_ready = self.is_ready
            self.world.judge()
        self.turn_again(now, STEP_US + read * RECORD_US)

    def _read_heartbeats(self) -> None:
        query, ahead_us = self.query, self.now - self.world.scheduler.now
        heartbeats = self.world.heartbeats
        for child in range(len(query.config.children)):
            topic = query.ordered_topic(child)
            for replica in range(query.config.replicas):
                name = query.orderer_name(child, replica)
                latest = heartbeats.last_heartbeat(name)
                if latest is not None:
                    state, at = latest
                    beat = beat_of_state(name, topic, state.value)
                    if heartbeats.is_reported_dead(name):
                        beat = beat.as_dead()
                    self.session.take(HeartbeatReceived(beat, at + ahead_us))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case FetchEnds(logs):
                    self._fetch_ends(logs)
                case Perform(procedure):
                    perform(self, procedure, lambda _: self.turn_in(0))
                case Commit():
                    self._begin_transaction(effect)
                case WriteState(query, state, part):
                    log = self.world.log_at((Names().state(query), part))
                    self.producer.send(log, state)
                case StorePane(at, key, stored):
                    self.producer.send(
                        self.world.log_at(at), StoredRecord(key, stored), partial(self._stored, at)
                    )
                case Fail(reason) | Rebuild(reason):
                    self.world.note(self.name, reason)
                    is_rebuilt = isinstance(effect, Rebuild) and not self._is_leaving
                    end = self.world.rebuild if is_rebuilt else self.world.restart
                    self.world.scheduler.after(0, partial(end, self))
                    return
                case LogLine(text) if self.copy != ONLY:
                    self.world.note(self.name, text)

    def _stored(self, at: At, offset: int) -> None:
        def act() -> None:
            self.session.take(RecordDelivered(at, offset))
            self.turn_in(0)

        self._run(act)

    def _receives(self, at: At) -> bool:
        if (of := self._of.get(at)) is None:
            return True
        return (of.child, of.replica) not in self.deaf_to

    def _observe(self, record: Record) -> None:
        observe(self._history_clock, record, self.now)

    def _fetch_ends(self, logs: Sequence[At]) -> None:
        asked_at = self.now
        known = self.has_broker

        def answer() -> None:
            up = known and self.has_broker
            ends = {at: self.logs[at].end if up else None for at in logs}
            self.session.take(EndsFetched(ends, asked_at))
            self.turn_in(0)

        wait = (
            self.world.scheduler.between(500, 3_000) if known else self.world.config.margin_us // 2
        )
        self.later(wait, answer)

    # Transactions.

    def _begin_transaction(self, commit: Commit) -> None:
        units = len(rows_of(commit.transaction))
        wait = self.world.scheduler.between(500, 3_000)
        self.work(units, lambda: self.later(wait, lambda: self._write(commit)))

    def _write(self, commit: Commit) -> None:
        world, query = self.world, self.query
        if not self.has_broker:
            self.later(10_000, lambda: self._write(commit))
            return
        records: list[tuple[Log[object], object]] = [
            (query.results_log(self.part), commit.transaction),
            *query.result_lines(self.part, commit),
            (query.state_log(self.part), commit.state),
        ]
        try:
            transaction = world.broker.begin(self._id, self._epoch, records)
        except FencedError:
            self._refused()  # an older copy may have started last: then this one returns
            return
        delay = world.scheduler.between(500, 4_000)
        self.later(delay, lambda: self._close(commit, transaction))

    def _close(self, commit: Commit, transaction: Open) -> None:
        world = self.world
        if not self.has_broker:
            self.later(10_000, lambda: self._close(commit, transaction))
            return
        try:
            world.broker.commit(self._id, self._epoch, transaction)
        except FencedError:
            self._refused()  # an older copy may have started last: then this one returns
            return
        self.query.committed(self.part, self.placement, commit)
        # The acknowledgement may never arrive: then the restart finds the commit in the log.
        self.session.take(CommitSucceeded(self.now))
        self.turn_in(0)

    def _refused(self) -> None:
        self.session.take(CommitFailed("fenced"))
        self.turn_in(0)
