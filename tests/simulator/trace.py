"""Readable trace of a failing run.

Deployment, faults, events in order, the command to repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from tests.simulator.checkers.answers import name
from tests.simulator.clock import SECOND
from tests.simulator.config import START_TIME_US, WorldConfig
from tests.simulator.history import Committed, History
from tests.simulator.run import Outcome

from slackwater.protocols.dpc.soutput.answers import EmptyRun, GapNote, RecDone, StableWindow, Undo

LINES_MAX = 60


class _Line(NamedTuple):
    at: int
    who: str
    what: str


def trace(outcome: Outcome) -> str:
    """Return at most a page; the last lines before the violation take precedence."""
    violation, plan = outcome.violation, outcome.plan
    assert violation is not None
    lines = [f"seed {plan.seed} breaks: {violation}", "", "deployment:"]
    lines += [f"  {line}" for line in _deployment(plan.config)]
    lines += ["faults:", *(f"  {fault}" for fault in plan.faults or ["none"])]
    happened = list(_timeline(outcome.history, violation.at))
    left_out = len(happened) - LINES_MAX
    lines += ["what happened:"]
    lines += [f"  ({left_out} lines before)"] if left_out > 0 else []
    lines += [
        f"  {(line.at - START_TIME_US) / SECOND:8.3f} s  {line.who:14}  {line.what}"
        for line in happened[-LINES_MAX:]
    ]
    lines += [f"  {(violation.at - START_TIME_US) / SECOND:8.3f} s  {'CHECKER':14}  {violation}"]
    return "\n".join([*lines, "", "again:", f"  {plan.command}"])


def _deployment(config: WorldConfig) -> Iterator[str]:
    """Describe its shape, then its unusual properties."""
    default = WorldConfig()
    children = " | ".join(" ".join(child) for child in config.children)
    yield f"streams {children}; {config.replicas} replicas, {config.parts} parts"
    yield (
        f"windows {config.window_us / SECOND:g} s every {config.slide_us / SECOND:g} s, "
        f"w {config.w_us / SECOND:g} s, X {config.bound_us / SECOND:g} s, "
        f"m {config.margin_us / SECOND:g} s"
    )
    reported = {"children", "replicas", "parts", "window_us", "slide_us", "w_us", "bound_us"}
    for field in fields(WorldConfig):
        value = getattr(config, field.name)
        if field.name not in (*reported, "margin_us") and value != getattr(default, field.name):
            yield f"{field.name} {value}"


def _timeline(history: History, until: int) -> Iterator[_Line]:
    lines = [_Line(*note) for note in (*history.notes, *history.reported_states)]
    of: History | None = history
    while of is not None:
        for committed in of.committed:
            who = f"root/{of.config.name}.{committed.part}"
            lines += [_Line(committed.at, who, what) for what in _answers(of, committed)]
        of = of.of_reader
    last: _Line | None = None
    for line in sorted(lines, key=lambda line: line.at):
        if line.at > until:
            break
        if last is not None and (last.who, line.who) == (line.who, last.who):
            joined = _join(last.what, line.what)
            if joined is not None:
                last = last._replace(what=joined)
                continue
        if last is not None:
            yield last
        last = line
    if last is not None:
        yield last


def _join(before: str, now: str) -> str | None:
    """Join consecutive stable answers into one line."""
    if before.startswith("stable") and now.startswith("stable"):
        first, _, _ = before.partition(" to ")
        return f"{first} to W{now.rpartition('W')[2]}"
    return None


def _answers(history: History, committed: Committed) -> Iterator[str]:
    for effect in committed.transaction.effects:
        yield _answer(history, effect)


def _answer(history: History, effect: Any) -> str:
    match effect:
        case Undo():
            first, last = (name(history, w) for w in (effect.undo_from, effect.undo_to))
            return f"UNDO {first} to {last} (epoch {effect.epoch})"
        case RecDone():
            return f"REC_DONE {effect.epoch}"
        case GapNote():
            lost = ", ".join(f"{gap.lost} of {gap.stream}" for gap in effect.gap)
            return f"gap: {name(history, effect.window_start)} lost {lost}"
        case EmptyRun():
            label = "stable" if effect.stable else "tentative"
            lacks = f" without {' '.join(effect.missing)}" if effect.missing else ""
            what = "skipped" if effect.skipped else "empty"
            return f"{label} {what} x{effect.windows}{lacks} {name(history, effect.window_start)}"
        case StableWindow():
            return f"stable {name(history, effect.window_start)}"
        case _:
            lacks = " ".join(effect.missing) or "nothing"
            return f"tentative {name(history, effect.window_start)} without {lacks}"
