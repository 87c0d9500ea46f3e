"""Laws of a table that forgets keys (rule-35): a number is that of its key as long as it is needed.

"Never forgotten" is the same table with room for all keys.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import DeltaRecord, Kind, OrderedRecord, Position, Ragged
from slackwater.primitives.aggregates import states_of
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.key_table import KeyTable, KeyTableFull
from slackwater.primitives.keyparts import xxhash64
from slackwater.primitives.panes import PaneStore
from slackwater.primitives.rows import RowContents
from slackwater.primitives.windows import Grid

END = 240
FIELDS = ("t", "u")
GRIDS = ((10, 30, 30), (10, 60, 10), (7, 30, 20), (10, 120, 120))
NAMES = ("avg", "p95")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 6))
def test_a_number_is_that_of_its_key_as_long_as_it_is_needed(seed: int, kept: int) -> None:
    """Lists come again and new ones do; of those that are needed nothing changes."""
    rng, table = Random(seed), KeyTable(kept_keys_min=kept)
    lists = [tuple(f"k{number}" for number in rng.sample(range(30), 4)) for _ in range(12)]
    needed: list[tuple[int, tuple[str, ...], np.ndarray[tuple[int], np.dtype[np.int64]]]] = []
    for e in range(1, 60):
        at = rng.randrange(len(lists))
        needed_to = e + rng.randrange(1, 4)
        if rng.random() < 0.5:
            index = table.indices(lists[at], at + 1, needed_to)
        else:
            index = table.numbers(lists[at], needed_to)
        needed.append((needed_to, lists[at], index))
        table.forget_before(e)
        needed = [each for each in needed if each[0] > e]
        for _, keys, numbers in needed:
            assert table.names(numbers) == list(keys)
            assert table.hashes(numbers).tolist() == xxhash64(keys).view(np.uint64).tolist()
            order, in_order = table.in_key_order(numbers)
            assert in_order == sorted(keys)
            assert table.names(numbers if order is None else numbers[order]) == in_order
            ranks, by_rank = table.ranked(numbers)
            assert [by_rank[rank] for rank in ranks.tolist()] == list(keys)
            assert list(by_rank) == sorted(by_rank)
        texts = [text for text in table.known if text]
        assert len(texts) == len(set(texts)) == table.kept_keys


def delta(rng: Random, start: int, end: int, piece: int, pieces: int) -> DeltaRecord:
    """Return a delta of keys of this time, some of which return after long."""
    numbers = {start // 20 + rng.randrange(3) for _ in range(3)} | {rng.randrange(3)}
    keys = tuple(sorted(f"k{number * pieces + piece}" for number in numbers))
    shape = (len(FIELDS), len(keys))
    figures = [np.array([[rng.uniform(-9, 9) for _ in keys] for _ in FIELDS]) for _ in range(5)]
    lengths = tuple(np.ones(len(keys)) for _ in FIELDS)
    bins = tuple(np.floor(np.abs(of)) for of in figures[0])
    states = {state.name: Ragged(lengths, bins, lengths) for state in states_of(NAMES)}
    return DeltaRecord(
        Kind.INSERTION, 0, 0, 0, start, end, seq=start, piece=piece, pieces=pieces, keys=keys,
        fields=FIELDS, count=np.ones(shape), sum=figures[1], m2=np.abs(figures[2]),
        min=figures[3], max=figures[4], states=states,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(GRIDS), st.integers(0, 1 << 32), st.integers(0, 4))
def test_a_forgotten_key_that_returns_gives_what_one_never_forgotten_gives(
    of_grid: tuple[int, int, int], seed: int, behind: int
) -> None:
    """Windows are answered when they are complete, or some buckets later."""
    (w, size, slide), rng = of_grid, Random(seed)
    grid = Grid(w, WindowSpec(size, slide))
    tables = KeyTable(kept_keys_min=0), KeyTable()
    contents = [Aggregates(table, FIELDS, (), states_of(NAMES)) for table in tables]
    stores = [PaneStore(grid, of, 0) for of in contents]
    answered, most = 0, 0
    for start, end in pairwise(grid.cuts(0, END).tolist()):
        pieces = rng.randrange(1, 3)
        for piece in range(pieces):
            record = delta(rng, start, end, piece, pieces)
            for store, of in zip(stores, contents, strict=True):
                store.add(Position(start, piece), end, of.of(record), last=piece + 1 == pieces)
        while answered + size + behind * w <= end:
            windows = [store.window(answered, answered + size).slice for store in stores]
            here, there = (w.to_bytes(of) for w, of in zip(windows, tables, strict=True))
            assert here == there
            assert contents[0].digest(windows[0]) == contents[1].digest(windows[1])
            answered += slide
            for store, table in zip(stores, tables, strict=True):
                store.drop_before(answered)
                table.forget_before(answered)
        most = max(most, tables[0].kept_keys)
    assert tables[1].kept_keys >= most


def test_keys_that_never_return_fill_nothing() -> None:
    table, in_bucket = KeyTable(keys_max=3_000, kept_keys_min=100), 500
    texts: set[int] = set()
    for e in range(1, 200):
        keys = tuple(f"trip-{e}-{number}" for number in range(in_bucket))
        table.indices(keys, e, e)
        table.numbers(tuple(keys), e)
        table.forget_before(e - 1)
        texts.add(table.remembered_bytes)
    assert table.kept_keys <= 1.5 * 2 * in_bucket + in_bucket
    assert len(table) <= 3_000
    assert max(texts) < 4 * in_bucket * 100


def test_keys_that_are_needed_fill_the_table() -> None:
    table = KeyTable(keys_max=1_000, kept_keys_min=0)
    for e in range(1, 11):
        table.indices([f"trip-{e}-{number}" for number in range(100)], needed_to=e)
        table.forget_before(0)
    with pytest.raises(KeyTableFull, match="more than 1000 different keys"):
        table.indices(["one more"], needed_to=11)


def test_nothing_is_forgotten_of_few_keys() -> None:
    table = KeyTable(kept_keys_min=4)
    first = table.indices(["a", "b"], 1, needed_to=1)
    table.forget_before(9)
    table.indices(["c", "d"], 2, needed_to=10)
    assert table.indices(["a", "b"], 1, needed_to=11) is first


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(["xxhash64", "crc32"]))
def test_the_rows_of_a_part_are_those_of_its_keys(seed: int, key_hash: str) -> None:
    """Also if a key has the number of one that belonged to another part."""
    rng = Random(seed)
    tables = KeyTable(kept_keys_min=0), KeyTable()
    contents = [
        RowContents(table, ("t",), part=1, parts=2, key_hash=key_hash)  # type: ignore[arg-type]
        for table in tables
    ]
    for e in range(1, 20):
        keys = tuple(f"k{number}" for number in sorted(rng.sample(range(3 * e), 3)))
        record = OrderedRecord(
            Kind.INSERTION, 0, 0, 0, e - 1, e, keys=keys, offsets=np.zeros(1), fields=("t",),
            values=(np.arange(3.0),), stimes=np.full(3, e), key_index=np.arange(3, dtype=np.int32),
        )  # fmt: skip
        rows = [of.of(record) for of in contents]
        here, there = (
            (table.names(row.index), row.values.tolist())
            for row, table in zip(rows, tables, strict=True)
        )
        assert here == there
        for table in tables:
            table.forget_before(e)
