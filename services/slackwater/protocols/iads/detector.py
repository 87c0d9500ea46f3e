"""Phi-accrual failure detector: suspects a peer whose heartbeats have stopped.

Heartbeats arrive about every ``period_us``. The detector keeps the mean and deviation of the last
intervals, and suspects the peer when the probability of an interval longer than the present one is
below 10^-threshold. A fixed time-out, the alternative, is either too short for a loaded machine or
too long for an idle one. The tail of the normal distribution is approximated by a logistic
function, whose inverse gives the time of suspicion as a deadline (Fargo, section 3.4.7).

Pure: times come in as arguments. Times are monotonic us.
"""

from __future__ import annotations

import math
from collections import deque
from functools import cache
from typing import Final

HEARTBEAT_PERIOD_US: Final = 100_000
INTERVALS_MAX: Final = 100
PHI_THRESHOLD: Final = 8.0
DEVIATION_US_MIN: Final = 25_000
INTERVAL_US_MAX: Final = 1_000_000
"""A longer interval counts as this one: a long pause must not delay the next suspicion for minutes.
"""


class PhiAccrual:
    """The detector of one peer; the first heartbeat arrives at ``now``.

    ``threshold``: the peer is suspected when a heartbeat as late as the present one has a
    probability of 10^-threshold.
    """

    def __init__(
        self,
        now: int,
        period_us: int = HEARTBEAT_PERIOD_US,
        threshold: float = PHI_THRESHOLD,
    ) -> None:
        assert period_us > 0
        self._latest = now
        self._deviations = _deviations_at(threshold)
        self._period_us = period_us
        self._intervals: deque[int] = deque([period_us], INTERVALS_MAX)

    def heartbeat(self, now: int) -> None:
        """Record a heartbeat that arrived at ``now``."""
        assert now >= self._latest, "time went back"
        interval = now - self._latest
        if interval >= self._period_us // 2:  # a change causes an early one: not of the period
            self._intervals.append(min(interval, INTERVAL_US_MAX))
        self._latest = now

    def phi(self, now: int) -> float:
        """-log10 of the probability that a heartbeat arrives later than ``now``."""
        mean, deviation = self._moments()
        y = (now - self._latest - mean) / deviation
        exponent = min(y * (1.5976 + 0.070566 * y * y), 700.0)
        return math.log10(1.0 + math.exp(exponent))

    def suspect_at(self) -> int:
        """The time from which on the peer is suspected, unless a heartbeat arrives before."""
        mean, deviation = self._moments()
        return self._latest + math.ceil(mean + self._deviations * deviation)

    def _moments(self) -> tuple[float, float]:
        mean = sum(self._intervals) / len(self._intervals)
        variance = sum((i - mean) ** 2 for i in self._intervals) / len(self._intervals)
        return mean, max(math.sqrt(variance), DEVIATION_US_MIN)


@cache
def _deviations_at(phi: float) -> float:
    """The number of deviations above the mean at which ``phi`` is reached."""
    wanted = math.log(10.0**phi - 1.0)
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle * (1.5976 + 0.070566 * middle * middle) < wanted:
            low = middle
        else:
            high = middle
    return high
