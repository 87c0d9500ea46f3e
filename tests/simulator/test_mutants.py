"""The checkers can fail: every mutant is detected by the scenario of its trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulator.mutants import MUTANTS
from tests.simulator.mutation import NOTICED, Mutant, applied


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_mutant_is_caught(mutant: Mutant) -> None:
    with applied(mutant), pytest.raises(NOTICED):
        mutant.run()


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.scenario], ids=str)
def test_the_right_cores_pass_where_it_is_caught(mutant: Mutant) -> None:
    mutant.run()


def test_the_page_has_their_number() -> None:
    page = Path(__file__).with_name("README.md").read_text()
    assert f"There are {len(MUTANTS)} mutants" in page
