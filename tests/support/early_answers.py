"""Results of queries that differ in their bound, over real readings of which some arrive late.

They are written as a root writes them: rows with their boundary, UNDO and the exact answer in one
transaction. The delays are random with a seed; all else is the data in ``tests/data/room_climate``.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from slackwater.codec.results import format_time

DATA = Path(__file__).parents[1] / "data/room_climate"
WINDOW_US = 60_000_000
BOUNDS_S = (1, 4, 16)
SensorReading = tuple[int, float, str, int]
"""Event time, temperature, stream, time of arrival; us."""


def readings(seed: int, hours: float = 2.0) -> list[SensorReading]:
    """Return the readings of all rooms; a batch of room 2 arrives late, by up to twenty seconds."""
    rng, found = random.Random(seed), list[SensorReading]()
    for room in range(1, 5):
        delay_us, until_us = 0, -1
        with gzip.open(DATA / f"node-{room}.csv.gz", "rt") as lines:
            for row in csv.DictReader(lines):
                stime = int(row["ts"]) * 1_000
                if room == 2 and stime > until_us:
                    until_us = stime + rng.randrange(20_000_000, 300_000_000)
                    delay_us = rng.choice((0, 0, rng.randrange(20_000_000)))
                found.append((stime, float(row["temperature"]), f"room-{room}", stime + delay_us))
    first = min(found)[0]
    return sorted(r for r in found if r[0] < first + hours * 3_600_000_000)


def windows(of: Sequence[SensorReading]) -> dict[int, list[SensorReading]]:
    """Return the readings of each window, without the first and the last window."""
    found: dict[int, list[SensorReading]] = {}
    for reading in of:
        found.setdefault(reading[0] // WINDOW_US * WINDOW_US, []).append(reading)
    return dict(sorted(found.items())[1:-1])


class Results:
    """Writes the results of a query of one part, over ``windows``."""

    def __init__(self, query: str, bound_us: int) -> None:
        self._query, self._bound_us = query, bound_us
        self._seq = 0

    def transactions(
        self, of: Mapping[int, Sequence[SensorReading]]
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the records of each transaction."""
        for epoch, (start, there) in enumerate(of.items(), 1):
            due, seen = start + WINDOW_US, max(arrival for *_, arrival in there)
            in_time = [r for r in there if r[3] <= due + self._bound_us]
            missing = sorted({r[2] for r in there if r[3] > due + self._bound_us})
            if not missing:
                yield self._answer("stable", 0, start, there, (), max(due, seen))
                continue
            yield self._answer("tentative", epoch, start, in_time, missing, due + self._bound_us)
            window = {"undo_from": format_time(start), "undo_to": format_time(start)}
            yield [
                self._record("undo", epoch, seen, **window),
                *self._answer("stable", epoch, start, there, (), seen),
                self._record("rec_done", epoch, seen),
            ]

    def _answer(
        self,
        label: str,
        epoch: int,
        start: int,
        of: Sequence[SensorReading],
        missing: Sequence[str],
        at: int,
    ) -> list[dict[str, Any]]:
        values = [r[1] for r in of]
        due = format_time(start + WINDOW_US)
        common = {"window_start": format_time(start), "window_end": due, "due_at": due}
        figures = {"count": len(values), "avg": fmean(values)}
        row = {"key": "building", "fields": {"temperature": figures}}
        end = {"label": label, "windows": 1, "keys": 1}
        return [
            self._record(label, epoch, at, **common, **row, missing=[*missing]),
            self._record("boundary", epoch, at, **common, **end, missing=[*missing]),
        ]

    def _record(self, kind: str, epoch: int, at: int, **members: Any) -> dict[str, Any]:
        self._seq += 1
        head = {"query": self._query, "part": 0, "seq": self._seq - 1, "kind": kind}
        return {**head, "epoch": epoch, **members, "emitted_at": format_time(at)}


def error_of(there: Sequence[SensorReading], due: int, bound_us: int) -> float | None:
    """Return the error of a window's first answer; None if it was exact."""
    in_time = [r[1] for r in there if r[3] <= due + bound_us]
    if len(in_time) == len(there):
        return None
    return fmean(in_time) - fmean(r[1] for r in there)
