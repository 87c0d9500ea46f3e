"""The control plane's protocol with a fixed set of seeds; ``make sim-iads`` runs any."""

from __future__ import annotations

import pytest
from tests.iads_simulator.__main__ import violation
from tests.iads_simulator.world import draw


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_every_property_holds(first: int) -> None:
    for seed in range(first, first + 10):
        for control in (False, True):
            found = violation(draw(seed, control=control))
            assert not found, f"python -m tests.iads_simulator --from {seed} --seeds 1: {found}"
