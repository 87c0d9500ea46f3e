"""Orderers that share buckets have the same ones as orderers that do not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.records import SourceColumns
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.dpc.sunion.operators import BucketPiece, Operators
from slackwater.protocols.dpc.sunion.shared_buckets import ENTRIES_MAX, SharedBuckets

W = 100


def columns(*readings: tuple[int, str, float]) -> SourceColumns:
    """Of (time, key, value)."""
    names = sorted({key for _, key, _ in readings})
    return SourceColumns(
        stimes=np.array([time for time, _, _ in readings], np.int64),
        keys=tuple(names),
        key_index=np.array([names.index(key) for _, key, _ in readings], np.int32),
        fields=("v",),
        values=(np.array([value for _, _, value in readings]),),
    )


def operators(shared: SharedBuckets[list[BucketPiece]] | None) -> Operators:
    return Operators(("v",), None, None, KeyTable(), shared=shared)


def emitted(pieces: list[BucketPiece]) -> list[object]:
    """Return a comparable form of them."""
    return [
        (list(p.keys), p.offsets.tolist(), p.fields, [v.tolist() for v in p.values]) for p in pieces
    ]


reading = st.tuples(st.integers(0, 4 * W - 1), st.sampled_from(["a", "b", "c"]), st.floats(-9, 9))
chunks = st.lists(
    st.tuples(st.lists(reading, min_size=1, max_size=4).map(lambda r: columns(*r)), st.just(0)),
    max_size=3,
)


@given(
    streams=st.lists(chunks, min_size=1, max_size=2),
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([0, 50, 150])), max_size=40
    ),
)
def test_an_orderer_gets_the_bucket_that_it_would_have_made(
    streams: list[list[tuple[SourceColumns, int]]], steps: list[tuple[int, int, int]]
) -> None:
    """Three orderers request buckets in any order, with different previous watermarks."""
    shared: SharedBuckets[list[BucketPiece]] = SharedBuckets()
    three = [operators(shared) for _ in range(3)]
    for _ in three:
        shared.join()
    for who, bucket, prev_watermark in steps:
        given = [[(of, prev_watermark) for of, _ in stream] for stream in streams]
        start, end = bucket * W, (bucket + 1) * W
        alone = operators(None).bucket(given, start, end)
        assert emitted(three[who].bucket(given, start, end)) == emitted(alone)


class Counting:
    """Counts the computed buckets."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> int:
        self.made += 1
        return self.made


ONE = columns((10, "a", 1.0))


def sharing(users: int) -> SharedBuckets[int]:
    shared: SharedBuckets[int] = SharedBuckets()
    for _ in range(users):
        shared.join()
    return shared


def test_it_is_made_once_for_all() -> None:
    shared, make = sharing(3), Counting()
    assert [shared.content(0, W, [[(ONE, 0)]], make) for _ in range(3)] == [1, 1, 1]
    assert shared.content(0, W, [[(ONE, 0)]], make) == 2, "all three have taken it: it is dropped"


def test_a_single_orderer_keeps_nothing() -> None:
    shared, make = sharing(1), Counting()
    assert [shared.content(0, W, [[(ONE, 0)]], make) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("start", "end", "given"),
    [
        (W, 2 * W, [[(ONE, 0)]]),
        (0, W, [[(ONE, 5)]]),
        (0, W, [[(columns((10, "a", 1.0)), 0)]]),
        (0, W, [[(ONE, 0)], []]),
        (0, W, [[], [(ONE, 0)]]),
        (0, W, [[(ONE, 0), (ONE, 0)]]),
    ],
    ids=["bucket", "floor", "equal but not the same", "streams", "stream", "twice"],
)
def test_other_readings_are_another_bucket(
    start: int, end: int, given: list[list[tuple[SourceColumns, int]]]
) -> None:
    shared, make = sharing(2), Counting()
    assert shared.content(0, W, [[(ONE, 0)]], make) == 1
    assert shared.content(start, end, given, make) == 2


def test_what_nobody_takes_is_bounded() -> None:
    shared, make = sharing(2), Counting()
    edges = list(pairwise(range(0, W * (ENTRIES_MAX + 3), W)))
    for start, end in edges:
        shared.content(start, end, [[(ONE, 0)]], make)
    assert len(shared._entries) == ENTRIES_MAX
    last, first = edges[-1], edges[0]
    assert shared.content(*last, [[(ONE, 0)]], make) == len(edges)
    assert shared.content(*first, [[(ONE, 0)]], make) == len(edges) + 1


def test_the_last_remaining_orderer_keeps_nothing() -> None:
    shared, make = sharing(2), Counting()
    shared.content(0, W, [[(ONE, 0)]], make)
    shared.leave()
    assert shared.content(0, W, [[(ONE, 0)]], make) == 2
    assert not shared._entries
