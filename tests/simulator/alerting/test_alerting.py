"""Alerts under failures, corrections, generations, cuts and deaths of their evaluator."""

from __future__ import annotations

import os

import pytest
from tests.simulator.alerting.checkers import changes, check
from tests.simulator.alerting.plans import draw
from tests.simulator.alerting.world import AlertWorld

SEEDS = int(os.environ.get("ALERT_SEEDS", "150"))


def check_seeds(first: int, end: int) -> None:
    """Run these seeds; the error of the first one that fails names it."""
    for seed in range(first, end):
        try:
            check(AlertWorld(draw(seed)).run())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_alerts_are_those_of_the_results(first: int) -> None:
    check_seeds(first, first + 25)


def test_the_runs_have_what_they_are_for() -> None:
    """Deaths, tentative alerts that end either way, generations, cuts: not once in a lifetime."""
    seen = {"confirmed": 0, "withdrawn": 0, "ended": 0, "deaths": 0, "cut": 0, "changed": 0}
    for seed in range(100):
        history = AlertWorld(draw(seed)).run()
        for record in changes(history):
            if record.state in seen:
                seen[record.state] += 1
        seen["deaths"] += history.deaths
        seen["cut"] += any(history.deleted.values())
        seen["changed"] += any(
            b'"generation":1' in r for of in history.results.values() for r in of
        )
    assert min(seen.values()) >= 5, seen
