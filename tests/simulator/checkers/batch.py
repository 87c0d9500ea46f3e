"""The batch computation: what the stable results must be, from the source logs alone.

Reads each source log in the order of its offsets with the readers' acceptance rules (rule 10),
written down here a second time and as plainly as possible, and adds up reading by reading.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isnan, nan

from tests.simulator.aggregator import part_of
from tests.simulator.config import WorldConfig
from tests.simulator.readings import Reading
from tests.simulator.sources import columns

from slackwater.model.records import Kind, SourceRecord


def accepted(log: Iterable[tuple[int, SourceRecord]]) -> list[Reading]:
    """The readings that count, once each, in the order of their ids."""
    found: list[Reading] = []
    next_id, inc, promise = 0, -1, -(2**62)
    for offset, record in log:
        if record.kind is Kind.START:
            inc = max(inc, offset)
        elif record.inc < inc:
            continue
        if record.first_id != next_id:
            continue
        if record.readings:
            table = columns(record)
            for stime, key, value in zip(
                table.stimes.tolist(),
                table.key_index.tolist(),
                table.values[0].tolist(),
                strict=True,
            ):
                if stime >= promise:  # below it the writer broke its word (R23)
                    found.append(Reading(stime, table.keys[key], value))
        next_id = record.last_id + 1
        promise = max(promise, record.boundary)
    return found


@dataclass
class Figures:
    """Count, sum, mean square, min and max, one value at a time."""

    values: list[float] = field(default_factory=list)

    def five(self) -> tuple[float, float, float, float, float]:
        """As the results have them."""
        values = [v for v in self.values if not isnan(v)]
        if not values:
            return 0.0, 0.0, 0.0, nan, nan
        total, mean = sum(values), sum(values) / len(values)
        m2 = sum((v - mean) ** 2 for v in values)
        return float(len(values)), total, m2, min(values), max(values)


Rows = dict[str, tuple[float, float, float, float, float]]


Cells = dict[int, Rows]


def windows(config: WorldConfig, streams: Iterable[list[Reading]], part: int) -> Cells:
    """Rows by window start and key, for one part."""
    grid = config.grid
    cells: dict[int, dict[str, Figures]] = defaultdict(lambda: defaultdict(Figures))
    for readings in streams:
        for reading in readings:
            if reading.stime < config.e0_us or part_of(reading.key, config.parts) != part:
                continue
            for start in grid.window_starts_covering(reading.stime, reading.stime + 1):
                cells[start][reading.key].values.append(reading.value)
    return {
        start: {key: figures.five() for key, figures in sorted(keys.items())}
        for start, keys in cells.items()
    }


def same(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Equal figures: sums of eighths are exact, the squares up to rounding."""
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if isnan(x) and isnan(y):
            continue
        if i == 2:
            if abs(x - y) > 1e-6 * max(1.0, abs(x)):
                return False
        elif x != y:
            return False
    return True
