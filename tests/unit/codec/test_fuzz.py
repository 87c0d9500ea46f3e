"""Damage of every kind gives one error, and takes no more memory than the bytes justify."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.codec.build import DECODE, ENCODE, RECORDS

from slackwater.codec import SCHEMAS, fingerprint
from slackwater.codec.avro_types import long_bytes
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import (
    DeltaRecord,
    Gap,
    Kind,
    OrderedRecord,
    SourceColumns,
    SourceRecord,
)

HOSTILE = [
    long_bytes(n) for n in (2**31, 2**31 - 1, 2**62, 2**63 - 1, -(2**63), -1, -(2**31), 10**6)
] + [b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x7f", b"\x80" * 40, b"\xff" * 10]


def read_all(name: str, data: bytes) -> Any:
    """Decode a record with all its columns."""
    record = DECODE[name](data, "t/0@1")
    if name == "source" and record.columns is not None:
        record.columns.load()
    return record


def survives(name: str, data: bytes) -> None:
    """Only this error may be raised."""
    with suppress(MalformedRecordError):
        read_all(name, data)


@pytest.mark.parametrize("name", SCHEMAS)
def test_cut_anywhere(name: str) -> None:
    @settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
    @given(RECORDS[name])
    def check(record: Any) -> None:
        data = ENCODE[name](record)
        for end in range(len(data)):
            with pytest.raises(MalformedRecordError):
                read_all(name, data[:end])

    check()


@pytest.mark.parametrize("name", SCHEMAS)
def test_flipped_bits_and_hostile_numbers(name: str) -> None:
    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
    @given(RECORDS[name], st.integers(0, 2**32))
    def check(record: Any, seed: int) -> None:
        data = ENCODE[name](record)
        dice = random.Random(seed)
        for _ in range(20):
            flipped = bytearray(data)
            for _ in range(dice.randint(1, 3)):
                flipped[dice.randrange(10, len(data))] ^= 1 << dice.randrange(8)
            survives(name, bytes(flipped))
            at = dice.randrange(10, len(data) + 1)
            survives(name, data[:at] + dice.choice(HOSTILE) + data[at + dice.randint(0, 2) :])

    check()


@pytest.mark.parametrize("name", SCHEMAS)
@given(noise=st.binary(max_size=200))
def test_noise_behind_a_right_header(name: str, noise: bytes) -> None:
    survives(name, b"\xc3\x01" + fingerprint(name) + noise)
    survives(name, noise)


def big_records() -> dict[str, Any]:
    """One record of each columnar schema, some 100 kB each."""
    n = 4_000
    keys = tuple(f"sensor-{i:05d}" for i in range(400))
    rng = np.random.default_rng(7)
    stimes = np.sort(rng.integers(0, 10**6, n))
    figure = rng.normal(size=(2, 400))
    gap = (Gap("room-1", 3),)
    columns = SourceColumns(
        stimes,
        rng.integers(0, 400, n, dtype=np.int32),
        keys,
        ("t", "u"),
        tuple(rng.normal(size=(2, n))),
    )
    ordered = OrderedRecord(
        Kind.INSERTION, 0, 0, 1, 0, 9, gap=gap, keys=keys, offsets=np.arange(401.0) * 10,
        fields=("t",), values=(rng.normal(size=n),),
    )  # fmt: skip
    return {
        "source": SourceRecord(
            Kind.INSERTION, "room-1", 1, 0, n - 1, 5, int(stimes[0]), int(stimes[-1]),
            gap=gap, columns=columns,
        ),
        "ordered": ordered,
        "delta": DeltaRecord(
            Kind.INSERTION, 0, 0, 1, 0, 9, 3, gap=gap, keys=keys, fields=("t", "u"),
            count=figure, sum=figure, m2=figure, min=figure, max=figure,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["source", "ordered", "delta"])
def test_memory_follows_the_bytes_that_are_there(name: str) -> None:
    """A wrong count of 2**31 doubles would be 16 GiB; the bound here is 40 bytes per byte."""
    data = ENCODE[name](big_records()[name])
    read_all(name, data)
    dice = random.Random(11)
    tracemalloc.start()
    try:
        for _ in range(300):
            at = dice.choice([dice.randrange(10, 150), dice.randrange(10, len(data))])
            survives(name, data[:at] + dice.choice(HOSTILE) + data[at + dice.randint(0, 3) :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The key lists that the cache may keep are included.
    assert peak < 40 * len(data) + 5_000_000


@pytest.mark.parametrize(
    ("name", "before"),
    [("source", 10), ("ordered", 12), ("delta", 13)],
)
def test_a_million_empty_items_are_refused(name: str, before: int) -> None:
    """One byte each in the log, a hundred in memory: gaps, missing streams, columns."""
    body = b"\0" * before + long_bytes(1_000_000) + b"\0" * 2_000_000
    data = b"\xc3\x01" + fingerprint(name) + body
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRecordError, match="more than"):
            read_all(name, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
