"""What the answer should have been: the same query over the same files, computed the plain way.

A rehearsal claims that no failure changed a stable result. The claim is worth as much as the thing
it is compared with, so nothing here is shared with the pipeline: files are read line by line with
the standard library, one row at a time; ``where`` and ``select`` are evaluated by SQLite; windows
are dictionaries and sums are ``math.fsum``. No numpy, no batches, no parser of ours. What it does
share is the deployment's values and sqlglot's grammar, which tells what an expression means before
SQLite computes it (SQLite's own ``%`` and ``/`` of whole numbers are not ours).

Being late is a rule about the file alone: a reading is late if its time lies more than ``disorder``
below the largest time before it in its file. Any program can apply it, this one does.

Rejected: DuckDB or pandas as the oracle. Faster, but one more large dependency, and their float
parsing and null rules would have to be bent to ours as well.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from slackwater.client.oracle import evaluate
from slackwater.model.deployment import QuerySpec, StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError

MISSING: Final = frozenset({"", "nan", "null"})
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_10000_US: Final = 253_402_300_800_000_000
UNIT_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class Reading:
    """One usable line of a file, in time or not."""

    stime: int
    key: str
    values: tuple[float | None, ...]


@dataclass(slots=True)
class StreamInput:
    """What one file brings, in its order; ``late`` are indices into ``readings``."""

    spec: StreamSpec
    readings: list[Reading] = field(default_factory=list)
    late: set[int] = field(default_factory=set)
    malformed: int = 0
    blank: int = 0

    def until(self, limit: int) -> StreamInput:
        """What was sent when the replay ended at event time ``limit``.

        A reading is sent when the largest time up to it has come, so what is sent is always a
        first part of the file. (``malformed`` stays that of the whole file.)
        """
        n, largest = 0, None
        for reading in self.readings:
            largest = reading.stime if largest is None else max(largest, reading.stime)
            if largest > limit:
                break
            n += 1
        late = {i for i in self.late if i < n}
        return StreamInput(self.spec, self.readings[:n], late, self.malformed, self.blank)

    @property
    def accepted(self) -> Iterator[Reading]:
        """The readings that count."""
        return (r for i, r in enumerate(self.readings) if i not in self.late)


@dataclass(frozen=True, slots=True)
class Figures:
    """The aggregate of one field in one window for one key.

    ``scale`` is the largest magnitude: what rounding is relative to. ``by_stream`` says how many
    of ``count`` would not be there without which stream (a joined row needs two), by which a
    tentative answer's ``missing`` can be judged.
    """

    count: int
    sum: float
    min: float | None
    max: float | None
    var: float | None
    scale: float
    by_stream: Mapping[str, int]

    def get(self, name: str) -> float | None:
        """The figure ``name`` of ``aggregate``."""
        match name:
            case "count":
                return self.count
            case "sum":
                return self.sum if self.count else None
            case "avg":
                return self.sum / self.count if self.count else None
            case "min" | "max" | "var":
                value: float | None = getattr(self, name)
                return value
            case "range":
                return None if self.max is None or self.min is None else self.max - self.min
            case "stddev":
                return None if self.var is None else math.sqrt(self.var)
        raise AssertionError(f"unknown aggregate {name}")


Row = tuple[int, tuple[str, ...], str, tuple[float | None, ...]]
"""Time, the streams it comes from, key, values."""
BatchResult = dict[tuple[int, str], dict[str, Figures]]
"""(window start, key) -> field -> figures."""


def read_stream(spec: StreamSpec, path: Path) -> StreamInput:
    """Read a CSV or CSV.gz file as the stream's declaration says."""
    result = StreamInput(spec)
    number = re.compile(
        rf"[+-]?(?:[0-9]+(?:{re.escape(spec.csv.decimal)}[0-9]*)?"
        rf"|{re.escape(spec.csv.decimal)}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    )
    largest: int | None = None
    with _open(spec, path) as lines:
        rows = csv.reader(lines, delimiter=spec.csv.delimiter)
        header = [cell.strip() for cell in next(rows, [])]
        places = _places(spec, header, path)
        for row in rows:
            if not any(cell.strip() for cell in row):
                result.blank += 1
                continue
            reading = _reading(spec, places, row, number)
            if reading is None:
                result.malformed += 1
                continue
            if largest is not None and reading.stime < largest - spec.disorder_us:
                result.late.add(len(result.readings))
            largest = reading.stime if largest is None else max(largest, reading.stime)
            result.readings.append(reading)
    return result


def compute(query: QuerySpec, inputs: Mapping[str, StreamInput], start: int) -> BatchResult:
    """The query over all accepted readings of its streams at or after ``start`` (E0)."""
    return _windows(query, *_kept(query, inputs, start))


@dataclass(frozen=True, slots=True)
class Result:
    """One reading of the result of a query without a window, and the streams it is made of."""

    stime: int
    key: str
    fields: Mapping[str, float | None]
    streams: tuple[str, ...]


RowsResult = dict[int, list[Result]]
"""Bucket start -> its readings in their order."""


def compute_rows(
    query: QuerySpec, inputs: Mapping[str, StreamInput], start: int, w_us: int
) -> RowsResult:
    """The same without a window: what ``where`` keeps, in the order (stime, stream, id)."""
    names, rows, kept = _kept(query, inputs, start)
    result: RowsResult = defaultdict(list)
    # The rows are stream by stream in the order of ``from``, and in each as they came.
    for index, values in sorted(kept, key=lambda one: rows[one[0]][0]):
        stime, streams, key, _ = rows[index]
        fields = dict(zip(names, values, strict=True))
        result[stime // w_us * w_us].append(Result(stime, key, fields, streams))
    return dict(result)


def _kept(
    query: QuerySpec, inputs: Mapping[str, StreamInput], start: int
) -> tuple[Sequence[str], Sequence[Row], Iterable[tuple[int, Sequence[float | None]]]]:
    """The fields of the result, all rows, and (index, values) of those that ``where`` keeps."""
    names, rows = (_union if query.join is None else _join)(query, inputs, start)
    kept = evaluate(query.where, query.select, names, [(key, values) for _, _, key, values in rows])
    return names if query.select is None else [name for name, _ in query.select], rows, kept


def _union(
    query: QuerySpec, inputs: Mapping[str, StreamInput], start: int
) -> tuple[list[str], list[Row]]:
    """Names of the fields, and all readings: a field that a stream lacks is missing there."""
    names: list[str] = []
    for source in query.sources:
        names += [n for n in inputs[source].spec.field_names if n not in names]
    rows: list[Row] = []
    for source in dict.fromkeys(query.sources):
        spec = inputs[source].spec
        at = [spec.field_names.index(n) if n in spec.field_names else None for n in names]
        rows += [
            (r.stime, (source,), r.key, tuple(None if i is None else r.values[i] for i in at))
            for r in inputs[source].accepted
            if r.stime >= start
        ]
    return names, rows


def _join(
    query: QuerySpec, inputs: Mapping[str, StreamInput], start: int
) -> tuple[list[str], list[Row]]:
    """Every left reading with every right one of its key that is near enough: the later time."""
    assert query.join is not None
    join = query.join
    by_key: dict[str, list[Reading]] = defaultdict(list)
    for reading in inputs[join.right].accepted:
        if reading.stime >= start:
            by_key[reading.key].append(reading)
    for readings in by_key.values():
        readings.sort(key=_stime)
    rows: list[Row] = []
    for left in inputs[join.left].accepted:
        near = by_key.get(left.key, ()) if left.stime >= start else ()
        for right in near[bisect_left(near, left.stime - join.within_us, key=_stime) :]:
            if right.stime > left.stime + join.within_us:
                break
            stime = max(left.stime, right.stime)
            rows.append((stime, (join.left, join.right), left.key, left.values + right.values))
    names = [f"left_{name}" for name in inputs[join.left].spec.field_names]
    return names + [f"right_{name}" for name in inputs[join.right].spec.field_names], rows


def _stime(reading: Reading) -> int:
    return reading.stime


def windows_of(stime: int, size: int, slide: int) -> Iterator[int]:
    """Starts of the windows that hold ``stime``, the last one first."""
    start = stime // slide * slide
    while start + size > stime:
        yield start
        start -= slide


def end_boundary(
    queries: Iterable[QuerySpec], inputs: Mapping[str, StreamInput], speed: float = 1.0
) -> int | None:
    """The largest end of a window that holds a reading sent, over all queries (R24)."""
    ends = []
    for query in queries:
        latest = max((r.stime for s in query.sources for r in inputs[s].readings), default=None)
        if latest is not None:
            window = query.units(query.bucket_us(speed))
            ends.append(latest // window.slide_us * window.slide_us + window.size_us)
    return max(ends, default=None)


def _windows(
    query: QuerySpec,
    names: Sequence[str],
    rows: Sequence[Row],
    kept: Iterable[tuple[int, Sequence[float | None]]],
) -> BatchResult:
    assert query.window is not None, "without a window the readings are the result"
    size, slide = query.window.size_us, query.window.slide_us
    # (window, key) -> one list of (streams, value) a field
    cells: dict[tuple[int, str], list[list[tuple[tuple[str, ...], float]]]] = {}
    for index, values in kept:
        stime, streams, key, _ = rows[index]
        for start in windows_of(stime, size, slide):
            lists = cells.get((start, key))
            if lists is None:
                lists = cells[start, key] = [[] for _ in names]
            for column, value in zip(lists, values, strict=True):
                if value is not None:
                    column.append((streams, value))
    return {
        cell: {name: _figures(column) for name, column in zip(names, lists, strict=True)}
        for cell, lists in cells.items()
    }


def _figures(column: Sequence[tuple[tuple[str, ...], float]]) -> Figures:
    values = [value for _, value in column]
    if not values:
        return Figures(0, 0.0, None, None, None, 0.0, {})
    total, var = math.fsum(values), None
    if len(values) > 1:
        mean = total / len(values)
        var = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    low, high = min(values), max(values)
    streams = dict(Counter(stream for streams, _ in column for stream in streams))
    return Figures(len(values), total, low, high, var, max(abs(low), abs(high)), streams)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where in a row things are."""

    key: int | None
    time: tuple[int, ...]
    fields: tuple[int, ...]


def _open(spec: StreamSpec, path: Path) -> io.TextIOBase:
    opened: Any = gzip.open if path.suffix == ".gz" else Path.open
    if not path.is_file():
        raise DeploymentError(f"stream {spec.name}: there is no file {path}")
    return io.TextIOWrapper(opened(path, "rb"), encoding="utf-8-sig", errors="replace", newline="")


def _places(spec: StreamSpec, header: Sequence[str], path: Path) -> _Places:
    """Columns by name; one that the header lacks ends the command before anything is started."""

    def at(column: str) -> int:
        if column not in header:
            known = ", ".join(header) or "nothing"
            raise DeploymentError(
                f"stream {spec.name}: {path} has no column {column!r}; its header has: {known}"
            )
        return header.index(column)

    return _Places(
        None if spec.key.column is None else at(spec.key.column),
        tuple(at(column) for column in spec.time.columns),
        tuple(at(f.source) for f in spec.fields),
    )


def _reading(
    spec: StreamSpec, places: _Places, row: Sequence[str], number: re.Pattern[str]
) -> Reading | None:
    """The row's reading, or None if it is malformed."""

    def cell(i: int) -> str:
        return row[i].strip() if i < len(row) else ""

    key = spec.key.value if places.key is None else cell(places.key)
    stime = parse_time(spec.time, " ".join(cell(i) for i in places.time))
    if not key or stime is None:
        return None
    values: list[float | None] = []
    for i in places.fields:
        text = cell(i)
        if text.lower() in MISSING:
            values.append(None)
            continue
        if not number.fullmatch(text):
            return None
        value = float(text.replace(spec.csv.decimal, "."))
        if not math.isfinite(value):
            return None
        values.append(value)
    return Reading(stime, key, tuple(values))


def parse_time(spec: TimeSpec, text: str) -> int | None:
    """Event time in us since the epoch; what is finer is cut off; None if it is no time."""
    try:
        if spec.format is not None:
            us = _since_epoch(datetime.strptime(text, spec.format))  # noqa: DTZ007
        elif spec.unit == "iso":
            us = _since_epoch(datetime.fromisoformat(text))
        elif re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?", text, re.ASCII):
            us = math.floor(Decimal(text) * UNIT_US[spec.unit or "us"])
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return us if abs(us) < YEAR_10000_US else None


def _since_epoch(time: datetime) -> int:
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    delta = time - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def totals(result: BatchResult) -> dict[int, int]:
    """How many keys each window has."""
    keys: dict[int, int] = defaultdict(int)
    for start, _ in result:
        keys[start] += 1
    return dict(keys)
