"""Overload handling: selects overdue windows to skip, so that newer ones are answered in time.

A root that computes windows more slowly than they become due falls behind. If it answers in order
it stays behind: each window is later than the one before, and after the load ends the whole backlog
still precedes current windows. An *overdue* window, one without an answer X after its normal time,
cannot be answered in time. So a run of overdue windows is *skipped*: it is answered by one
tentative boundary without rows (rule-20), and the windows after it are computed next. The stable
line answers those of the run when no newer window is due.

A late answer with rows is better than one without, as long as no other window waits for it. Hence
a run is computed if one transaction can hold it and takes no longer than the *tolerance* for late
answers. A single overdue window is computed too. The same time bounds every transaction, including
corrections: the duration of the last transactions determines how many windows the next may hold.
The faster of the last two counts, since an unavailable broker makes one of them long regardless of
the root's speed.

Where the broker itself needs longer than the tolerance, a limit of one window would hold for ever:
a transaction of one takes too long, and shows nothing of what a window costs. Transactions of
unlike size show both: their fixed cost, and that of a window (``costs.py``). Windows may then take
as long as the fixed cost, and each transaction may be twice as large as the largest before it.
Transactions of one size are followed by a larger one from time to time.

DPC sheds no load: section 2.3.1 promises the bound while processing keeps up with the input.
Skipping windows only in tentative answers sheds work of the live line and loses no results.
Rejected: skipping windows that are not overdue yet but will be by the same estimate. A wrong
estimate would drop an answer that could have been given, and the error could not be detected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from slackwater.protocols.dpc.soutput.costs import TransactionCosts

RUN_WINDOWS_MIN: Final = 2
"""A single overdue window is computed: it delays later ones no more than any window does."""


class Overload:
    """Measures a root's processing speed and derives which windows to skip.

    Args:
        normal_time: (start, i) -> normal time of the i-th window after the one at ``start``; None
            while unknown.
        bound_us: X.
        tolerance_us: the duration that a transaction should not exceed.
        windows_max: most live windows in a transaction.
        rows_max: most rows in a transaction, approximately.
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
        self._costs = TransactionCosts(tolerance_us)

    # Speed.

    def begins(self, now: int, units: int, rows: Sequence[int]) -> None:
        """Record the start of a transaction.

        ``units``: how much of what its size is limited in it has (``costs.py``). ``rows`` has the
        row count of each computed window; without any, the transaction shows nothing.
        """
        self._began = (now, units) if rows else None
        self._window_rows = max(rows, default=self._window_rows)

    def ends(self, now: int) -> None:
        """Record that the transaction is in the log."""
        if self._began is not None:
            began, units = self._began
            self._window_us.append(max(now - began, 0) / units)
            self._costs.note(units, max(now - began, 0))
            self._began = None

    @property
    def windows_max(self) -> int:
        """Most live windows to compute for one transaction at the current speed."""
        return self.fitting(self._windows_max)

    def fitting(self, windows: int) -> int:
        """How many of ``windows`` fit into one transaction at the current speed, at least one.

        Where a transaction costs much and a window little it may take twice its fixed cost.
        """
        room_us = self._tolerance_us
        return max(self._at_pace(windows, room_us), min(windows, self._at_costs(room_us)))

    def fitting_finally(self, windows: int, room_us: int = 0) -> int:
        """How many of ``windows`` fit, in ``room_us`` or the tolerance, for the stable line.

        Now and then it is more than has been tried.
        """
        room_us = max(room_us, self._tolerance_us)
        grown = max(self._at_costs(room_us), self._costs.trial)
        return max(self._at_pace(windows, room_us), min(windows, grown))

    def _at_pace(self, windows: int, room_us: int) -> int:
        """How many fit at the pace of the last two transactions, their fixed costs included."""
        window_us = min(self._window_us, default=0)
        if windows * window_us <= room_us:
            return windows
        return max(int(room_us / window_us), 1)

    def _at_costs(self, room_us: int) -> int:
        """How many take ``room_us``, or as long as the fixed cost; 0 if the costs are unknown.

        At most twice as many as the largest transaction had.
        """
        if self._costs.known is None:
            return 0
        fixed_us, window_us = self._costs.known
        grown = 2 * self._costs.largest
        room = max(room_us, fixed_us)
        return int(room / window_us) if window_us * grown > room else grown

    # What is overdue.

    def overdue(self, now: int, start: int) -> int:
        """Number of overdue windows from ``start`` on, by bisection since there may be many."""
        if not self._is_overdue(now, start, 0):
            return 0
        high = 1
        while self._is_overdue(now, start, high):
            high *= 2
        return bisect_left(range(high), True, key=lambda i: not self._is_overdue(now, start, i))

    def passed_over(self, now: int, start: int, to_compute: Callable[[int], int]) -> int:
        """Number of windows from ``start`` on to skip now.

        ``to_compute(n)`` is how many of the next n windows must be computed: not those that are
        known to be empty and final.
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
