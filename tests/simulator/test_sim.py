"""The whole system with a fixed set of seeds; `make drills` runs a thousand, `make sim` any."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.simulator.run import simulate

SEEDS = range(16)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_guarantee_holds(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.violation is None, str(outcome)


def test_a_seed_is_a_run() -> None:
    first, again = (simulate(7) for _ in range(2))
    assert first.events == again.events
    assert [c.at for c in first.history.committed] == [c.at for c in again.history.committed]


@pytest.mark.drill
@pytest.mark.timeout(7200)
def test_every_guarantee_holds_under_a_thousand_seeds() -> None:
    command = [sys.executable, "-m", "tests.simulator", "--seeds", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
