"""Panes and windows: the shape of the fold (rule-21, trace-28), and the live variant.

See trace-5, trace-7.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.window_starts import starts_ending_by

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import Gap, Position
from slackwater.primitives.deltas import Aggregates, Slice, fold
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.live_panes import LivePanes
from slackwater.primitives.panes import (
    Notes,
    PaneShare,
    PaneStore,
    empty_windows,
    window_of,
)
from slackwater.primitives.windows import Grid

Bucket = dict[str, float]
"""One reading per key; an empty one is a bucket without readings."""

grids = st.sampled_from([(10, 30, 30), (10, 30, 10), (7, 30, 20), (10, 25, 10), (100, 30, 30)])
contents = st.dictionaries(st.sampled_from("abcd"), st.floats(-1e3, 1e3), max_size=4)
END = 120


def slice_of(bucket: Bucket, table: KeyTable) -> Slice:
    keys = sorted(bucket)
    value = np.array([[bucket[key] for key in keys]])
    index = table.indices(keys, hash(tuple(keys)) or 1)
    return Slice.build(index, (np.ones_like(value), value, np.zeros_like(value), value, value))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Grid, dict[tuple[int, int], Bucket]]:
    w, size, slide = draw(grids)
    grid = Grid(w, WindowSpec(size, slide))
    cuts = pairwise(grid.cuts(0, END).tolist())
    return grid, {(start, end): draw(contents) for start, end in cuts}


def windows(grid: Grid, start: int) -> list[tuple[int, int]]:
    return [(s, grid.window_end(s)) for s in starts_ending_by(grid, start, END)]


def of_figures(table: KeyTable) -> Aggregates:
    """The contents of a query over one field."""
    return Aggregates(table, ("t",))


def oracle(grid: Grid, buckets: dict[tuple[int, int], Bucket], start: int, end: int) -> bytes:
    """The brackets of rule-21, in a separate implementation."""
    table = KeyTable()
    panes = []
    for p, q in pairwise(grid.edges(start, end).tolist()):
        inside = [slice_of(b, table) for (s, _), b in sorted(buckets.items()) if p <= s < q]
        panes.append(fold(inside, table, 1))
    return fold(panes, table, 1).to_bytes(table)


def feed(
    store: PaneStore[Slice], buckets: dict[tuple[int, int], Bucket], table: KeyTable, cut: int = 2
) -> None:
    """Each bucket in pieces, cut between keys; empty ones as (parts of) runs."""
    for (start, end), bucket in sorted(buckets.items()):
        if start < store.frontier.bucket_start:
            continue
        keys = sorted(bucket)
        parts = [{k: bucket[k] for k in keys[i : i + cut]} for i in range(0, len(keys), cut)]
        for piece, part in enumerate(parts):
            last = piece + 1 == len(parts)
            store.add(Position(start, piece), end, slice_of(part, table), last=last)
        if not parts:
            store.advance(end)


@given(histories(), st.integers(1, 4), st.permutations("abcd"))
def test_windows_have_the_bits_of_the_fixed_shape(
    history: tuple[Grid, dict[tuple[int, int], Bucket]], cut: int, interned: list[str]
) -> None:
    grid, buckets = history
    table = KeyTable()
    table.indices(interned)
    store = PaneStore(grid, of_figures(table), 0)
    feed(store, buckets, table, cut)
    for start, end in windows(grid, 0):
        assert store.window(start, end).slice.to_bytes(table) == oracle(grid, buckets, start, end)


@given(histories(), st.integers(0, 11))
def test_a_store_rebuilt_from_any_open_window_gives_the_same_bits(
    history: tuple[Grid, dict[tuple[int, int], Bucket]], skip: int
) -> None:
    grid, buckets = history
    table = KeyTable()
    starts = windows(grid, 0)
    first = starts[min(skip, len(starts) - 1)][0]
    store = PaneStore(grid, of_figures(table), first)
    feed(store, buckets, table)
    for start, end in windows(grid, first):
        store.drop_before(start)
        assert store.window(start, end).slice.to_bytes(table) == oracle(grid, buckets, start, end)


@given(histories(), st.data())
def test_live_windows_have_the_shape_of_what_was_chosen_last(
    history: tuple[Grid, dict[tuple[int, int], Bucket]], data: st.DataObject
) -> None:
    grid, buckets = history
    table = KeyTable()
    stable = PaneStore(grid, of_figures(table), 0)
    live = LivePanes(grid, of_figures(table), stable, streams=("s",))
    cuts = sorted(buckets)
    stable_count = data.draw(st.integers(0, len(cuts)))
    chosen = dict(buckets)
    for at in data.draw(st.permutations(cuts[stable_count:] * 2)):
        chosen[at] = data.draw(contents)  # chosen again: the last choice counts
        if chosen[at]:
            live.put(*at, slice_of(chosen[at], table))
        else:
            live.put_empty(*at)
    feed(stable, {at: buckets[at] for at in cuts[:stable_count]}, table)
    for start, end in windows(grid, 0):
        share = live.window(start, end)
        assert share.notes == live.notes(start, end) == Notes()
        assert share.slice.to_bytes(table) == oracle(grid, chosen, start, end)


@given(histories(), st.integers(0, 12), st.integers(0, 12))
def test_sealing_old_slices_changes_no_bit_and_bounds_what_is_kept(
    history: tuple[Grid, dict[tuple[int, int], Bucket]], before: int, after: int
) -> None:
    grid, buckets = history
    table = KeyTable()
    stable = PaneStore(grid, of_figures(table), 0)
    live = LivePanes(grid, of_figures(table), stable, streams=("s",), cells_max=2)
    cuts = sorted(buckets)
    feed(stable, {at: buckets[at] for at in cuts[:before]}, table)
    for at in cuts:
        live.put(*at, slice_of(buckets[at], table), Notes.of(["s"]))
        live.seal()
        assert len(live) <= 2
    # The stable line follows at some distance.
    feed(stable, {at: buckets[at] for at in cuts[: before + after]}, table)
    for start, end in windows(grid, 0):
        live.drop_before(start)
        share = live.window(start, end)
        assert share.slice.to_bytes(table) == oracle(grid, buckets, start, end)
        known = stable.frontier.bucket_start
        assert share.notes == (Notes() if end <= known else Notes.of(["s"]))


TUMBLING = Grid(10, WindowSpec(30, 30))


def test_a_tumbling_window_of_one_bucket_is_not_copied() -> None:
    table = KeyTable()
    store = PaneStore(TUMBLING, of_figures(table), 0)
    only = slice_of({"a": 1.0}, table)
    store.add(Position(0), 10, only)
    store.advance(30)
    assert store.window(0, 30).slice.figures is only.figures


def test_a_bucket_counts_only_whole() -> None:
    # trace-32: the frontier is inside the bucket, which therefore counts as not begun.
    table = KeyTable()
    store = PaneStore(TUMBLING, of_figures(table), 0)
    live = LivePanes(TUMBLING, of_figures(table), store, streams=("s",))
    store.add(Position(0, 0), 10, slice_of({"a": 1.0}, table), last=False)
    assert len(store.open_slice()) == 0
    live.put(0, 10, slice_of({"a": 1.0, "b": 2.0}, table), Notes.of(["s1"]))
    assert live.window(0, 30).slice.count.tolist() == [[1.0, 1.0]]
    store.add(Position(0, 1), 10, slice_of({"b": 2.0}, table))
    assert live.window(0, 30).slice.count.tolist() == [[1.0, 1.0]]


def test_a_jump_of_a_month_is_one_step_and_one_run() -> None:
    table = KeyTable()
    store = PaneStore(TUMBLING, of_figures(table), 0)
    other = PaneStore(TUMBLING, of_figures(table), 0)
    month = 30 * 86_400_000_000
    for each in (store, other):
        each.advance(month)
    store.add(Position(month), month + 10, slice_of({"a": 1.0}, table))
    store.advance(month + 60)
    other.advance(month + 90)
    assert empty_windows([store, other], TUMBLING, 0) == month // 30
    assert empty_windows([store, other], TUMBLING, month) == 0
    assert empty_windows([store, other], TUMBLING, month + 30) == 1
    assert len(store) == 1


def test_lost_readings_are_noted_in_the_windows_they_are_lost_from() -> None:
    table = KeyTable()
    grid = Grid(10, WindowSpec(30, 10))
    store = PaneStore(grid, of_figures(table), 0)
    store.advance(20)
    gap = Notes.of(gap=[Gap("s1", 5)])
    store.add(Position(20), 30, slice_of({"a": 1.0}, table), gap)
    store.add(Position(30), 40, slice_of({"a": 1.0}, table), gap)
    store.advance(90)
    assert store.window(0, 30).notes.lost == (Gap("s1", 5),)
    assert store.window(10, 40).notes.lost == (Gap("s1", 5),), "one loss"
    assert store.window(40, 70).notes == Notes()
    assert empty_windows([store], grid, 0) == 0
    assert empty_windows([store], grid, 40) == 3


def test_nothing_known_means_that_all_streams_are_missing() -> None:
    # The root takes the streams of a silent child from the query (rule-20, trace-31).
    table = KeyTable()
    live = LivePanes(
        TUMBLING,
        of_figures(table),
        PaneStore(TUMBLING, of_figures(table), 0),
        streams=("s1", "s2"),
    )
    live.put(10, 20, slice_of({"a": 1.0}, table))
    share = live.window(0, 30)
    assert share.notes.missing == {"s1", "s2"}
    assert len(share.slice) == 1
    live.put_empty(0, 10)
    live.put_empty(20, 40, Notes.of(["s2"]))
    assert live.window(0, 30).notes.missing == {"s2"}


def test_a_tentative_run_leaves_stable_buckets_and_a_stable_one_replaces_all() -> None:
    table = KeyTable()
    live = LivePanes(
        TUMBLING,
        of_figures(table),
        PaneStore(TUMBLING, of_figures(table), 0),
        streams=("s",),
    )
    live.put(10, 20, slice_of({"a": 1.0}, table), stable=True)
    live.put(20, 30, slice_of({"b": 1.0}, table), Notes.of(["s"]))
    live.put_empty(0, 30, Notes.of(["s"]))
    assert table.names(live.window(0, 30).slice.index) == ["a"]
    live.put_empty(0, 60, stable=True)
    live.put(30, 40, slice_of({"c": 1.0}, table), Notes.of(["s"]))
    assert live.window(0, 30).notes == Notes()
    assert len(live.window(0, 30).slice) == len(live.window(30, 60).slice) == 0


def test_the_bytes_kept_are_bounded() -> None:
    table = KeyTable()
    size = slice_of({"a": 1.0}, table).figures.nbytes
    stable = PaneStore(TUMBLING, of_figures(table), 0)
    live = LivePanes(TUMBLING, of_figures(table), stable, streams=("s",), bytes_max=3 * size)
    for start in range(0, 300, 10):
        live.put(start, start + 10, slice_of({"a": 1.0}, table))
        live.seal()
        assert len(live) <= 3
    assert live.window(0, 30).slice.count[0, 0] == 3.0
    live.put(0, 10, slice_of({"a": 5.0}, table))  # too late: left to the stable line
    assert live.window(0, 30).slice.sum[0, 0] == 3.0


def test_what_is_not_next_and_what_is_not_complete_is_a_fault_of_the_caller() -> None:
    table = KeyTable()
    store = PaneStore(TUMBLING, of_figures(table), 0)
    with pytest.raises(AssertionError, match="not next"):
        store.add(Position(10), 20, slice_of({"a": 1.0}, table))
    with pytest.raises(AssertionError, match="not a cut point"):
        store.advance(11)
    with pytest.raises(AssertionError, match="not complete"):
        store.window(0, 30)


def test_children_fold_in_index_order_and_their_notes_add_up() -> None:
    table = KeyTable()
    shares = [
        PaneShare(slice_of({"a": 1e40}, table), Notes.of(["s2"], [Gap("s1", 1)])),
        PaneShare(slice_of({"a": 1e20}, table), Notes.of(["s1"], [Gap("s1", 2)])),
        PaneShare(slice_of({"a": 1.0}, table)),
        PaneShare(slice_of({"a": -1e40}, table)),
    ]
    complete = window_of(shares, of_figures(table))
    # In another order 1.0 is in the sum too, which is a pair of doubles.
    assert (complete.slice.sum[0, 0], complete.slice.low[0, 0]) == (1e20, 0.0)
    assert complete.notes == Notes(frozenset({"s1", "s2"}), (Gap("s1", 1), Gap("s1", 2)))
