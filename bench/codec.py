"""Cost of the codec per reading, per header, per key and per row; prints a Markdown table.

Run with ``python bench/codec.py``. Each figure is the best of several rounds, because of other load
on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from slackwater import codec
from slackwater.codec.results import ResultHead, ResultRows, encode_rows
from slackwater.model.records import DeltaRecord, Kind, OrderedRecord, SourceColumns, SourceRecord
from slackwater.primitives.aggregates import AggregateColumns
from slackwater.protocols.dpc.soutput.answers import StableWindow

READINGS = 10_000
KEYS = tuple(f"sensor-{i:05d}" for i in range(1_000))
FIELDS = ("temperature", "humidity")
START_US = 1_458_031_648_545_000
ROUNDS = 25


def source_record(readings: int) -> SourceRecord:
    """Return a record as written by a proxy: times over 100 ms, random keys."""
    rng = np.random.default_rng(1)
    stimes = START_US + np.sort(rng.integers(0, 100_000, readings))
    index = rng.integers(0, len(KEYS), readings, dtype=np.int32)
    values = tuple(rng.normal(size=(len(FIELDS), readings)))
    low, high = int(stimes[0]), int(stimes[-1])
    columns = SourceColumns(stimes, index, KEYS, FIELDS, values)
    return SourceRecord(
        Kind.INSERTION, "room-1", 5, 0, readings - 1, high, low, high, columns=columns
    )


def ordered_record() -> OrderedRecord:
    """Return the same number of readings, grouped by key."""
    rng = np.random.default_rng(2)
    offsets = np.linspace(0, READINGS, len(KEYS) + 1)
    values = tuple(rng.normal(size=(len(FIELDS), READINGS)))
    return OrderedRecord(
        Kind.INSERTION, 0, 0, 1, 0, 100_000, keys=KEYS, offsets=offsets, fields=FIELDS,
        values=values,
    )  # fmt: skip


def delta_record() -> DeltaRecord:
    """Return the aggregate of such a record."""
    figure = np.random.default_rng(3).normal(size=(len(FIELDS), len(KEYS)))
    return DeltaRecord(
        Kind.INSERTION, 0, 0, 1, 0, 100_000, 7, keys=KEYS, keys_hash=99, fields=FIELDS,
        count=figure, sum=figure, m2=figure, min=figure, max=figure,
    )  # fmt: skip


def answer(keys: int) -> ResultRows:
    """Return a window of one field with six aggregates."""
    figure = np.random.default_rng(4).normal(size=(1, keys))
    window: StableWindow[Any] = StableWindow(
        1, 1 + keys, 0, START_US, START_US + 1_000_000, START_US, keys, None, ()
    )
    return ResultRows(
        head=ResultHead("climate", 0), window=window,
        keys=tuple(f"sensor-{i:05d}" for i in range(keys)),
        fields=("temperature",), figures=AggregateColumns(np.abs(figure) * 10, *[figure] * 4),
        aggregate=("count", "sum", "avg", "min", "max", "range"), emitted_at=START_US,
    )  # fmt: skip


def best_ns(call: Callable[[], object], times: int = 20) -> float:
    """Return nanoseconds per call, best of the rounds."""
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter_ns() - start) / times)
    return best


def cold_read(data: bytes) -> None:
    """Decode as the first record with these keys: no list is cached."""
    codec.schemas.codec("source").key_lists.clear()
    load(data)


def load(data: bytes) -> None:
    """Decode header and columns."""
    columns = codec.decode_source(data).columns
    assert columns is not None
    columns.load()


def main() -> None:
    """Measure and print."""
    source, ordered, delta = source_record(READINGS), ordered_record(), delta_record()
    data, small = codec.encode_source(source), codec.encode_source(source_record(100))
    ordered_data, delta_data = codec.encode_ordered(ordered), codec.encode_delta(delta)
    rows = answer(20_000)
    write, read = best_ns(lambda: codec.encode_source(source)), best_ns(lambda: load(data))
    lines = [
        ("source, encode", write / READINGS, "ns/reading"),
        ("source, decode", read / READINGS, "ns/reading"),
        ("source, encode + decode", (write + read) / READINGS, "ns/reading"),
        ("source, decode, keys not seen before", best_ns(lambda: cold_read(data)) / READINGS,
         "ns/reading"),
        ("source, header only", best_ns(lambda: codec.decode_source(data), 500) / 1e3, "us/record"),
        ("source of 100 readings, decode", best_ns(lambda: load(small), 200) / 1e3, "us/record"),
        ("ordered, encode", best_ns(lambda: codec.encode_ordered(ordered)) / READINGS,
         "ns/reading"),
        ("ordered, decode", best_ns(lambda: codec.decode_ordered(ordered_data)) / READINGS,
         "ns/reading"),
        ("delta, decode", best_ns(lambda: codec.decode_delta(delta_data)) / len(KEYS) / 1e3,
         "us/key"),
        ("result rows, one field", best_ns(lambda: encode_rows(rows), 1) / 20_000 / 1e3, "us/row"),
    ]  # fmt: skip
    print(f"{READINGS} readings, {len(KEYS)} keys, {len(FIELDS)} fields, {len(data)} bytes\n")
    print("| what | cost | |\n|---|---|---|")
    for what, cost, unit in lines:
        print(f"| {what} | {cost:.2f} | {unit} |")


if __name__ == "__main__":
    main()
