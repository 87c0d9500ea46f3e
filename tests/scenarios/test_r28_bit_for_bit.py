"""trace-28: two copies agree bit for bit, although one restarted within sliding windows."""

from __future__ import annotations

import numpy as np
from tests.support.window_starts import starts_ending_by

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import Position
from slackwater.primitives.deltas import Aggregates, Slice, fold
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneStore, window_of
from slackwater.primitives.windows import Grid

GRID = Grid(7, WindowSpec(100, 30))
CHILDREN, END = 3, 1_000
KEYS = [f"mote-{i}" for i in range(40)]


def readings(child: int, bucket: int) -> dict[str, float]:
    """A child's readings in a bucket.

    The last bits of their sums depend on the order of addition.
    """
    generator = np.random.default_rng([child, bucket])
    keys = generator.choice(KEYS, size=generator.integers(1, 40), replace=False)
    return {str(k): float(generator.normal(0, 10.0 ** generator.integers(-8, 9))) for k in keys}


class Copy:
    """A root copy that begins at a window and interns the keys in its own order."""

    def __init__(self, first: int, seed: int) -> None:
        self.table = KeyTable()
        self.table.indices([str(k) for k in np.random.default_rng(seed).permutation(KEYS)])
        self.stores = [
            PaneStore(GRID, Aggregates(self.table, ("t",)), first) for _ in range(CHILDREN)
        ]

    def read(self, to: int) -> None:
        for child, store in enumerate(self.stores):
            while store.frontier.bucket_start < to:
                start = store.frontier.bucket_start
                store.add(Position(start), GRID.next_cut(start), self.piece(child, start))

    def piece(self, child: int, bucket: int) -> Slice:
        seen = readings(child, bucket)
        keys = sorted(seen)
        value = np.array([[seen[key] for key in keys]])
        columns = (np.ones_like(value), value, np.zeros_like(value), value, value)
        return Slice.build(self.table.indices(keys), columns)

    def window(self, start: int) -> bytes:
        end = GRID.window_end(start)
        for store in self.stores:
            store.drop_before(start)
        shares = [store.window(start, end) for store in self.stores]
        return window_of(shares, Aggregates(self.table, ("t",))).slice.to_bytes(self.table)


def test_a_copy_that_restarted_gives_the_same() -> None:
    steady = Copy(0, seed=1)
    steady.read(END)
    expected = {start: steady.window(start) for start in starts_ending_by(GRID, 0, END)}
    assert len(expected) > 20

    copy, seed = Copy(0, seed=2), 3
    for start, wanted in expected.items():
        copy.read(GRID.window_end(start))
        assert copy.window(start) == wanted
        if start % 120 == 90:  # restart: its memory is lost, and its position is that of its S
            copy = Copy(start + 30, seed)
            seed += 1


def test_the_example_would_notice_another_shape() -> None:
    # A fold over the buckets, without panes, differs in the last bits somewhere.
    copy = Copy(0, seed=1)
    flat = fold([copy.piece(0, bucket) for bucket in GRID.cuts(0, 99).tolist()], copy.table, 1)
    copy.read(100)
    in_panes = copy.stores[0].window(0, 100).slice
    assert in_panes.to_bytes(copy.table) != flat.to_bytes(copy.table)
