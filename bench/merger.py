"""CPU time of a merger and of a root that reads its panes, beside a root that reads deltas.

    python -m bench.merger [--keys 100,1000,10000] [--panes 20] [--buckets 40] [--replicas 2]

Without Kafka: the product's sessions decode and take the records of one child, as its replicas
write them, pane after pane. ``merger`` decodes the deltas, folds them, and encodes the merged pane;
``deltas`` decodes and folds the same at the root; ``merged`` decodes what two mergers have written
and installs it once. Times are CPU time of the process for each pane, and of the first two for each
key and bucket.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from slackwater.codec.delta_records import decode_delta, encode_delta
from slackwater.codec.pane_records import decode_merged, encode_merged
from slackwater.model.deployment import WindowSpec
from slackwater.model.records import DeltaRecord, Kind, LogPosition, Position
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.digests import recorded
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneStore
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.children import take_stable
from slackwater.protocols.dpc.soutput.config import DeltaLog
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.heads import position_in
from slackwater.protocols.dpc.soutput.stable_input import StableInput
from slackwater.protocols.fargo.merger import Merger

W_US = 250_000
FIELDS = ("v",)


def main() -> None:
    """Print a row for each number of keys."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", default="100,1000,10000")
    parser.add_argument("--panes", type=int, default=20)
    parser.add_argument("--buckets", type=int, default=40)
    parser.add_argument("--replicas", type=int, default=2)
    of = parser.parse_args()
    print(
        "| keys | merger, ms a pane | ns a key and bucket | root: deltas, ms | root: merged, ms | |"
    )
    print("|---|---|---|---|---|---|")
    for keys in map(int, of.keys.split(",")):
        merger, deltas, merged = measured(keys, of.panes, of.buckets, of.replicas)
        each = merger * 1e6 / (keys * of.buckets)
        ratio = deltas / merged
        print(
            f"| {keys:,} | {merger:.1f} | {each:.0f} | {deltas:.1f} | {merged:.2f} | {ratio:.0f} |"
        )


def measured(keys: int, panes: int, buckets: int, replicas: int) -> tuple[float, float, float]:
    """Return the ms of a pane: of a merger, of a root with deltas, of a root with merged panes."""
    grid = Grid(W_US, WindowSpec(buckets * W_US, buckets * W_US))
    records = _records(keys, panes * buckets)
    began = time.process_time()
    merger, encoded = _merge(grid, records, replicas)
    of_merger = time.process_time() - began
    assert merger.written == panes

    began = time.process_time()
    stable, store, contents = _root(grid, replicas)
    for offset, record in enumerate(records):
        for replica in range(replicas):
            _take(stable, store, contents, replica, offset, record)
        _drop_answered(grid, store)
    of_deltas = time.process_time() - began

    began = time.process_time()
    _, store, contents = _root(grid, replicas)
    for record in encoded:
        for copy in range(2):
            read = decode_merged(record)
            if not copy:  # the second one is dropped by its seq
                value = contents.install([read.pane.columns])
                assert recorded(contents.digest(value)) == read.pane.ref.digest
                store.add_panes(read.end, value)
        _drop_answered(grid, store)
    of_merged = time.process_time() - began
    return tuple(1e3 * each / panes for each in (of_merger, of_deltas, of_merged))  # type: ignore[return-value]


def _records(keys: int, buckets: int) -> list[bytes]:
    names, rng = tuple(f"sensor-{key:06d}" for key in range(keys)), np.random.default_rng(7)
    figures = [rng.normal(20.0, 5.0, (1, keys)) for _ in range(5)]
    delta = DeltaRecord(
        Kind.INSERTION, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, None, (), (), names, 7, FIELDS, *figures
    )
    return [
        encode_delta(replace(delta, bucket_start=n * W_US, bucket_end=(n + 1) * W_US, seq=n))
        for n in range(buckets)
    ]


def _root(grid: Grid, replicas: int) -> tuple[StableInput, PaneStore, Aggregates]:  # type: ignore[type-arg]
    contents = Aggregates(KeyTable(), FIELDS)
    at = LogPosition(0, 0, 0, Position(0))
    cursors = [DeltaCursor(at, grid.pane_start, strict=True) for _ in range(replicas)]
    stable = StableInput(cursors, Position(0), 600 * W_US, 600)
    return stable, PaneStore(grid, contents, 0), contents


def _take(  # type: ignore[no-untyped-def]
    stable, store, contents, replica: int, offset: int, record: bytes
) -> None:
    delta = replace(decode_delta(record), replica=replica)
    log = DeltaLog(0, replica, LineName.STABLE)
    take_stable(stable, store, contents, log, offset, delta, delta.bucket_start)


def _drop_answered(grid: Grid, store: PaneStore) -> None:  # type: ignore[type-arg]
    store.drop_before(store.complete_to)


def _merge(grid: Grid, records: list[bytes], replicas: int):  # type: ignore[no-untyped-def]
    stable, _, contents = _root(grid, replicas)
    merger, encoded = Merger(0, grid, contents, 0), []
    for offset, record in enumerate(records):
        for replica in range(replicas):
            _take(stable, merger.panes, contents, replica, offset, record)
            merger.look(lambda _: [position_in(stable, r) for r in range(replicas)])
        while merger.is_busy:
            for written in merger.write():
                encoded.append(encode_merged(written))
                merger.acknowledged()
    return merger, encoded


if __name__ == "__main__":
    main()
