"""A failing seed is shrunk to a readable plan, which can be repeated from its text."""

from __future__ import annotations

import math
import shlex

import pytest
from tests.simulator.config import WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.mutants import MUTANTS
from tests.simulator.mutation import applied
from tests.simulator.plans import Plan, draw
from tests.simulator.run import run, simulate
from tests.simulator.shrink import shrink
from tests.simulator.trace import trace


@pytest.mark.drill
def test_a_forgotten_undo_needs_one_silence_of_one_source() -> None:
    mutant = next(m for m in MUTANTS if m.name == "the UNDO is omitted")
    with applied(mutant):
        # Starts at a seed that shrinks quickly; the search must not depend on the machine.
        failed = next(o for o in map(simulate, range(15, 35)) if o.violation is not None)
        small = shrink(failed, seconds_max=math.inf)
        assert small.violation is not None
        assert small.violation.guarantee == "order"
        assert len(small.plan.faults) <= 1
        config = small.plan.config
        assert (config.replicas, config.parts, config.children) == (1, 1, (config.streams,))
        assert len(config.streams) == 1

        page = trace(small)
        assert "tentative W[" in page
        assert "replaced without an UNDO" in page
        assert len(page.splitlines()) < 60

        arguments = shlex.split(page.splitlines()[-1])
        again = run(Plan.from_json(arguments[arguments.index("--plan") + 1]))
        assert str(again.violation) == str(small.violation)
    assert run(small.plan).violation is None, "the correct cores pass"


def test_a_plan_is_its_text() -> None:
    for seed in range(300):
        plan = draw(seed)
        assert Plan.from_json(plan.to_json()) == plan
        assert plan.command == f"python -m tests.simulator --seed {seed}"


def test_a_plan_of_defaults_is_short() -> None:
    plan = Plan(1, WorldConfig(), 0, (Fault(1_500_000, "kill", "root/q.0"),))
    assert plan.to_json() == (
        '{"seed": 1, "length_us": 0, "config": {}, "faults": ["at=1.5s kill root/q.0"]}'
    )


@pytest.mark.parametrize("text", ["", "kill root", "at=1s explode s1", "at=1s silence s1 for ever"])
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a fault"):
        Fault.parse(text)
