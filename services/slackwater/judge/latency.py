"""When windows got their first answers: as a reader saw them, and as every reader could have.

An answer is given when it can be read: when the broker has committed its transaction. How long a
client then takes to fetch it is the client's own affair; a rehearsal reads on the machine that it
loads, where its reader waits for a core like everything else. So a latency is what this reader saw,
and a verdict on the bound counts from the commit. Nobody sees an answer before that: what was seen
in time was in time, and commits need be asked for only where something was seen too late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackwater.judge.check import AnsweredRun, Checker, Disturbance
from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.logs.transport import LogError, Marker, Transport

LatencyFigures = dict[str, float | int | None]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of first answers, in ms after the normal time, one a window; NaN where nobody answered.

    ``due``: the normal times, as wall time in us. ``touched``: a fault met the time from the
    window's normal time to its stable answer. Which are too late is ``judge.bound``'s question.
    """

    ms: npt.NDArray[np.float64]
    due: npt.NDArray[np.float64]
    touched: npt.NDArray[np.bool_]

    def figures(self) -> dict[str, LatencyFigures]:
        """The percentiles of the report."""
        there = ~np.isnan(self.ms)
        return {
            "all": percentiles(self.ms[there]),
            "clean": percentiles(self.ms[there & ~self.touched]),
            "touched": percentiles(self.ms[there & self.touched]),
        }


class Commits:
    """When the answers of a query could be read: the markers of its results' transactions.

    A log of results has one writer at a time, so the first marker behind a record that was read is
    that of its transaction.
    """

    def __init__(self, markers: Mapping[tuple[str, int], Sequence[Marker]]) -> None:
        self._markers = markers

    def at(self, part: int, answer: AnsweredRun) -> int:
        """Wall time in us; where the log does not hold it any more, when the answer was seen."""
        found = self._markers.get((answer.label, part), ())
        if answer.offset is None:
            return answer.seen
        index = bisect_right(found, answer.offset, key=lambda marker: marker.offset)
        return min(answer.seen, found[index].at_ms * 1000) if index < len(found) else answer.seen


NO_COMMITS = Commits({})
"""An answer counts from when it was seen."""


def read_commits(transport: Transport, query: str, parts: int) -> Commits:
    """Of a query whose answers have all been given; asks the broker."""
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
    """Latency of the first answer of each window that the history answers."""
    expectations = checker.expectations
    n = expectations.windows
    first = _given(checker, n, commits)
    stable = _given(checker, n, commits, stable_only=True)
    ends = (
        expectations.first + np.arange(n, dtype=np.float64) * expectations.slide + expectations.size
    )
    due = expectations.dues(ends)
    touched = np.zeros(n, dtype=bool)
    for fault in faults:
        during = (due >= fault.start) & (due <= fault.end)
        touched |= during | (
            (due <= fault.end) & (np.nan_to_num(stable, nan=np.inf) >= fault.start)
        )
    return Latencies((first - due) / 1e3, due, touched)


def _given(
    checker: Checker, n: int, commits: Commits, *, stable_only: bool = False
) -> npt.NDArray[np.float64]:
    """When each window's (stable or first) answer was complete: given by the last part."""
    expectations = checker.expectations
    result = np.full(n, -np.inf)
    for part in checker.parts:
        mine = np.full(n, np.nan)
        for answer in part.answers:
            if answer.label == "stable" or not stable_only:
                low = (answer.start - expectations.first) // expectations.slide
                high = (answer.end - expectations.first) // expectations.slide
                view = mine[max(0, low) : max(0, high)]
                view[np.isnan(view)] = commits.at(part.part, answer)
        result = np.maximum(result, mine)  # NaN, not answered, wins
    return result


def percentiles(ms: npt.NDArray[np.float64]) -> LatencyFigures:
    """n, p50, p95, p99 and max; null where there is nothing to measure."""
    if not len(ms):
        return {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}
    p50, p95, p99 = (round(float(v), 3) for v in np.percentile(ms, [50, 95, 99]))
    return {"n": len(ms), "p50": p50, "p95": p95, "p99": p99, "max": round(float(ms.max()), 3)}
