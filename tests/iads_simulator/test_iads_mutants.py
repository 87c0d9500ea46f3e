"""The checkers can fail: every mutant is detected, and the correct cores pass."""

from __future__ import annotations

import pytest
from tests.iads_simulator.mutants import MUTANTS
from tests.simulator.mutation import NOTICED, Mutant, applied

RUNS = {(m.scenario, m.arguments): m for m in reversed(MUTANTS) if m.arguments}
"""A mutant for each run that detects any: without a fault, one run is as another."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_mutant_is_caught(mutant: Mutant) -> None:
    with applied(mutant), pytest.raises(NOTICED):
        mutant.run()


@pytest.mark.parametrize("mutant", RUNS.values(), ids=str)
def test_the_right_cores_pass_where_it_is_caught(mutant: Mutant) -> None:
    mutant.run()
