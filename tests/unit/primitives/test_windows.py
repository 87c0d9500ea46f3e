"""The grid against brute force: membership by definition, neighbours by walking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.window_starts import starts_covering, starts_ending_by

from slackwater.model.deployment import WindowSpec
from slackwater.primitives.windows import Grid

REACH = 130  # more than one size beyond any tested instant, in the small units of these tests


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    size = draw(st.integers(1, 40))
    slide = draw(st.integers(1, size))
    window = draw(st.sampled_from([WindowSpec(size, slide), WindowSpec(size, size), None]))
    return Grid(draw(st.integers(1, 50)), window)


windowed = grids().filter(lambda grid: grid.window is not None)
instants = st.integers(-200, 200)


def is_start(grid: Grid, e: int) -> bool:
    assert grid.window is not None
    return e % grid.window.slide_us == 0


def is_end(grid: Grid, e: int) -> bool:
    assert grid.window is not None
    return is_start(grid, e - grid.window.size_us)


def is_edge(grid: Grid, e: int) -> bool:
    return grid.window is not None and (is_start(grid, e) or is_end(grid, e))


def is_cut(grid: Grid, e: int) -> bool:
    return e % grid.w_us == 0 or is_edge(grid, e)


def starts(grid: Grid, low: int, high: int) -> list[int]:
    return [e for e in range(low, high + 1) if is_start(grid, e)]


@given(grids(), instants)
def test_bucket_is_between_neighbouring_cuts(grid: Grid, e: int) -> None:
    low, high = grid.bucket_start(e), grid.next_cut(e)
    assert low <= e < high
    assert is_cut(grid, low)
    assert is_cut(grid, high)
    assert not any(is_cut(grid, inside) for inside in range(low + 1, high))
    assert grid.is_cut(e) == is_cut(grid, e)


@given(grids(), instants, st.integers(-5, 150))
def test_cuts_and_their_count(grid: Grid, start: int, length: int) -> None:
    end = start + length
    expected = [e for e in range(start, end + 1) if is_cut(grid, e)]
    cuts = grid.cuts(start, end)
    assert cuts.dtype == np.int64
    assert cuts.tolist() == expected
    assert grid.count(start, end) == len([e for e in expected if e < end])


@given(grids(), instants, st.integers(0, 20))
def test_count_between_cuts_is_the_number_of_buckets(grid: Grid, e: int, steps: int) -> None:
    start = end = grid.bucket_start(e)
    for _ in range(steps):
        end = grid.next_cut(end)
    assert grid.count(start, end) == steps


@given(windowed, instants)
def test_panes(grid: Grid, e: int) -> None:
    low = grid.pane_start(e)
    assert low <= e
    assert is_edge(grid, low)
    assert not any(is_edge(grid, inside) for inside in range(low + 1, e + 1))
    assert grid.edges(e, e + 60).tolist() == [x for x in range(e, e + 61) if is_edge(grid, x)]


@given(windowed, instants)
def test_windows_that_hold_an_instant(grid: Grid, e: int) -> None:
    assert grid.window is not None
    holding = [s for s in starts(grid, e - REACH, e) if s + grid.window.size_us > e]
    assert grid.first_window_holding(e) == holding[0]
    assert grid.last_window_holding(e) == holding[-1]
    assert list(starts_covering(grid, e, e + 1)) == holding


@given(windowed, instants, st.integers(1, 60))
def test_windows_that_cover_a_range(grid: Grid, start: int, length: int) -> None:
    end = start + length
    covering = [
        s
        for s in starts(grid, start - REACH, end + REACH)
        if any(s <= e < grid.window_end(s) for e in range(start, end))
    ]
    assert list(starts_covering(grid, start, end)) == covering


@given(windowed, instants)
def test_every_window_of_a_bucket_holds_it_whole(grid: Grid, e: int) -> None:
    start, end = grid.bucket_start(e), grid.next_cut(e)
    for window in starts_covering(grid, start, end):
        assert window <= start
        assert end <= grid.window_end(window)


@given(windowed, instants, st.integers(-60, 60))
def test_windows_that_end(grid: Grid, e: int, ahead: int) -> None:
    assert grid.window is not None
    ended = [s for s in starts(grid, e - REACH, e) if s + grid.window.size_us <= e]
    assert grid.last_window_ending_by(e) == ended[-1]
    first = grid.first_window_holding(e + ahead)
    expected = [s for s in starts(grid, first, e) if grid.window_end(s) <= e]
    assert list(starts_ending_by(grid, first, e)) == expected


def test_the_edge_inside_a_multiple_of_w_cuts_the_bucket_short() -> None:
    # trace-27: w does not divide the window, so "the edge closes the last bucket".
    grid = Grid(300, WindowSpec(1000, 1000))
    assert grid.cuts(-1000, 2000).tolist() == [
        *(-1000, -900, -600, -300),
        *(0, 300, 600, 900, 1000, 1200, 1500, 1800, 2000),
    ]


def test_slide_that_does_not_divide_the_size_has_edges_of_its_own() -> None:
    grid = Grid(1_000, WindowSpec(25, 10))
    assert grid.edges(0, 40).tolist() == [0, 5, 10, 15, 20, 25, 30, 35, 40]
    assert list(starts_covering(grid, 20, 25)) == [0, 10, 20]


def test_a_century_is_counted_without_being_enumerated() -> None:
    day = 86_400_000_000
    grid = Grid(100_000, WindowSpec(1_000_000, 300_000))
    period = 300_000  # the common period of w and slide; size % slide = 100_000 is one of w's
    assert grid.count(0, 36_500 * day) == 36_500 * day // period * 3
    assert grid.next_cut(36_500 * day + 1) == 36_500 * day + 100_000


def test_scalars_stay_python_ints() -> None:
    grid = Grid(7, WindowSpec(25, 10))
    for value in (grid.bucket_start(3), grid.next_cut(3), grid.first_window_holding(3)):
        assert type(value) is int


def test_slides_that_leave_gaps_are_refused() -> None:
    with pytest.raises(AssertionError, match="gaps"):
        Grid(10, WindowSpec(10, 11))


def test_arrays_that_would_not_fit_are_refused() -> None:
    with pytest.raises(AssertionError, match="too many"):
        Grid(1, None).cuts(0, 10**12)


def test_windows_are_asked_of_a_grid_that_has_some() -> None:
    with pytest.raises(AssertionError, match="no window"):
        Grid(10, None).first_window_holding(0)
