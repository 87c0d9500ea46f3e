"""Guarantee 4, convergent: after the last failure no tentative answer is left, REC_DONE says so."""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation, answers, name
from tests.simulator.world import History

from slackwater.protocols.dpc.answers import RecDone


def check(history: History) -> None:
    """Nothing unrevoked at the end, and one REC_DONE for each epoch but those that ran on."""
    config = history.config
    for part in range(config.parts):
        tentative: set[int] = set()
        stable: set[int] = set()
        for said in answers(history):
            if said.part == part:
                (stable if said.stable else tentative).add(said.window)
        left = tentative - stable
        if left:
            text = (
                f"part {part}: {len(left)} tentative answers are left, {name(history, min(left))}"
            )
            raise Violation("convergent", history.ended_at, text)
        done = [
            e.epoch
            for c in history.committed
            if c.part == part
            for e in c.transaction.effects
            if isinstance(e, RecDone)
        ]
        epochs = max(
            (c.transaction.after.epoch for c in history.committed if c.part == part), default=0
        )
        if done != list(range(1, epochs + 1)):
            raise Violation("convergent", history.ended_at, f"REC_DONE of {done}, epochs: {epochs}")
