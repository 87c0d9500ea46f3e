"""Faults by chance: which, when and for how long, drawn from the seed before the run.

A plan is data, so that a failing one can be printed, shortened and repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.clock import ms, second

if TYPE_CHECKING:
    from tests.simulator.world import World


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; times in us from the world's start."""

    at: int
    what: str
    whom: str
    for_us: int = 0

    def __str__(self) -> str:
        """A line of a trace."""
        length = f" for {self.for_us / second:g} s" if self.for_us else ""
        return f"{self.at / second:9.3f} s  {self.what} {self.whom}{length}"

    def strike(self, world: World) -> None:
        """Let it happen."""
        match self.what:
            case "silence":
                world.silence(self.whom, self.for_us)
            case "kill":
                world.kill(self.whom)
            case "pause":
                world.pause(self.whom, self.for_us)
            case "replace":
                world.pause(self.whom, self.for_us, replaced=True)
            case "broker":
                world.broker_away(self.for_us)
            case "double":
                world.double(int(self.whom), self.for_us)
            case "deaf":
                orderer, stream = self.whom.split(" ")
                world.deafen(orderer, stream, self.for_us)
            case "damage":
                world.damage(self.whom)
            case "lose":
                world.lose(self.whom, self.for_us)
            case _:
                raise ValueError(self.what)


KINDS = {
    "silence": 6,
    "flap": 2,
    "kill": 8,
    "pause": 4,
    "replace": 4,
    "broker": 1,
    "double": 2,
    "deaf": 2,
    "damage": 1,
    "lose": 3,
}


def plan(rng: Random, world: World, until_us: int, count: int) -> list[Fault]:
    """``count`` faults before ``until_us``, in the order of time."""
    faults: list[Fault] = []
    streams, replicas = world.config.streams, world.config.replicas
    for _ in range(count):
        at = rng.randrange(second, until_us)
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        length = _length(rng)
        match kind:
            case "silence":
                faults.append(Fault(at, kind, rng.choice(streams), length))
            case "flap":
                stream = rng.choice(streams)
                for _ in range(rng.randint(2, 6)):
                    length = rng.randrange(100 * ms, 3 * second)
                    faults.append(Fault(at, "silence", stream, length))
                    at += length + rng.randrange(20 * ms, 600 * ms)
            case "kill" | "pause" | "replace":
                whom = rng.choice(world.names)
                faults.append(Fault(at, kind, whom, 0 if kind == "kill" else length))
            case "lose":
                whom = rng.choice([n for n in world.names if not n.startswith("root")])
                faults.append(Fault(at, kind, whom, rng.randrange(ms, 400 * ms)))
            case "broker":
                faults.append(Fault(at, kind, "", rng.randrange(100 * ms, 4 * second)))
            case "double":
                faults.append(Fault(at, kind, str(rng.randrange(replicas)), length))
            case "deaf":
                child = rng.randrange(len(world.config.children))
                name = world.orderer_name(child, rng.randrange(replicas))
                stream = rng.choice(world.config.children[child])
                faults.append(Fault(at, kind, f"{name} {stream}", length))
            case "damage":
                if replicas == 1:
                    continue  # nobody else has the record: an open question, see the decisions
                child = rng.randrange(len(world.config.children))
                log = world.ordered_log(child, rng.randrange(replicas), rng.randrange(2))
                faults.append(Fault(at, kind, log.name))
    return sorted(faults, key=lambda f: f.at)


def _length(rng: Random) -> int:
    """Short, about as long as the bound, or long."""
    return rng.choice(
        [
            rng.randrange(20 * ms, 500 * ms),
            rng.randrange(500 * ms, 3 * second),
            rng.randrange(3 * second, 12 * second),
        ]
    )
