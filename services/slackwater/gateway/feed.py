"""One query's changes, to all its readers. Pure; for one event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackwater.gateway.changes import Change
from slackwater.gateway.outbox import Outbox
from slackwater.gateway.positions import Positions
from slackwater.gateway.ring import Ring

SNAPSHOT = b"id: \nevent: snapshot\ndata: {}\n\n"
"""What is before the changes of a snapshot: forget what you have, also the id of the last event."""


class Feed:
    """A ring and the outboxes of its readers."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.outboxes: set[Outbox] = set()
        self.is_current = False
        """Whether all results that there were at its begin have been read."""

    def publish(self, changes: Iterable[Change], begins: Mapping[int, int]) -> None:
        """Add changes, and offer each to all readers; it is encoded once.

        ``begins`` has the first ``seq`` that was read of each part.
        """
        for part, seq in begins.items():
            self.ring.begin(part, seq)
        for change in changes:
            frame = self.ring.add(change).frame
            for outbox in self.outboxes:
                outbox.offer(frame)

    def join(self, outbox: Outbox, positions: Positions | None) -> list[bytes]:
        """Return the first frames of a reader; all later changes are offered to its outbox.

        With the positions of a reader that comes back these are the changes after them, if all are
        still here; otherwise a snapshot.
        """
        self.outboxes.add(outbox)
        missed = None if positions is None else self.ring.after(positions)
        if missed is not None:
            return [event.frame for event in missed]
        return [SNAPSHOT, *(event.frame for event in self.ring.snapshot())]

    def leave(self, outbox: Outbox) -> None:
        """Offer this reader nothing more."""
        self.outboxes.discard(outbox)

    def end(self, frame: bytes) -> None:
        """Tell all readers that the query has ended, and close their streams."""
        for outbox in list(self.outboxes):
            outbox.offer(frame)
            outbox.close()
        self.outboxes.clear()
