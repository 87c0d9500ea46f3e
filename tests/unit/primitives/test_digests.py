"""Digests of panes: equal for copies that hold the same, whatever the numbers of their keys."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.primitives.test_deltas import KEYS, Readings, buckets, slice_of

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import Gap, Position
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.digests import DIGEST_MASK, NO_DIGEST, combined, digest_of, recorded
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.keyparts import xxhash64
from slackwater.primitives.panes import NOTHING, Notes, PaneStore
from slackwater.primitives.rows import RowContents, Rows
from slackwater.primitives.windows import Grid

NO_KEYS = np.zeros(0, np.uint64)


def digest(readings: Readings, table: KeyTable) -> int:
    return Aggregates(table, ("f",)).digest(slice_of(readings, table))


@given(buckets, st.permutations(KEYS))
def test_it_does_not_depend_on_the_numbers_of_keys(readings: Readings, interned: list[str]) -> None:
    other = KeyTable()
    other.indices(interned)
    assert digest(readings, KeyTable()) == digest(readings, other)


@given(buckets, st.integers(0), st.integers(0, 63))
def test_another_bit_is_another_digest(readings: Readings, cell: int, bit: int) -> None:
    table = KeyTable()
    contents, value = Aggregates(table, ("f",)), slice_of(readings, table)
    if not len(value):
        return
    figures = value.figures.copy()
    bits = figures.view(np.uint64).reshape(-1)
    bits[cell % len(bits)] ^= np.uint64(1 << bit)
    figures.setflags(write=False)
    other = Slice(value.index, figures)
    same = np.array_equal(value.figures, figures, equal_nan=True)
    assert (contents.digest(value) == contents.digest(other)) == same


@given(st.permutations(KEYS).map(lambda keys: keys[:2]), st.floats(-9, 9), st.floats(-9, 9))
def test_values_that_change_keys_are_told(keys: list[str], one: float, other: float) -> None:
    table = KeyTable()
    there = {keys[0]: [one], keys[1]: [other]}
    changed = {keys[0]: [other], keys[1]: [one]}
    assert (digest(there, table) == digest(changed, table)) == (one == other)


@given(st.lists(st.lists(st.text(max_size=3), max_size=4, unique=True), max_size=6))
def test_keys_that_come_later_leave_the_hashes_of_earlier_ones(lists: list[list[str]]) -> None:
    table = KeyTable()
    for keys in lists:
        table.indices(keys)
        assert (
            table.hashes(np.arange(len(table))).tolist()
            == xxhash64(table.known).view(np.uint64).tolist()
        )


def test_nothing_has_digest_0() -> None:
    assert digest({}, KeyTable()) == digest_of(NO_KEYS, [np.zeros(0)]) == 0


def test_all_missing_values_are_one_and_both_zeros_are() -> None:
    keys = xxhash64(["a"]).view(np.uint64)
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)
    assert math.isnan(other_nan[0])
    assert digest_of(keys, [np.array([math.nan])]) == digest_of(keys, [other_nan])
    assert digest_of(keys, [np.array([0.0])]) == digest_of(keys, [np.array([-0.0])])


def test_columns_do_not_change_places() -> None:
    keys = xxhash64(["a"]).view(np.uint64)
    one, other = np.array([1.0]), np.array([2.0])
    assert digest_of(keys, [one, other]) != digest_of(keys, [other, one])


@given(st.integers(0, DIGEST_MASK * 4))
def test_a_record_has_64_bits_with_a_sign_and_never_none(total: int) -> None:
    found = recorded(total)
    assert -(1 << 63) <= found < 1 << 63
    assert found != NO_DIGEST
    assert total & DIGEST_MASK in {0, found & DIGEST_MASK}


@given(st.integers(0, DIGEST_MASK), st.integers(0, 1 << 60))
def test_a_place_counts(digest: int, place: int) -> None:
    assert 0 <= combined(place, digest) <= DIGEST_MASK
    assert combined(place, digest) != combined(place + 1, digest)


def test_rows_have_their_times_keys_and_values_in_it() -> None:
    table = KeyTable()
    contents = RowContents(table, ("v",))
    index = table.indices(["a", "b"])
    rows = Rows(np.array([1, 2]), index, np.array([[0.5, 1.5]]))
    found = {
        contents.digest(each)
        for each in (
            rows,
            replace(rows, stimes=np.array([1, 3])),
            replace(rows, index=index[::-1]),
            replace(rows, values=np.array([[0.5, 2.5]])),
        )
    }
    assert len(found) == 4


def store(panes: list[Readings], notes: Notes = NOTHING) -> PaneStore[Slice]:
    """Return a store with panes of 10 us; the second one has the notes."""
    table = KeyTable()
    made = PaneStore(Grid(10, WindowSpec(20, 10)), Aggregates(table, ("f",)), 0)
    for at, readings in enumerate(panes):
        value = slice_of(readings, table)
        made.add(Position(at * 10), at * 10 + 10, value, notes if at == 1 else NOTHING)
    return made


def test_a_pane_s_start_counts() -> None:
    there = store([{"a": [1.0]}, {}, {}])
    later = store([{}, {"a": [1.0]}, {}])
    assert there.digest(0, 30) != later.digest(0, 30)
    assert there.digest(0, 10) == there.digest(0, 30)
    assert there.digest(10, 30) == 0


def test_of_panes_with_a_loss_there_is_none() -> None:
    lacks = store([{"a": [1.0]}] * 3, Notes.of((), [Gap("s", 1)]))
    assert lacks.digest(0, 10) is not None
    assert lacks.digest(0, 30) is None
    assert lacks.digest(20, 30) is not None


def test_of_panes_that_are_not_complete_there_is_none() -> None:
    with pytest.raises(AssertionError, match="not complete"):
        store([{"a": [1.0]}]).digest(0, 20)
