"""Cost of a fold of slices: `.venv/bin/python bench/deltas.py`.

The target: a slice of 1,000 keys and one or two fields folds in less than 60 us, whether its key
list is the same as the one before (the usual case) or not.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Final

import numpy as np

from slackwater.primitives.deltas import Fold, Slice
from slackwater.primitives.key_table import KeyTable

KEYS: Final = 1_000
ROUNDS: Final = 2_000
TARGET_US: Final = 60.0


def _slices(table: KeyTable, fields: int, lists: int) -> list[Slice]:
    generator = np.random.default_rng(7)
    slices = []
    for number in range(20):
        first = (number % lists) * 100
        keys = [f"mote-{i:05d}" for i in range(first, first + KEYS)]
        count = generator.integers(0, 50, (fields, KEYS)).astype(np.float64)
        value = generator.normal(20, 5, (fields, KEYS))
        nothing = np.where(count == 0, np.nan, 0.0)
        columns = (count, value * count, count * 2, value - 9 + nothing, value + 9 + nothing)
        slices.append(Slice.build(table.indices(keys, number % lists + 1), columns))
    return slices


def _per_slice_us(fields: int, lists: int) -> float:
    table = KeyTable()
    slices = _slices(table, fields, lists)
    best = float("inf")
    for _ in range(5):
        fold = Fold(table, fields)
        started = perf_counter()
        for i in range(ROUNDS):
            fold.add(slices[i % len(slices)])
        best = min(best, (perf_counter() - started) / ROUNDS)
        fold.result()
    return best * 1e6


def main() -> int:
    """Print a table; exit code 1 if a figure misses the target."""
    worst = 0.0
    for fields in (1, 2):
        for lists, what in ((1, "same keys"), (5, "other keys")):
            took = _per_slice_us(fields, lists)
            worst = max(worst, took)
            print(f"fold {KEYS} keys, {fields} field(s), {what:10}: {took:6.1f} us")
    print("target", TARGET_US, "us:", "met" if worst < TARGET_US else "MISSED")
    return int(worst >= TARGET_US)


if __name__ == "__main__":
    sys.exit(main())
