"""What a root's transaction costs: a fixed time, most of it the broker's, and a time per window.

Transactions of unlike size show both. On a busy machine each of them takes twice or half as long as
another one of its size, so two alone give any result, such as a window of 2.6 s, and a transaction
of one window follows the next. The last eight are compared, by least squares, and a window is taken
to cost as little as they allow: what they show, less its standard error. If that is too little, the
next transaction is larger, and shows it.

In a model with times of 0.4 to 2.5 times their mean, a fixed cost of 1 s and 1 ms for a window, a
root answers 289 windows in a second, and 222 in the worst of 20 runs; by the last two transactions
54 and 1. Where a window costs 300 ms, one transaction in twenty has more than four.

A *unit* is what the size of a transaction is limited in: a window that was computed, or a run of
windows that were not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

SEEN_MAX: Final = 8
"""Transactions that are compared."""
UNLIKE: Final = 1.5
"""Ratio of the largest and the smallest transaction from which they are compared."""
EXCESS: Final = 4
"""How many times as long as expected a transaction takes where the costs are others."""
EXCEEDED_MAX: Final = 2
"""Such transactions in succession; one may be due to a broker that was away."""
TRIES_EVERY: Final = 4
"""Transactions without a comparison after which a larger one is tried."""


class TransactionCosts:
    """The costs of the last transactions; ``tolerance_us`` is how much longer one may take."""

    def __init__(self, tolerance_us: int) -> None:
        self._tolerance_us = tolerance_us
        self._seen: deque[tuple[int, int]] = deque(maxlen=SEEN_MAX)
        """Units and time (us) of each."""
        self.known: tuple[float, float] | None = None
        """Time (us) of a transaction, and of a unit in it; None while unknown."""
        self._exceeded = 0
        """Transactions in succession that took far longer than expected."""
        self._alike = TRIES_EVERY - 1
        """Transactions since the last comparison."""

    @property
    def largest(self) -> int:
        """Most units of the last transactions; 0 before the first."""
        return max((units for units, _ in self._seen), default=0)

    @property
    def trial(self) -> int:
        """Units to try now, which is more than the last transaction had; 0 to try none."""
        return 2 * self._seen[-1][0] if self._alike >= TRIES_EVERY else 0

    def note(self, units: int, took_us: int) -> None:
        """Learn from a transaction.

        After two in succession that took far longer than expected, what was seen before is of a
        time with other costs: the next one is small.
        """
        if self.known is not None:
            fixed_us, unit_us = self.known
            is_exceeded = took_us > EXCESS * (fixed_us + units * unit_us) + self._tolerance_us
            self._exceeded = self._exceeded + 1 if is_exceeded else 0
            if self._exceeded == EXCEEDED_MAX:
                self._seen.clear()
                self.known, self._alike = (0.0, took_us / units), 0
        self._seen.append((units, took_us))
        self._alike += 1
        if self.largest >= UNLIKE * min(units for units, _ in self._seen):
            self.known, self._alike = _fitted(self._seen), 0


def _fitted(seen: Collection[tuple[int, int]]) -> tuple[float, float]:
    """Return the costs by these (units, us); neither is negative."""
    count = len(seen)
    units = sum(of for of, _ in seen) / count
    took_us = sum(us for _, us in seen) / count
    spread = sum((of - units) ** 2 for of, _ in seen)
    unit_us = sum((of - units) * (us - took_us) for of, us in seen) / spread
    left = sum((us - took_us - unit_us * (of - units)) ** 2 for of, us in seen)
    unit_us = max(unit_us - (left / max(count - 2, 1) / spread) ** 0.5, 0.0)
    if unit_us * units <= took_us:
        return took_us - unit_us * units, unit_us
    return 0.0, took_us / units
