"""Latency of first answers: as observed by the reader, and as available to any reader.

An answer is available when the broker has committed its transaction. The time a client then takes
to fetch it is outside the guarantee; a rehearsal's reader competes for CPU with the processes under
load. So a reported latency is what this reader observed, and a verdict on the bound counts from the
commit. No reader sees an answer earlier, so an answer observed in time was in time, and commit
times are needed only for answers that were observed late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackwater.judge.calendars import JudgedWindows
from slackwater.judge.check import AnsweredRun, Checker, Disturbance
from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.logs.transport import LogError, Marker, Transport

LatencyFigures = dict[str, float | int | None]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of first answers in ms after the normal time, one per window; NaN if unanswered.

    ``due``: the normal times as wall time in us. ``touched``: whether a fault overlaps the time
    from the window's normal time to its stable answer. ``judge.bound`` decides which are late.
    """

    ms: npt.NDArray[np.float64]
    due: npt.NDArray[np.float64]
    touched: npt.NDArray[np.bool_]

    def figures(self) -> dict[str, LatencyFigures]:
        """Return the percentiles for the report."""
        there = ~np.isnan(self.ms)
        return {
            "all": percentiles(self.ms[there]),
            "clean": percentiles(self.ms[there & ~self.touched]),
            "touched": percentiles(self.ms[there & self.touched]),
        }


class Commits:
    """Commit times of a query's answers: the markers of its result transactions.

    A result log has one writer at a time, so the first marker after a record is that of the
    record's transaction.
    """

    def __init__(self, markers: Mapping[tuple[str, int], Sequence[Marker]]) -> None:
        self._markers = markers

    def at(self, part: int, answer: AnsweredRun) -> int:
        """Return the commit time in us, or the time of reading if the log no longer holds it."""
        found = self._markers.get((answer.label, part), ())
        if answer.offset is None:
            return answer.seen
        index = bisect_right(found, answer.offset, key=lambda marker: marker.offset)
        return min(answer.seen, found[index].at_ms * 1000) if index < len(found) else answer.seen


NO_COMMITS = Commits({})
"""No commit times: an answer counts from when it was read."""


def read_commits(transport: Transport, query: str, parts: int) -> Commits:
    """Read the commit times of a query from the broker, after all its answers."""
    try:
        return Commits(
            {
                (label, part): transport.markers((transport.names.results(query, label), part))
                for label in ("stable", "tentative")
                for part in range(parts)
            }
        )
    except LogError as error:
        raise EnvironmentProblem(f"the commits of {query} cannot be read: {error}") from error


def latencies(
    checker: Checker, faults: Sequence[Disturbance], commits: Commits = NO_COMMITS
) -> Latencies:
    """Compute the latency of the first answer of each window in the history."""
    expectations = checker.expectations
    n = expectations.windows
    first = _given(checker, n, commits)
    stable = _given(checker, n, commits, stable_only=True)
    ends = np.array(_ends(expectations.each, expectations.first, n), np.float64)
    due = expectations.dues(ends)
    touched = np.zeros(n, dtype=bool)
    for fault in faults:
        during = (due >= fault.start) & (due <= fault.end)
        touched |= during | (
            (due <= fault.end) & (np.nan_to_num(stable, nan=np.inf) >= fault.start)
        )
    return Latencies((first - due) / 1e3, due, touched)


def _ends(each: JudgedWindows, first: int, windows: int) -> list[int]:
    """Return the ends of the windows from ``first`` on."""
    ends, start = [], first
    for _ in range(windows):
        ends.append(each.end(start))
        start = each.later(start, 1)
    return ends


def _given(
    checker: Checker, n: int, commits: Commits, *, stable_only: bool = False
) -> npt.NDArray[np.float64]:
    """Return when each window's (stable or first) answer was complete: given by the last part."""
    expectations = checker.expectations
    result = np.full(n, -np.inf)
    for part in checker.parts:
        mine = np.full(n, np.nan)
        for answer in part.answers:
            if answer.label == "stable" or not stable_only:
                low = expectations.each.between(expectations.first, answer.start)
                high = expectations.each.between(expectations.first, answer.end)
                view = mine[max(0, low) : max(0, high)]
                view[np.isnan(view)] = commits.at(part.part, answer)
        result = np.maximum(result, mine)  # NaN (unanswered) propagates
    return result


def percentiles(ms: npt.NDArray[np.float64]) -> LatencyFigures:
    """Return n, p50, p95, p99 and max; null without data."""
    if not len(ms):
        return {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}
    p50, p95, p99 = (round(float(v), 3) for v in np.percentile(ms, [50, 95, 99]))
    return {"n": len(ms), "p50": p50, "p95": p95, "p99": p99, "max": round(float(ms.max()), 3)}
