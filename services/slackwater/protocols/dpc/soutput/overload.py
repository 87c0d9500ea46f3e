"""Overload: which overdue windows a root passes over, so that newer ones are answered in time.

A root that computes slower than windows become due falls behind, and if it answers them in order it
stays behind: each window is later than the one before, and when the load ends, all that has piled
up stands in front of the present. What is *overdue*, later than X, cannot be in time any more. So a
run of overdue windows is answered by one tentative boundary line without rows (rule-20), the
windows behind it are computed next, and the stable line answers those of the run when nothing newer
is due.

A late answer with figures is worth more than one without, as long as no other window waits for it.
Hence a run that can be computed together, in one transaction that takes no longer than the
*tolerance* with which lateness is judged, gets its figures. So does one overdue window alone. The
same time bounds every transaction, corrections too: how many windows it holds follows from how long
the last ones took. A broker that was away makes one of them long and says nothing of the root, so
of the last two the faster counts.

DPC sheds no load: section 2.3.1 promises the bound while processing keeps up with the input. To
leave windows out of the tentative answers alone sheds work from the live line and nothing from the
results. Rejected: to pass over also what is not overdue yet but will be, by the same estimate. A
guess that fails takes an answer from a window that could have had it, and nobody can check it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

RUN_WINDOWS_MIN: Final = 2
"""One overdue window alone is computed: it keeps the others waiting for no longer than they do."""


class Overload:
    """What a root knows of its own pace.

    Args:
        normal_time: of the i-th window from a start on, None while it is unknown.
        bound_us: X.
        tolerance_us: so long a transaction may take, as far as that can be foreseen.
        windows_max: so many windows it holds at most.
        rows_max: so many rows, about.
    """

    def __init__(
        self,
        normal_time: Callable[[int, int], int | None],
        bound_us: int,
        tolerance_us: int,
        windows_max: int,
        rows_max: int,
    ) -> None:
        self._normal_time = normal_time
        self._bound_us = bound_us
        self._tolerance_us = tolerance_us
        self._windows_max = windows_max
        self._rows_max = rows_max
        self._began: tuple[int, int] | None = None
        self._window_us: deque[float] = deque(maxlen=2)
        self._window_rows = 0

    # The pace.

    def begins(self, now: int, rows: Sequence[int]) -> None:
        """A transaction begins, with so many rows in each window that is computed for it."""
        self._began = (now, len(rows)) if rows else None
        self._window_rows = max(rows, default=self._window_rows)

    def ends(self, now: int) -> None:
        """It is in the log."""
        if self._began is not None:
            began, windows = self._began
            self._window_us.append(max(now - began, 0) / windows)
            self._began = None

    @property
    def windows_max(self) -> int:
        """So many live windows may be computed for one transaction."""
        return self.fitting(self._windows_max)

    def fitting(self, windows: int) -> int:
        """How many of so many windows one transaction holds by its pace, at least one."""
        window_us = min(self._window_us, default=0)
        if windows * window_us <= self._tolerance_us:
            return windows
        return max(int(self._tolerance_us / window_us), 1)

    # What is overdue.

    def overdue(self, now: int, start: int) -> int:
        """How many windows from ``start`` on are overdue; no loop over them, there may be many."""
        if not self._is_overdue(now, start, 0):
            return 0
        high = 1
        while self._is_overdue(now, start, high):
            high *= 2
        return bisect_left(range(high), True, key=lambda i: not self._is_overdue(now, start, i))

    def passed_over(self, now: int, start: int, to_compute: Callable[[int], int]) -> int:
        """How many windows from ``start`` on to pass over now.

        ``to_compute`` tells how many of the next so many cost more than a part of a line: those
        that are known to be empty for good do not.
        """
        count = self.overdue(now, start)
        if count < RUN_WINDOWS_MIN:
            return 0
        work = to_compute(count)
        fits = work <= self.windows_max and work * self._window_rows <= self._rows_max
        return 0 if fits or work < RUN_WINDOWS_MIN else count

    def _is_overdue(self, now: int, start: int, window: int) -> bool:
        normal = self._normal_time(start, window)
        return normal is not None and now > normal + self._bound_us
