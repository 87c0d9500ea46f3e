"""The batch computation: the expected stable results, computed from the source logs alone.

It reads each source log in the order of its offsets with the readers' acceptance rules (rule-10),
implemented here a second time and as simply as possible, and adds up reading by reading.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import isnan, nan
from typing import NamedTuple

from tests.simulator.aggregator import part_of
from tests.simulator.config import FIELDS, WorldConfig
from tests.simulator.history import ReportedRows
from tests.simulator.readings import SensorReading
from tests.simulator.sources import columns
from tests.support.window_starts import starts_covering

from slackwater.model.records import Kind, SourceRecord

SourceLog = Iterable[tuple[int, SourceRecord]]


def accepted(log: SourceLog) -> list[SensorReading]:
    """Return the readings that count, once each, in the order of their ids."""
    found: list[SensorReading] = []
    for record, watermark in _accepted(log):
        if record.readings:
            table = columns(record)
            for stime, key, value in zip(
                table.stimes.tolist(),
                table.key_index.tolist(),
                table.values[0].tolist(),
                strict=True,
            ):
                if stime >= watermark:  # below the writer's own watermark (trace-23)
                    found.append(SensorReading(stime, table.keys[key], value))
    return found


def gaps(log: SourceLog) -> int:
    """Return how many messages of its topic a source log reports as lost."""
    return sum(gap.lost for record, _ in _accepted(log) for gap in record.gap)


def _accepted(log: SourceLog) -> Iterator[tuple[SourceRecord, int]]:
    """Yield the records that readers accept, each with the watermark before it."""
    next_id, inc, watermark = 0, -1, -(2**62)
    for offset, record in log:
        if record.kind is Kind.START:
            inc = max(inc, offset)
        elif record.inc < inc:
            continue
        if record.first_id != next_id:
            continue
        yield record, watermark
        next_id = record.last_id + 1
        watermark = max(watermark, record.boundary)


class Fed(NamedTuple):
    """Values that one input adds for a key at a time: one for each field of the query."""

    stime: int
    key: str
    values: tuple[float, ...]


def five(values: list[float]) -> tuple[float, ...]:
    """Return count, sum, m2, min and max, adding one value at a time."""
    values = [v for v in values if not isnan(v)]
    if not values:
        return 0.0, 0.0, 0.0, nan, nan
    total, mean = sum(values), sum(values) / len(values)
    m2 = sum((v - mean) ** 2 for v in values)
    return float(len(values)), total, m2, min(values), max(values)


Rows = dict[str, tuple[float, ...]]
"""By key: the five figures of each field, field by field."""

Cells = dict[int, Rows]
Listed = dict[int, ReportedRows]


def of_stream(config: WorldConfig, readings: Iterable[SensorReading]) -> Iterator[Fed]:
    """Return the readings of a stream, in the columns of a query."""
    for reading in readings:
        yield Fed(reading.stime, reading.key, _columns(config, FIELDS, (reading.value,)))


def of_join(config: WorldConfig, sides: Sequence[Iterable[SensorReading]]) -> Iterator[Fed]:
    """Return the pairs of the first stream's readings with the others', at the later time."""
    left, *others = ([r for r in readings if r.stime >= config.start_time_us] for readings in sides)
    by_key: dict[str, list[SensorReading]] = defaultdict(list)
    for reading in (r for readings in others for r in readings):
        by_key[reading.key].append(reading)
    for one in left:
        for other in by_key[one.key]:
            if abs(one.stime - other.stime) <= config.join_us:
                yield Fed(max(one.stime, other.stime), one.key, (one.value, other.value))


def of_rows(config: WorldConfig, reads: WorldConfig, parts: Iterable[Listed]) -> Iterator[Fed]:
    """Return the rows of a query without a window, unchanged."""
    for listed in parts:
        for rows in listed.values():
            for key, (stime, *values) in rows:
                yield Fed(int(stime), key, _columns(config, reads.fields, values))


def of_query(config: WorldConfig, reads: WorldConfig, parts: Iterable[Cells]) -> Iterator[Fed]:
    """Return the answers of a query in the columns of a reader: the figures are aggregated again.

    A window's rows are readings of its last instant (trace-20).
    """
    fields = config.fields_of(reads.name)
    for cells in parts:
        for start, rows in cells.items():
            for key, figures in rows.items():
                counts, sums = figures[0::5], figures[1::5]
                reported = [
                    v for n, s in zip(counts, sums, strict=True) for v in (n, s if n else nan)
                ]
                stime = reads.grid.window_end(start) - 1
                yield Fed(stime, key, _columns(config, fields, reported))


def _columns(
    config: WorldConfig, fields: Sequence[str], values: Sequence[float]
) -> tuple[float, ...]:
    known = dict(zip(fields, values, strict=True))
    return tuple(known.get(field, nan) for field in config.fields)


def listed(config: WorldConfig, fed: Iterable[Fed], part: int) -> Listed:
    """Return the rows of each bucket of a query without a window, by time, then in input order.

    Children are concatenated, and within each child the inputs in their order; the input of this
    function is in this order.
    """
    grid = config.grid
    found: Listed = defaultdict(list)
    for stime, key, values in sorted(fed, key=lambda row: row.stime):
        if stime >= config.start_time_us and part_of(key, config.parts) == part:
            found[grid.bucket_start(stime)].append((key, (float(stime), *values)))
    return found


def figures(rows: ReportedRows) -> ReportedRows:
    """Return the figures of each key of some rows."""
    by_key: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for key, (_, *values) in rows:
        by_key[key].append(tuple(values))
    return [(key, _figures(of)) for key, of in sorted(by_key.items())]


def _figures(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(f for column in zip(*rows, strict=True) for f in five(list(column)))


def windows(config: WorldConfig, fed: Iterable[Fed], part: int) -> Cells:
    """Return rows by window start and key, for one part."""
    grid = config.grid
    cells: dict[int, dict[str, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
    for stime, key, values in fed:
        if stime < config.start_time_us or part_of(key, config.parts) != part:
            continue
        for start in starts_covering(grid, stime, stime + 1):
            cells[start][key].append(values)
    found = {
        start: {key: _figures(rows) for key, rows in sorted(keys.items())}
        for start, keys in cells.items()
    }
    return {
        start: {k: f for k, f in of.items() if has_row(config, f)} for start, of in found.items()
    }


def has_row(config: WorldConfig, figures: Sequence[float]) -> bool:
    """Return whether a key with these figures has a row: the first one is a count (``having``)."""
    return config.rows or figures[0] >= config.count_min


def same(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Return whether figures are equal; sums of eighths are exact, m2 is compared with rounding."""
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if isnan(x) and isnan(y):
            continue
        if i % 5 == 2:
            if abs(x - y) > 1e-6 * max(1.0, abs(x)):
                return False
        elif x != y:
            return False
    return True


def no_more(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Return whether ``a`` has at most as many values as ``b``, in each field."""
    return all(x <= y for x, y in zip(a[0::5], b[0::5], strict=True))
