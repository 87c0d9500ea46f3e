"""A merger alone: one record for each pane, complete, bit for bit, and none with a loss."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.primitives.test_deltas import slice_of

from slackwater.codec.pane_records import decode_merged, encode_merged
from slackwater.model.deployment import WindowSpec
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap, LogPosition, Position
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import NOTHING, Notes, PaneStore
from slackwater.primitives.windows import Grid
from slackwater.protocols.fargo.merger import Merger

GRID = Grid(10, WindowSpec(40, 20))
FIELDS = ("f",)
Bucket = dict[str, float]


class Merging:
    """A merger, and the positions and records of its log."""

    def __init__(self, start: int = 0) -> None:
        self.table = KeyTable()
        self.contents = Aggregates(self.table, FIELDS)
        self.merger = Merger(0, GRID, self.contents, start)
        self.read = 0
        self.written: list[MergedRecord] = []

    def add(self, bucket: Bucket, notes: Notes = NOTHING) -> None:
        """Take the next bucket."""
        at = self.merger.panes.frontier
        value = slice_of(_readings(bucket), self.table)
        self.merger.panes.add(at, at.bucket_start + 10, value, notes)
        self.look()

    def advance(self, to: int) -> None:
        """Take a run of empty buckets."""
        self.merger.panes.advance(to)
        self.look()

    def look(self) -> None:
        self.read += 1
        here = LogPosition(self.read, self.read, 0, self.merger.panes.frontier)
        self.merger.look(lambda _: [here])
        while self.merger.is_busy:
            for record in self.merger.write():
                self.written.append(decode_merged(encode_merged(record)))
                self.merger.acknowledged()

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        return [(of.start, of.end, of.pane.ref.rows) for of in self.written]


def _readings(bucket: Bucket) -> dict[str, list[float]]:
    return {key: [value] for key, value in bucket.items()}


def test_a_pane_is_written_when_it_is_complete() -> None:
    merging = Merging()
    merging.add({"a": 1.0})
    assert merging.spans == []
    merging.add({"b": 2.0})
    assert merging.spans == [(0, 20, 2)]
    (record,) = merging.written
    assert record.positions == (LogPosition(2, 2, 0, Position(20)),)


def test_an_empty_pane_has_a_record_and_a_run_of_them_has_one() -> None:
    merging = Merging()
    merging.add({"a": 1.0})
    merging.add({})
    merging.advance(40)
    merging.advance(200_000_000)
    merging.add({"a": 1.0})
    merging.advance(200_000_100)
    assert merging.spans == [
        (0, 20, 1),
        (20, 40, 0),
        (40, 200_000_000, 0),
        (200_000_000, 200_000_100, 1),
    ]


def test_a_pane_with_a_loss_is_not_written() -> None:
    merging = Merging()
    merging.add({"a": 1.0})
    merging.add({"a": 2.0}, Notes.of((), (Gap("s1", 3),)))
    merging.add({"a": 3.0})
    merging.add({"a": 4.0})
    assert merging.spans == [(20, 40, 1)]
    assert merging.merger.withheld == 1


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(-1e9, 1e9)), max_size=12))
def test_a_merged_pane_is_the_roots_fold_bit_for_bit(buckets: list[Bucket]) -> None:
    merging, table = Merging(), KeyTable()
    contents = Aggregates(table, FIELDS)
    store: PaneStore[Slice] = PaneStore(GRID, contents, 0)
    for number, bucket in enumerate(buckets):
        merging.add(bucket)
        value = slice_of(_readings(bucket), table)
        store.add(Position(10 * number), 10 * (number + 1), value)
    assert merging.merger.merged_to == store.complete_to
    merged: PaneStore[Slice] = PaneStore(GRID, contents, 0)
    for record in merging.written:
        pane = record.pane
        value = contents.install([pane.columns]) if pane.ref.rows else contents.empty
        merged.add_panes(record.end, value)
    assert merged.frontier.bucket_start == store.complete_to
    for start in range(0, store.complete_to, 20):
        mine, own = (of.window(start, start + 20).slice for of in (merged, store))
        assert mine.to_bytes(table) == own.to_bytes(table)


def test_writing_waits_for_acknowledgements_and_what_is_not_acknowledged_counts_as_ahead() -> None:
    merging = Merging()
    merger = merging.merger
    merger.panes.advance(20)
    merger.look(lambda _: [LogPosition(1, 1, 0, Position(20))])
    assert merger.unwritten_from == 0
    assert len(merger.write()) == 1
    assert merger.unwritten_from == 0
    merger.write()
    merger.acknowledged()
    assert merger.unwritten_from == 20
    assert math.isfinite(merger.written)
