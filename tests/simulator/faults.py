"""Faults: their kinds, and plans of faults drawn from a seed.

A plan is data, so a failing one can be printed, shrunk and repeated. A fault has a readable form,
``at=1.2s silence s1 for 0.4s``; ``parse`` is the inverse of ``str``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulator.clock import MS, SECOND
from tests.simulator.config import WorldConfig

from slackwater.model.names import copy_names
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog

if TYPE_CHECKING:
    from tests.simulator.world import World


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; times in us from the run's start. ``by`` is its magnitude, if it has one."""

    at: int
    what: str
    whom: str = ""
    for_us: int = 0
    by: int = 0

    def __str__(self) -> str:
        """Return the form that ``parse`` reads."""
        words = [f"at={self.at / SECOND:.10g}s", self.what, *filter(None, [self.whom])]
        words += ["for", f"{self.for_us / SECOND:.10g}s"] if self.for_us else []
        words += ["by", f"{self.by}"] if self.by else []
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse the form of ``str``."""
        found = _FORM.fullmatch(text.strip())
        if found is None or found["what"] not in STRIKES:
            raise ValueError(f"not a fault: {text!r}")
        at, length = (round(float(found[name] or 0) * SECOND) for name in ("at", "for"))
        return cls(at, found["what"], found["whom"] or "", length, int(found["by"] or 0))

    def strike(self, world: World) -> None:
        """Inject the fault."""
        STRIKES[self.what](world, replace(self, whom=world.as_named_now(self.whom)))


_FORM: Final = re.compile(
    r"at=(?P<at>[\d.e+-]+)s (?P<what>\S+)(?: (?P<whom>(?:(?! for | by ).)+?))??"
    r"(?: for (?P<for>[\d.e+-]+)s)?(?: by (?P<by>-?\d+))?"
)

OF_MACHINES: Final = (
    "node-kill",
    "node-pause",
    "controller-kill",
    "controller-pause",
    "split",
    "drain",
    "move",
    "pause-query",
    "record-lost",
    "disk-lost",
    "apply",
    "delete",
    "delete-first",
)
"""Faults and operations of runs with machines."""
OF_TOPICS: Final = ("remake", "grow", "expire", "unclean")
"""What happens to the topic of a stream that reads one."""

STRIKES: Final[dict[str, Callable[[World, Fault], None]]] = {
    "silence": lambda world, f: world.silence(f.whom, f.for_us),
    "kill": lambda world, f: world.kill(f.whom),
    "pause": lambda world, f: world.pause(f.whom, f.for_us),
    "replace": lambda world, f: world.pause(f.whom, f.for_us, replaced=True),
    "stop": lambda world, f: world.stop(f.whom),
    "report": lambda world, f: world.report_dead(f.whom),
    "broker": lambda world, f: world.broker_away(f.for_us),
    "cut-off": lambda world, f: world.cut_off(f.whom, f.for_us),
    "double": lambda world, f: world.double(int(f.whom), f.for_us),
    "deaf": lambda world, f: world.deafen(f.whom.split()[0], f.whom.split()[1], f.for_us),
    "deaf-root": lambda world, f: world.deafen_root(*_deaf_root(f.whom), f.for_us),
    "damage": lambda world, f: world.damage(f.whom),
    "spoil": lambda world, f: world.spoil_panes(f.whom, f.by),
    "lose": lambda world, f: world.lose(f.whom, f.for_us),
    "overload": lambda world, f: world.overload(f.whom, f.for_us, f.by),
    "slow": lambda world, f: world.slow_down(f.whom, f.for_us, f.by),
    "full": lambda world, f: world.fill_disk(f.whom, f.for_us),
    "step": lambda world, f: world.step_clock(f.whom, f.by),
    "cut": lambda world, f: world.cut(f.whom, f.by),
    "device": lambda world, f: world.set_device(f.whom, f.for_us, f.by),
    "remake": lambda world, f: world.remake_topic(f.whom, f.for_us, f.by),
    "grow": lambda world, f: world.grow_topic(f.whom, f.by),
    "expire": lambda world, f: world.expire_topic(f.whom, f.by),
    "unclean": lambda world, f: world.truncate_topic(f.whom, f.for_us, f.by),
    "truncate": lambda world, _: world.truncate(),
    "unlink": lambda world, f: world.cut_link(f.for_us),
    "change": lambda world, _: world.change(),
    **dict.fromkeys(OF_MACHINES, lambda world, f: world.on_machines(f)),
}
"""To add a fault: add an act of the world, a line here, and a drawing in ``_Drawing``."""


def _deaf_root(whom: str) -> tuple[str, int, int]:
    root, _, of = whom.partition(" ")
    child, _, replica = of.partition(".")
    return root, int(child), int(replica)


WEIGHTS: Final = {
    "silence": 6,
    "flap": 3,
    "kill": 8,
    "pause": 4,
    "replace": 5,
    "broker": 1,
    "double": 2,
    "deaf": 2,
    "deaf_root": 1,
    "damage": 1,
    "lose": 3,
    "slow": 2,
    "full": 1,
    "step": 1,
    "cut": 1,
    "truncate": 2,
}


def plan(rng: Random, config: WorldConfig, until_us: int, count: int) -> tuple[Fault, ...]:
    """Draw ``count`` faults (a flapping source is several) before ``until_us``, ordered by time."""
    draw = _Drawing(rng, config)
    faults: list[Fault] = []
    for kind in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count):
        at = rng.randrange(config.bound_us // 2, until_us) // MS * MS
        faults += getattr(draw, kind, draw.other)(at, kind)
    return tuple(sorted(faults, key=lambda f: f.at))


def plan_chain(rng: Random, reader: WorldConfig, until_us: int) -> tuple[Fault, ...]:
    """Draw faults for a chain, including some that affect both queries together."""
    draw, reads = _Drawing(rng, reader), reader.reads
    assert reads is not None
    faults = [*plan(rng, reader, until_us, rng.choice([0, 1, 2, 4]))]
    at = rng.randrange(reader.bound_us, until_us) // MS * MS
    child = next(i for i, of in enumerate(reader.children) if reads.name in of)
    part = rng.randrange(reads.parts)
    silent = Fault(at, "silence", rng.choice(reads.streams), draw.between(1, 3))
    soon = at + draw.between(0, 1)
    match rng.choice(["", "", "stable topic", "own stream", "retention"]):
        case "stable topic":
            # Tentative rows arrive, but no stable rows before and after them.
            for name in (reader.orderer_name(child, r) for r in range(reader.replicas)):
                of = f"{name} {reads.name}/{part}"
                faults += [silent, Fault(soon, "deaf", of, draw.between(0.5, 3))]
        case "own stream" if reader.streams:
            # Both versions of a window are available while the reader waits for another input.
            faults += [silent, Fault(soon, "silence", reader.streams[0], draw.between(1, 3))]
        case "retention":
            # Answers given while the reader was down are deleted, perhaps from the middle of a
            # window.
            length = draw.between(1, 3)
            for r in range(reader.replicas):
                faults.append(Fault(at, "pause", reader.orderer_name(child, r), length))
            keep, topic = rng.randint(1, 12), f"sw.results.{reads.name}.stable:{part}"
            faults.append(Fault(at + length - 50 * MS, "cut", topic, 0, keep))
    return tuple(faults)


def plan_sharing(rng: Random, reader: WorldConfig, until_us: int) -> list[Fault]:
    """Draw faults for queries that share children, including some that affect only r's roots."""
    draw = _Drawing(rng, reader)
    faults = [*plan(rng, reader, until_us, rng.choice([0, 1, 2]))]
    at = rng.randrange(reader.bound_us, until_us) // MS * MS
    alone = ["kill", "pause", "replace", "overload", "behind", "lost", "lost", "unread"]
    match rng.choice(["", "damage", *alone]):
        case "kill" as kind:
            root = rng.choice(reader.root_names)
            faults += [Fault(at, kind, root), Fault(at + draw.between(0, 2), kind, root)]
        case "pause" | "replace" as kind:
            faults.append(Fault(at, kind, rng.choice(reader.root_names), draw.between(0.5, 4)))
        case "damage":
            faults += plan_damage(rng, reader, until_us)
        case "overload":
            faults += plan_overload(rng, reader, until_us)
        case "behind" | "lost" | "unread" as kind:
            faults += _reader_lacks(rng, reader, at, kind)
    return faults


