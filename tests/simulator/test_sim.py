"""The whole system under a fixed set of seeds. More of them: ``make sim SEEDS=1000``."""

from __future__ import annotations

import pytest
from tests.simulator.run import simulate

SEEDS = range(16)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_guarantee_holds(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.violation is None, str(outcome)


def test_a_seed_is_a_run() -> None:
    first, again = (simulate(7) for _ in range(2))
    assert first.events == again.events
    assert [c.at for c in first.history.committed] == [c.at for c in again.history.committed]
