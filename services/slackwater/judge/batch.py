"""Batch computation of the expected results: the same query over the same files, row by row.

A rehearsal claims that no failure changed a stable result. The claim depends on the reference, so
the reference shares no code with the pipeline: files are read row by row with the standard library
(``readings``), ``where`` and ``select`` are computed by SQLite, windows are dictionaries and
aggregates are computed from all readings of a window at once (``primitives.exact``), without
vectors. Shared are only the deployment's values and the meaning of
expressions: one parser (``primitives.expressions``) makes the tree that SQLite computes here and
numpy computes in the pipeline.

Lateness is a property of the file alone: a reading is late if its time is more than ``disorder``
below the largest time before it in its file.

Rejected: DuckDB or pandas as the oracle. They are faster, but add a large dependency, and their
float parsing and null rules would have to be adapted.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from slackwater.judge.calendars import JudgedWindows, judged_windows
from slackwater.judge.having import HavingJudge
from slackwater.judge.oracle import evaluate
from slackwater.judge.readings import StreamInput
from slackwater.model.deployment import QuerySpec
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.primitives.exact import ROUNDED, WindowReadings


@dataclass(frozen=True, slots=True)
class ExactAggregates:
    """The aggregates of one field in one window for one key.

    ``numbers`` has them by name; one is None if there are too few values, or if it is no finite
    double. ``scale`` is the largest magnitude, to which rounding is relative, and ``spread`` the
    standard deviation. ``by_stream`` has for each stream the number of values that depend on it (a
    joined row depends on two streams, a row of another query on all its streams); ``missing`` of
    tentative answers is checked against it.
    """

    count: int
    numbers: Mapping[str, float | None]
    scale: float
    spread: float
    by_stream: Mapping[str, int]


Row = tuple[int, tuple[str, ...], str, tuple[float | None, ...]]
"""Time, the streams it derives from, key, values."""
Cell = tuple[int, str]
"""Window start and key."""
BatchResult = dict[Cell, dict[str, ExactAggregates]]
"""Figures of each field."""


@dataclass(frozen=True, slots=True)
class BatchSource:
    """One source's input to a query: field names and rows.

    ``scale`` is the magnitude from which the values were computed. Their rounding is relative to
    it, however small they are (a standard deviation of 0 may be 1e-15). 0 for readings.
    """

    fields: tuple[str, ...]
    rows: Sequence[Row]
    scale: float = 0.0


def compute_all(
    queries: Iterable[QuerySpec],
    inputs: Mapping[str, StreamInput],
    start: int,
    speed: float = 1.0,
) -> tuple[dict[str, BatchResult], dict[str, RowsResult]]:
    """Compute all queries, with and without a window; each after the queries that it reads."""
    sources = {name: stream_source(name, sent, start) for name, sent in inputs.items()}
    windows: dict[str, BatchResult] = {}
    rows: dict[str, RowsResult] = {}
    for query in queries:
        name, fields = query.name, output_names(query, sources)
        if query.window is None:
            rows[name] = rows_from(query, sources, query.bucket_us(speed))
            sources[name] = rows_source(query, rows[name], fields)
        else:
            windows[name] = compute_from(query, sources)
            sources[name] = windows_source(query, windows[name], fields)
    return windows, rows


def compute(query: QuerySpec, inputs: Mapping[str, StreamInput], start: int) -> BatchResult:
    """Compute the query over all accepted readings of its streams at or after ``start`` (E0)."""
    sources = {name: stream_source(name, sent, start) for name, sent in inputs.items()}
    return compute_from(query, sources)


@dataclass(frozen=True, slots=True)
class Result:
    """A reading in the result of a query without a window, and the streams it derives from."""

    stime: int
    key: str
    fields: Mapping[str, float | None]
    streams: tuple[str, ...]
    scale: float = 0.0
    """As in ``BatchSource``."""


RowsResult = dict[int, list[Result]]
"""Bucket start -> its readings in order."""


def stream_source(name: str, sent: StreamInput, start: int) -> BatchSource:
    """Return the accepted readings of a stream from ``start`` on."""
    rows = [(r.stime, (name,), r.key, r.values) for r in sent.accepted if r.stime >= start]
    return BatchSource(sent.spec.field_names, rows)


def windows_source(query: QuerySpec, result: BatchResult, fields: Sequence[str]) -> BatchSource:
    """Return a query's exact results as input of another: a row at its window's last instant."""
    assert query.window is not None, "without a window the readings are the result"
    rows: list[Row] = []
    windows, given = judged_windows(query.window), _numbers_in(query, fields)
    for (window, key), figures in _with_rows(query, result, fields):
        streams = dict.fromkeys(s for of in figures.values() for s in of.by_stream)
        values = tuple(figures[n].numbers[name] for n, names in given for name in names)
        rows.append((windows.end(window) - 1, (*streams, query.name), key, values))
    of_all = [of for figures in result.values() for of in figures.values()]
    # A sum is the largest figure derived from them, and has the largest error.
    scale = max((of.scale * max(of.count, 1) for of in of_all), default=0.0)
    scale = min(max(scale, *map(_scale_of_estimates, of_all), 0.0), sys.float_info.max)
    names = tuple(f"{n}_{figure}" for n, figures in given for figure in figures)
    return BatchSource(names, rows, scale)


def _scale_of_estimates(of: ExactAggregates) -> float:
    """Return the magnitude to which the error of its estimates is as rounding is to a value."""
    errors = [0.0]
    for name, number in of.numbers.items():
        rounding = AGGREGATES[name].rounding
        if number is not None and rounding.is_estimate:
            errors.append(rounding.error(number, of.count, of.scale, of.spread))
    return max(errors) / ROUNDED


def _with_rows(
    query: QuerySpec, result: BatchResult, fields: Sequence[str]
) -> Iterable[tuple[Cell, Mapping[str, ExactAggregates]]]:
    """Return the windows and keys that have a row, in order."""
    cells = sorted(result.items())
    if query.having is None:
        return cells
    having = HavingJudge(query.having, query.shown(fields))
    numbers = [(key, {n: of.numbers for n, of in figures.items()}) for (_, key), figures in cells]
    return compress(cells, having.holds(numbers))


def _numbers_in(query: QuerySpec, fields: Sequence[str]) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the fields of a row with the aggregates of each."""
    declared = dict(query.of_fields)
    if not declared:
        return [(name, query.aggregate) for name in fields]
    return [(name, declared[name]) for name in declared if name in fields]


