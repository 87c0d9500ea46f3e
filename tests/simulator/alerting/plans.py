"""What a seed determines: a query, its rules, failures, and when the evaluator dies."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import WindowSpec

SECOND_US = 1_000_000
CONDITIONS = ("t_avg > 26", "t_avg <= 26", "t_avg > 26 AND h_max < 50", "key <> 'b' AND t_avg > 25")
STREAMS = ("s1", "s2")


@dataclass(frozen=True, slots=True)
class Outage:
    """A stream is missing from window ``first`` on; ``last`` is the last one that lacks it."""

    stream: str
    first: int
    last: int
    corrected_each: int
    """Windows corrected in each later step."""


@dataclass(frozen=True, slots=True)
class AlertPlan:
    """One run. Rates are probabilities of a step of the evaluator."""

    seed: int
    windows: int
    window: WindowSpec
    has_window: bool
    parts: int
    keys: tuple[str, ...]
    rules: tuple[AlertSpec, ...]
    outages: tuple[Outage, ...]
    corrections_max: int
    changed_at: int | None
    """The window from which on the results are of generation 1."""
    cut_at: int | None
    """The step in which retention deletes what is there; the evaluator is dead then."""
    deaths: float
    zombies: float
    joins_later: float
    """How often a log is read by the host already when the evaluator starts."""


def draw(seed: int) -> AlertPlan:
    """Draw a plan."""
    of = Random(seed)
    windows = of.randint(8, 40)
    slide = of.choice((1, 2)) * SECOND_US
    has_window = of.random() < 0.8
    size = slide * of.choice((1, 1, 3)) if has_window else slide
    return AlertPlan(
        seed,
        windows,
        WindowSpec(size, slide),
        has_window,
        parts=of.choice((1, 1, 2)),
        keys=tuple("abcdef"[: of.randint(1, 6)]),
        rules=_rules(of),
        outages=_outages(of, windows),
        corrections_max=of.choice((1, 2, 5, 100)),
        changed_at=of.randrange(windows) if of.random() < 0.3 else None,
        cut_at=of.randrange(5, 60) if of.random() < 0.15 else None,
        deaths=of.choice((0.0, 0.02, 0.1, 0.3)),
        zombies=of.choice((0.0, 0.5)),
        joins_later=of.choice((0.0, 0.4)),
    )


def _rules(of: Random) -> tuple[AlertSpec, ...]:
    rows = [
        AlertSpec(
            f"rule-{i}",
            when=of.choice(CONDITIONS),
            windows=of.choice((1, 1, 2, 3)),
            tentative=of.choice(("wait", "act", "act")),
        )
        for i in range(of.randint(1, 3))
    ]
    missing_us = of.choice((1, 3, 6)) * SECOND_US
    return (*rows, AlertSpec("silent", stream=of.choice(STREAMS), missing_us=missing_us))


def _outages(of: Random, windows: int) -> tuple[Outage, ...]:
    found: list[Outage] = []
    at = of.randrange(8)
    while at < windows:
        last = at + of.choice((0, 1, 2, 5, 12))
        found.append(Outage(of.choice(STREAMS), at, last, of.choice((1, 2, 4, 50))))
        at = last + of.randint(1, 10)
    return tuple(found)
