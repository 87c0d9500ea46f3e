"""Finds the fragments of a host whose turns take too long. Pure: durations and times are arguments.

All fragments of a host share one event loop, so a turn of 200 ms delays every other answer of the
host by up to 200 ms. Each fragment has a leaky bucket (the algorithm, not a bucket of event time).
A long turn adds its duration, a tenth of the elapsed time leaks out, and the fragment is too slow
when the leaky bucket is full. Three turns of 200 ms within a second are too many. One such turn in
two seconds is allowed, and so is a single long turn, which may be due to garbage collection or to a
pause of the machine. The wait for a core does not count: on an overloaded machine all turns take
longer, and a process of its own would not help the fragment.

The rejected alternative, a fragment's share of the last second, needs the duration of every turn.
The leaky bucket needs only those of long turns.
"""

from __future__ import annotations

from typing import Final

LONG_US: Final = 100_000
"""Shorter turns do not count. A turn takes about 1 ms, during catch-up up to some 20 ms."""
COUNTED_US_MAX: Final = 250_000
"""Limit for one turn, so that a long pause of the machine does not fill the leaky bucket."""
FULL_US: Final = 400_000
LEAK_DIVISOR: Final = 10
"""Long turns may take up to a tenth of the time indefinitely."""
HELD_BACK_FACTOR: Final = 19
"""Wait of a fragment that is too slow, as a multiple of its last turn. 95 % of the time is left to
the other fragments."""


ENDLESS_LOOKS: Final = 125
"""A turn is endless if it lasts for this many heartbeats of its host: 5 s, or 12 s in a host
without replicated fragments."""


class LongTurns:
    """Long turns of one fragment."""

    def __init__(self) -> None:
        self._level_us = 0
        self._looked_at = 0
        self.longest_us = 0
        """The longest turn so far."""
        self.is_too_slow = False
        """Never reset: the fragment needs a process of its own."""

    def note(self, lasted_us: int, now_us: int) -> bool:
        """Record a turn; return True if it is the one by which the fragment becomes too slow.

        Args:
            lasted_us: duration of the turn, us.
            now_us: monotonic time, us.
        """
        if lasted_us < LONG_US:
            return False
        self.longest_us = max(self.longest_us, lasted_us)
        leaked_us = (now_us - self._looked_at) // LEAK_DIVISOR
        self._level_us = max(0, self._level_us - leaked_us) + min(lasted_us, COUNTED_US_MAX)
        self._looked_at = now_us
        if self.is_too_slow or self._level_us < FULL_US:
            return False
        self.is_too_slow = True
        return True


class EndlessTurn:
    """Detects a turn that does not end; used by a thread other than the loop's.

    It counts observations instead of seconds. While the machine or the process is paused there are
    no observations, so a pause does not make a turn endless.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._looks = 0

    def look(self, turn: int) -> bool:
        """Observe the current turn; return True if it is found to be endless now.

        ``turn`` is the number of the turn, 0 between two turns.
        """
        self._looks = self._looks + 1 if turn and turn == self._seen else 0
        self._seen = turn
        return self._looks == ENDLESS_LOOKS
