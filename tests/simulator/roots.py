"""A root copy: the product's session, with the model of Kafka as its host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulator.clock import Act
from tests.simulator.heartbeats import beat_of_state
from tests.simulator.kafka import FencedError, Log, Open, PositionGoneError
from tests.simulator.procedures import perform
from tests.simulator.process import Fragment, observe

from slackwater.model.names import RootName, base_of
from slackwater.model.records import DeltaRecord, OrderedRecord, RootState
from slackwater.protocols.dpc.soutput.answers import rows_of
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.sessions.effects import Effect, Fail, FetchEnds, Perform
from slackwater.sessions.requests import Log as At
from slackwater.sessions.root import RootSession
from slackwater.sessions.session import Record

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery

LIVE_RECORDS_MAX = 200
CATCH_UP_RECORDS_MAX = 50
STEP_US = 200
RECORD_US = 20


class SimRoot(Fragment):
    """One copy of part ``part``, under the next placement number or a given one."""

    session: RootSession

    def __init__(
        self,
        query: SimQuery,
        part: int,
        placement: int | None = None,
        *,
        is_recorded: bool = False,
    ) -> None:
        super().__init__(query.world, RootName(query.name, part).process)
        self.query, self.part = query, part
        self.placement = self.world.next_placement() if placement is None else placement
        self._history_clock = query.history_clock()
        self.session = RootSession(
            query.root_config(part, self.placement, self._history_clock, is_recorded=is_recorded),
            windowed=not query.config.rows,
        )
        self._id = f"root-{base_of(query.name)}-{part}"
        self._epoch = -1
        self.deaf_to: set[tuple[int, int]] = set()
        """(child, replica) whose deltas the live consumer no longer fetches."""
        self.logs = {at: self.world.log_at(at) for at in self.session.inputs}
        self._of = dict(zip(self.logs, self.session.config.logs, strict=True))

    @property
    def core(self) -> RootCore | None:
        """The core; None until the start is complete."""
        return self.session.core if self._works else None

    def start(self) -> None:
        perform(self, self.session.start(), self.begin, self.stay_down)

    def fence(self) -> None:
        """Fence, as a producer does when it starts; its epoch is set in ``procedures``."""
        self._epoch = self.world.broker.fence(self._id)

    def claim(self, state: RootState, then: Act) -> None:
        """Commit a state record alone; if another copy has fenced this one, it ends."""
        world = self.world
        if not world.broker.up:
            self.later(10_000, lambda: self.claim(state, then))
            return
        try:
            records: list[tuple[Log[object], object]] = [(self.query.state_log(self.part), state)]
            transaction = world.broker.begin(self._id, self._epoch, records)
            world.broker.commit(self._id, self._epoch, transaction)
        except FencedError:
            world.scheduler.after(0, lambda: world.restart(self))
            return
        self.later(world.scheduler.between(1_000, 8_000), then)

    # The loop.

    def turn(self) -> None:
        if not self._works:
            return
        session, core = self.session, self.session.core
        read = self._read_live() + self._read_parked()
        self._read_heartbeats()
        now = self.now
        self._carry_out(session.step(now))
        self.world.heartbeats.emit(self, session)
        self.query.places.emit(self, core)
        self.turn_again(now, STEP_US + read * RECORD_US)

    def _read_heartbeats(self) -> None:
        query, ahead_us = self.query, self.now - self.world.scheduler.now
        for child in range(len(query.config.children)):
            for replica in range(query.config.replicas):
                name = query.orderer_name(child, replica)
                latest = self.world.heartbeats.last_heartbeat(name)
                if latest is not None:
                    state, at = latest
                    beat = beat_of_state(name, query.ordered_topic(child), state.value)
                    self.session.on_heartbeat(beat, at + ahead_us)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case FetchEnds(logs):
                    self._fetch_ends(logs)
                case Perform(procedure):
                    perform(self, procedure, lambda _: self.turn_in(0))
                case Commit():
                    self._begin_transaction(effect)
                case Fail(reason):
                    self.world.note(self.name, reason)
                    self.world.scheduler.after(0, lambda: self.world.restart(self))
                    return

    @property
    def _is_lagging(self) -> bool:
        return self.world.broker.up and any(
            self._positions[at] < log.end and self._receives(at) for at, log in self.logs.items()
        )

    def _receives(self, at: At) -> bool:
        of = self._of[at]
        return (of.child, of.replica) not in self.deaf_to

    def _read_live(self) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for at, log in self.logs.items():
            if not self._receives(at):
                continue
            begin = max(self._positions[at], log.beginning)
            for offset, value in log.read(begin, LIVE_RECORDS_MAX):
                self._positions[at] = offset + 1
                record = _read_as(value)
                observe(self._history_clock, record, self.now)
                self.session.receive(at, offset, record)
                count += 1
        return count

    def _read_parked(self) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for (line, at), wanted in self.session.wanted().items():
            log = self.logs[at]
            try:
                records = log.read(wanted, CATCH_UP_RECORDS_MAX)
            except PositionGoneError:
                self.session.position_gone(line, at, log.beginning)
                continue
            for offset, value in records:
                record = _read_as(value)
                observe(self._history_clock, record, self.now)
                self.session.catch_up(line, at, offset, record)
                count += 1
        return count

    def _fetch_ends(self, logs: Sequence[At]) -> None:
        asked_at = self.now
        known = self.world.broker.up

        def answer() -> None:
            up = known and self.world.broker.up
            self.session.ends({at: self.logs[at].end if up else None for at in logs}, asked_at)
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
        if not world.broker.up:
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
        if not world.broker.up:
            self.later(10_000, lambda: self._close(commit, transaction))
            return
        try:
            world.broker.commit(self._id, self._epoch, transaction)
        except FencedError:
            self._refused()  # an older copy may have started last: then this one returns
            return
        self.query.committed(self.part, self.placement, commit)
        # The acknowledgement may never arrive: then the restart finds the commit in the log.
        self.session.committed(self.now)
        self.turn_in(0)

    def _refused(self) -> None:
        self.session.commit_failed("fenced")
        self.turn_in(0)


def _read_as(value: object) -> Record:
    """Return a record as a host passes it on: None if it does not decode."""
    assert value is None or isinstance(value, DeltaRecord | OrderedRecord)
    return value
