"""States of variable length: the laws of their merges, and the error of what they answer.

The expected numbers are computed by numpy or Python from all readings at once.
"""

from __future__ import annotations

import gzip
import math
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.primitives import exact, sketches
from slackwater.primitives.aggregates import (
    AGGREGATES,
    AggregateColumns,
    columns_of,
    states_of,
)
from slackwater.primitives.states import (
    NO_ENTRIES,
    PENDING_MIN,
    State,
    StateEntries,
    StateFold,
    bytes_of,
    lifted,
    merged,
)

STATES = [
    sketches.FIRST, sketches.LAST, sketches.QUANTILES, sketches.DISTINCT, sketches.largest(3),
]  # fmt: skip
IDEMPOTENT = [sketches.FIRST, sketches.LAST, sketches.DISTINCT]
COMMUTATIVE = [sketches.QUANTILES, sketches.DISTINCT, sketches.largest(3)]
PAGE = Path(__file__).parents[3] / "docs" / "deployment-file.md"
ROOM = Path(__file__).parents[2] / "data" / "room_climate" / "node-1.csv.gz"

values = st.sampled_from([-2.5, 0.0, 1.0, 1.01, 7.25, 7.5, 1e8, 3e9, math.inf, -1e-12])
readings = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), values), max_size=12)


def entries(state: State, of: list[tuple[int, int, float]]) -> StateEntries:
    """Return the entries of (cell, time, value) in this order."""
    cells, times, numbers = (list(column) for column in zip(*of, strict=True)) if of else ([],) * 3
    stimes = np.array(times, np.int64)
    return merged(
        state, np.array(cells, np.int64), *state.of_readings(np.array(numbers) + 0.0, stimes)
    )


def both(state: State, left: StateEntries, right: StateEntries) -> StateEntries:
    fold = StateFold(state)
    fold.add(left)
    fold.add(right)
    return fold.result()


def plain(found: StateEntries) -> list[bytes]:
    return [found.cells.tobytes(), found.ids.tobytes(), found.weights.tobytes()]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
@given(a=readings, b=readings, c=readings)
def test_a_merge_is_associative_and_equals_one_over_all_readings(
    state: State, a: list[tuple[int, int, float]], b: list[tuple[int, int, float]],
    c: list[tuple[int, int, float]],
) -> None:  # fmt: skip
    of_a, of_b, of_c = (entries(state, each) for each in (a, b, c))
    left = both(state, both(state, of_a, of_b), of_c)
    assert plain(left) == plain(both(state, of_a, both(state, of_b, of_c)))
    assert plain(left) == plain(entries(state, a + b + c))
    assert plain(both(state, NO_ENTRIES, of_a)) == plain(of_a)


@pytest.mark.parametrize("state", COMMUTATIVE, ids=lambda state: state.name)
@given(a=readings, b=readings)
def test_counts_registers_and_values_may_be_merged_in_any_order(
    state: State, a: list[tuple[int, int, float]], b: list[tuple[int, int, float]]
) -> None:
    of_a, of_b = entries(state, a), entries(state, b)
    assert plain(both(state, of_a, of_b)) == plain(both(state, of_b, of_a))


@pytest.mark.parametrize("state", [sketches.FIRST, sketches.LAST], ids=lambda state: state.name)
@given(a=readings, b=readings)
def test_first_and_last_of_different_times_may_be_merged_in_any_order(
    state: State, a: list[tuple[int, int, float]], b: list[tuple[int, int, float]]
) -> None:
    later = [(cell, time + 10, value) for cell, time, value in b]
    of_a, of_b = entries(state, a), entries(state, later)
    assert plain(both(state, of_a, of_b)) == plain(both(state, of_b, of_a))


@pytest.mark.parametrize("state", IDEMPOTENT, ids=lambda state: state.name)
@given(a=readings)
def test_a_merge_with_itself_changes_nothing(state: State, a: list[tuple[int, int, float]]) -> None:
    assert plain(both(state, entries(state, a), entries(state, a))) == plain(entries(state, a))


def test_of_equal_times_the_left_one_is_first_and_the_right_one_last() -> None:
    a, b = [(0, 5, 1.0), (0, 5, 2.0)], [(0, 5, 3.0)]
    first = both(sketches.FIRST, entries(sketches.FIRST, a), entries(sketches.FIRST, b))
    last = both(sketches.LAST, entries(sketches.LAST, a), entries(sketches.LAST, b))
    assert (first.weights.tolist(), last.weights.tolist()) == ([1.0], [3.0])


def test_a_fold_that_merges_meanwhile_has_the_same_entries() -> None:
    rng = np.random.default_rng(5)
    parts = [
        [(int(k), int(t), float(v)) for k, t, v in zip(
            rng.integers(0, 9, 4_000), rng.integers(0, 99, 4_000), rng.normal(20, 5, 4_000),
            strict=True,
        )] for _ in range(12)
    ]  # fmt: skip
    assert sum(map(len, parts)) > PENDING_MIN
    for state in STATES:
        fold = StateFold(state)
        for part in parts:
            fold.add(entries(state, part))
        assert plain(fold.result()) == plain(
            entries(state, [one for part in parts for one in part])
        )


