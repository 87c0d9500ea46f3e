"""A simulated fragment that reads logs, as a host reads them for its session.

The live consumer reads each log on. What the session parks, a catch-up reader reads again from the
offset that it wants.
"""

from __future__ import annotations

from abc import abstractmethod

from tests.simulator.kafka import PositionGoneError
from tests.simulator.process import Fragment

from slackwater.model.merged import MergedRecord
from slackwater.model.records import DeltaRecord, OrderedRecord
from slackwater.sessions.events import PassedBy, PositionGone, Received, Record, Replayed
from slackwater.sessions.requests import Log as At

LIVE_RECORDS_MAX = 200
CATCH_UP_RECORDS_MAX = 50
STEP_US = 200
RECORD_US = 20


class LogReader(Fragment):
    """Reads ``logs`` in each turn, hands the session what others report, and carries out a step."""

    def turn(self) -> None:
        if not self._works:
            return
        read = self._read_live() + self._read_parked()
        self._read_heartbeats()
        now = self.now
        self._carry_out(self.session.step(now))
        self.turn_again(now, STEP_US + read * RECORD_US)

    @abstractmethod
    def _read_heartbeats(self) -> None:
        """Hand the session what other processes report."""

    def _receives(self, at: At) -> bool:
        """Whether the live consumer gets the records of this log."""
        return True

    def _observe(self, record: Record) -> None:
        """Look at a record that the session is about to take."""

    @property
    def _is_lagging(self) -> bool:
        return self.has_broker and any(
            self._positions[at] < log.end and self._receives(at) for at, log in self.logs.items()
        )

    def _read_live(self) -> int:
        if not self.has_broker:
            return 0
        count = 0
        for at, log in self.logs.items():
            if self._positions[at] >= log.end or not self._receives(at):
                continue
            begin = max(self._positions[at], log.beginning)
            for offset, value in log.read(begin, LIVE_RECORDS_MAX):
                self._positions[at] = offset + 1
                if not self.session.needs(at, offset):
                    self.session.take(PassedBy(at, offset))
                    continue
                count += 1
                record = read_as(value)
                self._observe(record)
                self.session.take(Received(at, offset, record))
        return count

    def _read_parked(self) -> int:
        if not self.has_broker:
            return 0
        count = 0
        for (line, at), wanted in self.session.wanted().items():
            log = self.logs[at]
            try:
                records = log.read(wanted, CATCH_UP_RECORDS_MAX)
            except PositionGoneError:
                self.session.take(PositionGone(line, at, log.beginning))
                continue
            for offset, value in records:
                record = read_as(value)
                self._observe(record)
                self.session.take(Replayed(line, at, offset, record))
                count += 1
        return count


def read_as(value: object) -> Record:
    """Return a record as a host passes it on: None if it does not decode."""
    assert value is None or isinstance(value, DeltaRecord | MergedRecord | OrderedRecord)
    return value
