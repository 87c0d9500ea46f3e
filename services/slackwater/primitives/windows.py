"""The grid of event time: buckets, panes and windows, as arithmetic on whole microseconds.

A *bucket* lies between neighbouring cut points: the multiples of w, and all window starts and ends
(trace-27). No bucket straddles a window's edge, so a window consists of complete buckets, and w
adds no latency to a window. A *pane* is the run of buckets between neighbouring window edges.
Windows are [start, start + size), start a multiple of slide since the Unix epoch; with slide <=
size every instant is in a window. This is slicing by panes (Li et al., "No pane, no gain", SIGMOD
Record 2005) over Fargo's cuts.

The cut points are the union of a few arithmetic progressions: k * w, k * slide, and the window
ends, k * slide + size % slide. Each other query that reads the same children adds its window starts
and ends. The neighbours of any instant are found with one remainder for each progression. There is
no state, a jump of a month costs no more than a jump of a bucket, and replicas agree without
messages. Rejected: a list of edges that grows with time, which has to be pruned, and restored after
a restart.

Floor division rounds towards minus infinity, in Python and for numpy's integers, so times before
1970 need no special case. Scalars are Python ints (they never overflow, and numpy's cost several
times as much in a loop); ``cuts`` and ``edges`` return arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import gcd, lcm
from typing import Final

import numpy as np
import numpy.typing as npt

from slackwater.model.deployment import WindowSpec

I64 = npt.NDArray[np.int64]
Progression = tuple[int, int]
"""(period, offset) stands for all k * period + offset; 0 <= offset < period."""

CUTS_MAX: Final = 16_000_000
"""Maximum cut points in one array (128 MB). A caller must treat a longer jump in time as one run.
"""


class Grid:
    """The cut points of a query, fixed when it is registered. Without a window: multiples of w.

    The edges of ``others``, windows of other queries that read the same children, are cut points
    too (rule-3).
    """

    __slots__ = ("_cuts", "_edges", "_size", "_slide", "others", "w_us", "window")

    def __init__(
        self, w_us: int, window: WindowSpec | None, others: Sequence[WindowSpec] = ()
    ) -> None:
        assert w_us >= 1
        self.w_us = w_us
        self.window = window
        self.others = tuple(others)
        self._edges: tuple[Progression, ...] = ()
        self._size = self._slide = 0
        if window is not None:
            assert 0 < window.slide_us <= window.size_us, "windows would leave gaps"
            self._size, self._slide = window.size_us, window.slide_us
            self._edges = _distinct(_edges(window))
        of_others = (edge for other in others for edge in _edges(other))
        self._cuts = _distinct(((w_us, 0), *self._edges, *of_others))

    def __repr__(self) -> str:
        """Show the arguments; everything else is derived from them."""
        others = f", others={self.others}" if self.others else ""
        return f"Grid(w_us={self.w_us}, window={self.window}{others})"

    @property
    def progressions(self) -> tuple[Progression, ...]:
        """The cut points as progressions, none of which is contained in another."""
        return self._cuts

    # Buckets.

    def bucket_start(self, e: int) -> int:
        """Return the largest cut point <= e: the start of the bucket that holds e."""
        return _at_or_before(self._cuts, e)

    def next_cut(self, e: int) -> int:
        """Return the smallest cut point > e: the end of the bucket that holds e."""
        return _after(self._cuts, e)

    def is_cut(self, e: int) -> bool:
        """Return whether e is a cut point."""
        return _at_or_before(self._cuts, e) == e

    def cuts(self, start: int, end: int) -> I64:
        """Return all cut points in [start, end], ascending."""
        return _members(self._cuts, start, end)

    def count(self, start: int, end: int) -> int:
        """Return the number of buckets that begin in [start, end)."""
        return _count(self._cuts, start, end)

    # Panes.

    def pane_start(self, e: int) -> int:
        """Return the largest window start or end <= e."""
        assert self._slide, "no window, no pane"
        return _at_or_before(self._edges, e)

    def edges(self, start: int, end: int) -> I64:
        """Return all window starts and ends in [start, end], ascending."""
        assert self._slide, "no window, no pane"
        return _members(self._edges, start, end)

    # Windows, identified by their starts.

    def window_end(self, start: int) -> int:
        """Return the end of the window that starts at ``start``."""
        assert self._slide, "no window"
        assert start % self._slide == 0, "no window starts there"
        return start + self._size

    def first_window_holding(self, e: int) -> int:
        """Return the start of the first window that contains e."""
        assert self._slide, "no window"
        return ((e - self._size) // self._slide + 1) * self._slide

    def last_window_holding(self, e: int) -> int:
        """Return the start of the last window that contains e."""
        assert self._slide, "no window"
        return e // self._slide * self._slide

    def last_window_ending_by(self, e: int) -> int:
        """Return the start of the last window whose end is <= e; the next one's end is > e."""
        assert self._slide, "no window"
        return (e - self._size) // self._slide * self._slide


