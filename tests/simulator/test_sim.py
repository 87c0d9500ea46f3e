"""The whole system with a fixed set of seeds; `make drills` runs a thousand, `make sim` any."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.simulator.config import WorldConfig
from tests.simulator.joined.plans import draw_machines
from tests.simulator.plans import Plan
from tests.simulator.run import run, simulate
from tests.simulator.world import World

SEEDS = range(6)
FOUND_ON_MACHINES = (40019, 40159, 41060)
"""Seeds that have found a mistake: two changes of a query in a row; a query is deleted in one half
of a split network only; a client asks the halves for different generations."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_guarantee_holds(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.violation is None, str(outcome)


@pytest.mark.parametrize("seed", [*range(2), *FOUND_ON_MACHINES])
def test_every_guarantee_holds_on_machines(seed: int) -> None:
    outcome = run(draw_machines(seed))
    assert outcome.violation is None, str(outcome)


def test_a_plan_with_machines_can_be_written_and_read() -> None:
    plan = draw_machines(3)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_seed_is_a_run() -> None:
    first, again = (simulate(5) for _ in range(2))
    assert first.events == again.events
    assert [c.at for c in first.history.committed] == [c.at for c in again.history.committed]


def test_a_delay_lasts_until_the_last_delayed_record_arrives() -> None:
    """1. Delays of 0.2 s from 0 s to 0.5 s. 2. Delays of 0.4 s from 0.6 s to 1.6 s."""
    world = World(1, WorldConfig())
    world.start()
    (name, *_) = (name for name in world.config.names if name.startswith("proxy/"))
    begun = world.scheduler.now
    world.slow_down(name, 500_000, 200_000)
    world.run(600_000)
    world.slow_down(name, 1_000_000, 400_000)
    world.run(3_000_000)
    (outage,) = (each for each in world.history.outages if name in each.what)
    assert (outage.start - begun, outage.end - begun) == (0, 2_000_000)


@pytest.mark.drill
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("options", [[], ["--machines"]])
def test_every_guarantee_holds_under_a_thousand_seeds(options: list[str]) -> None:
    command = [sys.executable, "-m", "tests.simulator", "--seeds", "1000", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
