"""One seed: draw a plan, run it, end all faults, let it settle, check every guarantee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from traceback import format_exception

from tests.simulator.checkers import Violation, check
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import START_TIME_US, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.history import History
from tests.simulator.joined.world import JoinedWorld
from tests.simulator.plans import Plan, draw
from tests.simulator.world import World

PLACED_US = 8 * SECOND
"""Time until controllers that work have one view, and everything is placed and runs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a plan."""

    plan: Plan
    simulated_us: int
    events: int
    violation: Violation | None
    history: History

    def __str__(self) -> str:
        """Describe the violation, and the command that repeats it."""
        if self.violation is None:
            return f"seed {self.plan.seed}: ok"
        at = (self.violation.at - START_TIME_US) / SECOND
        return f"seed {self.plan.seed}: {self.violation} (at {at:.3f} s)\n{self.plan.command}"


def simulate(seed: int, *, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run one seed; ``faults`` replaces the faults that the seed would draw."""
    plan = draw(seed)
    return run(plan if faults is None else replace(plan, faults=tuple(faults)))


def run(plan: Plan) -> Outcome:
    """Run a plan and check its history."""
    world = world_of(plan)
    violation = None
    try:
        _live(world, plan)
        check(world.finish())
    except Violation as found:
        violation = found
    except Exception as error:  # noqa: BLE001 (a core that raises is what we are looking for)
        violation = Violation("no crash", world.scheduler.now, "".join(format_exception(error)))
    simulated = world.scheduler.now - START_TIME_US
    return Outcome(plan, simulated, world.scheduler.events, violation, world.history)


def check_plan(plan: Plan) -> None:
    """Run a plan, and raise the first violation of a guarantee."""
    outcome = run(plan)
    if outcome.violation is not None:
        raise outcome.violation


def world_of(plan: Plan) -> World:
    """Return the world of a plan: on machines, or under one supervisor."""
    machines = plan.config.machines
    if machines is None:
        return World(plan.seed, plan.config)
    end_us = _length_us(plan) + settle_us(plan.config)
    return JoinedWorld(plan.seed, plan.config, machines, end_us)


def _length_us(plan: Plan) -> int:
    return max([plan.length_us, *(f.at + f.for_us for f in plan.faults)])


def settle_us(config: WorldConfig) -> int:
    """Return the time until a run has recovered.

    A writer whose records a reader lacks may have to start twice: at first it finds its own log
    complete; after another report of the hole it sends the records again (rule-11).
    """
    lateness = max(query.lateness_us for query in config.queries)
    restarts = 2 * config.restart_us[1]
    placing = 0 if config.machines is None else PLACED_US
    own = 2 * config.bound_us + 2 * lateness + restarts + config.paced(4 * SECOND) + 400 * MS
    return placing + own


def _live(world: World, plan: Plan) -> None:
    world.start()
    for fault in plan.faults:
        world.scheduler.at(START_TIME_US + fault.at, partial(fault.strike, world))
    world.history.strikes = len(plan.faults)
    world.run(_length_us(plan))
    world.heal()
    world.run(settle_us(plan.config) + ahead_us(plan))


def ahead_us(plan: Plan) -> int:
    """Return the lead of the fastest clock: windows up to it may have been answered already."""
    ahead = Counter({name: max(skew, 0) for name, skew in plan.config.skew_us.items()})
    for fault in plan.faults:
        if fault.what == "step":
            ahead[fault.whom] += max(fault.by, 0)
    return max(ahead.values(), default=0)
