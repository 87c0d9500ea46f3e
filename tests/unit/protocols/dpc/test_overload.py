"""Overdue windows that are skipped, and those that are answered late with figures (rule-20)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.protocols.dpc.soutput.overload import Overload

SLIDE, DUE_AFTER, X, TOLERANCE = 100, 30, 1_000, 200


def overload(windows_max: int = 10, rows_max: int = 100) -> Overload:
    """Window i from ``start`` on is due at start + i * SLIDE + DUE_AFTER."""
    return Overload(lambda s, i: s + i * SLIDE + DUE_AFTER, X, TOLERANCE, windows_max, rows_max)


def over(of: Overload, windows: int) -> int:
    """Return the number of skipped windows of this many overdue ones."""
    now = DUE_AFTER + X + 1 + (windows - 1) * SLIDE
    assert of.overdue(now, 0) == windows
    return of.passed_over(now, 0, lambda windows: windows)


def transaction(of: Overload, took: int, *rows: int) -> None:
    of.begins(5_000, len(rows), rows)
    of.ends(5_000 + took)


@given(st.integers(0, 10**12), st.integers(0, 10**6).map(lambda i: i * SLIDE))
def test_overdue_is_counted_without_a_loop(now: int, start: int) -> None:
    naive = max(0, -(-(now - X - DUE_AFTER - start) // SLIDE))
    assert overload().overdue(now, start) == naive


def test_nothing_is_overdue_while_the_clock_does_not_know() -> None:
    unknown = Overload(lambda _s, i: None if i else 0, X, TOLERANCE, 10, 100)
    assert unknown.overdue(10**9, 0) == 1
    assert Overload(lambda _s, _i: None, X, TOLERANCE, 10, 100).overdue(10**9, 0) == 0


def test_one_overdue_window_is_computed_however_much_it_costs() -> None:
    of = overload()
    transaction(of, 9_000, 1_000)
    transaction(of, 9_000, 1_000)
    assert over(of, 1) == 0
    assert over(of, 2) == 2


def test_a_run_that_can_be_computed_together_gets_its_figures() -> None:
    of = overload()
    assert over(of, 10) == 0, "their cost is not known yet"
    transaction(of, 40, 1, 1)
    transaction(of, 80, 1, 1)
    assert of.windows_max == 10
    assert (over(of, 10), over(of, 11)) == (0, 11)
    transaction(of, 100, 1, 1)
    assert of.windows_max == 5, "the faster of the last two took 40 a window"
    assert (over(of, 5), over(of, 6)) == (0, 6)


def test_a_broker_that_was_away_makes_no_root_slow() -> None:
    of = overload()
    transaction(of, 10, 1)
    transaction(of, 60_000, 1)
    assert of.windows_max == 10


def test_a_slow_transaction_of_many_windows_is_followed_by_smaller_ones() -> None:
    of = overload()
    for _ in range(2):
        transaction(of, 5_000, *[1] * 10)
    assert of.windows_max == 1
    transaction(of, 10, 1)
    assert of.windows_max == 10, "the load has ended"


def test_a_transaction_without_windows_does_not_change_the_pace() -> None:
    of = overload()
    for _ in range(2):
        transaction(of, 5_000)
    assert of.windows_max == 10


@pytest.mark.parametrize(("windows", "rows", "passed"), [(10, 10, 0), (9, 12, 9), (10, 11, 10)])
def test_a_run_with_too_many_rows_is_passed_over(windows: int, rows: int, passed: int) -> None:
    of = overload()
    transaction(of, 0, rows, 1)
    assert over(of, windows) == passed


def test_windows_that_are_known_to_be_empty_cost_nothing() -> None:
    of, now = overload(), DUE_AFTER + X + 1 + 999 * SLIDE
    assert of.passed_over(now, 0, lambda _: 1) == 0
    assert of.passed_over(now, 0, lambda _: 10) == 0
    assert of.passed_over(now, 0, lambda _: 11) == 1_000


def test_where_the_broker_is_slow_transactions_grow() -> None:
    """A transaction takes 1,000 and 1 for each window: more than the tolerance, in any case."""
    of, sizes = overload(), [1, 1]
    for _ in range(10):
        transaction(of, 1_000 + sizes[-1], *[1] * sizes[-1])
        sizes.append(of.fitting_finally(100))
    assert sizes[-3:] == [100, 100, 100]
    assert of.fitting(100) == 100, "live answers have as much"


def test_they_stay_large_when_few_windows_are_there_for_a_while() -> None:
    of = overload()
    for windows in (1, 1, 2, 4, 8, 16, 32, 64, 100, 3, 1, 5):
        transaction(of, 1_000 + windows, *[1] * windows)
    assert of.fitting_finally(100) == 100


def test_where_windows_are_slow_they_do_not_grow() -> None:
    """A window takes 500: a larger transaction is tried from time to time, and does not pay."""
    of, sizes = overload(), [1]
    for _ in range(40):
        transaction(of, 500 * sizes[-1], *[1] * sizes[-1])
        sizes.append(of.fitting_finally(100))
    assert sizes.count(2) <= len(sizes) // 4
    assert sizes.count(1) == len(sizes) - sizes.count(2)


def test_where_windows_become_slow_transactions_become_small_at_once() -> None:
    of, sizes = overload(), []
    for windows in (1, 2, 100, 100):
        transaction(of, 10 + windows, *[1] * windows)
    for windows in (100, 100, 1, 1):
        transaction(of, 500 * windows, *[1] * windows)
        sizes.append(of.fitting_finally(100))
    assert sizes[0] == 100, "one slow transaction may be due to the broker"
    assert sizes[1:] == [1, 1, 1]


def test_a_fast_transaction_is_not_made_smaller() -> None:
    of = overload()
    transaction(of, 10, 1)
    assert of.fitting_finally(100) == of.fitting(100) == 20


@pytest.mark.parametrize("seed", range(20))
def test_on_a_busy_machine_transactions_grow_too(seed: int) -> None:
    """A transaction takes 1,000 and 1 for each window, times a factor of 0.4 to 2.5."""
    of, sizes, rng = overload(), [1, 1], random.Random(seed)
    for _ in range(40):
        took = (1_000 + sizes[-1]) * 2.5 ** rng.uniform(-1, 1)
        transaction(of, round(took), *[1] * sizes[-1])
        sizes.append(of.fitting_finally(100))
    assert sum(sizes) > 20 * 100, "two thirds of them are as large as they may be"
