"""A store of panes that is installed in another process equals the one that it was taken from.

Flux, section 3.3.1. Keys have other numbers there, and the fold goes on (trace-61).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import DeltaRecord, Gap, Kind, Position, Ragged
from slackwater.primitives import deltas
from slackwater.primitives.aggregates import others_of, states_of
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.digests import recorded
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import Notes, PaneStore
from slackwater.primitives.windows import Grid

END = 120
FIELDS = ("t", "u")
KEYS = tuple(f"key-{number}" for number in range(9))
NAMES = ("avg", "var", "min", "max", "first", "last", "distinct", "p95", "top3")
GRIDS = ((10, 30, 30), (10, 60, 10), (7, 30, 20), (10, 120, 120))


def contents(table: KeyTable, names: tuple[str, ...]) -> Aggregates:
    """Return the contents of a query with these aggregates."""
    return Aggregates(table, FIELDS, others_of(names), states_of(names))


def delta(rng: Random, start: int, end: int, names: tuple[str, ...]) -> DeltaRecord:
    """Return a delta of random keys, with random values."""
    keys = sorted(rng.sample(KEYS, rng.randrange(1, len(KEYS))))
    shape = (len(FIELDS), len(keys))

    def figure() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return np.array([[rng.uniform(-1e3, 1e3) for _ in keys] for _ in FIELDS])

    states = {state.name: _ragged(rng, len(keys)) for state in states_of(names)}
    return DeltaRecord(
        Kind.INSERTION, 0, 0, 0, start, end, seq=start, keys=keys, fields=FIELDS,
        count=np.floor(np.abs(figure())) + 1, sum=figure(), m2=np.abs(figure()),
        min=np.where(np.full(shape, rng.random() < 0.1), np.nan, figure()), max=figure(),
        others={of.name: figure() for of in others_of(names)}, states=states,
    )  # fmt: skip


def _ragged(rng: Random, keys: int) -> Ragged:
    lengths = [np.array([float(rng.randrange(3)) for _ in range(keys)]) for _ in FIELDS]
    ids = [
        np.concatenate([np.arange(n) + rng.randrange(5) for n in of] or [np.zeros(0)])
        for of in lengths
    ]
    return Ragged(tuple(lengths), tuple(ids), tuple(np.floor(abs(of)) + 1 for of in ids))


def state_of(store: PaneStore[Slice], table: KeyTable) -> object:
    """Return all that a store holds, whatever the numbers of its keys are."""
    panes, noted = store.held()
    return store.frontier, {at: pane.to_bytes(table) for at, pane in panes.items()}, noted


def moved(
    store: PaneStore[Slice], grid: Grid, of: Aggregates, into: Aggregates, start: int
) -> PaneStore[Slice]:
    """Return the store as another process installs it."""
    panes, noted = store.held()
    for pane in panes.values():
        pieces = [of.digest_of_piece(pane, piece) for piece in range(of.pieces(pane))]
        assert recorded(of.total_digest(pieces)) == recorded(of.digest(pane))
    installed: Mapping[int, Slice] = {
        at: into.install([of.extract(pane, piece) for piece in range(of.pieces(pane))])
        for at, pane in panes.items()
    }
    other = PaneStore(grid, into, start)
    other.install(store.frontier.bucket_start, installed, noted)
    return other


@settings(max_examples=60)
@given(
    st.sampled_from(GRIDS),
    st.integers(0, 1 << 32),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.integers(1, 400),
    st.integers(0, 40),
)
def test_an_installed_store_equals_one_that_has_read_everything(
    of_grid: tuple[int, int, int], seed: int, some: set[str], cells: int, cut: int
) -> None:
    (w, size, slide), rng = of_grid, Random(seed)
    grid, names = Grid(w, WindowSpec(size, slide)), tuple(sorted(some))
    buckets = list(pairwise(grid.cuts(0, END).tolist()))
    cut = min(cut, len(buckets))
    table, other = KeyTable(), KeyTable()
    other.indices(tuple(rng.sample(KEYS, len(KEYS))))
    of, into = contents(table, names), contents(other, names)
    store = PaneStore(grid, of, 0)
    records = [delta(rng, *bucket, names) if rng.random() < 0.8 else None for bucket in buckets]
    gaps = [(Gap("s", 1),) if rng.random() < 0.1 else () for _ in buckets]
    with patch.object(deltas, "PIECE_CELLS", cells):
        for number, (start, end) in enumerate(buckets):
            if number == cut:
                into_store = moved(store, grid, of, into, 0)
                assert state_of(into_store, other) == state_of(store, table)
            for each, like in (
                ((store, of), (into_store, into)) if number >= cut else ((store, of),)
            ):
                record, notes = records[number], Notes.of((), gaps[number])
                if record is None:
                    each.advance(end, notes)
                else:
                    each.add(Position(start), end, like.of(record), notes)
        if cut == len(buckets):
            into_store = moved(store, grid, of, into, 0)
    assert state_of(into_store, other) == state_of(store, table)
    windows = [start for start in range(0, END, slide) if start + size <= END]
    for start in windows:
        there, here = into_store.window(start, start + size), store.window(start, start + size)
        assert there.slice.to_bytes(other) == here.slice.to_bytes(table)
        assert there.notes == here.notes
        assert into.digest(there.slice) == of.digest(here.slice)


def test_panes_before_the_start_are_left_out() -> None:
    grid, table = Grid(10, WindowSpec(30, 10)), KeyTable()
    of, rng = contents(table, ("avg",)), Random(1)
    store = PaneStore(grid, of, 0)
    for start in range(0, 60, 10):
        store.add(Position(start), start + 10, of.of(delta(rng, start, start + 10, ("avg",))))
    found = moved(store, grid, of, of, 30)
    assert sorted(found.held()[0]) == [30, 40, 50]
    assert found.complete_to == 60


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.integers(1, 200))
def test_a_piece_is_the_same_whoever_writes_it(seed: int, cells: int) -> None:
    """A reader takes pieces of one pane from two mergers, whose keys have other numbers."""
    rng = Random(seed)
    records = [delta(rng, start, start + 10, NAMES) for start in (0, 10, 20)]
    values = []
    for _ in range(2):
        table = KeyTable()
        table.indices(tuple(rng.sample(KEYS, rng.randrange(len(KEYS)))))
        of = contents(table, NAMES)
        fold = of.folding()
        for record in records:
            fold.add(of.of(record))
        values.append((of, fold.result()))
    with patch.object(deltas, "PIECE_CELLS", cells):
        (of, one), (other_of, other) = values
        assert of.pieces(one) == other_of.pieces(other)
        for piece in range(of.pieces(one)):
            found = [each.extract(value, piece) for each, value in values]
            assert found[0].keys == found[1].keys
            assert found[0].figures.tobytes() == found[1].figures.tobytes()
            assert repr(found[0].states) == repr(found[1].states)


def test_figures_of_another_query_are_refused() -> None:
    table = KeyTable()
    of, other = contents(table, ("avg",)), Aggregates(table, ("t",))
    value = of.of(delta(Random(1), 0, 10, ("avg",)))
    with pytest.raises(ValueError, match="another shape"):
        other.install([of.extract(value, 0)])
