"""Rate of false reports of a missing stream with `expect_every: auto`.

    python -m bench.false_alarms FILE.csv[.gz]:COLUMN[:KEY_COLUMN] ...

No process runs: readings are assumed to arrive at the time of their measurement, and the rules are
applied. A window's answer is tentative if no reading has passed its end by the orderer's deadline
(rule-15). That is a false alarm if the gap in which the window ends is at most 60 s: a silence that
`auto` may learn to wait for. In longer gaps the stream was really disconnected; windows that end in
them are counted as windows, but not as false alarms.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from slackwater.model.records import type_i64
from slackwater.primitives.lateness import LEARNING, Gaps, Lateness
from slackwater.proxy.expecting import AHEAD_US

S: Final = 1_000_000
BOUND_US: Final = 2 * S
MARGINS_US: Final = 100_000
"""Margins of both stages: the time before X at which an orderer needs the input."""


@dataclass(frozen=True, slots=True)
class Alarms:
    """Windows of a stream, those that were tentative without need, and the learned steps."""

    ends: type_i64
    away: npt.NDArray[np.bool_]
    """Windows that end in a gap above 60 s."""
    false: npt.NDArray[np.bool_]
    steps: tuple[tuple[int, int], ...]

    @property
    def share(self) -> float:
        """False alarms per window."""
        return float(self.false.mean()) if len(self.false) else 0.0


def learned(times: type_i64) -> Lateness:
    """Return the steps that a proxy records for these readings, with their event times."""
    gaps, steps, known = Gaps(), [], LEARNING.first_us
    between = np.diff(times)
    # Only a gap longer than the known value can change it, and the hundredth gap.
    looks = {LEARNING.gaps_min - 1, *np.flatnonzero(between > LEARNING.first_us).tolist()}
    before = 0
    for i in sorted(looks):
        gaps.add(between[before : i + 1])
        before = i + 1
        if gaps.expect_every_us > known:
            known = gaps.expect_every_us
            steps.append((int(times[min(i + 1, len(times) - 1)]) + AHEAD_US, known))
    return Lateness(LEARNING.first_us, steps)


def alarms(stimes: type_i64, slide_us: int, bound_us: int = BOUND_US) -> Alarms:
    """Judge the windows of one stream, in the order of its input."""
    times = np.unique(np.maximum.accumulate(stimes))
    lateness = learned(times)
    ends = np.arange(times[0] // slide_us + 1, times[-1] // slide_us + 1) * slide_us
    passed = np.searchsorted(times, ends)
    gaps = times[passed] - times[passed - 1]
    late = np.full(len(ends), LEARNING.first_us)
    for from_us, us in lateness.steps:
        late[ends >= from_us] = us
    tentative = times[passed] - ends > late + bound_us - MARGINS_US
    away = gaps > LEARNING.most_us
    return Alarms(ends, away, tentative & ~away, lateness.steps)


def of_any(streams: Sequence[Alarms]) -> tuple[int, int]:
    """Judge a query over all of them: its windows, and those that lack a connected stream."""
    windows = np.unique(np.concatenate([stream.ends for stream in streams]))
    false = np.unique(np.concatenate([stream.ends[stream.false] for stream in streams]))
    return len(windows), len(false)


def read(path: Path, column: str, key: str | None = None) -> dict[str, type_i64]:
    """Return the times of a file's readings, in us, by key."""
    table = csv.read_csv(path)
    times = table.column(column)
    if pa.types.is_timestamp(times.type):
        stimes = times.cast(pa.timestamp("us")).to_numpy().astype(np.int64)
    else:
        stimes = times.to_numpy().astype(np.int64) * 1_000  # epoch ms
    if key is None:
        return {path.name.partition(".")[0]: stimes}
    of = table.column(key).to_numpy(zero_copy_only=False)
    return {f"{key} {name}": stimes[of == name] for name in np.unique(of)}


def report(streams: dict[str, type_i64], slides_us: Iterable[int]) -> Iterable[str]:
    """Print a line for each stream and slide, and one for all streams of a file in one query."""
    for slide_us in slides_us:
        judged = {name: alarms(stimes, slide_us) for name, stimes in streams.items()}
        for name, found in judged.items():
            last = found.steps[-1][1] if found.steps else LEARNING.first_us
            yield (
                f"{name:40} {slide_us / S:5g} s {len(found.ends):9} {int(found.away.sum()):9}"
                f" {int(found.false.sum()):6}  {found.share:.5%}  {last / S:g} s"
            )
        if len(judged) > 1:
            windows, false = of_any(list(judged.values()))
            yield (
                f"{'one query over all':40} {slide_us / S:5g} s {windows:9} {'':9} {false:6}"
                f"  {false / windows:.5%}"
            )


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    sys.stdout.write(
        f"{'stream':40} {'slide':>7} {'windows':>9} {'away':>9} {'false':>6}  share  learned\n"
    )
    for argument in arguments:
        path, column, *key = argument.split(":")
        for line in report(read(Path(path), column, *key), (1 * S, 10 * S)):
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
