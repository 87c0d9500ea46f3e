"""The checkers can fail: every mutant is detected, and the correct cores pass."""

from __future__ import annotations

import pytest
from tests.iads_simulator.mutants import MUTANTS
from tests.simulator.mutation import NOTICED, Mutant, applied


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_mutant_is_caught(mutant: Mutant) -> None:
    with applied(mutant), pytest.raises(NOTICED):
        mutant.run()


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.arguments], ids=str)
def test_the_right_cores_pass_where_it_is_caught(mutant: Mutant) -> None:
    mutant.run()
