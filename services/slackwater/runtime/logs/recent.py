"""The last records of a host's logs, kept in memory for recently parked cursors.

When a source is silent for some seconds, the stable line of every fragment that reads it is parked.
When the source returns, all these fragments replay the records that the host has read live
meanwhile. To read them from the broker would take clients for each fragment: twenty queries created
160 clients at once, each with threads, connections and fetches, on a machine that also had to
process the backlog. The last records of the live consumer are therefore kept here as bytes, and
``CatchUpReader`` requests only older ones from the broker.

Within the range that is held, the cache has every record that the live consumer has read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from slackwater.runtime.logs.transport import Log, RawRecord

RECENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bound for all logs of a host together, including ``RECENT_RECORD_BYTES`` for each record."""
RECENT_RECORD_BYTES: Final = 100
"""Memory of a record in addition to its value: object header, offset, three references."""
NO_TIMESTAMP: Final = -1
COMPACT_AT: Final = 1024
"""Dropped entries at the front of a list before the list is compacted."""


@dataclass(eq=False)
class _Held:
    """The records of one log, in order; entries before index ``first`` have been dropped."""

    begin: int
    """Every visible record from this offset on is held."""
    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    first: int = 0
    is_forgotten: bool = False
    end: int = field(init=False)
    """The live consumer's next record will have this offset or a greater one."""

    def __post_init__(self) -> None:
        self.end = self.begin

    def drop_oldest(self) -> int:
        """Drop the oldest record; return the bytes freed."""
        self.begin = self.offsets[self.first] + 1
        size = len(self.values[self.first])
        self.values[self.first] = b""
        self.first += 1
        if self.first >= COMPACT_AT and self.first * 2 >= len(self.offsets):
            del self.offsets[: self.first], self.values[: self.first]
            self.first = 0
        return size + RECENT_RECORD_BYTES


class RecentRecords:
    """The newest records of a host's logs; the oldest record of all is dropped first.

    For the event loop's thread.

    Args:
        bytes_max: bound for all logs together.
    """

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._logs: dict[Log, _Held] = {}
        self._arrivals: deque[_Held] = deque()
        """The log of each held record, in order of arrival."""
        self._arrivals_forgotten = 0
        """Number of entries in ``_arrivals`` whose log has been removed."""
        self.bytes = 0
        """Bytes held, all logs together."""

    def begin(self, log: Log, offset: int) -> None:
        """Hold a log that the live consumer reads from ``offset``; drop its older records."""
        self.forget(log)
        self._logs[log] = _Held(offset)

    def forget(self, log: Log) -> None:
        """Drop a log that the live consumer no longer reads."""
        held = self._logs.pop(log, None)
        if held is None:
            return
        held.is_forgotten = True
        kept = held.values[held.first :]
        self.bytes -= sum(map(len, kept)) + RECENT_RECORD_BYTES * len(kept)
        self._arrivals_forgotten += len(kept)
        # ``_arrivals`` still refers to the log, once for each of its records.
        held.offsets, held.values, held.first = [], [], 0
        if self._arrivals_forgotten * 2 > len(self._arrivals):
            self._arrivals = deque(each for each in self._arrivals if not each.is_forgotten)
            self._arrivals_forgotten = 0

    def note(self, log: Log, offset: int, value: bytes) -> None:
        """Hold a record of the live consumer, in log order. Records of other logs are ignored."""
        held = self._logs.get(log)
        if held is None:
            return
        held.end = offset + 1
        held.offsets.append(offset)
        held.values.append(value)
        self._arrivals.append(held)
        self.bytes += len(value) + RECENT_RECORD_BYTES
        while self.bytes > self._bytes_max:
            oldest = self._arrivals.popleft()
            if oldest.is_forgotten:
                self._arrivals_forgotten -= 1
            else:
                self.bytes -= oldest.drop_oldest()

    def read(
        self, log: Log, offset: int, records_max: int, *, also_older_half: bool = True
    ) -> list[RawRecord] | None:
        """Return the records from ``offset`` on, at most ``records_max``; None if not all are held.

        None also if ``offset`` is beyond the live consumer's position: a cursor may be parked ahead
        of it, at the end of a backlog (rule-13). Without ``also_older_half`` also None if the
        offset is in the older half of the held records, which may soon be dropped: a cursor that
        reads from the broker then does not alternate between the broker and this cache.
        """
        held = self._logs.get(log)
        if held is None or not held.begin <= offset <= held.end:
            return None
        at = bisect_left(held.offsets, offset, held.first)
        if not also_older_half and at < (held.first + len(held.offsets)) // 2:
            return None
        return [
            RawRecord(*log, held.offsets[i], NO_TIMESTAMP, None, held.values[i])
            for i in range(at, min(at + records_max, len(held.offsets)))
        ]
