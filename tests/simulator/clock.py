"""Virtual time: one queue of events, one seed.

Everything that happens in a simulated world is an event in this queue, ordered by its time and,
at equal times, by the order in which it was put there. Nothing else moves time. So a run is a
function of its seed, and a failure is repeated by naming it (as in FoundationDB's and
TigerBeetle's simulators).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

MS = 1_000
SECOND = 1_000_000

Act = Callable[[], None]


class Scheduler:
    """Virtual wall time in us, the events to come, and the only source of chance."""

    def __init__(self, seed: int, start_us: int) -> None:
        self.rng = Random(seed)
        self.now = start_us
        self.events = 0
        self._queue: list[tuple[int, int, Act]] = []
        self._next = 0

    def at(self, when_us: int, act: Act) -> None:
        """Do it then; what lies in the past is done next."""
        heapq.heappush(self._queue, (max(when_us, self.now), self._next, act))
        self._next += 1

    def after(self, delay_us: int, act: Act) -> None:
        """Do it later."""
        self.at(self.now + delay_us, act)

    def between(self, low_us: int, high_us: int) -> int:
        """A delay by chance."""
        # Not ``randrange``: a tenth of a run was spent in it.
        return low_us + int(self.rng.random() * (high_us - low_us)) if low_us < high_us else low_us

    def run_until(self, when_us: int) -> None:
        """Let everything happen that happens before ``when_us``."""
        queue = self._queue
        while queue and queue[0][0] <= when_us:
            at, _, act = heapq.heappop(queue)
            assert at >= self.now, "time does not go back"
            self.now = at
            self.events += 1
            act()
        self.now = max(self.now, when_us)
