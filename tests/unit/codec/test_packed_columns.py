"""Packed columns give each double back, bit for bit, and take few bits for what sensors send."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codec.build import RECORDS

from slackwater.codec.avro_types import DamageError
from slackwater.codec.packed_columns import NUMBERS_MAX, pack, unpack
from slackwater.codec.pane_records import decode_merged, encode_merged
from slackwater.model.merged import MergedRecord
from slackwater.primitives.figures import COUNT, FIGURES, MAX, MIN, SUM, merge_into

DECIMALS = st.integers(-(10**6), 10**6).flatmap(
    lambda k: st.integers(0, 4).map(lambda digits: k / 10**digits)
)
ANY_BITS = st.integers(0, 2**64 - 1).map(lambda of: struct.unpack("<d", struct.pack("<Q", of))[0])
NUMBERS = st.one_of(DECIMALS, ANY_BITS, st.floats(), st.integers(-5, 5).map(float))


@settings(max_examples=400)
@given(st.integers(0, 3), st.lists(NUMBERS, max_size=40))
def test_what_is_packed_is_unpacked_bit_for_bit(columns: int, numbers: list[float]) -> None:
    given_columns = np.array([numbers] * columns, np.float64).reshape(columns, len(numbers))
    found = unpack(pack(given_columns))
    assert found.shape == given_columns.shape
    assert found.tobytes() == given_columns.tobytes()


@given(st.lists(st.sampled_from([0.5, 20.1, float("nan"), -3.0]), min_size=1, max_size=40))
def test_a_column_of_some_missing_values_is_small(numbers: list[float]) -> None:
    column = np.array([numbers])
    assert unpack(pack(column)).tobytes() == column.tobytes()
    assert len(pack(column)) <= 40 + 2 * len(numbers)


def test_average_minimum_and_maximum_of_decimals_take_seven_bytes_a_key() -> None:
    """A double has eight, and gzip leaves 20 of the 40: ``bench.sites --sizes``."""
    rng, keys = np.random.default_rng(7), 500
    pane = np.zeros((FIGURES, 1, keys))
    for bucket in range(40):
        values = rng.normal(20, 6, (10, keys)).round(2) + 0.0
        of = np.zeros_like(pane)
        of[COUNT], of[SUM], of[MIN], of[MAX] = 10, values.sum(0), values.min(0), values.max(0)
        if bucket:
            merge_into(pane, of, ())
        else:
            pane = of
    pane[2] = 0.0  # no aggregate needs it
    packed = pack(pane[:, 0, :])
    assert unpack(packed).tobytes() == pane.tobytes()
    assert len(packed) < 7 * keys


def test_equal_values_take_no_bits() -> None:
    assert len(pack(np.full((1, 100_000), 17.25))) < 40


@given(st.binary(max_size=60), st.data())
def test_damage_is_told(tail: bytes, data: st.DataObject) -> None:
    packed = bytearray(pack(np.array([[1.5, 2.25, float("nan")], [0.1, 0.2, 0.3]])))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (bytes(packed), bytes(packed) + tail, tail):
        try:
            unpack(damaged)
        except DamageError:
            continue


def test_a_few_bytes_do_not_claim_memory() -> None:
    wide = struct.pack("<HI", 1, NUMBERS_MAX + 1) + pack(np.zeros((1, 0)))[6:]
    with pytest.raises(DamageError, match="values"):
        unpack(wide)
    with pytest.raises(DamageError, match="behind"):
        unpack(pack(np.zeros((1, 3))) + b"x")


@given(RECORDS["merged"])
def test_a_merged_pane_is_the_same_packed_or_not(record: MergedRecord) -> None:
    packed, plain = (decode_merged(encode_merged(record, packed=of)) for of in (True, False))
    figures = [of.pane.columns.figures for of in (packed, plain, record)]
    assert len({(of.shape, of.tobytes()) for of in figures}) == 1
    assert encode_merged(packed) == encode_merged(plain) == encode_merged(record)
