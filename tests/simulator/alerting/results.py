"""Results of a query in three topics for each part, as its roots write them.

The transactions are planned by the product's ``AnswerPlanner``, so UNDO, epochs and ``seq`` are
those of a root. The rows are a model: values that a condition tells from each other, nulls, keys
without a row, and tentative values that differ from the exact ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
from tests.simulator.alerting.plans import AlertPlan, Outage

from slackwater.codec.results import (
    ResultHead,
    encode_boundary,
    encode_gap,
    encode_rec_done,
    encode_undo,
    format_time,
)
from slackwater.model.names import ResultKind
from slackwater.model.records import Gap
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.answers import (
    Answered,
    AnswerPlanner,
    EmptyRun,
    GapNote,
    Ready,
    RecDone,
    StableWindow,
    TentativeWindow,
    Transaction,
    Undo,
)

Row = tuple[str, float | None, float | None]
"""Key, average of t, maximum of h."""
Line = tuple[ResultKind, bytes]
QUERY = "q"
DUE_US = 100_000
NONE: tuple[Row, ...] = ()


@dataclass(slots=True)
class ResultTopics:
    """The logs of one query: by kind and part, the values by offset; None where none is visible."""

    logs: dict[tuple[ResultKind, int], list[bytes | None]] = field(default_factory=dict)
    begins: dict[tuple[ResultKind, int], int] = field(default_factory=dict)


def transactions(plan: AlertPlan, part: int) -> Iterator[tuple[int, list[Line]]]:
    """Yield the transactions of a part, each with the step in which it is committed."""
    of = Random(f"{plan.seed}/{part}")
    contents = _Contents(plan, part, of)
    grid = Grid(plan.window.slide_us, plan.window)
    planner = AnswerPlanner[Sequence[Row]](
        Answered.start(0), grid, lambda end: end + DUE_US, plan.corrections_max
    )
    step, exact_to = 0, 0
    while planner.state.stable_from < grid.later(0, plan.windows):
        outages = [each for each in plan.outages if each.first <= step <= each.last]
        if not outages:
            exact_to = _healed_to(plan, step, exact_to)
        else:
            exact_to = max(exact_to, min(each.first for each in outages))
        planned = planner.plan(
            contents.stable(planner.state.stable_from, exact_to),
            contents.tentative(planner.state.answered_to, step + 1, outages, exact_to),
        )
        if planned:
            yield step, [*_lines(planned, plan, part, step)]
            planner.committed(planned.after)
        step += 1


def _healed_to(plan: AlertPlan, step: int, exact_to: int) -> int:
    """Return up to where windows can be exact; after an outage some more in each step."""
    ended = [each for each in plan.outages if each.last < step]
    each_step = min((each.corrected_each for each in ended), default=plan.windows)
    return min(exact_to + each_step, step + 1, plan.windows)


class _Contents:
    """The rows of each window, exact and tentative, and which windows form runs."""

    def __init__(self, plan: AlertPlan, part: int, of: Random) -> None:
        self._plan = plan
        self._slide = plan.window.slide_us
        keys = [key for i, key in enumerate(plan.keys) if i % plan.parts == part]
        is_empty = [of.random() < 0.1 for _ in range(plan.windows)]
        for i in range(1, plan.windows):
            is_empty[i] = is_empty[i] or (is_empty[i - 1] and of.random() < 0.5)
        self._is_empty = is_empty
        self._exact = [NONE if empty else _rows(keys, of) for empty in is_empty]
        self._early = [
            NONE if e else _early(rows, of) for e, rows in zip(is_empty, self._exact, strict=True)
        ]
        self._gap = [of.random() < 0.05 for _ in range(plan.windows)]
        self._skips = [of.random() < 0.1 for _ in range(plan.windows)]

    def stable(self, start_us: int, to: int) -> Iterator[Ready[Sequence[Row]]]:
        i = start_us // self._slide
        while i < to:
            windows = self._run(i, to)
            rows, gap = self._exact[i], (Gap("s1", 3),) if self._gap[i] and windows == 1 else ()
            yield Ready(i * self._slide, rows, len(rows), windows, gap=gap)
            i += windows

    def tentative(
        self, start_us: int, to: int, outages: Sequence[Outage], exact_to: int
    ) -> Iterator[Ready[Sequence[Row]]]:
        i, to = start_us // self._slide, min(to, self._plan.windows)
        missing = tuple(sorted({each.stream for each in outages}))
        while i < to:
            if i < exact_to:
                return
            if self._skips[i] and to - i > 1:
                yield Ready(i * self._slide, None, 0, to - i, missing, skipped=True)
                return
            windows = self._run(i, to)
            rows = self._early[i]
            yield Ready(i * self._slide, rows, len(rows), windows, missing)
            i += windows

    def _run(self, i: int, to: int) -> int:
        windows = 1
        while self._is_empty[i] and i + windows < to and self._is_empty[i + windows]:
            windows += 1
        return windows


def _rows(keys: Sequence[str], of: Random) -> tuple[Row, ...]:
    there = [key for key in keys if of.random() < 0.85]
    return tuple((key, _value(of), of.choice((40.0, 60.0, None))) for key in there)


def _value(of: Random) -> float | None:
    return of.choice((20.0, 25.5, 27.0, 27.0, 30.0, None))


def _early(rows: Sequence[Row], of: Random) -> tuple[Row, ...]:
    """Return what a tentative answer has of these rows: some values differ, some are absent."""
    found = [(key, t if of.random() < 0.6 else _value(of), h) for key, t, h in rows]
    return tuple(row for row in found if of.random() < 0.9)


def _lines(
    planned: Transaction[Sequence[Row]], plan: AlertPlan, part: int, step: int
) -> Iterator[Line]:
    generation = int(plan.changed_at is not None and step >= plan.changed_at)
    head = ResultHead(QUERY, part, generation)
    emitted_at = step * plan.window.slide_us + DUE_US
    for effect in planned.effects:
        match effect:
            case StableWindow() | TentativeWindow():
                label: ResultKind = "stable" if effect.stable else "tentative"
                for i, row in enumerate(effect.content or ()):
                    yield label, _row(head, effect, i, row, plan, emitted_at)
                yield label, encode_boundary(head, effect, emitted_at)
            case EmptyRun():
                yield (
                    ("stable" if effect.stable else "tentative"),
                    encode_boundary(head, effect, emitted_at),
                )
            case Undo():
                yield "corrections", encode_undo(head, effect, emitted_at)
            case RecDone():
                yield "corrections", encode_rec_done(head, effect, emitted_at)
            case GapNote():
                yield "corrections", encode_gap(head, effect, emitted_at)


def _row(
    head: ResultHead,
    effect: StableWindow[Any] | TentativeWindow[Any],
    i: int,
    row: Row,
    plan: AlertPlan,
    emitted_at: int,
) -> bytes:
    key, t, h = row
    label = "stable" if effect.stable else "tentative"
    columns = {"t_avg": t, "h_max": h}
    of_window = {"t": {"count": 1, "avg": t}, "h": {"max": h}}
    members = {
        **head.of(effect, label, effect.first_seq + i),
        "window_start": format_time(effect.window_start),
        "window_end": format_time(effect.window_end),
        "key": key,
        "fields": of_window if plan.has_window else columns,
        "missing": list(effect.missing),
        "due_at": format_time(effect.window_end + DUE_US),
        "emitted_at": format_time(emitted_at),
    }
    if not plan.has_window:
        members["stime"] = format_time(effect.window_start + i)
    return orjson.dumps(members)