def rows_source(query: QuerySpec, result: RowsResult, fields: Sequence[str]) -> BatchSource:
    """Return the rows of a query without a window as input of another, unchanged."""
    rows = [
        (one.stime, (*one.streams, query.name), one.key, tuple(one.fields[n] for n in fields))
        for _, bucket in sorted(result.items())
        for one in bucket
    ]
    scale = max((one.scale for bucket in result.values() for one in bucket), default=0.0)
    return BatchSource(tuple(fields), rows, scale)


def compute_from(query: QuerySpec, sources: Mapping[str, BatchSource]) -> BatchResult:
    """Compute the windows of a query over its sources."""
    return _windows(query, *_kept(query, sources), _scale(query, sources))


def rows_from(query: QuerySpec, sources: Mapping[str, BatchSource], w_us: int) -> RowsResult:
    """Compute the rows of a query without a window over its sources."""
    names, rows, kept = _kept(query, sources)
    scale = _scale(query, sources)
    result: RowsResult = defaultdict(list)
    # The rows are ordered by source as in ``from``, and within a source as in its file.
    for index, values in sorted(kept, key=lambda one: rows[one[0]][0]):
        stime, streams, key, _ = rows[index]
        fields = dict(zip(names, values, strict=True))
        result[stime // w_us * w_us].append(Result(stime, key, fields, streams, scale))
    return dict(result)


def _scale(query: QuerySpec, sources: Mapping[str, BatchSource]) -> float:
    return max(sources[name].scale for name in query.sources)


def _kept(
    query: QuerySpec, sources: Mapping[str, BatchSource]
) -> tuple[Sequence[str], Sequence[Row], Iterable[tuple[int, Sequence[float | None]]]]:
    """Return the result's fields, all rows, and (index, values) of those that ``where`` keeps."""
    names = input_names(query, sources)
    rows = (_union if query.join is None else _join)(query, sources)
    kept = evaluate(query.where, query.select, names, [(key, values) for _, _, key, values in rows])
    return output_names(query, sources), rows, kept


def input_names(query: QuerySpec, sources: Mapping[str, BatchSource]) -> list[str]:
    """Return the input names of ``where`` and ``select`` in order of first appearance."""
    if query.join is not None:
        sides = (("left", query.join.left), ("right", query.join.right))
        return [f"{side}_{name}" for side, source in sides for name in sources[source].fields]
    return list(dict.fromkeys(n for source in query.sources for n in sources[source].fields))


def output_names(query: QuerySpec, sources: Mapping[str, BatchSource]) -> list[str]:
    """Return the fields of the query's results."""
    if query.select is not None:
        return [name for name, _ in query.select]
    return input_names(query, sources)


def _union(query: QuerySpec, sources: Mapping[str, BatchSource]) -> list[Row]:
    """Return all readings; a field that a source lacks is missing."""
    names = input_names(query, sources)
    rows: list[Row] = []
    for source in dict.fromkeys(query.sources):
        fields = sources[source].fields
        at = [fields.index(n) if n in fields else None for n in names]
        rows += [
            (stime, streams, key, tuple(None if i is None else values[i] for i in at))
            for stime, streams, key, values in sources[source].rows
        ]
    return rows


def _join(query: QuerySpec, sources: Mapping[str, BatchSource]) -> list[Row]:
    """Join readings of equal key within the allowed distance; the row has the later time.

    Ordered by the left stream, then by the right one, whatever the times.
    """
    assert query.join is not None
    join = query.join
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    rights = sources[join.right].rows
    for at, row in enumerate(rights):
        by_key[row[2]].append((row[0], at))
    for times in by_key.values():
        times.sort()
    rows: list[Row] = []
    for stime, streams, key, values in sources[join.left].rows:
        times = by_key.get(key, [])
        first = bisect_left(times, stime - join.within_us, key=_stime)
        behind = bisect_right(times, stime + join.within_us, key=_stime)
        for at in sorted(at for _, at in times[first:behind]):
            right = rights[at]
            rows.append((max(stime, right[0]), streams + right[1], key, values + right[3]))
    return rows


def _stime(timed: tuple[int, int]) -> int:
    return timed[0]


def windows_of(stime: int, windows: JudgedWindows) -> Iterator[int]:
    """Yield the starts of the windows that contain ``stime``, the last one first."""
    start = windows.last_holding(stime)
    while windows.end(start) > stime:
        yield start
        start = windows.later(start, -1)


def end_boundary(
    queries: Iterable[QuerySpec], inputs: Mapping[str, StreamInput], speed: float = 1.0
) -> int | None:
    """Return the largest end of a window with a reading sent, over all queries (trace-24).

    Each query is processed after the queries that it reads; their last row may lie in a window of
    the query that ends later. A boundary that closes that window closes all windows that end before
    it in every query, since a query's answers up to a time are its readers' boundary up to it.
    """
    ends: list[int] = []
    latest = {name: sent.largest for name, sent in inputs.items() if sent.largest is not None}
    for query in queries:
        found = [latest[source] for source in query.sources if source in latest]
        if found:
            windows = judged_windows(query.units(query.bucket_us(speed)))
            end = windows.end(windows.last_holding(max(found)))
            latest[query.name] = max(found) if query.window is None else end - 1
            ends.append(end)
    return max(ends, default=None)


def _windows(
    query: QuerySpec,
    names: Sequence[str],
    rows: Sequence[Row],
    kept: Iterable[tuple[int, Sequence[float | None]]],
    scale: float,
) -> BatchResult:
    assert query.window is not None, "without a window the readings are the result"
    windows, given = judged_windows(query.window), dict(_numbers_in(query, names))
    # (window, key) -> one list of (streams, value) per field
    cells: dict[tuple[int, str], list[list[tuple[tuple[str, ...], float | None]]]] = {}
    # In order of time, then as the rows are: by source as in ``from``, within it as in its file.
    for index, values in sorted(kept, key=lambda one: rows[one[0]][0]):
        stime, streams, key, _ = rows[index]
        for start in windows_of(stime, windows):
            lists = cells.get((start, key))
            if lists is None:
                lists = cells[start, key] = [[] for _ in names]
            for column, value in zip(lists, values, strict=True):
                column.append((streams, value))
    return {
        cell: {
            name: exact_aggregates(column, scale, given[name])
            for name, column in zip(names, lists, strict=True)
            if name in given
        }
        for cell, lists in cells.items()
    }


def exact_aggregates(
    column: Sequence[tuple[tuple[str, ...], float | None]], scale: float, aggregate: Iterable[str]
) -> ExactAggregates:
    """Compute the aggregates of (streams, value) of one field in one window for one key.

    ``scale`` is that of the values' source (``BatchSource``).
    """
    values = [value for _, value in column if value is not None]
    # Zero for streams with missing values only, since these produce rows as well.
    by_stream: Counter[str] = Counter()
    for streams, value in column:
        for stream in streams:
            by_stream[stream] += value is not None
    if not values:
        nothing = {name: None if AGGREGATES[name].count_min else 0 for name in aggregate}
        return ExactAggregates(0, nothing, 0.0, 0.0, by_stream)
    readings = WindowReadings(values)
    numbers = {name: _number(name, readings) for name in aggregate}
    scale = max(abs(readings.low), abs(readings.high), scale)
    spread = 0.0 if math.isnan(readings.variance) else readings.deviation
    return ExactAggregates(len(values), numbers, scale, spread, by_stream)


def _number(name: str, readings: WindowReadings) -> float | None:
    if readings.count < AGGREGATES[name].count_min:
        return None
    number = AGGREGATES[name].batch(readings)
    return number if math.isfinite(number) else None
