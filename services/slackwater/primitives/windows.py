"""The grid of event time: buckets, panes and windows, in whole microseconds.

A *bucket* lies between neighbouring cut points: the multiples of w, and all window starts and ends
(trace-27). No bucket straddles a window's edge, so a window consists of complete buckets, and w
adds no latency to a window. A *pane* is the run of buckets between neighbouring window edges.
Windows are [start, start + size), start a multiple of slide, plus an offset, since the Unix epoch;
with slide <= size every instant is in a window. Windows of a calendar are as long as its days,
weeks or months (``slackwater.primitives.calendars``) and do not overlap. This is slicing by panes
(Li et al., "No pane, no gain", SIGMOD Record 2005) over Fargo's cuts.

The cut points are a set of ``Edges``: the multiples of w, the window starts, and the window ends.
Each other query that reads the same children adds its window starts and ends. There is no state,
and replicas agree without messages. Windows are named by their starts, and counted by ``later`` and
``windows_between``: no other module may assume that they are equally long.

Floor division rounds towards minus infinity, in Python and for numpy's integers, so times before
1970 need no special case. Scalars are Python ints (they never overflow, and numpy's cost several
times as much in a loop); ``cuts`` and ``edges`` return arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slackwater.model.deployment import WindowSpec
from slackwater.primitives.calendars import Calendar
from slackwater.primitives.edges import I64, Edges, Progression, Progressions, Union, distinct


class Grid:
    """The cut points of a query, fixed when it is registered. Without a window: multiples of w.

    The edges of ``others``, windows of other queries that read the same children, are cut points
    too (rule-3).
    """

    __slots__ = (
        "_calendar", "_cuts", "_edges", "_offset", "_size", "_slide", "others", "progressions",
        "w_us", "window",
    )  # fmt: skip

    def __init__(
        self, w_us: int, window: WindowSpec | None, others: Sequence[WindowSpec] = ()
    ) -> None:
        assert w_us >= 1
        self.w_us = w_us
        self.window = window
        self.others = tuple(others)
        self._edges: Edges = Progressions(())
        self._calendar: Calendar | None = None
        self._size = self._slide = self._offset = 0
        if window is not None:
            assert 0 < window.slide_us <= window.size_us, "windows would leave gaps"
            self._size, self._slide = window.size_us, window.slide_us
            self._offset = window.offset_us
            if window.is_calendar:
                self._edges = self._calendar = Calendar(window)
            else:
                self._edges = Progressions(_edges(window))
        windows = ([] if window is None else [window]) + [*self.others]
        self._cuts: Edges
        self._cuts = fixed = Progressions(((w_us, 0), *window_edges(windows)))
        self.progressions = fixed.all
        """The cut points that are progressions, none of which is contained in another."""
        # The edges of calendars are whole seconds, and usually w divides a second.
        calendars = {each for each in windows if each.is_calendar}
        if calendars and not fixed.contains_seconds():
            of = sorted(calendars, key=lambda each: (each.zone, each.months, each.size_us))
            self._cuts = Union([fixed, *map(Calendar, of)])

    def __repr__(self) -> str:
        """Show the arguments; everything else is derived from them."""
        others = f", others={self.others}" if self.others else ""
        return f"Grid(w_us={self.w_us}, window={self.window}{others})"

    # Buckets.

    def bucket_start(self, e: int) -> int:
        """Return the largest cut point <= e: the start of the bucket that holds e."""
        return self._cuts.at_or_before(e)

    def next_cut(self, e: int) -> int:
        """Return the smallest cut point > e: the end of the bucket that holds e."""
        return self._cuts.after(e)

    def is_cut(self, e: int) -> bool:
        """Return whether e is a cut point."""
        return self._cuts.at_or_before(e) == e

    def cuts(self, start: int, end: int) -> I64:
        """Return all cut points in [start, end], ascending."""
        return self._cuts.members(start, end)

    def count(self, start: int, end: int) -> int:
        """Return the number of buckets that begin in [start, end)."""
        return self._cuts.count(start, end)

    # Panes.

    def pane_start(self, e: int) -> int:
        """Return the largest window start or end <= e."""
        assert self._slide, "no window, no pane"
        return self._edges.at_or_before(e)

    def pane_end(self, e: int) -> int:
        """Return the smallest window start or end > e."""
        assert self._slide, "no window, no pane"
        return self._edges.after(e)

    def edges(self, start: int, end: int) -> I64:
        """Return all window starts and ends in [start, end], ascending."""
        assert self._slide, "no window, no pane"
        return self._edges.members(start, end)

    # Windows, identified by their starts.

    def is_start(self, e: int) -> bool:
        """Return whether a window starts at e."""
        return self.last_window_holding(e) == e

    def window_end(self, start: int) -> int:
        """Return the end of the window that starts at ``start``."""
        assert self.is_start(start), "no window starts there"
        if self._calendar is not None:
            return self._calendar.after(start)
        return start + self._size

    def later(self, start: int, windows: int = 1) -> int:
        """Return the start of the window that is ``windows`` after the one at ``start``.

        ``windows`` may be negative: -1 is the window before.
        """
        assert self.is_start(start), "no window starts there"
        if self._calendar is not None:
            return self._calendar.later(start, windows)
        return start + windows * self._slide

    def windows_between(self, start: int, end: int) -> int:
        """Return the number of windows that start in [start, end); negative if end < start.

        Both are window starts.
        """
        if self._calendar is not None:
            count = self._calendar.count
            return count(start, end) if start <= end else -count(end, start)
        return (end - start) // self._slide

    def first_window_from(self, e: int) -> int:
        """Return the start of the first window that starts at e or later."""
        last = self.last_window_holding(e)
        return last if last == e else self.later(last)

    def first_window_holding(self, e: int) -> int:
        """Return the start of the first window that contains e."""
        assert self._slide, "no window"
        if self._calendar is not None:
            return self._calendar.at_or_before(e)
        return ((e - self._offset - self._size) // self._slide + 1) * self._slide + self._offset

    def last_window_holding(self, e: int) -> int:
        """Return the start of the last window that contains e."""
        assert self._slide, "no window"
        if self._calendar is not None:
            return self._calendar.at_or_before(e)
        return e - (e - self._offset) % self._slide

    def last_window_ending_by(self, e: int) -> int:
        """Return the start of the last window whose end is <= e; the next one's end is > e."""
        assert self._slide, "no window"
        if self._calendar is not None:
            return self._calendar.at_or_before(self._calendar.at_or_before(e) - 1)
        return (e - self._offset - self._size) // self._slide * self._slide + self._offset


def window_edges(windows: Iterable[WindowSpec]) -> tuple[Progression, ...]:
    """Return the starts and ends of windows, as progressions that do not contain each other.

    Windows of a calendar have none.
    """
    fixed = (window for window in windows if not window.is_calendar)
    return distinct(edge for window in fixed for edge in _edges(window))


def _edges(window: WindowSpec) -> tuple[Progression, Progression]:
    """The starts and the ends of the windows."""
    slide, offset = window.slide_us, window.offset_us
    return (slide, offset % slide), (slide, (offset + window.size_us) % slide)
