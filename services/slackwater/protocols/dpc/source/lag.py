"""How long readings are on their way: the lag that one whose clock is ahead is taken to have.

The lag of a reading is the clock's time when it is read less its own time. A reading of a device
whose clock is ahead has none that is known. Were it taken as 0, the reading would count as one of
now, and those of devices with right clocks that are still on their way would be late (trace-45).
It is taken as long as that of the others: the largest of the last readings in order.

Only readings in order count: one that is older than another before it says nothing about the way
of the newest. A lag above ``ahead_us`` is not counted either: such a clock is wrong, and would
hold up the watermark, or the reading is of a backlog.

Rejected: not counting readings that are ahead at all. The watermark of a stream whose devices are
all ahead would stand still.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from slackwater.model.limits import NEVER
from slackwater.model.records import type_i64

READINGS_MIN: Final = 100
"""Readings in order of which the largest lag is known; at most twice as many."""


class Lags:
    """The largest lag of the last 100 to 200 readings in order of a source log."""

    __slots__ = ("_ahead_us", "_before_us", "_largest_us", "_newest", "_readings")

    def __init__(self, ahead_us: int) -> None:
        self._ahead_us = ahead_us
        self._newest = NEVER
        """Largest time of a reading that is not ahead."""
        self._largest_us = self._before_us = 0
        self._readings = 0

    @property
    def us(self) -> int:
        """The largest lag, in us; 0 until one is known."""
        return max(self._largest_us, self._before_us)

    def see(self, stimes: type_i64, counts: npt.NDArray[np.bool_], now_us: int) -> None:
        """Note readings that were read at ``now_us``; ``counts``: those that are not ahead."""
        last = max(0, len(stimes) - READINGS_MIN)
        stimes = np.where(counts, stimes, NEVER)
        newest = max(self._newest, int(stimes[:last].max(initial=NEVER)))
        stimes = stimes[last:]
        until = np.maximum.accumulate(np.maximum(stimes, newest))
        self._newest = int(until[-1])
        in_order = stimes[(stimes == until) & (stimes > NEVER)]
        lags = np.maximum(now_us - in_order, 0)
        lags = lags[lags <= self._ahead_us]
        self._largest_us = max(self._largest_us, int(lags.max(initial=0)))
        self._readings += len(lags)
        if self._readings >= READINGS_MIN:
            self._before_us, self._largest_us, self._readings = self._largest_us, 0, 0
