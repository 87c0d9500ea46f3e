"""SJoin against the pairs that two nested loops find."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.judge.batch import BatchSource, rows_from
from slackwater.model.deployment import JoinSpec, QuerySpec
from slackwater.model.records import SourceColumns
from slackwater.primitives.expressions import compile_predicate, compile_projection
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.dpc.sunion.join import JoinTooLargeError, SJoin, Table
from slackwater.protocols.dpc.sunion.operators import Operators

JoinReading = tuple[int, int, float]
"""Time, key, and a unique value."""
Pair = tuple[int, int, float, float]


def naive(left: Sequence[JoinReading], right: Sequence[JoinReading], within: int) -> list[Pair]:
    """Return every left reading with every right one, in the order (time, left id, right id)."""
    pairs = [
        (max(a[0], b[0]), i, j, a[1], a[2], b[2])
        for i, a in enumerate(left)
        for j, b in enumerate(right)
        if a[1] == b[1] and abs(a[0] - b[0]) <= within
    ]
    return [(stime, key, x, y) for stime, _, _, key, x, y in sorted(pairs)]


def table(readings: Sequence[JoinReading]) -> Table:
    return Table(
        np.array([r[0] for r in readings], np.int64),
        np.array([r[1] for r in readings], np.int64),
        (np.array([r[2] for r in readings], np.float64),),
    )


def reported(rows: Table) -> list[Pair]:
    columns = (rows.stimes, rows.keys, *rows.values)
    return [
        (int(t), int(k), float(x), float(y))
        for t, k, x, y in zip(*(c.tolist() for c in columns), strict=True)
    ]


def sides(first_value: float) -> st.SearchStrategy[list[JoinReading]]:
    reading = st.tuples(st.integers(-20, 40), st.integers(0, 2))
    return st.lists(reading, max_size=30).map(
        lambda rs: [(t, k, first_value + i) for i, (t, k) in enumerate(rs)]
    )


@given(sides(0.0), sides(1_000.0), st.integers(0, 25), st.sets(st.integers(-19, 40), max_size=6))
def test_buckets_one_after_the_other_hold_every_pair_once_and_in_order(
    left: list[JoinReading], right: list[JoinReading], within: int, cuts: set[int]
) -> None:
    join = SJoin(within, (True, False), ("v",), ("v",))
    found: list[Pair] = []

    for start, end in pairwise([-20, *sorted(cuts), 41]):
        seen = [[r for r in side if start - within <= r[0] < end] for side in (left, right)]
        found += reported(join.rows(table(seen[0]), table(seen[1]), start))

    assert found == naive(left, right, within)


@given(sides(0.0), sides(1_000.0), st.integers(0, 25))
def test_the_oracle_of_rehearsals_has_the_same_pairs_in_the_same_order(
    left: list[JoinReading], right: list[JoinReading], within: int
) -> None:
    """Times are in any order within ``disorder``: ids decide between pairs of the same time."""

    def source(name: str, readings: Sequence[JoinReading]) -> BatchSource:
        return BatchSource(("v",), [(t, (name,), f"k{k}", (v,)) for t, k, v in readings])

    pairs = JoinSpec("a", "b", within)
    query = QuerySpec("q", ("a", "b"), None, None, None, (), 1_000_000, join=pairs)
    found = rows_from(query, {"a": source("a", left), "b": source("b", right)}, 1_000)

    product = SJoin(within, (True, False), ("v",), ("v",)).rows(table(left), table(right), -20)
    assert [
        (row.stime, int(row.key[1:]), row.fields["left_v"], row.fields["right_v"])
        for _, bucket in sorted(found.items())
        for row in bucket
    ] == reported(product)


@given(sides(0.0), sides(1_000.0), st.lists(st.integers(0, 30), max_size=4), st.booleans())
def test_the_division_of_readings_into_records_has_no_effect(
    left: list[JoinReading], right: list[JoinReading], cuts: list[int], by_log: bool
) -> None:
    """Records or partitions: later readings of a side follow the earlier ones."""

    def columns(readings: Sequence[JoinReading]) -> SourceColumns:
        part = table(readings)
        keys = [f"k{k}" for k in range(3)]
        return SourceColumns(part.stimes, part.keys.astype(np.int32), keys, ("v",), part.values)

    def bucket(packs: list[list[list[JoinReading]]], left_of: tuple[bool, ...]) -> list[object]:
        join = SJoin(7, left_of, ("v",), ("v",))
        operators = Operators(("left_v", "right_v"), None, None, KeyTable(), join=join)
        streams = [[(columns(record), -100) for record in records] for records in packs]
        pieces = operators.bucket(streams, 10, 30)
        return [(list(p.keys), p.offsets.tolist(), [v.tolist() for v in p.values]) for p in pieces]

    parts = [left[a:b] for a, b in pairwise([0, *sorted(cuts), len(left)])]
    complete = bucket([[left], [right]], (True, False))
    packs = [[part] for part in parts] if by_log else [parts]

    assert bucket([*packs, [right]], (True,) * len(packs) + (False,)) == complete


def test_where_and_select_see_the_joined_row() -> None:
    fields = ("left_v", "right_v")
    operators = Operators(
        fields,
        compile_predicate("left_v < right_v and key = 'a'", fields),
        compile_projection([("rise", "right_v - left_v")], fields),
        KeyTable(),
        join=SJoin(5, (True, False), ("v",), ("v",)),
    )

    def stream(*readings: tuple[int, str, float]) -> list[tuple[SourceColumns, int]]:
        times, keys, values = zip(*readings, strict=True)
        index = np.array(["ab".index(key) for key in keys], np.int32)
        columns = SourceColumns(np.array(times), index, "ab", ("v",), (np.array(values),))
        return [(columns, 0)]

    (piece,) = operators.bucket(
        [
            stream((8, "a", 1.0), (11, "b", 1.0), (12, "a", 9.0)),
            stream((12, "a", 3.0), (12, "b", 5.0), (19, "a", 7.0)),
        ],
        10,
        20,
    )

    assert (piece.fields, list(piece.keys), piece.values[0].tolist()) == (("rise",), ["a"], [2.0])


def test_a_reading_below_its_floor_is_in_no_pair() -> None:
    columns = SourceColumns(
        np.array([10]), np.zeros(1, np.int32), ["a"], ("v",), (np.array([1.0]),)
    )
    operators = Operators(
        ("left_v", "right_v"),
        None,
        None,
        KeyTable(),
        join=SJoin(5, (True, False), ("v",), ("v",)),
    )

    assert len(operators.bucket([[(columns, 0)], [(columns, 10)]], 10, 20)) == 1
    assert operators.bucket([[(columns, 0)], [(columns, 11)]], 10, 20) == []


def test_a_product_that_explodes_is_refused_before_it_is_computed() -> None:
    many = Table(np.zeros(2_000, np.int64), np.zeros(2_000, np.int64), (np.zeros(2_000),))
    join = SJoin(5, (True, False), ("v",), ("v",))

    with pytest.raises(JoinTooLargeError, match=r"4000000 rows in the bucket at 0.*shorter within"):
        join.rows(many, many, 0)
