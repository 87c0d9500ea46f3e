"""The last records of a host's logs, kept in memory for cursors that were parked a moment ago.

A source that falls silent for some seconds parks the stable line of every fragment that reads it,
and when it comes back all of them replay what the host has read live meanwhile. From the broker
that is a client of its own for each fragment: twenty queries made 160 clients at once, each with
its threads, its connections and its fetches, on a machine that has the backlog to work off, too.
What the live consumer brought last is therefore kept, as bytes, and handed out again from here;
``CatchUpReader`` asks the broker only for what is older.

What is here is what the live consumer has seen: the same bytes, and nothing left out in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from slackwater.runtime.logs.transport import Log, RawRecord

RECENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of all logs of a host, ``RECENT_RECORD_BYTES`` for each record included."""
RECENT_RECORD_BYTES: Final = 100
"""What a record takes beside its value: the head of an object, a number, three references."""
NO_TIMESTAMP: Final = -1
COMPACT_AT: Final = 1024
"""So many records that were dropped are left in front of a list before it is cut."""


@dataclass(eq=False)
class _Held:
    """The records of one log in their order; those before ``first`` have been dropped."""

    begin: int
    """Every record that a reader sees from this offset on is held."""
    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    first: int = 0
    is_forgotten: bool = False
    end: int = field(init=False)
    """The live consumer's next record is at this offset or beyond."""

    def __post_init__(self) -> None:
        self.end = self.begin

    def drop_oldest(self) -> int:
        """Returns how many bytes that gives back."""
        self.begin = self.offsets[self.first] + 1
        size = len(self.values[self.first])
        self.values[self.first] = b""
        self.first += 1
        if self.first >= COMPACT_AT and self.first * 2 >= len(self.offsets):
            del self.offsets[: self.first], self.values[: self.first]
            self.first = 0
        return size + RECENT_RECORD_BYTES


class RecentRecords:
    """The oldest record of all logs goes first. For the event loop's thread.

    Args:
        bytes_max: of all logs together.
    """

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._logs: dict[Log, _Held] = {}
        self._arrivals: deque[_Held] = deque()
        """For each record that is held, of which log it is; the oldest first."""
        self._arrivals_forgotten = 0
        """How many of them are of logs that have been forgotten."""
        self.bytes = 0
        """Held in all."""

    def begin(self, log: Log, offset: int) -> None:
        """The live consumer begins the log at ``offset``; what was held of it is forgotten."""
        self.forget(log)
        self._logs[log] = _Held(offset)

    def forget(self, log: Log) -> None:
        """The live consumer does not read the log any more."""
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
        """A record of the live consumer, in the order of its log. Others are passed over."""
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
        self, log: Log, offset: int, records_max: int, *, is_nearly_enough: bool = True
    ) -> list[RawRecord] | None:
        """The next records from ``offset`` on; None if they are not all held.

        Records after those of the live consumer are not held: a cursor may be parked ahead of it,
        at the end of a backlog (rule-13).
        Without ``is_nearly_enough`` also None where they may soon be dropped: in the older half.
        A cursor with another reader then does not alternate between the two.
        """
        held = self._logs.get(log)
        if held is None or not held.begin <= offset <= held.end:
            return None
        at = bisect_left(held.offsets, offset, held.first)
        if not is_nearly_enough and at < (held.first + len(held.offsets)) // 2:
            return None
        return [
            RawRecord(*log, held.offsets[i], NO_TIMESTAMP, None, held.values[i])
            for i in range(at, min(at + records_max, len(held.offsets)))
        ]
