"""Feeds a session's parked cursors, which stand at offsets that the live consumer has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from slackwater.host.decoding import Decode
from slackwater.protocols.common.line import LINES, LineName
from slackwater.runtime.logs.catchup import CatchUpReader, Gone
from slackwater.runtime.logs.recent import RecentRecords
from slackwater.runtime.logs.transport import Isolation, Log, RawRecord, Transport
from slackwater.sessions.events import PositionGone, Record, Replayed, ReplayedTo
from slackwater.sessions.session import COMMITTED, Form, Session

CATCH_UP_PREFETCH_KIB: Final = 8 * 1024
CATCH_UP_RECORDS_MAX: Final[Mapping[Form, int]] = {
    "source": 20,
    "ordered": 50,
    "deltas": 50,
    "merged": 10,
    "results": 2_000,
}
"""Records read in one turn: a few milliseconds of work. A record of a result topic is one row."""


class ParkedReaders:
    """The catch-up readers of one session, one for each line and isolation level.

    Args:
        session: the session whose parked cursors are fed.
        transport: access to the logs.
        prefetch_kib_max: limit for each reader.
        recent: records that the live consumer read last.
        decode: decodes a record.
        follow: called with each record before the session takes it.
    """

    def __init__(
        self,
        session: Session,
        transport: Transport,
        prefetch_kib_max: int,
        *,
        recent: RecentRecords | None,
        decode: Decode,
        follow: Callable[[Record], None],
    ) -> None:
        self._session = session
        self._decode = decode
        self._follow = follow
        self._forms = dict(session.inputs)
        # A session reads states that the live consumer has passed by a request.
        parked = [log for log, form in self._forms.items() if form != "states"]
        self._readers = {
            (line, isolation): CatchUpReader(
                transport, isolation=isolation, prefetch_kib_max=prefetch_kib_max, recent=recent
            )
            for line in LINES
            for isolation in {self._isolation(log) for log in parked}
        }

    def read(self) -> bool:
        """Pass at most one small batch from each reader; return whether there was a record."""
        session, wanted, read = self._session, self._session.wanted(), False
        for (line, isolation), reader in self._readers.items():
            positions = {
                log: offset
                for (of, log), offset in wanted.items()
                if of is line and self._isolation(log) == isolation
            }
            is_rows = isolation == "read_committed"
            found = reader.read(positions, self._records_max(positions))
            if isinstance(found, Gone):
                session.take(PositionGone(line, found.log, found.beginning))
                continue
            if not is_rows:
                self._pass_unseen(line, positions, found)
            for raw in found:
                record = self._decode(self._forms[raw.log], raw.log, raw.offset, raw.value)
                self._follow(record)
                session.take(Replayed(line, raw.log, raw.offset, record))
            read_on = reader.wanted if is_rows else frozenset()
            for log in filter(read_on.__contains__, positions):
                session.take(ReplayedTo(line, log, reader.position(log)))
            read = read or bool(found)
        return read

    def close(self) -> None:
        """Close the readers."""
        for reader in self._readers.values():
            reader.close()

    def _isolation(self, log: Log) -> Isolation:
        return "read_committed" if self._forms[log] in COMMITTED else "read_uncommitted"

    def _pass_unseen(
        self, line: LineName, positions: Mapping[Log, int], found: Sequence[RawRecord]
    ) -> None:
        """Move parked cursors past offsets without records, up to the first record read.

        These offsets are markers of other programs' transactions; slackwater writes these logs
        without transactions. If records were lost instead, ids are missing in those that follow.
        """
        firsts = {raw.log: raw.offset for raw in reversed(found)}
        for log, offset in firsts.items():
            if offset > positions[log]:
                self._session.take(PositionGone(line, log, offset))

    def _records_max(self, logs: Iterable[Log]) -> int:
        return max((CATCH_UP_RECORDS_MAX[self._forms[log]] for log in logs), default=1)
