"""One seed: draw a deployment and its faults, run, heal, let it settle, check everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from traceback import format_exception

from tests.simulator.checkers import bounded, convergent, exact, honest, memory, order
from tests.simulator.checkers.answers import Violation
from tests.simulator.clock import ms, second
from tests.simulator.faults import Fault, plan
from tests.simulator.readings import Habits
from tests.simulator.world import E0_US, History, World, WorldConfig, spread

SETTLE_US = 12 * second
SLACK_US = 80 * ms
SKEW_US = 15 * ms
"""Clocks agree within the margin (R12)."""
GRACE_US = 3 * second


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed came to."""

    seed: int
    simulated_us: int
    events: int
    violation: Violation | None
    history: History
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        """A short trace, and how to see it again."""
        if self.violation is None:
            return f"seed {self.seed}: ok"
        at = (self.violation.at - E0_US) / second
        lines = [f"seed {self.seed}: {self.violation} (at {at:.3f} s)"]
        lines += [f"  {fault}" for fault in self.faults]
        lines.append("what happened to processes before:")
        lines += [
            f"  {(n.at - E0_US) / second:9.3f} s  {n.process} {n.what}"
            for n in self.history.notes
            if n.at <= self.violation.at and n.at > E0_US + second
        ][-20:]
        lines.append(f"again: make sim SEEDS=1 FROM={self.seed}")
        return "\n".join(lines)


def draw_config(rng: Random) -> WorldConfig:
    """A deployment: small, but of every shape."""
    streams = [f"s{i + 1}" for i in range(rng.randint(1, 3))]
    children = spread(streams, rng.randint(1, min(2, len(streams))))
    size = rng.choice([500 * ms, second, 2 * second])
    slide = rng.choice([size, size, size // 2, size * 3 // 10])
    expect = {}
    if rng.random() < 0.2:
        expect[rng.choice(streams)] = second
    disorder = rng.choice([0, 20 * ms, 150 * ms])
    return WorldConfig(
        children=children,
        replicas=rng.choice([1, 2, 2, 2, 3]),
        parts=rng.choice([1, 1, 2]),
        window_us=size,
        slide_us=slide,
        w_us=rng.choice([50 * ms, 100 * ms, 130 * ms]),
        bound_us=rng.choice([500 * ms, 1 * second, 2 * second]),
        disorder_us=disorder,
        expect_every_us=expect,
        habits=Habits(
            every_us=rng.choice([7 * ms, 40 * ms, 400 * ms]),
            jitter_us=disorder,
            keys=rng.randint(1, 3),
        ),
        record_readings_max=rng.choice([3, 10_000]),
        piece_bytes_max=rng.choice([100, 8 << 20]),
        ahead_buckets_max=rng.choice([30, 600]),
        backlog_records_max=rng.choice([15, 1000]),
        zombie_us=rng.choice([(0, 400 * ms), (3 * second, 8 * second)]),
        ahead_bytes_max=rng.choice([20_000, 256 << 20]),
    )


def simulate(
    seed: int, *, length_us: int = 20 * second, faults: Sequence[Fault] | None = None
) -> Outcome:
    """Run one seed; ``faults`` replaces those that the seed would draw."""
    rng = Random(f"plan/{seed}")
    world = World(seed, draw_config(rng))
    if rng.random() < 0.5:
        world.skew_us = {name: rng.randrange(-SKEW_US, SKEW_US) for name in world.names}
    count = rng.choice([1, 2, 4, 8])
    if faults is None:
        faults = plan(rng, world, length_us, count)
    violation = None
    try:
        _run(world, faults, length_us)
        check(world.finish())
    except Violation as found:
        violation = found
    except Exception as error:  # noqa: BLE001 (a core that raises is what we are looking for)
        violation = Violation("no crash", world.scheduler.now, "".join(format_exception(error)))
    simulated = world.scheduler.now - E0_US
    return Outcome(seed, simulated, world.scheduler.events, violation, world.history, tuple(faults))


def _run(world: World, faults: Sequence[Fault], length_us: int) -> None:
    world.start()
    for fault in faults:
        world.scheduler.at(E0_US + fault.at, partial(fault.strike, world))
    world.run(max([length_us, *(f.at + f.for_us for f in faults)]))
    world.heal()
    world.run(SETTLE_US)


def check(history: History) -> None:
    """All guarantees."""
    config = history.config
    settled_to = history.ended_at - config.bound_us - config.lateness_us - 2 * second
    order.check(history)
    exact.check(history, settled_to)
    honest.check(history)
    bounded.check(history, settled_to=settled_to, slack_us=SLACK_US, grace_us=GRACE_US)
    convergent.check(history)
    memory.check(history, orderer_bytes_max=4 << 20, root_slices_max=3_000)
