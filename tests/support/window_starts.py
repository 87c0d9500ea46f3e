"""Enumerates windows by their starts, for tests of a grid."""

from __future__ import annotations

from slackwater.primitives.windows import Grid


def starts_covering(grid: Grid, start: int, end: int) -> range:
    """Return the windows that contain an instant of [start, end)."""
    assert grid.window is not None
    assert start < end, "an empty range of time is in no window"
    return range(grid.first_window_holding(start), end, grid.window.slide_us)


def starts_ending_by(grid: Grid, first: int, e: int) -> range:
    """Return the windows from ``first`` (a window start) on whose end is <= e."""
    assert grid.window is not None
    return range(first, e - grid.window.size_us + 1, grid.window.slide_us)