def window_edges(windows: Iterable[WindowSpec]) -> tuple[Progression, ...]:
    """Return the starts and ends of windows, as progressions that do not contain each other."""
    return _distinct(tuple(edge for window in windows for edge in _edges(window)))


def _edges(window: WindowSpec) -> tuple[Progression, Progression]:
    """The starts and the ends of the windows."""
    return (window.slide_us, 0), (window.slide_us, window.size_us % window.slide_us)


def _distinct(progressions: tuple[Progression, ...]) -> tuple[Progression, ...]:
    """Drop progressions contained in another; usually w divides all, and one remains."""
    kept: list[Progression] = []
    # By period, since a progression is contained only in one of an equal or smaller period.
    for period, offset in sorted(set(progressions)):
        if not any(period % p == 0 and offset % p == o for p, o in kept):
            kept.append((period, offset))
    return tuple(kept)


def _at_or_before(progressions: tuple[Progression, ...], e: int) -> int:
    if len(progressions) == 1:
        period, offset = progressions[0]
        return e - (e - offset) % period
    return max([e - (e - offset) % period for period, offset in progressions])


def _after(progressions: tuple[Progression, ...], e: int) -> int:
    if len(progressions) == 1:
        period, offset = progressions[0]
        return e - (e - offset) % period + period
    return min([e - (e - offset) % period + period for period, offset in progressions])


def _members(progressions: tuple[Progression, ...], start: int, end: int) -> I64:
    assert _count(progressions, start, end) < CUTS_MAX, "too many cut points for one array"
    if start > end:
        return np.empty(0, np.int64)
    runs = [
        np.arange(start + (offset - start) % period, end + 1, period, dtype=np.int64)
        for period, offset in progressions
    ]
    return runs[0] if len(runs) == 1 else np.unique(np.concatenate(runs))


def _count(progressions: tuple[Progression, ...], start: int, end: int) -> int:
    """Members in [start, end), by inclusion and exclusion over a few progressions."""
    if start >= end:
        return 0
    total, sign = 0, 1
    for size in range(1, len(progressions) + 1):
        for several in combinations(progressions, size):
            common = _common(several)
            if common is not None:
                period, offset = common
                members = (end - 1 - offset) // period - (start - 1 - offset) // period
                total += sign * members
        sign = -sign
    return total


def _common(progressions: tuple[Progression, ...]) -> Progression | None:
    """Return the common members: by the Chinese remainder theorem a progression, or None."""
    period, offset = progressions[0]
    for p, o in progressions[1:]:
        divisor = gcd(period, p)
        steps, rest = divmod(o - offset, divisor)
        if rest:
            return None
        steps = steps * pow(period // divisor, -1, p // divisor) % (p // divisor)
        offset += steps * period
        period = lcm(period, p)
        offset %= period
    return period, offset
