"""Measures how readings of a source are spaced, and how far they are out of order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from slackwater.cli.drafting.times import YEARS_S
from slackwater.formats.readingsfile import open_readings
from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_i64

READINGS_MAX: Final = 5_000_000
"""Readings of a file that are measured, the first ones."""
YEARS_US: Final = (YEARS_S[0] * 1_000_000, YEARS_S[1] * 1_000_000)
NICE_US: Final = tuple(
    n * unit
    for unit, steps in (
        (1_000, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000_000, (1, 2, 5, 10, 15, 30)),
        (60_000_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000_000, (1, 2, 3, 6, 12)),
        (86_400_000_000, (1, 2, 7, 30, 90, 365)),
    )
    for n in steps
)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredReadings:
    """Times are us. ``gap_us`` is the median gap of a key, ``stream_gap_us`` 99 % of all gaps.

    ``lags``: by how much each reading is older than the newest one before it.
    ``refused``: how many cannot be read, with the first place and why.
    """

    count: int
    first_us: int
    last_us: int
    keys: int
    gap_us: int | None
    stream_gap_us: int | None
    lags: type_i64
    refused: int = 0
    example: str = ""

    @property
    def behind_us(self) -> int:
        """The most by which a reading is older than one before it."""
        return int(self.lags.max())

    def later_than(self, disorder_us: int) -> int:
        """Return how many readings would be late."""
        return int(np.count_nonzero(self.lags > disorder_us))

    def disorder_us(self, share: float) -> int:
        """Return the disorder for which at most this share of the readings would be late."""
        return int(np.quantile(self.lags, 1 - share, method="higher"))


def nice(us: float) -> int:
    """Round a duration up to one that people write."""
    return next((each for each in NICE_US if each >= us), NICE_US[-1])


def measure_file(spec: StreamSpec, path: Path) -> MeasuredReadings | None:
    """Read a file by its declaration; None if it has no reading."""
    times, keys, names = [], [], dict[str, int]()
    refused, example, count = 0, "", 0
    for piece in open_readings(spec, path).pieces():
        refused += len(piece.malformed)
        if piece.malformed and not example:
            first = piece.malformed[0]
            example = f"line {first.line}, {first.detail}"
        arrived = piece.arrived
        number = np.array([names.setdefault(key, len(names)) for key in arrived.keys], np.int64)
        times.append(arrived.stimes)
        keys.append(number[arrived.key_index] if len(number) else arrived.key_index)
        count += len(arrived.stimes)
        if count >= READINGS_MAX:
            break
    return measure(np.concatenate(times), np.concatenate(keys), refused, example) if count else None


def measure_texts(times_us: Iterable[int | None], keys: Iterable[str]) -> MeasuredReadings | None:
    """Measure readings in the order in which they came.

    Those without a time, or with one of another unit, are counted.
    """
    rows = [(us, key) for us, key in zip(times_us, keys, strict=True)]
    names: dict[str, int] = {}
    kept = [
        (us, names.setdefault(key, len(names)))
        for us, key in rows
        if us is not None and YEARS_US[0] <= us < YEARS_US[1]
    ]
    if not kept:
        return None
    times, numbers = zip(*kept, strict=True)
    return measure(np.array(times, np.int64), np.array(numbers, np.int64), len(rows) - len(kept))


def measure(
    times: type_i64, keys: type_i64, refused: int = 0, example: str = ""
) -> MeasuredReadings:
    """Measure columns of times and key numbers, in the order in which they came."""
    behind = np.maximum.accumulate(times) - times
    order = np.lexsort((times, keys))
    gaps = np.diff(times[order])[np.diff(keys[order]) == 0]
    gaps = gaps[gaps > 0]
    of_all = np.diff(np.sort(times))
    return MeasuredReadings(
        len(times),
        int(times.min()),
        int(times.max()),
        len(np.unique(keys)),
        int(np.median(gaps)) if len(gaps) else None,
        int(np.quantile(of_all, 0.99, method="higher")) if len(of_all) else None,
        behind,
        refused,
        example,
    )
