"""Averages lie between minimum and maximum, however the readings came in buckets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.primitives.aggregates import AggregateColumns, columns_of
from slackwater.primitives.deltas import Slice, fold
from slackwater.primitives.key_table import KeyTable

close = st.integers(0, 3).map(lambda units: 0.1 + units * 2**-56)
numbers = st.floats(-1e300, 1e300) | close | st.sampled_from([5e-324, -5e-324, 1e-310, 1e9 + 0.1])


def bucket(values: list[float], table: KeyTable) -> Slice:
    """Return the slice of a bucket of one key, whose sum is rounded at each reading, as Spark's."""
    total = 0.0
    for value in values:
        total += value
    mean = total / len(values)
    m2 = sum((value - mean) * (value - mean) for value in values)
    figures = (float(len(values)), total, m2, min(values), max(values))
    return Slice.build(table.indices(("k",), 1), [np.array([[figure]]) for figure in figures])


def window(buckets: list[list[float]]) -> AggregateColumns:
    table = KeyTable()
    return AggregateColumns(*fold([bucket(b, table) for b in buckets], table, 1).figures)


def average(figures: AggregateColumns, *others: str) -> float:
    with np.errstate(all="ignore"):
        return float(columns_of(figures, ("avg", *others))[0][0, 0])


@given(st.lists(st.lists(numbers, min_size=1, max_size=12), min_size=1, max_size=12))
def test_an_average_lies_between_the_extremes_that_the_query_has(
    buckets: list[list[float]],
) -> None:
    figures = window(buckets)
    low, high = min(map(min, buckets)), max(map(max, buckets))
    assert low <= average(figures, "min", "max") <= high
    assert low <= average(figures, "range") <= high
    assert average(figures, "min") >= low
    assert average(figures, "max") <= high


@given(st.lists(numbers, min_size=1, max_size=60))
def test_of_single_readings_it_does_so_by_itself(values: list[float]) -> None:
    found = average(window([[value] for value in values]))
    assert min(values) <= found <= max(values)


@given(numbers, st.integers(1, 400))
def test_the_average_of_equal_readings_is_the_reading(value: float, count: int) -> None:
    assert average(window([[value]] * count)) == value


def test_it_is_rounded_once() -> None:
    # The quotient of the rounded sum, 0.3 by 3, is another double.
    assert average(window([[0.1], [0.1], [0.1]])) == 0.1
    assert average(window([[1e16], *[[1.0]] * 1000, [-1e16]])) == pytest.approx(1000 / 1002)


def test_extremes_of_a_neighbour_do_not_count() -> None:
    """Queries share deltas; records that were made before the neighbour came lack its figures."""
    table = KeyTable()
    without, having = bucket([-5.0], table), bucket([3.0], table)
    figures = without.figures.copy()
    figures[3:5] = math.nan
    figures.setflags(write=False)
    merged = fold([Slice(without.index, figures), having], table, 1)
    assert average(AggregateColumns(*merged.figures)) == -1.0


def test_the_average_of_no_readings_and_of_an_overflow_is_null() -> None:
    empty = AggregateColumns(*(np.array([[v]]) for v in (0.0, 0.0, 0.0, math.nan, math.nan, 0.0)))
    assert math.isnan(average(empty, "min", "max"))
    assert math.isnan(average(window([[1.5e308], [1.5e308]]), "min", "max"))
    assert math.isnan(average(window([[1.5e308, 1.5e308]]), "min", "max"))
