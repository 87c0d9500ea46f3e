"""Slices and their fold, against plain Python floats per key (Fargo, section 3.5; trace-28)."""

from __future__ import annotations

import math
import statistics
from sys import getsizeof

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.records import DeltaRecord, Kind
from slackwater.primitives.deltas import Aggregates, Fold, Slice, fold
from slackwater.primitives.key_table import LONG_LIST_KEYS_MIN, KeyTable, KeyTableFull

Readings = dict[str, list[float]]
"""The readings of one bucket by key; NaN is a missing value."""

KEYS = [f"k{i}" for i in range(6)] + ["ä", "\U0001f600", "Z"]
values = st.one_of(
    st.floats(-1e6, 1e6, allow_subnormal=False), st.just(0.0), st.just(-0.0), st.just(math.nan)
)
buckets = st.dictionaries(st.sampled_from(KEYS), st.lists(values, min_size=1, max_size=4))


def record_of(readings: Readings) -> DeltaRecord:
    """Return an aggregator's record of these readings, one field."""
    keys = sorted(readings)
    rows: list[tuple[float, ...]] = []
    for key in keys:
        there = [v for v in readings[key] if not math.isnan(v)]
        mean = sum(there) / len(there) if there else 0.0
        m2 = sum((v - mean) ** 2 for v in there)
        ends = (min(there), max(there)) if there else (math.nan, math.nan)
        rows.append((float(len(there)), sum(there, -0.0) if there else 0.0, m2, *ends))
    figures = np.array(rows).reshape(-1, 5).T
    return DeltaRecord(
        Kind.INSERTION, 0, 0, 0, 0, 10, 0, keys=keys, keys_hash=hash(tuple(keys)), fields=("f",),
        count=figures[0:1], sum=figures[1:2], m2=figures[2:3], min=figures[3:4], max=figures[4:5],
    )  # fmt: skip


def slice_of(readings: Readings, table: KeyTable) -> Slice:
    return Slice.of(record_of(readings), table, ("f",))


def by_key(value: Slice, table: KeyTable) -> dict[str, list[float]]:
    keys, figures = value.sorted(table)
    return {key: figures[:, 0, i].tolist() for i, key in enumerate(keys)}


@given(st.lists(buckets, max_size=6))
def test_a_fold_gives_what_the_plain_readings_give(parts: list[Readings]) -> None:
    table = KeyTable()
    result = by_key(fold([slice_of(p, table) for p in parts], table, 1), table)

    merged: Readings = {}
    for part in parts:
        for key, readings in part.items():
            merged.setdefault(key, []).extend(v for v in readings if not math.isnan(v))
    assert list(result) == sorted(merged)
    for key, there in merged.items():
        count, total, m2, low, high, _ = result[key]
        assert count == len(there)
        assert total == pytest.approx(sum(there), abs=1e-6)
        if there:
            assert m2 == pytest.approx(statistics.pvariance(there) * len(there), rel=1e-6, abs=1e-2)
            assert (low, high) == (min(there), max(there))
        else:
            assert math.isnan(low)
            assert math.isnan(high)


@given(st.lists(buckets, max_size=6), st.permutations(KEYS), st.integers(0, 6))
def test_the_bits_do_not_depend_on_interning_order_nor_on_a_stop_on_the_way(
    parts: list[Readings], interned: list[str], stop: int
) -> None:
    one, other = KeyTable(), KeyTable()
    other.indices(interned)
    straight = fold([slice_of(p, one) for p in parts], one, 1)

    slices = [slice_of(p, other) for p in parts]
    halfway = Fold(other, 1)
    halfway.add(fold(slices[:stop], other, 1))
    for value in slices[stop:]:
        halfway.add(value)
        halfway.result()

    assert straight.to_bytes(one) == halfway.result().to_bytes(other)


@given(st.lists(buckets, min_size=1, max_size=4))
def test_folding_leaves_what_was_published_as_it_was(parts: list[Readings]) -> None:
    table = KeyTable()
    slices = [slice_of(p, table) for p in parts]
    before = [s.to_bytes(table) for s in slices]
    running, published = Fold(table, 1), []
    for value in slices:
        running.add(value)
        published.append((running.result(), running.result().to_bytes(table)))
    assert [s.to_bytes(table) for s in slices] == before
    assert all(value.to_bytes(table) == was for value, was in published)
    with pytest.raises(ValueError, match="read-only"):
        slices[0].figures[:] = 1.0


def test_figures_that_no_aggregate_needs_keep_their_neutral_value() -> None:
    """They would be on the link of a site, and differ from pane to pane."""
    given = [record_of(of) for of in ({"a": [1.0, 4.0]}, {"a": [9.0]}, {"a": [2.0], "b": [7.0]})]
    table = KeyTable()
    plain, other = Aggregates(table, ("f",)), Aggregates(table, ("f",), figures=("count", "sum"))
    found = []
    for contents in (plain, other):
        fold = contents.folding()
        for record in given:
            fold.add(contents.of(record))
        found.append(fold.result())
    one, two = found
    assert two.count.tobytes() == one.count.tobytes()
    assert two.sum.tobytes() == one.sum.tobytes()
    assert two.low.tobytes() == one.low.tobytes()
    assert one.m2.any()
    assert not two.m2.any()
    assert np.isnan(two.min).all()
    assert np.isnan(two.max).all()


