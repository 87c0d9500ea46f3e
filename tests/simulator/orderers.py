"""An orderer replica: the product's session, with the model of Kafka as its host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.simulator.kafka import PositionGoneError
from tests.simulator.procedures import perform
from tests.simulator.process import Fragment, observe

from slackwater.host.wake_signal import UNSETTLED_S_MAX
from slackwater.model.records import SourceRecord
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.dpc.sunion.core import OrdererCore
from slackwater.protocols.dpc.sunion.operators import Operators
from slackwater.sessions.effects import (
    Append,
    Effect,
    Fail,
    FetchEnds,
    FetchPositions,
    Perform,
    Rebuild,
    WriteState,
)
from slackwater.sessions.events import (
    EndsFetched,
    HoleReported,
    PassedBy,
    PositionGone,
    PositionsFetched,
    Received,
    Record,
    RecordDelivered,
    Replayed,
    ReplayedTo,
)
from slackwater.sessions.orderer import SAVE_PERIOD_US, OrdererSession
from slackwater.sessions.requests import Log

if TYPE_CHECKING:
    from tests.simulator.queries import SimQuery

CATCH_UP_RECORDS_MAX = 20
ROWS_MAX = 30
"""Maximum rows of a result topic per poll of a consumer."""
STEP_US = 200
UNSETTLED_US = round(UNSETTLED_S_MAX * 1e6)
"""A delivery needs no turn in the product, but one follows it often."""
RECORDS_PER_UNIT = 10
"""Units of work of an overloaded orderer."""


UNREAD_RECORDS_MAX: Final = 10
"""The logs of a run are short."""


class SimOrderer(Fragment):
    """One incarnation of replica ``replica`` of ``child``."""

    session: OrdererSession

    def __init__(self, query: SimQuery, child: int, replica: int, placement: int = -1) -> None:
        super().__init__(query.world, query.orderer_name(child, replica))
        self.query, self.child, self.replica = query, child, replica
        self.placement = placement
        self._history_clock = query.history_clock()
        inputs = list(query.inputs(child))
        self.logs = {of.at: self.world.log_at(of.at) for of in inputs}
        self._streams = {of.at: of.name if of.results else of.source for of in inputs}
        self.session = OrdererSession(
            query.name,
            query.orderer_config(child, replica, placement, self._history_clock),
            Operators(
                query.config.fields,
                None,
                None,
                KeyTable(kept_keys_min=0),
                join=query.config.join([of.source for of in inputs]),
                rows=query.config.rows,
                piece_bytes_max=self.world.config.piece_bytes_max,
            ),
            sources=list(self.logs),
            own=query.ordered_logs_at(child, replica),
            start_time=query.start_time_us,
            parts=query.config.parts,
            readers=[reader.name for reader in query.readers],
            results={i: of.results for i, of in enumerate(inputs) if of.results is not None},
            save_period_us=self.world.config.paced(SAVE_PERIOD_US),
        )
        start = self.session._start
        self.session._start = replace(start, unread_records_max=UNREAD_RECORDS_MAX)
        self._forms = self.session.inputs
        self.deaf_to: set[str] = set()
        """Streams that the live consumer no longer fetches (trace-34)."""

    @property
    def core(self) -> OrdererCore | None:
        """The core; None until the start is complete."""
        return self.session.core if self._works else None

    def start(self) -> None:
        perform(self, self.session.start(), self.begin, self.stay_down)

    # The loop.

    def turn(self) -> None:
        if not self._works:
            return
        session = self.session
        try:
            read = self._read_live() + self._read_parked()
        except PositionGoneError:
            self.world.restart(self)  # its consumer must not resume elsewhere by itself
            return
        self._read_heartbeats()
        now = self.now
        effects = session.step(now)
        self.query.turns.emit(self, session.core.stagger.status())
        units = sum(isinstance(effect, Append) for effect in effects) + read // RECORDS_PER_UNIT
        self.work(units, lambda: self._carry_out(effects))
        self.turn_again(now, STEP_US + read * self.world.config.record_us)

    def _read_heartbeats(self) -> None:
        self.query.turns.deliver(self)
        for reader in self.query.readers:
            reader.places.deliver(self)
        if self.world.heartbeats.is_hole(self.session.hole):
            self.session.take(HoleReported())

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(log, record):
                    self._append(log, record)
                case WriteState(_, state):
                    self.producer.send(self.query.state_log(), state)
                case FetchEnds(logs):
                    self._fetch_ends(logs)
                case FetchPositions(logs):
                    self._fetch_positions(logs)
                case Perform(procedure):
                    perform(self, procedure, lambda _: self.turn_in(0))
                case Fail():
                    self.world.scheduler.after(0, lambda: self.world.restart(self))
                    return
                case Rebuild():
                    self.world.scheduler.after(0, lambda: self.world.rebuild(self))
                    return
        self.world.heartbeats.emit(self, self.session)

    @property
    def _is_lagging(self) -> bool:
        return any(
            self._positions[at] < log.stable_end
            for at, log in self.logs.items()
            if self._streams[at] not in self.deaf_to
        )

    def _read_live(self) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for at, log in self.logs.items():
            if self._positions[at] >= log.end or self._streams[at] in self.deaf_to:
                continue
            if self._forms[at] == "results":
                rows, position = log.read_visible(self._positions[at], ROWS_MAX)
            else:
                rows = log.read(
                    max(self._positions[at], log.beginning), self.world.config.live_records_max
                )
                position = rows[-1][0] + 1 if rows else self._positions[at]
            self._positions[at] = position
            for offset, value in rows:
                if not self.session.needs(at, offset):
                    self.session.take(PassedBy(at, offset))
                    continue
                count += 1
                record = read_as(value)
                observe(self._history_clock, record, self.now)
                self.session.take(Received(at, offset, record))
        return count

    def _read_parked(self) -> int:
        if not self.world.broker.up:
            return 0
        count = 0
        for (line, at), wanted in self.session.wanted().items():
            log = self.logs[at]
            try:
                if self._forms[at] == "results":
                    rows, position = log.read_visible(wanted, ROWS_MAX)
                else:
                    rows, position = log.read(wanted, CATCH_UP_RECORDS_MAX), wanted
            except PositionGoneError:
                self.session.take(PositionGone(line, at, log.beginning))
                continue
            for offset, value in rows:
                record = read_as(value)
                observe(self._history_clock, record, self.now)
                self.session.take(Replayed(line, at, offset, record))
                count += 1
            self.session.take(ReplayedTo(line, at, position))
        return count

    # Execution of effects.

    def _append(self, at: Log, record: object) -> None:
        def delivered(offset: int) -> None:
            self.session.take(RecordDelivered(at, offset))
            self.turn_in(UNSETTLED_US)

        self.producer.send(self.world.log_at(at), record, delivered)

    def _fetch_ends(self, logs: Sequence[Log]) -> None:
        asked_at = self.now
        if not self.world.broker.up:
            wait = self.world.config.margin_us // 2
            self.later(wait, lambda: self._ends(dict.fromkeys(logs), asked_at))
            return

        def answer() -> None:
            self._ends({at: self.logs[at].stable_end for at in logs}, asked_at)

        self.later(self.world.scheduler.between(500, 3_000), answer)

    def _ends(self, ends: dict[Log, int | None] | dict[Log, int], asked_at: int) -> None:
        self.session.take(EndsFetched(ends, asked_at))
        self.turn_in(0)

    def _fetch_positions(self, logs: Sequence[Log]) -> None:
        def answer() -> None:
            self.session.take(PositionsFetched({at: self._positions[at] for at in logs}))
            self.turn_in(0)

        self.later(self.world.scheduler.between(500, 3_000), answer)


def read_as(value: object) -> Record:
    """Return a record as a host passes it on: None if it does not decode.

    Lines of text as bytes.
    """
    assert value is None or isinstance(value, SourceRecord | bytes)
    return value
