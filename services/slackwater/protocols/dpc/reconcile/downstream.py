"""Delays the join of a replica's lines until the roots have read most of its corrections.

DPC joins as soon as a replica has caught up, because the queue between two nodes is short. Here an
aggregator reads the logs between them. If it is slower than its orderer, it still has corrections
of a long failure to read when the orderer's lines meet, and a live bucket appended to the stable
log would wait after them (trace-33). So the lines stay *forked* until the roots are near. The live
line continues to write each bucket to the live log, which another Spark task reads, and the stable
line writes the bucket again to the stable log.

The distance is measured by how far the roots have read *this* replica's stable log. The last
answered window would be a wrong measure: a silent stream of another child stops answers for hours,
a long window or a large lateness delays them by design, and a query without a window has none.

Waiting proceeds in rounds, since an aggregator that is always far behind would keep the lines apart
forever. A round ends when the roots reach the position at which the stable log ended when the round
began. If the distance has not halved by then, corrections are not its cause and the lines join.
Roots whose last report is older than a lease are not waited for.

Rejected: a limit on how far a stable line may be ahead of the roots during catch-up. The limit
would move with each heartbeat, and make a fast aggregator as slow as a slow one.

Pure: reports and times come in, a decision comes out. Times are us.
"""

from __future__ import annotations

from typing import Final

from slackwater.model.names import replica_letter

NEAR_BUCKETS_DEFAULT: Final = 5
"""1.25 s at the usual w of 250 ms (decision 74). Transport and heartbeats account for one to three
buckets, and an aggregator that keeps pace processes five in less than the bound."""


def read_position_key(child: int, replica: int) -> str:
    """Key of the read position in a replica's stable log, in a root's heartbeat."""
    return f"read_{child}.{replica_letter(replica)}"


class Downstream:
    """One replica's view of the roots that read its stable log.

    ``near_us`` is the distance (event time) within which lines join without waiting, ``lease_us``
    how long a report is valid.
    """

    def __init__(self, near_us: int, lease_us: int) -> None:
        self._near_us = near_us
        self._lease_us = lease_us
        self._statuses: dict[int, tuple[int, int]] = {}
        self._round_end: int | None = None
        self._lag = 0

    def update(self, part: int, read_to: int, received_at: int) -> None:
        """Record the event time to which a root has read this replica's stable log.

        ``received_at`` is the arrival time of the root's latest heartbeat.
        """
        self._statuses[part] = (read_to, received_at)

    def is_awaited(self, now: int, stable_next: int) -> bool:
        """True if lines that meet at ``stable_next`` must stay apart for now."""
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
        """Discard the round: the lines have joined, or an input is missing again."""
        self._round_end = None
