"""Checks whether first answers came within their bound, allowing for outages.

The guarantee: while the broker and a copy of each stage are up, a window's first answer comes
within X of its normal time. A stage is up while one of its copies is. A killed process is up again
when it is processing again, a paused one when it is resumed. So the loss of one replica of two is
no outage, nor is a silent stream: an answer without that stream is due all the same.

If a window is due before the end of an outage, and its X had not expired when the outage began, it
has X from the end of the outage on. SLACK_US is added for every window, as processing takes time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from slackwater.judge.check import Checker, Disturbance
from slackwater.judge.latency import Latencies
from slackwater.model.deployment import BOUND_TOLERANCE_US

SLACK_US: Final = BOUND_TOLERANCE_US
WORST_MAX: Final = 50
"""Maximum late windows that are listed; all are counted."""

Span = tuple[int, int]
"""Start and end: wall time in us."""


@dataclass(frozen=True, slots=True)
class Late:
    """A window whose first answer was late; ``late`` and ``allowed`` are us after ``due``."""

    window_start: int
    due: int
    late: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdict on one query: late windows, the worst of them, and those excused by an outage.

    ``overdue``: spans in which a late answer was overdue. ``seen_late``: windows that were late
    only as measured by the judge's own reader.
    """

    late: int
    worst: tuple[Late, ...]
    excused: int
    overdue: tuple[Span, ...]
    seen_late: int = 0


def outages(disturbances: Iterable[Disturbance], stages: Iterable[Collection[str]]) -> list[Span]:
    """Return the spans in which some stage had no copy up, in order and disjoint.

    ``stages`` holds the names of the copies, one collection per stage; the broker is a stage.
    """
    down: dict[str, list[Span]] = {}
    for fault in disturbances:
        if not fault.silent:
            down.setdefault(fault.process, []).append((fault.start, fault.end))
    return merged(span for copies in stages for span in _all_down(copies, down))


def judge(checker: Checker, found: Latencies, down: Sequence[Span]) -> Judged:
    """Compare each answered window with its bound; unanswered windows are lost, not late."""
    expectations, due = checker.expectations, found.due
    late = np.nan_to_num(found.ms) * 1e3
    allowed = _allowed(due, expectations.bound, down) - due
    excess = np.flatnonzero(late > allowed)
    by_excess = excess[np.argsort(allowed[excess] - late[excess], kind="stable")]
    worst = tuple(
        Late(
            expectations.each.later(expectations.first, i),
            int(due[i]),
            round(late[i]),
            round(allowed[i]),
        )
        for i in map(int, by_excess[:WORST_MAX])
    )
    usual = expectations.bound + SLACK_US
    excused = int(np.sum((late > usual) & (late <= allowed)))
    overdue = merged(
        zip(
            due[excess].astype(int).tolist(), (due + late)[excess].astype(int).tolist(), strict=True
        )
    )
    return Judged(len(excess), worst, excused, tuple(overdue))


def _allowed(
    due: npt.NDArray[np.float64], bound: int, down: Sequence[Span]
) -> npt.NDArray[np.float64]:
    """Return the latest time for each window's first answer; an outage that meets it extends it."""
    limit = due + bound + SLACK_US
    for start, end in down:
        met = (due < end) & (limit > start)
        limit[met] = np.maximum(limit[met], end + bound + SLACK_US)
    return limit


def _all_down(copies: Collection[str], down: Mapping[str, Sequence[Span]]) -> list[Span]:
    """Return the spans in which none of the copies was up."""
    common: list[Span] | None = None
    for name in copies:
        mine = merged(down.get(name, ()))
        common = mine if common is None else _both(common, mine)
    return common or []


def _both(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return sorted((start, end) for start, end in pairs if start < end)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the same spans, in order and disjoint."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result
