"""Which fragment of a host takes turns that are too long. Pure: lengths and times come in.

All fragments of a host share one event loop, so a turn of 200 ms delays every other answer of the
host by up to 200 ms. Each fragment has a leaky bucket: a long turn adds its length, a tenth of the
time that passes is taken out, and the fragment is too slow when the bucket is full. So three turns
of 200 ms within a second are too many, one in two seconds is not, and neither is a single long one:
the collection of garbage, or the machine's own standstill, may fall into anybody's turn. What a
turn waited for a core is no part of its length: on an overloaded machine all turns take longer,
and another process would not help.

The alternative, a share of the last second, needs the length of every turn. This one needs those of
the long ones only, and decides as soon as there is enough to decide on.
"""

from __future__ import annotations

from typing import Final

LONG_US: Final = 100_000
"""A turn takes a millisecond, the longest of a catch-up some twenty."""
COUNTED_US_MAX: Final = 250_000
"""Of one turn: a standstill of the machine, however long, does not fill the bucket."""
FULL_US: Final = 400_000
LEAK_DIVISOR: Final = 10
"""Long turns may take a tenth of the time, for ever."""
HELD_BACK_FACTOR: Final = 19
"""A fragment that is too slow waits for so many times the length of its turn: the others have 95 %
of the time."""


ENDLESS_LOOKS: Final = 125
"""So many heartbeats of a host see the same turn: five seconds, twelve if it has no replicas."""


class LongTurns:
    """Long turns of one fragment."""

    def __init__(self) -> None:
        self._level_us = 0
        self._looked_at = 0
        self.longest_us = 0
        """Of all turns so far."""
        self.is_too_slow = False
        """It stays so: the fragment's place is a process of its own."""

    def note(self, lasted_us: int, now_us: int) -> bool:
        """A turn has ended that took so long; is the fragment found to be too slow by it?

        ``now_us`` is of a clock that does not go back.
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
    """Whether a loop is still in the turn in which it was seen before; asked from another thread.

    Looks are counted, not seconds: while the machine or the process stands still nobody looks, and
    no turn is taken for endless that goes on the moment after.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._looks = 0

    def look(self, turn: int) -> bool:
        """Is this turn found to be endless now? ``turn``: its number, 0 between two."""
        self._looks = self._looks + 1 if turn and turn == self._seen else 0
        self._seen = turn
        return self._looks == ENDLESS_LOOKS