def test_the_entries_of_a_key_are_bounded_and_known_to_pieces() -> None:
    rng = np.random.default_rng(1)
    spread = np.exp(rng.uniform(-80, 80, 60_000)) * rng.choice([-1, 1], 60_000)
    offsets, times = np.array([0.0, 60_000.0]), np.arange(60_000)
    made = lifted(STATES, offsets, (spread,), times)
    for state in STATES:
        of_key = made[state.name]
        assert of_key.lengths[0].tolist() == [len(of_key.ids[0])]
        assert 0 < len(of_key.ids[0]) <= state.entries_max
        assert of_key.nbytes <= int(bytes_of([state], np.array([60_000]))[0])
    assert len(made["largest"].ids[0]) == 3
    assert len(made["bins"].ids[0]) > 0.8 * sketches.QUANTILES.entries_max


def temperatures() -> np.ndarray:
    with gzip.open(ROOM, "rt") as file:
        name = next(file).strip().split(",").index("temperature")
        return np.array([float(line.split(",")[name]) for line in file])


def test_the_page_of_the_deployment_file_has_real_numbers_beside_exact_ones() -> None:
    numbers = temperatures()
    names = ("first", "last", "distinct", "p50", "p99", "top1", "top2")
    states, ends = states_of(names), np.array([0.0, len(numbers)])
    made = lifted(states, ends, (numbers,), np.arange(len(numbers)))
    cells = {
        state.name: StateEntries.of(state, made[state.name], np.array([0])).by_row(np.array([0]), 1)
        for state in states
    }
    five = (len(numbers), numbers.sum(), 0.0, numbers.min(), numbers.max())
    columns = AggregateColumns(*(np.array([[float(n)]]) for n in five), states=cells)
    readings = exact.WindowReadings(numbers.tolist())
    rows = [
        f"| `{name}` | {float(column[0, 0]):g} | {AGGREGATES[name].batch(readings):g} |"
        for name, column in zip(names, columns_of(columns, names), strict=True)
    ]
    table = PAGE.read_text().split("<!-- states: begin -->\n")[1].split("<!-- states: end")[0]
    assert table.splitlines()[2:] == rows
    assert f"The {len(numbers):,} temperatures" in PAGE.read_text()


@pytest.mark.parametrize("data", ["room", "wide", "negative", "tiny"])
def test_a_quantile_is_within_one_percent(data: str) -> None:
    rng = np.random.default_rng(2)
    numbers = {
        "room": temperatures(),
        "wide": np.exp(rng.uniform(-20, 20, 5_000)),
        "negative": -np.exp(rng.uniform(-5, 5, 5_001)),
        "tiny": rng.uniform(-1e-8, 1e-8, 999),
    }[data]
    cells = entries(sketches.QUANTILES, [(0, 0, float(v)) for v in numbers]).by_row(
        np.array([0]), 1
    )
    for per_mille in (1, 10, 250, 500, 900, 990, 999):
        (found,) = sketches.quantile(cells, per_mille, 1000)[0]
        exact = np.sort(numbers)[-(-len(numbers) * per_mille // 1000) - 1]
        assert abs(found - exact) <= 0.0079 * abs(exact) + 1e-9, per_mille


def test_the_quantile_of_what_is_too_large_is_not_known() -> None:
    cells = entries(sketches.QUANTILES, [(0, 0, 1.0), (0, 0, 2.0**30), (0, 0, math.inf)])
    of_row = cells.by_row(np.array([0]), 1)
    found = [float(sketches.quantile(of_row, q, 100)[0, 0]) for q in (33, 34, 100)]
    assert abs(found[0] - 1.0) < 0.008
    assert all(map(math.isnan, found[1:]))


@pytest.mark.parametrize("count", [0, 1, 2, 17, 300, 5_000, 60_000, 400_000])
def test_the_number_of_different_values_is_estimated(count: int) -> None:
    """Five standard errors; the values are those of a sensor with two decimals, and random ones."""
    for numbers in (np.arange(count) / 100.0, np.random.default_rng(count).normal(size=count)):
        registers = merged(
            sketches.DISTINCT, np.zeros(2 * count, np.int64),
            *sketches.DISTINCT.of_readings(np.tile(numbers, 2), np.zeros(2 * count, np.int64)),
        )  # fmt: skip
        found = float(sketches.estimate(registers.by_row(np.array([0]), 1))[0, 0])
        assert abs(found - count) <= 0.081 * count + (2 if count < 300 else 0)


def test_the_estimates_of_many_cells_have_the_standard_error_of_the_paper() -> None:
    rng = np.random.default_rng(3)
    cells = np.repeat(np.arange(200), 3_000)
    registers = merged(
        sketches.DISTINCT, cells, *sketches.DISTINCT.of_readings(rng.random(len(cells)), cells)
    )
    found = sketches.estimate(registers.by_row(np.arange(200), 1))[0]
    assert abs(found.mean() / 3_000 - 1) < 0.005
    assert 0.008 < found.std() / 3_000 < 1.2 * 1.04 / 64


def test_the_largest_values_are_exact() -> None:
    numbers = [1.0, 7.0, 7.0, -3.0, 9.0, 7.0]
    state = sketches.largest(4)
    halves = [entries(state, [(0, 0, v) for v in of]) for of in (numbers[:3], numbers[3:])]
    cells = reduce(lambda a, b: both(state, a, b), halves).by_row(np.array([0]), 1)
    found = [float(sketches.nth_largest(cells, n)[0, 0]) for n in range(1, 5)]
    assert found == [9.0, 7.0, 7.0, 7.0]
    few = entries(state, [(0, 0, 2.0)]).by_row(np.array([0]), 1)
    assert math.isnan(sketches.nth_largest(few, 2)[0, 0])
