"""Virtual time: one queue of events, one seed.

All events of a simulated run are in this queue, ordered by time and, at equal times, by the order
of insertion. Time advances only through it. A run is therefore a function of its seed, and a
failure is repeated by its seed (as in FoundationDB's and TigerBeetle's simulators).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

MS = 1_000
SECOND = 1_000_000

Act = Callable[[], None]


class Scheduler:
    """Virtual wall time in us, the queue of events, and the only source of randomness."""

    def __init__(self, seed: int, start_us: int) -> None:
        self.rng = Random(seed)
        self.now = start_us
        self.events = 0
        self._queue: list[tuple[int, int, Act]] = []
        self._next = 0

    def at(self, when_us: int, act: Act) -> None:
        """Schedule an action; a time in the past means next."""
        heapq.heappush(self._queue, (max(when_us, self.now), self._next, act))
        self._next += 1

    def after(self, delay_us: int, act: Act) -> None:
        """Schedule an action after a delay."""
        self.at(self.now + delay_us, act)

    def between(self, low_us: int, high_us: int) -> int:
        """Return a random delay."""
        # Not ``randrange``: it took a tenth of the time of a run.
        return low_us + int(self.rng.random() * (high_us - low_us)) if low_us < high_us else low_us

    def run_until(self, when_us: int) -> None:
        """Run all events before ``when_us``."""
        queue = self._queue
        while queue and queue[0][0] <= when_us:
            at, _, act = heapq.heappop(queue)
            assert at >= self.now, "time does not decrease"
            self.now = at
            self.events += 1
            act()
        self.now = max(self.now, when_us)
