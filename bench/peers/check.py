"""Computes the expected windows, and the faults of the published ones.

The same code for all peers. It uses nothing of slackwater: the windows are computed by a loop over
the readings sent, and compared with the rows that a consumer of the results has read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

SIZE_MS: Final = 1_000
"""Length of every window."""
TOLERANCE: Final = 1e-9
"""Relative tolerance of averages: peers add in different orders."""

Place = tuple[str, int]
"""A window: its sensor and its start, ms since the epoch."""


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """The content of a window."""

    count: int
    avg: float
    min: float
    max: float

    def equals(self, other: WindowFigures) -> bool:
        """Return whether they are equal, averages up to rounding."""
        return (self.count, self.min, self.max) == (other.count, other.min, other.max) and (
            math.isclose(self.avg, other.avg, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        )


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """One published row; ``marked`` if it is labelled as possibly incomplete."""

    place: Place
    figures: WindowFigures
    seen_s: float
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of windows, of readings and of answers."""

    windows: int
    lost: int
    """Windows without an unmarked answer."""
    wrong: int
    """Windows whose last unmarked answer is wrong, and windows that should not exist."""
    doubled: int
    """Windows whose correct answer was published more than once."""
    readings_lost: int
    """Readings that the last unmarked answers lack."""
    partial: int
    """Answers that lack readings."""
    partial_marked: int
    first_late_s: float
    """The latest first answer of any window, after the window's end; NaN where there is none."""

    @property
    def exact(self) -> bool:
        """Whether every window was answered once, and correctly."""
        return not (self.lost or self.wrong or self.doubled)


def windows(readings: Iterable[tuple[int, str, float]]) -> dict[Place, WindowFigures]:
    """Return the windows of some readings (time in ms, sensor, value)."""
    values: dict[Place, list[float]] = defaultdict(list)
    for ts, sensor, value in readings:
        values[sensor, ts - ts % SIZE_MS].append(value)
    return {
        place: WindowFigures(len(some), math.fsum(some) / len(some), min(some), max(some))
        for place, some in values.items()
    }


def judge(expected: Mapping[Place, WindowFigures], answers: Iterable[PeerAnswer]) -> Verdict:
    """Compare the published windows with the expected ones."""
    by_place: dict[Place, list[PeerAnswer]] = defaultdict(list)
    for answer in answers:
        by_place[answer.place].append(answer)
    lost = wrong = doubled = readings_lost = partial = partial_marked = 0
    first_late_s = math.nan
    for place, right in expected.items():
        some = by_place.pop(place, [])
        final = [answer.figures for answer in some if not answer.marked]
        if not final:
            lost += 1
        elif not final[-1].equals(right):
            wrong += 1
        doubled += sum(figures.equals(right) for figures in final) > 1
        readings_lost += max(0, right.count - (final[-1].count if final else 0))
        lacking = [answer for answer in some if answer.figures.count < right.count]
        partial += len(lacking)
        partial_marked += sum(answer.marked for answer in lacking)
        if some:
            late_s = min(answer.seen_s for answer in some) - (place[1] + SIZE_MS) / 1e3
            first_late_s = late_s if math.isnan(first_late_s) else max(late_s, first_late_s)
    return Verdict(
        len(expected),
        lost,
        wrong + len(by_place),
        doubled,
        readings_lost,
        partial,
        partial_marked,
        first_late_s,
    )
