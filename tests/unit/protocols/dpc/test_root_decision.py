"""A root's decision changes nothing until it is applied: a repeated decision is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.paper.stage import MS, Orderer, Root, Settings, Source, labels

from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.common.line import Policy
from slackwater.protocols.dpc.soutput.answers import TentativeWindow
from slackwater.protocols.dpc.soutput.decision import Decision

FIGURES = Settings(bound_ms=600, margin_ms=50, bucket_ms=50, window_ms=200, slide_ms=100)
ROWS = Settings(bound_ms=600, margin_ms=50, bucket_ms=20, rows=True, empty_wait_ms=100)
CUT_MS, HEALED_MS, END_MS, TICK_MS = 400, 1_600, 2_200, 20

ASKED_EVERY = 5
"""Checked steps: comparing the complete state takes longer than a step."""


def picture(of: Any, seen: dict[int, tuple[int, object]] | None = None) -> Any:
    """Return a value that is equal if, and only if, all objects reachable from ``of`` are equal."""
    seen = {} if seen is None else seen
    if of is None or isinstance(of, str | bytes | int | float):
        return of
    if isinstance(of, np.ndarray):
        return of.dtype.str, of.shape, of.tobytes()
    if isinstance(of, KeyTable):
        return len(of)  # a cache of key orders, which is not state
    if callable(of) and not hasattr(of, "__dict__"):
        return id(of)
    if id(of) in seen:
        return "again", seen[id(of)][0]
    seen[id(of)] = len(seen), of  # kept alive: another object may get the id of a deleted one
    inside = partial(picture, seen=seen)
    if isinstance(of, dict):
        return [(inside(key), inside(value)) for key, value in of.items()]
    if isinstance(of, set | frozenset):
        return sorted(map(repr, of))
    if isinstance(of, Iterable) and not hasattr(of, "__dict__"):
        return type(of).__name__, [inside(each) for each in of]
    return type(of).__name__, [(name, inside(value)) for name, value in fields_of(of)]


def fields_of(of: object) -> list[tuple[str, Any]]:
    """Return its attributes, with slots and without."""
    slots = [name for cls in type(of).__mro__ for name in getattr(cls, "__slots__", ())]
    found = [(name, getattr(of, name)) for name in slots if hasattr(of, name)]
    return found + sorted(vars(of).items()) if hasattr(of, "__dict__") else found


@dataclass
class CountedInputs:
    """A root over two children that decides twice before each step."""

    settings: Settings
    absent_ms: range = range(0)
    quiet: bool = False
    asked: int = 0
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sources = [Source("s1"), Source("s2")]
        self.orderers = [
            Orderer([source], self.settings, child=child, replica=replica, replicas=2)
            for child, source in enumerate(self.sources)
            for replica in range(2)
        ]
        self.root = Root(self.orderers, self.settings)
        self._step = self.root.core.step
        self.root.core.step = self.asked_twice  # type: ignore[method-assign]

    def asked_twice(self, now: int) -> Any:
        """A step, preceded by an additional decision."""
        core = self.root.core
        core._look(now)
        assert core.suppress_tentative in (True, False)  # it drops records that were read
        self.asked += 1
        if self.asked % ASKED_EVERY:
            return self._step(now)
        before = picture(core)
        first, second = core.decide(now), core.decide(now)
        is_as_it_was, is_the_same = picture(core) == before, picture(first) == picture(second)
        assert is_as_it_was, f"a decision at {now} changed its root"
        assert is_the_same, f"asked twice at {now}, it decided differently"
        self.decisions.append(first)
        return self._step(now)

    def run(self) -> None:
        """Run; one source is silent for some time, and the root may be down too."""
        for now in range(TICK_MS, END_MS, TICK_MS):
            for source in self.sources:
                speaks = not self.quiet or now % 500 == 0
                source.emit([now - 5] if speaks else [], now)
            if now == CUT_MS:
                self.sources[0].disconnect()
            if now == HEALED_MS:
                self.sources[0].reconnect()
            for orderer in self.orderers:
                orderer.listen()
                orderer.step(now)
                config, line = orderer.config, orderer.core.line
                self.root.core.update_replica(config.child, config.replica, line.state, now * MS)
            if now not in self.absent_ms:
                self.root.listen()
                self.root.step(now)


WORLDS: dict[str, Callable[[], CountedInputs]] = {
    "figures": partial(CountedInputs, FIGURES),
    "suspended": partial(CountedInputs, replace(FIGURES, policy=Policy("delay", "suspend"))),
    "rows": partial(CountedInputs, ROWS),
    "rows, hardly any": partial(CountedInputs, ROWS, quiet=True),
    "overdue": partial(CountedInputs, replace(FIGURES, slide_ms=50), absent_ms=range(600, 1_500)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_to_decide_changes_nothing_and_does_not_depend_on_how_often(name: str) -> None:
    world = WORLDS[name]()
    world.run()
    emitted = labels(world.root.emitted)
    assert "stable" in emitted
    assert "tentative" in emitted
    assert any(decision.transaction for decision in world.decisions)


def test_what_was_tried_for_an_answer_that_waits_is_dropped() -> None:
    """Windows without rows are due, and wait: the line does not move, and later input counts."""
    world = CountedInputs(ROWS, quiet=True)
    world.run()
    held = [d for d in world.decisions if not d.transaction and d.wake_at is not None]
    assert held
    assert not any(d.busy for d in held), "it would check again at once"
    reported = [one.effect for one in world.root.emitted if isinstance(one.effect, TentativeWindow)]
    assert any(window.rows for window in reported), "input after waiting empty windows"