def test_a_small_variance_under_a_large_mean_survives() -> None:
    # A sum of squares gives -170 here.
    table = KeyTable()
    parts: list[Readings] = [{"a": [1e9 + 4]}, {"a": [1e9 + 7, 1e9 + 13]}, {"a": [1e9 + 16]}]
    result = fold([slice_of(p, table) for p in parts], table, 1)
    assert result.m2[0, 0] / 3 == 30.0


def test_the_largest_of_negative_readings_is_negative_and_zeros_count() -> None:
    # Fargo's Algorithms 5 to 7 start at 0, its Algorithms 3 and 4 skip zeros.
    table = KeyTable()
    result = fold([slice_of({"a": [-3.0, -2.0]}, table)], table, 1)
    assert (result.min[0, 0], result.max[0, 0]) == (-3.0, -2.0)
    zeros = fold([slice_of({"a": [0.0, 0.0]}, table), slice_of({"a": [3.0]}, table)], table, 1)
    assert zeros.count[0, 0] == 3.0


def test_sums_that_overflow_stay_quiet_and_do_not_spoil_other_keys() -> None:
    table = KeyTable()
    big = slice_of({"a": [1e308], "b": [1.0]}, table)
    result = fold([big, big, slice_of({"a": [math.nan]}, table)], table, 1)
    assert not math.isfinite(result.sum[0, 0])
    assert by_key(result, table)["b"] == [2.0, 2.0, 0.0, 1.0, 1.0, 0.0]


def test_one_slice_alone_is_published_without_a_copy() -> None:
    table = KeyTable()
    only = slice_of({"a": [1.0]}, table)
    assert fold([Slice.empty(1), only], table, 1).figures is only.figures


def test_an_unchanged_key_list_is_looked_up_not_interned() -> None:
    table = KeyTable(lists_max=2)
    first = table.indices(["a", "b"], 11)
    assert table.indices(["a", "b"], 11) is first
    table.indices(["b"], 12)
    table.indices(["a"], 13)  # evicts 11
    again = table.indices(["a", "b"], 11)
    assert again is not first
    assert again.tolist() == first.tolist()


def test_two_key_lists_with_one_hash_are_not_mistaken_for_each_other() -> None:
    table = KeyTable()
    first = table.indices(("a", "b"), 11)
    other = table.indices(("c", "d"), 11)
    assert table.names(other) == ["c", "d"]
    assert table.indices(("a", "b"), 11) is first


def test_the_table_is_bounded_and_its_error_has_a_remedy() -> None:
    table = KeyTable(keys_max=2)
    table.indices(["a", "b"])
    with pytest.raises(KeyTableFull, match="more than 2 different keys"):
        table.indices(["a", "c"])
    assert len(table) == 2


def test_r5_the_lists_that_are_remembered_are_bounded_in_bytes_too() -> None:
    """A source whose records all name the same few keys, each of the maximum length."""
    table = KeyTable(lists_bytes_max=100_000, shared_bytes_max=100_000)
    for n in range(40):
        keys = tuple(f"{k}" * 5_000 for k in range(3))  # equal to the earlier ones, not identical
        table.numbers(keys)
        table.indices(keys[:2], n + 1)
        assert table.remembered_bytes <= 2 * 100_000
    assert table.numbers(keys) is table.numbers(keys)
    longer = tuple(str(k) for k in range(20_000))
    known = table.indices(longer, 99)
    assert table.indices(longer, 99) is known, "one is kept, of any length"
    assert table.remembered_bytes <= 100_000 + known.nbytes + sum(map(getsizeof, longer))


def test_a_long_list_is_remembered_with_the_table_s_own_strings() -> None:
    table = KeyTable()
    count = 2 * LONG_LIST_KEYS_MIN
    read = [tuple(f"k{n}" for n in range(count)) for _ in range(2)]
    first = table.indices(read[0], 11)
    assert table.indices(read[1], 11) is first, "it is recognised by its keys"
    assert table.remembered_bytes == 16 * count
    other = (*read[1][:-1], "z")
    assert table.names(table.indices(other, 11)) == list(other)


def test_r5_the_text_of_the_keys_is_bounded() -> None:
    table = KeyTable(keys_bytes_max=10_000)
    table.indices(["a" * 4_000, "b" * 4_000])
    with pytest.raises(KeyTableFull, match="10000 bytes"):
        table.indices(["c" * 4_000])


def test_a_list_that_names_a_key_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        KeyTable().indices(["a", "a"])


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), unique=True)))
def test_key_order_is_that_of_the_utf8_bytes(lists: list[list[str]]) -> None:
    table = KeyTable()
    for keys in lists:
        index = table.indices(keys)
        order, names = table.in_key_order(index)
        assert [n.encode() for n in names] == sorted(k.encode() for k in keys)
        assert table.names(index if order is None else index[order]) == names


def test_a_slice_of_other_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="fields"):
        Slice.of(record_of({"a": [1.0]}), KeyTable(), ("g",))
