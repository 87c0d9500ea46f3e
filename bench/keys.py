"""Memory and time of keys that never return, and of many keys that do, in one process.

    python -m bench.keys [--keys 10000000] [--rate 50000] [--window 60] [--returning]

An orderer's operators pack buckets of 250 ms, and the panes of a root fold the deltas of the same
keys; windows of ``--window`` seconds are answered when they are complete. Each reading has a key of
its own, or, with ``--returning``, that of ten seconds before. Event time is that of the rate, wall
time as fast as it goes. The memory is that of the process, so it has both stages.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

import numpy as np
import psutil

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import DeltaRecord, Kind, Position, SourceColumns
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.key_table import ORDERER_KEPT_KEYS_MIN, KeyTable
from slackwater.primitives.panes import PaneStore
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.sunion.operators import Operators

BUCKET_US: Final = 250_000
FIELDS: Final = ("temperature", "humidity")
RETURNS_S: Final = 10
LINES: Final = 12


def main() -> None:
    """Measure, and print a table of memory over time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--window", type=int, default=60, help="seconds")
    parser.add_argument("--returning", action="store_true")
    options = parser.parse_args()
    in_bucket = options.rate * BUCKET_US // 1_000_000
    size = options.window * 1_000_000
    grid = Grid(BUCKET_US, WindowSpec(size, size))
    tables = KeyTable(kept_keys_min=ORDERER_KEPT_KEYS_MIN), KeyTable()
    operators = Operators(FIELDS, None, None, tables[0])
    contents = Aggregates(tables[1], FIELDS)
    store, answered = PaneStore(grid, contents, 0), 0
    process, began = psutil.Process(), time.process_time()
    used, of_keys = [0.0, 0.0], options.rate * RETURNS_S
    buckets = options.keys // in_bucket
    print("| keys read | numbers of the orderer, of the root | MiB | us a key: orderer, root |")
    print("|---|---|---|---|")
    for bucket in range(buckets):
        start, first = bucket * BUCKET_US, bucket * in_bucket
        numbers = range(first, first + in_bucket)
        names = tuple(f"trip-{n % of_keys if options.returning else n:09d}" for n in numbers)
        columns = _columns(names, start)
        at = time.process_time()
        (piece,) = operators.bucket([[(columns, start)]], start, start + BUCKET_US)
        used[0] += time.process_time() - at
        record = _delta(tuple(piece.keys), start, bucket)
        at = time.process_time()
        store.add(Position(start), start + BUCKET_US, contents.of(record))
        if start + BUCKET_US >= answered + size:
            window = store.window(answered, answered + size).slice
            window.sorted(tables[1])
            answered += size
            store.drop_before(answered)
            tables[1].forget_before(answered)
        used[1] += time.process_time() - at
        if (bucket + 1) % max(buckets // LINES, 1) == 0:
            read = (bucket + 1) * in_bucket
            each = ", ".join(f"{seconds / read * 1e6:.2f}" for seconds in used)
            print(
                f"| {read:,} | {len(tables[0]):,}, {len(tables[1]):,} |"
                f" {process.memory_info().rss / 2**20:.0f} | {each} |",
                flush=True,
            )
    print(f"\nCPU: {time.process_time() - began:.0f} s")


def _columns(names: tuple[str, ...], start: int) -> SourceColumns:
    count = len(names)
    stimes = start + np.arange(count, dtype=np.int64) * BUCKET_US // count
    values = tuple(np.arange(count, dtype=np.float64) for _ in FIELDS)
    return SourceColumns(
        stimes=stimes,
        keys=names,
        key_index=np.arange(count, dtype=np.int32),
        fields=FIELDS,
        values=values,
    )


def _delta(names: tuple[str, ...], start: int, seq: int) -> DeltaRecord:
    ones = np.ones((len(FIELDS), len(names)))
    return DeltaRecord(
        Kind.INSERTION, 0, 0, 0, start, start + BUCKET_US, seq, keys=names, keys_hash=seq + 1,
        fields=FIELDS, count=ones, sum=ones, m2=0 * ones, min=ones, max=ones,
    )  # fmt: skip


if __name__ == "__main__":
    main()
