"""The last changes of a query, from which readers begin and continue.

Changes of all parts are in one order, in which they were read; the order of ``seq`` within a part
is kept. A reader that comes back continues after its positions if all later changes are still here.
Otherwise, and at first, it gets a snapshot: the last changes themselves. Applied in order they give
for each window that they answer what all changes give, since the last change of a window decides
(an UNDO, which would not, is followed by the exact answer).

Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final

from slackwater.gateway.changes import Change
from slackwater.gateway.positions import Positions, format_id

CHANGES_MAX: Final = 10_000
BYTES_MAX: Final = 32 * 1024 * 1024
SNAPSHOT_CHANGES_MAX: Final = 1_000
SNAPSHOT_BYTES_MAX: Final = 2 * 1024 * 1024
_HEAD: Final = b"id: %b\nevent: change\ndata: "
_END: Final = b"\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """A change as an event of a stream; ``id`` names the positions of all parts after it.

    ``frame`` is the encoded server-sent event. It has the change's only copy, which all readers
    share: with a copy for each, a thousand that come at once would take 2 GB.
    """

    part: int
    seq: int
    id: str
    frame: bytes

    @classmethod
    def of(cls, change: Change, id_: str) -> Event:
        """Return the event of a change."""
        return cls(change.part, change.seq, id_, _HEAD % id_.encode() + change.body + _END)

    @property
    def body(self) -> bytes:
        """The change's body."""
        return self.frame[len(_HEAD % self.id.encode()) : -len(_END)]

    @property
    def size(self) -> int:
        """Bytes that it takes in the ring."""
        return len(self.frame)

    def at(self, id_: str) -> Event:
        """Return it for a reader with other positions."""
        return self if id_ == self.id else Event.of(Change(self.part, self.seq, self.body), id_)


class Ring:
    """The ring of one query; at least the last change is kept, whatever its size."""

    def __init__(
        self, query: str, changes_max: int = CHANGES_MAX, bytes_max: int = BYTES_MAX
    ) -> None:
        assert changes_max > 0
        self.query = query
        self._changes_max, self._bytes_max = changes_max, bytes_max
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._last: dict[int, int] = {}
        self._gone: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._events)

    @property
    def positions(self) -> Positions:
        """The last position of each part."""
        return self._last

    def bodies(self) -> list[bytes]:
        """Return the bodies of all changes, in order."""
        return [event.body for event in self._events]

    def begin(self, part: int, seq: int) -> None:
        """Accept that a part's records before ``seq`` are not read; only at its first record."""
        if part not in self._gone:
            self._gone[part] = seq - 1

    def add(self, change: Change) -> Event:
        """Add a change, and return its event; the oldest ones are dropped for it."""
        self.begin(change.part, change.seq)
        self._last[change.part] = change.seq
        event = Event.of(change, format_id(self.query, self._last))
        self._events.append(event)
        self._bytes += event.size
        while len(self._events) > 1 and (
            len(self._events) > self._changes_max or self._bytes > self._bytes_max
        ):
            dropped = self._events.popleft()
            self._bytes -= dropped.size
            self._gone[dropped.part] = dropped.seq
        return event

    def after(self, positions: Positions) -> list[Event] | None:
        """Return the events after these positions; None if some are gone, or none can be such.

        The ids are those of a reader with these positions. In the ring they belong to the order in
        which the changes were read here, which another process may have read differently.
        """
        for part, seq in positions.items():
            if seq > self._last.get(part, -1):
                return None
        if any(positions.get(part, -1) < gone for part, gone in self._gone.items()):
            return None
        at = dict(positions)
        found = []
        for event in self._events:
            if event.seq > positions.get(event.part, -1):
                at[event.part] = event.seq
                found.append(event.at(format_id(self.query, at)))
        return found

    def snapshot(
        self,
        changes_max: int = SNAPSHOT_CHANGES_MAX,
        bytes_max: int = SNAPSHOT_BYTES_MAX,
    ) -> list[Event]:
        """Return the last events, within these bounds."""
        count = size = 0
        for event in reversed(self._events):
            size += event.size
            if count == changes_max or (count and size > bytes_max):
                break
            count += 1
        return list(islice(self._events, len(self._events) - count, None))
