"""Rows of a query without a window, against lists of Python tuples."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import Gap, Kind, OrderedRecord, Position, SourceColumns
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.keyparts import KEY_HASHES, KeyHash, part_of
from slackwater.primitives.panes import Notes, PaneStore, window_of
from slackwater.primitives.rows import RowContents, Rows
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.sunion.operators import BucketPiece, Operators

RowReading = tuple[int, str, float]
readings = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from("abcdef"), st.integers(0, 99).map(float)),
    max_size=25,
)
"""(stime, key, value) in the order of a stream's ids."""


def columns(stream: list[RowReading]) -> SourceColumns:
    keys = sorted({key for _, key, _ in stream})
    return SourceColumns(
        np.array([t for t, _, _ in stream], np.int64),
        np.array([keys.index(key) for _, key, _ in stream], np.int32),
        tuple(keys),
        ("v",),
        (np.array([v for _, _, v in stream], np.float64),),
    )


def reported(keys: list[str], stimes: np.ndarray, values: np.ndarray) -> list[RowReading]:
    return list(zip(stimes.tolist(), keys, values.tolist(), strict=True))


def of_pieces(pieces: list[BucketPiece]) -> list[RowReading]:
    found = []
    for piece in pieces:
        keys = [piece.keys[i] for i in piece.key_index.tolist()]
        found += reported(keys, piece.stimes, piece.values[0])
    return found


def records(pieces: list[BucketPiece], child: int = 0) -> list[OrderedRecord]:
    return [
        OrderedRecord(
            Kind.INSERTION, child, 0, 0, 0, 31, i, len(pieces), keys=p.keys, offsets=p.offsets,
            fields=p.fields, values=p.values, stimes=p.stimes, key_index=p.key_index,
        )
        for i, p in enumerate(pieces)
    ]  # fmt: skip


@given(st.lists(readings, min_size=1, max_size=3), st.integers(1, 400))
def test_the_order_is_time_stream_id_however_it_is_cut(
    streams: list[list[RowReading]], piece_bytes_max: int
) -> None:
    operators = Operators(
        ("v",), None, None, KeyTable(), rows=True, piece_bytes_max=piece_bytes_max
    )
    pieces = operators.bucket([[(columns(s), -1)] for s in streams], 5, 25)
    expected = [r for stream in streams for r in stream if 5 <= r[0] < 25]
    assert of_pieces(pieces) == sorted(expected, key=lambda r: r[0])
    assert all(len(piece.stimes) for piece in pieces)
    assert all(list(piece.keys) == sorted(set(piece.keys)) for piece in pieces)


@given(st.lists(readings, min_size=1, max_size=3), st.integers(1, 3), st.sampled_from(KEY_HASHES))
def test_children_merge_by_time_and_child_and_parts_share_the_keys(
    children: list[list[RowReading]], parts: int, key_hash: KeyHash
) -> None:
    expected = sorted((r for child in children for r in child), key=lambda r: r[0])
    per_part = defaultdict(list)
    for reading in expected:
        per_part[part_of(reading[1], parts, key_hash)].append(reading)
    grid = Grid(31, WindowSpec(31, 31))
    for part in range(parts):
        table = KeyTable()
        contents = RowContents(table, ("v",), part=part, parts=parts, key_hash=key_hash)
        shares = []
        for stream in children:
            store = PaneStore(grid, contents, 0)
            operators = Operators(("v",), None, None, KeyTable(), rows=True, piece_bytes_max=200)
            pieces = operators.bucket([[(columns(stream), -1)]], 0, 31)
            for record in records(pieces):
                last = record.piece + 1 == record.pieces
                value = contents.of(record)
                store.add(Position(0, record.piece), 31, value, last=last)
            if not pieces:
                store.advance(31)
            shares.append(store.window(0, 31))
        rows = window_of(shares, contents).slice
        assert reported(table.names(rows.index), rows.stimes, rows.values[0]) == per_part[part]


def test_an_empty_bucket_names_its_missing_streams() -> None:
    contents = RowContents(KeyTable(), ("v",))
    store = PaneStore(Grid(10, WindowSpec(10, 10)), contents, 0)
    store.advance(10, Notes.of(gap=[Gap("s", 3)]))
    share = store.window(0, 10)
    assert len(share.slice) == 0
    assert share.notes.lost == (Gap("s", 3),)


def test_rows_of_another_query_are_refused() -> None:
    contents = RowContents(KeyTable(), ("v", "w"))
    (piece,) = Operators(("v",), None, None, KeyTable(), rows=True).bucket(
        [[(columns([(1, "a", 1.0)]), -1)]], 0, 10
    )
    with pytest.raises(ValueError, match="the query has"):
        contents.of(records([piece])[0])


def test_a_fold_may_be_asked_more_than_once() -> None:
    table = KeyTable()
    index = table.indices(("a",))
    contents = RowContents(table, ("v",))
    folding = contents.folding()
    assert len(folding.result()) == 0
    for stime in (1, 2, 3):
        folding.add(Rows(np.array([stime]), index, np.array([[float(stime)]])))
        assert folding.result().stimes.tolist() == list(range(1, stime + 1))
