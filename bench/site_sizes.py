"""What a site would send of each window in other forms, by the product's encoders; no process."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from bench.site_load import TICK_MS, SiteLoad

from slackwater.codec.delta_records import encode_delta
from slackwater.codec.pane_records import encode_merged
from slackwater.model.heads import PaneColumns, PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.records import DeltaRecord, Kind, LogPosition, Position
from slackwater.primitives.figures import FIGURES, LOW, M2, MAX, MIN, SUM, merge_into

BUCKET_MS = 250
START_MS = 1_700_000_000_000


def print_sizes(load: SiteLoad, size_ms: int) -> None:
    """Print the bytes a second of one site in each form."""
    buckets = [
        _bucket(load, at, BUCKET_MS) for at in range(START_MS, START_MS + size_ms, BUCKET_MS)
    ]
    pane = buckets[0].copy()
    states = [_merged(load.names, pane)]
    for bucket in buckets[1:]:
        merge_into(pane, bucket, has_m2=False)
        states.append(_merged(load.names, pane))
    deltas = [_delta(load.names, number, of) for number, of in enumerate(buckets)]
    first, count = START_MS // TICK_MS, 1_000 // TICK_MS
    ticks = [b"".join(_messages(load, tick)) for tick in range(first, first + count)]
    seconds = size_ms / 1_000
    print(f"{load.keys} keys, {load.per_s:,} readings/s, windows of {seconds:g} s\n")
    print("| what is sent | B/s |\n|---|---|")
    without_m2 = sum(map(len, deltas)) - 8 * load.keys * len(deltas)
    plain = "".join(load.names).encode() + pane.tobytes()
    named = _merged((), pane, keys_hash=7)
    rows = {
        "readings, JSON": _sum(ticks),
        "readings, JSON, lz4 in batches of 25 ms": _sum(map(_lz4, ticks)),
        "deltas of 250 ms": without_m2 / seconds,
        "deltas, gzip": _sum(map(gzip.compress, deltas)) / seconds,
        "the whole state each 250 ms, gzip": _sum(map(gzip.compress, states)) / seconds,
        "a merged pane, its keys and doubles": len(plain) / seconds,
        "a merged pane, its keys and doubles, gzip": len(gzip.compress(plain)) / seconds,
        "a merged pane, packed, gzip": len(gzip.compress(states[-1])) / seconds,
        "a merged pane, packed, keys by hash, gzip": len(gzip.compress(named)) / seconds,
    }
    for name, sent in rows.items():
        print(f"| {name} | {sent:,.0f} |")


def _sum(sent: Iterable[bytes]) -> int:
    return sum(map(len, sent))


def _messages(load: SiteLoad, tick: int) -> list[bytes]:
    values = load.values(tick, 1)
    return [
        b'{"at":%d,"key":"%s","x":%.2f}' % (tick * TICK_MS, name.encode(), value)
        for row in values
        for name, value in zip(load.names, row, strict=True)
    ]


def _lz4(of: bytes) -> bytes:
    return bytes(pa.compress(of, codec="lz4", asbytes=True))


def _bucket(load: SiteLoad, start_ms: int, size_ms: int) -> Any:
    """Return the figures of a bucket, as the aggregator makes them for avg, min and max."""
    values = load.values(start_ms // TICK_MS, max(size_ms // TICK_MS, 1))
    figures = np.zeros((FIGURES, 1, load.keys))
    figures[0], figures[SUM], figures[LOW] = len(values), values.sum(0), 0.0
    figures[MIN], figures[MAX] = values.min(0), values.max(0)
    return figures


def _delta(names: Sequence[str], number: int, figures: Any) -> bytes:
    """Return a delta; the aggregator has no m2 for these aggregates."""
    start = (START_MS + number * BUCKET_MS) * 1_000
    basic = [figures[at] for at in (0, SUM, M2, MIN, MAX)]
    return encode_delta(
        DeltaRecord(
            *(Kind.INSERTION, 0, 0, 0, start, start + BUCKET_MS * 1_000, number, 0, 1, 0, 0),
            *(None, (), (), names, 7, ("x",), *basic),
        )
    )


def _merged(names: Sequence[str], figures: Any, keys_hash: int = 0) -> bytes:
    ref = PaneRef(0, START_MS * 1_000, figures.shape[2], 1, 123_456_789_012_345_678)
    columns = PaneColumns(names, figures, {})
    end = START_MS * 1_000 + 10_000_000
    none = LogPosition(0, 0, -1, Position(end))
    record = MergedRecord(PaneRecord(ref, 0, columns), end, (none,), keys_hash=keys_hash)
    return encode_merged(record, packed=True)
