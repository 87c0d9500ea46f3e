"""The condition of a query on its rows drops keys of a merged window, and no bit of the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.judge.oracle import evaluate
from slackwater.primitives.aggregates import AggregateColumns, columns_of, states_of
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.expression_text import ExpressionError
from slackwater.primitives.having import Having
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.states import StateEntries, lifted

FIELDS = ("x", "y")
AGGREGATES = ("count", "avg", "min", "max", "var", "last")
SHOWN = (("x", AGGREGATES), ("y", ("count", "max")))


def slice_of(table: KeyTable, readings: dict[str, list[tuple[float, float]]]) -> Slice:
    """Return the slice of one bucket with readings (x, y) by key; NaN is a missing value."""
    index = table.indices(tuple(readings))
    figures = np.array(
        [[figures_of([pair[f] for pair in pairs]) for pairs in readings.values()] for f in (0, 1)]
    )
    offsets = np.cumsum([0, *map(len, readings.values())]).astype(np.float64)
    values = np.array([pair for pairs in readings.values() for pair in pairs])
    states = states_of(AGGREGATES)
    found = lifted(states, offsets, list(values.T), np.arange(len(values)))
    entries = [StateEntries.of(state, found[state.name], index) for state in states]
    return Slice.build(index, [figures[:, :, i] for i in range(5)], entries)


def valid(value: float) -> bool:
    return not math.isnan(value)


def figures_of(values: list[float]) -> list[float]:
    there = [v for v in values if valid(v)]
    if not there:
        return [0.0, 0.0, 0.0, math.nan, math.nan]
    mean = sum(there) / len(there)
    return [len(there), sum(there), sum((v - mean) ** 2 for v in there), min(there), max(there)]


def rows_of(value: Slice, table: KeyTable) -> dict[str, dict[str, float | None]]:
    """Return the numbers of each key by name, as a row has them."""
    keys, figures = value.sorted(table)
    columns = AggregateColumns.of(figures, AGGREGATES, value.cells(table))
    with np.errstate(all="ignore"):
        numbers = dict(zip(AGGREGATES, columns_of(columns, AGGREGATES), strict=True))
    return {
        key: {
            f"{field}_{name}": number if math.isfinite(number) else None
            for f, (field, names) in enumerate(SHOWN)
            for name in names
            for number in [float(numbers[name][f, row])]
        }
        for row, key in enumerate(keys)
    }


def kept(text: str, readings: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    table = KeyTable()
    having = Having.of(text, FIELDS, AGGREGATES, SHOWN)
    contents = Aggregates(table, FIELDS, (), states_of(AGGREGATES), having.kept)
    return rows_of(contents.kept(slice_of(table, readings)), table)


READINGS = {
    "hall": [(1.0, 2.0), (3.0, math.nan)],
    "attic": [(5.0, 1.0)],
    "cellar": [(math.nan, 1.0)],
}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("x_count >= 2", ["hall"]),
        ("x_avg > 1.5", ["attic", "hall"]),
        ("x_avg > y_max", ["attic"]),
        ("x_avg IS NULL", ["cellar"]),
        ("NOT x_avg > 2", ["hall"]),  # NULL drops a row, as it does in WHERE
        ("x_var > 0", ["hall"]),
        ("x_last = 3 OR key = 'cellar'", ["cellar", "hall"]),
        ("y_count < 0", []),
        ("TRUE", ["attic", "cellar", "hall"]),
    ],
)
def test_a_condition_keeps_the_keys_for_which_it_is_true(text: str, keys: list[str]) -> None:
    assert list(kept(text, READINGS)) == keys


def test_a_slice_that_is_kept_whole_is_the_same_object() -> None:
    table = KeyTable()
    value = slice_of(table, READINGS)
    assert Having.of("TRUE", FIELDS, AGGREGATES, SHOWN).kept(value, table) is value


@pytest.mark.parametrize("text", ["x_sum > 1", "y_avg > 1", "x > 1", "x_avg", "x_avg +"])
def test_only_figures_of_the_row_are_known(text: str) -> None:
    with pytest.raises(ExpressionError):
        Having.of(text, FIELDS, AGGREGATES, SHOWN)


numbers = st.one_of(st.floats(-9, 9, width=16), st.just(math.nan))
windows = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4),
    max_size=8,
)
conditions = st.sampled_from(
    ["x_avg >= 0", "x_max - x_min > y_max", "y_count > x_count OR key < 'b'", "x_last < x_avg"]
)


@given(conditions, windows)
def test_it_is_a_filter_of_rows_as_in_a_database(
    text: str, readings: dict[str, list[tuple[float, float]]]
) -> None:
    """SQLite, over the rows of all keys, decides the same; the rows that stay keep their bits."""
    table = KeyTable()
    rows = rows_of(slice_of(table, readings), table) if readings else {}
    names = [f"{field}_{name}" for field, of_field in SHOWN for name in of_field]
    wanted = [
        list(rows)[index]
        for index, _ in evaluate(
            text, None, names, [(key, tuple(row[n] for n in names)) for key, row in rows.items()]
        )
    ]
    found = kept(text, readings) if readings else {}
    assert list(found) == wanted
    assert all(found[key] == rows[key] for key in wanted)
