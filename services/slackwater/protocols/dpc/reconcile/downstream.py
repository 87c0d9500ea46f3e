"""How far a replica's stable log has come at the roots: is what was corrected out of the way?

DPC joins as soon as it has caught up, since there a node sends to its neighbour through one queue
that is never long. Here an aggregator reads the logs between them. One that is slower than its
orderer still has the corrections of a long failure before it when the orderer's lines meet, and a
live bucket in the stable log would stand behind all of them (trace-33). So the lines stay *apart*
until the roots have come near: the live line goes on saying each bucket in the live log, which has
a task of its own, and the stable line says it once more.

What the roots have read of *this* replica's stable log is what counts. The windows they have
answered would be the wrong measure: another child's silence stops them for hours, a long window or
a great lateness holds them back by design, and without a window there are none.

Waiting must gain something, or an aggregator that is never near would keep the lines apart for
good. So it goes in rounds: once the roots have come to where the stable log ended when the round
began, the distance must have halved, else it is not the corrections that make it. Nothing depends
on a word: the roots that have said nothing for a lease are not waited for.

Rejected: a credit that keeps a stable line close to the roots all the time it catches up. It would
be at the pace of heartbeats, and slow a quick aggregator down to mend a slow one.

Pure: words of others and time come in, a yes or no comes out. Times are us.
"""

from __future__ import annotations

from typing import Final

from slackwater.model.names import replica_letter

NEAR_BUCKETS_DEFAULT: Final = 5
"""Half a second at the usual w of 100 ms: the way and the heartbeats are one to three, and so few
live buckets cost an aggregator that keeps pace less than the bound."""


def read_position_key(child: int, replica: int) -> str:
    """What a root's heartbeat calls its place in a replica's stable log."""
    return f"read_{child}.{replica_letter(replica)}"


class Downstream:
    """The parts of a query's root, in the eyes of one replica.

    ``near_us`` is the distance (event time) at which nobody waits, ``lease_us`` how long a word
    counts.
    """

    def __init__(self, near_us: int, lease_us: int) -> None:
        self._near_us = near_us
        self._lease_us = lease_us
        self._statuses: dict[int, tuple[int, int]] = {}
        self._round_end: int | None = None
        self._lag = 0

    def update(self, part: int, read_to: int, received_at: int) -> None:
        """A root's latest heartbeat: how far it has read this replica's stable log."""
        self._statuses[part] = (read_to, received_at)

    def is_awaited(self, now: int, stable_next: int) -> bool:
        """Shall lines that meet at ``stable_next`` stay apart for now?"""
        places = [to for to, at in self._statuses.values() if now - at < self._lease_us]
        if not places:
            return False
        lag = stable_next - min(places)
        if lag <= self._near_us:
            return False
        if self._round_end is None or min(places) >= self._round_end:
            if self._round_end is not None and lag > self._lag // 2:
                return False
            self._round_end, self._lag = stable_next, lag
        return True

    def forget(self) -> None:
        """The lines are one, or the stable line has fallen back again: what comes is new."""
        self._round_end = None