def _reader_lacks(rng: Random, reader: WorldConfig, at: int, kind: str) -> list[Fault]:
    """The other query's root continues; what this one lacks must be kept, or sent again."""
    draw, part, child = _Drawing(rng, reader), rng.randrange(reader.parts), 0
    root, length = reader.root_names[part], draw.between(0.8, 4)
    logs = [DeltaLog(child, replica, LineName.STABLE) for replica in range(reader.replicas)]
    deltas = [f"sw.deltas.{reader.child_query}.{part}:{log.partition(len(logs))}" for log in logs]
    if kind == "behind":
        aggregator = Fault(at + length * 3 // 4, "kill", rng.choice(reader.aggregator_names))
        truncated = draw.truncate(at + length // 2, "truncate")
        return [Fault(at, "pause", root, length), *truncated, aggregator]
    if kind == "lost":
        away = Fault(at, rng.choice(["pause", "replace"]), root, length)
        return [away, *(Fault(at + length // 2, "damage", log) for log in deltas)]
    deaf = [Fault(at, "deaf-root", f"{root} {child}.{log.replica}", length) for log in logs]
    soon, keep = at + length - 10 * MS, rng.randint(1, 6)
    return [*deaf, *(Fault(soon, "cut", log, 0, keep) for log in deltas)]


def plan_copies(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw faults of the copies of a part: one, or both; planned ends, and reports of death.

    A report may be false.
    """
    draw, faults = _Drawing(rng, config), []
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(config.bound_us // 2, until_us) // MS * MS
        part = rng.randrange(config.parts)
        one, other = rng.sample([of.process for of in copy_names(config.name, part, 2)], 2)
        soon, at_once = at + draw.between(0, 1), at + draw.between(0, 0.02)
        kinds = [
            "kill",
            "reported",
            "stop",
            "stop",
            "report",
            "pause",
            "replace",
            "cut-off",
            "both",
        ]
        match rng.choice(kinds):
            case "both":
                faults += [Fault(at, rng.choice(["kill", "stop"]), one), Fault(soon, "kill", other)]
            case "reported":
                orderer = rng.choice([n for n in config.names if n.startswith("orderer")])
                whom = rng.choice([one, one, orderer])
                faults += [Fault(at, "kill", whom), Fault(at_once, "report", whom)]
            case "kill" | "stop" | "report" as what:
                faults.append(Fault(at, what, one))
            case what:
                faults.append(Fault(at, what, one, draw.between(0.1, 3)))
    return faults


def plan_heads(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw deaths of roots that have stored heads, truncation, and damage of what is stored."""
    faults = []
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(config.bound_us // 2, until_us) // MS * MS
        root = rng.choice(config.root_names)
        match rng.choice(["kill", "replace", "truncated", "spoilt"]):
            case "truncated":
                earlier = [Fault(max(at - since * MS, 0), "truncate") for since in (150, 20)]
                faults += [*earlier, Fault(at, "kill", root)]
            case "spoilt":
                part = rng.randrange(config.parts)
                log = f"sw.panes.{config.name}:{part}"
                faults += [Fault(at, "spoil", log, 0, rng.randint(1, 4)), Fault(at, "kill", root)]
            case what:
                length = rng.randint(50, 500) * MS if what == "replace" else 0
                faults.append(Fault(at, what, root, length))
    return faults


def plan_mergers(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw faults of mergers: of one copy, of all of them, and of what they write and read."""
    draw, faults = _Drawing(rng, config), []
    joins = config.sharing is not None and config.sharing.joins_us
    queries = [of for of in config.queries if of.merger_names and not (joins and of.name == "r")]
    names = [name for query in queries for name in query.merger_names]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(config.bound_us // 4, until_us) // MS * MS
        name = rng.choice(names)
        match rng.choice(["kill", "pause", "replace", "slow", "all", "cut", "truncated"]):
            case "all":
                faults += [Fault(at, "kill", each) for each in names]
            case "slow":
                faults.append(Fault(at, "slow", name, draw.between(0.2, 2), draw.between(0.1, 1)))
            case "cut":
                query = rng.choice(queries)
                child = rng.randrange(len(query.children))
                part = rng.randrange(query.parts)
                log = f"sw.merged.{query.name}.{part}:{child}"
                faults.append(Fault(at, "cut", log, 0, rng.randint(0, 3)))
            case "truncated":
                earlier = [Fault(max(at - since * MS, 0), "truncate") for since in (150, 20)]
                faults += [*earlier, Fault(at, "kill", name)]
            case what:
                length = 0 if what == "kill" else draw.between(0.1, 3)
                faults.append(Fault(at, what, name, length))
    return faults


OF_SITES: Final = frozenset(
    {"silence", "kill", "pause", "replace", "double", "deaf", "slow", "lose", "full", "step"}
    | {"broker", "truncate", "overload"}
)
"""Other faults that runs with sites have; records that are lost at a site are another matter."""


def plan_sites(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw cuts of the link, short and long or flapping, and faults of uplinks and mergers."""
    draw, faults = _Drawing(rng, config), []
    names = config.uplink_names
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(config.bound_us // 4, until_us) // MS * MS
        name = rng.choice(names)
        match rng.choice(["cut", "cut", "flap", "kill", "pause", "replace", "all", "site"]):
            case "cut":
                faults.append(Fault(at, "unlink", "", draw.between(0.1, 4)))
                soon = at + draw.between(0, 2)
                faults += [Fault(soon, "truncate"), Fault(soon + 150 * MS, "truncate")]
            case "flap":
                for _ in range(rng.randint(2, 6)):
                    length = draw.between(0.05, 1)
                    faults.append(Fault(at, "unlink", "", length))
                    at += length + draw.between(0.02, 0.5)
            case "all":
                faults += [Fault(at, "kill", each) for each in names]
            case "site":  # all of it restarts while it is cut off
                faults.append(Fault(at, "unlink", "", draw.between(1, 3)))
                here = [n for n in config.names if not n.startswith(("root/", "proxy/"))]
                faults += [Fault(at + draw.between(0, 1), "kill", each) for each in here]
            case what:
                length = 0 if what == "kill" else draw.between(0.1, 3)
                faults.append(Fault(at, what, name, length))
    return faults


def plan_overload(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw an overload of a root or an orderer, slight or severe."""
    draw, at = _Drawing(rng, config), rng.randrange(config.bound_us, until_us) // MS * MS
    if rng.randrange(3):
        name, unit_us = rng.choice(config.root_names), config.slide_us
    else:
        name, unit_us = rng.choice(config.orderer_names), config.w_us
    by = round(unit_us * rng.choice([0.3, 0.8, 1.5, 4]))
    return [Fault(at, "overload", name, draw.between(0.8, 6), by)]


def plan_damage(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw damage: records become undecodable bytes, most of them before a reader has read them."""
    draw, child = _Drawing(rng, config), rng.randrange(len(config.children))
    part = rng.randrange(config.parts)
    logs = [f"sw.source.{name}" for name in config.children[child] if name in config.streams]
    reader = config.orderer_name(child, rng.randrange(config.replicas))
    if not config.rows and (not logs or rng.randrange(2)):
        partitions = range(len(config.children) * 2 * config.replicas)
        logs = [f"sw.deltas.{config.child_query}.{part}:{partition}" for partition in partitions]
        reader = config.root_names[part]
    if not logs:
        return []
    at = rng.randrange(config.bound_us, until_us) // MS * MS
    faults = {
        "kill": [Fault(at, "kill", reader)],
        "pause": [Fault(at, "pause", reader, draw.between(0.1, 1.5))],
        "read": [],
    }[rng.choice(["kill", "kill", "pause", "read"])]
    for _ in range(rng.randint(1, 4)):
        soon = at + rng.randrange(100 * MS) // MS * MS
        faults.append(Fault(soon, "damage", rng.choice(logs)))
    return faults


def plan_devices(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw devices with wrong clocks: slightly, or by more than is accepted, ahead or behind."""
    draw, faults = _Drawing(rng, config), []
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(config.bound_us // 2, until_us) // MS * MS
        by = rng.choice([300 * MS, 7_200 * SECOND]) * rng.choice([1, 1, -1])
        stream = rng.choice(config.all_streams)
        faults.append(Fault(at, "device", stream, draw.between(0.1, 3), by))
    return faults


def plan_topics(rng: Random, config: WorldConfig, until_us: int) -> list[Fault]:
    """Draw changes of topics; retention deletes messages that a proxy has not read meanwhile.

    A proxy that is away or killed at that time finds the change at its start.
    """
    draw, faults = _Drawing(rng, config), []
    for _ in range(rng.randint(1, 3)):
        at, stream = rng.randrange(1, until_us) // MS * MS, rng.choice(list(config.topics))
        proxy, what = (
            f"proxy/{stream}",
            rng.choice(["remake", "remake", "grow", "grow", *OF_TOPICS]),
        )
        match what:
            case "remake":
                away_us = rng.choice([1 * MS, draw.between(0, 2)])
                faults.append(Fault(at, what, stream, away_us, rng.randint(1, 3)))
            case "grow":
                faults.append(Fault(at, what, stream, 0, rng.randint(1, 2)))
            case "unclean":
                faults.append(Fault(at, what, stream, draw.between(0.5, 2), rng.randint(1, 6)))
            case _:
                faults.append(Fault(at, what, stream, 0, rng.choice([0, 2, 20])))
        before = max(0, at - draw.between(0, 1))
        match rng.choice(["", "", "kill", "pause", "replace", "silence"]):
            case "kill":
                faults.append(Fault(before, "kill", proxy))
            case "silence":
                faults.append(Fault(before, "silence", stream, draw.between(0.1, 2)))
            case "pause" | "replace" as kind:
                faults.append(Fault(before, kind, proxy, draw.between(0.1, 2)))
    return faults


def plan_result_damage(rng: Random, reader: WorldConfig, until_us: int) -> list[Fault]:
    """Draw damage to results, and faults of the reading query's orderers."""
    reads = reader.reads
    assert reads is not None
    child = next(i for i, of in enumerate(reader.children) if reads.name in of)
    at, faults = rng.randrange(reader.bound_us, until_us) // MS * MS, []
    for replica in range(reader.replicas):
        name = reader.orderer_name(child, replica)
        match rng.choice(["kill", "pause", "read"]):
            case "kill":
                faults.append(Fault(at, "kill", name))
            case "pause":
                faults.append(Fault(at, "pause", name, rng.randrange(reader.bound_us) // MS * MS))
    for _ in range(rng.randint(1, 6)):
        kind = rng.choice(["stable", "stable", "tentative"])
        log = f"sw.results.{reads.name}.{kind}:{rng.randrange(reads.parts)}"
        faults.append(Fault(at + rng.randrange(reads.slide_us) // MS * MS, "damage", log))
    return faults


class _Drawing:
    """Draws lengths relative to the bound: shorter, about as long, or much longer."""

    def __init__(self, rng: Random, config: WorldConfig) -> None:
        self._rng, self._config = rng, config

    def silence(self, at: int, kind: str) -> list[Fault]:
        return [Fault(at, kind, self._stream(), self._length())]

    full = silence

    def flap(self, at: int, kind: str) -> list[Fault]:
        stream, bound, faults = self._stream(), self._config.bound_us, []
        for _ in range(self._rng.randint(2, 6)):
            length = self.between(0.05, 1.5)
            faults.append(Fault(at, "silence", stream, length))
            at += length + self._rng.randrange(10 * MS, bound // 3)
        return faults

    def kill(self, at: int, kind: str) -> list[Fault]:
        return [Fault(at, kind, self._rng.choice(self._config.names))]

    def other(self, at: int, kind: str) -> list[Fault]:
        """Draw pauses of every kind of process, with and without a successor."""
        return [Fault(at, kind, self._rng.choice(self._config.names), self._length())]

    def lose(self, at: int, kind: str) -> list[Fault]:
        writers = [n for n in self._config.names if not n.startswith("root")]
        return [Fault(at, kind, self._rng.choice(writers), self.between(0.01, 0.3))]

    def slow(self, at: int, kind: str) -> list[Fault]:
        writers = [n for n in self._config.names if not n.startswith("root")]
        late = self.between(0.05, 1.5)
        return [Fault(at, kind, self._rng.choice(writers), self._length(), late)]

    def broker(self, at: int, kind: str) -> list[Fault]:
        return [Fault(at, kind, "", self.between(0.1, 2.5))]

    def double(self, at: int, kind: str) -> list[Fault]:
        return [Fault(at, kind, str(self._rng.randrange(self._config.replicas)), self._length())]

    def deaf(self, at: int, kind: str) -> list[Fault]:
        child = self._rng.randrange(len(self._config.children))
        name = self._config.orderer_name(child, self._rng.randrange(self._config.replicas))
        log = self._rng.choice(self._config.logs_of(child))
        return [Fault(at, kind, f"{name} {log}", self._length())]

    def deaf_root(self, at: int, _: str) -> list[Fault]:
        child = self._rng.randrange(len(self._config.children))
        replica = self._rng.randrange(self._config.replicas)
        whom = f"{self._rng.choice(self._config.root_names)} {child}.{replica}"
        return [Fault(at, "deaf-root", whom, self._length())]

    def damage(self, at: int, kind: str) -> list[Fault]:
        child = self._rng.randrange(len(self._config.children))
        partition = self._rng.randrange(2 * self._config.replicas)
        return [Fault(at, kind, f"sw.ordered.{self._config.child_query}.{child}:{partition}")]

    def step(self, at: int, kind: str) -> list[Fault]:
        by = self._rng.choice([-1, 1]) * self._rng.choice([self.between(0.2, 3), 5 * SECOND])
        return [Fault(at, kind, self._rng.choice(self._config.names), 0, by)]

    def cut(self, at: int, kind: str) -> list[Fault]:
        log = self._rng.choice([f"sw.source.{self._stream()}", self._internal_log()])
        return [Fault(at, kind, log, 0, self._rng.randint(1, 12))]

    def truncate(self, at: int, kind: str) -> list[Fault]:
        again = at + self._rng.randrange(self._config.bound_us)
        return [Fault(at, kind), Fault(again // MS * MS, kind)]

    def _internal_log(self) -> str:
        config, rng = self._config, self._rng
        child, partitions = rng.randrange(len(config.children)), 2 * config.replicas
        if rng.random() < 0.5:
            return f"sw.ordered.{config.child_query}.{child}:{rng.randrange(partitions)}"
        if config.reads is not None and rng.random() < 0.5:
            kind, part = rng.choice(["stable", "tentative"]), rng.randrange(config.reads.parts)
            return f"sw.results.{config.reads.name}.{kind}:{part}"
        partition = rng.randrange(len(config.children) * partitions)
        return f"sw.deltas.{config.child_query}.{rng.randrange(config.parts)}:{partition}"

    def _stream(self) -> str:
        return self._rng.choice(self._config.sources)

    def _length(self) -> int:
        return self.between(*self._rng.choice([(0.05, 0.8), (0.8, 2.0), (2.0, 6.0)]))

    def between(self, low: float, high: float) -> int:
        bound = self._config.bound_us
        return self._rng.randrange(round(low * bound), round(high * bound)) // MS * MS + MS
