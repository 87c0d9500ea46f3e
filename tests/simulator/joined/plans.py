"""Plans of runs on machines: deployments, faults of machines, and operations, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Added, Machines, WorldConfig, spread
from tests.simulator.faults import Fault
from tests.simulator.plans import Plan, clamp, draw_config, draw_copies, draw_heads, draw_rows

STARTED_US: Final = 2 * SECOND
"""By then everything runs, if nothing fails."""
LENGTH_US: Final = 12 * SECOND
LENGTHS_US: Final = (300 * MS, 1_500 * MS, 3_000 * MS, 6_000 * MS)
"""Shorter than the time after which a silent node is suspected, about as long, and longer."""


def draw_machines(seed: int) -> Plan:
    """Draw the plan of a seed."""
    rng = Random(f"machines/{seed}")
    config = replace(clamp(draw_config(rng)), skew_us={}, zombie_us=(0, 100 * MS))
    machines = Machines(
        controllers=tuple("abc"[: rng.choice([1, 3, 3, 3])]),
        nodes=tuple(f"n{i + 1}" for i in range(rng.choice([2, 3, 3, 4]))),
        delay_us=rng.choice([200, 1 * MS, 10 * MS]),
        loss=rng.choice([0.0, 0.0, 0.02]),
    )
    config = replace(config, machines=machines)
    plan = draw_rows(Plan(seed, config, LENGTH_US, ()))
    faults = [
        fault for _ in range(rng.choice([1, 2, 3, 5])) for fault in _of_machines(rng, plan.config)
    ]
    faults += [_of_processes(rng, plan.config) for _ in range(rng.choice([0, 0, 1, 3]))]
    plan = draw_queries(replace(plan, faults=tuple(sorted(faults, key=lambda f: f.at))))
    return draw_heads(draw_copies(draw_lost(draw_joins(plan))))


def draw_queries(plan: Plan) -> Plan:
    """In two of three runs queries are applied, deleted or changed, often in a failure.

    Drawn last, from a separate generator, so that a seed's other draws do not change.
    """
    rng, config = Random(f"queries/{plan.seed}"), plan.config
    faults: list[Fault] = []
    if rng.randrange(2):
        config = replace(config, added=_added(rng, config))
        applied = rng.choice([SECOND, _moment(rng, plan)])
        faults.append(Fault(applied, "apply"))
        if rng.randrange(3):
            faults.append(Fault(applied + rng.randrange(500 * MS, 5 * SECOND) // MS * MS, "delete"))
        faults += [_of_added(rng, config, applied) for _ in range(rng.choice([0, 0, 1, 2]))]
    if rng.randrange(5) < 2:
        faults += [Fault(_moment(rng, plan), "change") for _ in range(rng.choice([1, 1, 2]))]
    if faults and rng.randrange(2):
        faults += _around(rng, config, rng.choice(faults).at)
    faults += plan.faults
    return replace(plan, config=config, faults=tuple(sorted(faults, key=lambda f: f.at)))


def draw_joins(plan: Plan) -> Plan:
    """In two of five runs with windows v joins q's children, if they are there when it is applied.

    In most of these logs have been truncated before, and q is deleted or changed while v goes on.
    Drawn after the other operations, from a separate generator.
    """
    rng, config = Random(f"joined/{plan.seed}"), plan.config
    if config.rows or rng.randrange(5) > 1:
        return plan
    slide = config.slide_us
    added = Added(
        children=config.children,
        replicas=config.replicas,
        parts=config.parts,
        window_us=config.window_us + rng.choice([0, 1, 2]) * slide,
        slide_us=slide,  # all its edges are then cut points of q's
        joins=True,
    )
    of_v = {"apply", "delete"}
    faults = [f for f in plan.faults if f.what not in of_v and "/v." not in f.whom]
    config = replace(config, added=added)
    applied = min(_moment(rng, plan), LENGTH_US - 5 * SECOND)
    faults.append(Fault(applied, "apply"))
    faults += [Fault(applied + n * SECOND, "truncate") for n in (-2, -1, 1, 2) if rng.randrange(2)]
    if rng.randrange(4) == 0:
        faults.append(Fault(applied + rng.randrange(1, 5) * SECOND, "delete"))
    if rng.randrange(2) and not any(f.what == "change" for f in faults):
        faults.append(Fault(applied + rng.randrange(500, 4_000) * MS, "delete-first"))
    of_added = [_of_added(rng, config, applied) for _ in range(rng.choice([0, 0, 1, 2]))]
    faults += [replace(f, whom=f.whom.replace("orderer/v.", "orderer/q.")) for f in of_added]
    if rng.randrange(3) == 0:
        of_queries = {"apply", "delete", "delete-first", "change"}
        around = rng.choice([f.at for f in faults if f.what in of_queries])
        faults += _around(rng, config, around)
    return replace(plan, config=config, faults=tuple(sorted(faults, key=lambda f: f.at)))


def draw_lost(plan: Plan) -> Plan:
    """In a third of the runs controllers lose their disks, all of them or one, if it can be drawn.

    Not within a second of an operation, which no node may have received, and not during another
    fault of machines: some node has the record, and reaches the controllers. Drawn last.
    """
    rng, machines = Random(f"lost/{plan.seed}"), plan.config.machines
    assert machines is not None
    for_us = rng.choice([50 * MS, 500 * MS, 1_500 * MS])
    calm = {"kill", "pause", "silence", "truncate"}
    others = [fault for fault in plan.faults if fault.what not in calm]
    drawn = [rng.randrange(STARTED_US, LENGTH_US - 3 * SECOND) // MS * MS for _ in range(20)]
    moments = [
        at
        for at in drawn
        if all(
            at + for_us < other.at - SECOND or other.at + other.for_us + 2 * SECOND < at
            for other in others
        )
    ]
    if rng.randrange(3) or not moments:
        return plan
    at = moments[0]
    lost = Fault(at, "record-lost", "", for_us)
    if rng.randrange(3) == 0:
        lost = Fault(at, "disk-lost", rng.choice(machines.controllers), for_us)
    faults = (*plan.faults, lost)
    return replace(plan, faults=tuple(sorted(faults, key=lambda f: f.at)))


def _added(rng: Random, config: WorldConfig) -> Added:
    streams = rng.sample(config.streams, rng.randint(1, len(config.streams)))
    size = rng.choice([200, 300, 400]) * MS
    return Added(
        children=spread(sorted(streams), rng.randint(1, min(2, len(streams)))),
        replicas=rng.choice([1, 2]),
        parts=rng.choice([1, 1, 2]),
        window_us=size,
        slide_us=rng.choice([size, size, size // 2]),
        rows=rng.randrange(6) == 0,
    )


def _moment(rng: Random, plan: Plan) -> int:
    """Return a time at which a query is applied or changed: during a fault, or at any time."""
    at = rng.randrange(STARTED_US, LENGTH_US - 4 * SECOND) // MS * MS
    if plan.faults and rng.randrange(2):
        fault = rng.choice(plan.faults)
        at = fault.at + rng.randrange(-SECOND // 2, fault.for_us + SECOND) // MS * MS
    return min(at, LENGTH_US - 3 * SECOND)


def _of_added(rng: Random, config: WorldConfig, applied: int) -> Fault:
    """Draw a fault of what the added query runs, or a move."""
    added, machines = config.reader, config.machines
    assert added is not None
    assert machines is not None
    at = applied + rng.randrange(4 * SECOND) // MS * MS
    fragment = rng.choice([*added.orderer_names, *added.root_names])
    match rng.choice(["kill", "pause", "move"]):
        case "move" as kind:
            return Fault(at, kind, f"{fragment} {rng.choice(machines.nodes)}")
        case "pause" as kind:
            return Fault(at, kind, fragment, rng.randrange(50 * MS, 3 * config.bound_us) // MS * MS)
        case kind:
            return Fault(at, kind, fragment)


def _around(rng: Random, config: WorldConfig, at: int) -> list[Fault]:
    """Draw a split or an absence of Kafka, or both, in which an operation is requested."""
    machines = config.machines
    assert machines is not None
    faults: list[Fault] = []
    kinds = rng.choice([("split",), ("broker",), ("split", "broker")])
    for kind in kinds:
        begin = max(SECOND, at - rng.randrange(2 * SECOND) // MS * MS)
        half = ""
        if kind == "split":
            some = rng.sample(machines.nodes, rng.randint(1, len(machines.nodes) - 1))
            with_them = rng.sample(machines.controllers, rng.randint(0, len(machines.controllers)))
            half = " ".join(sorted([*some, *with_them]))
        faults.append(Fault(begin, kind, half, rng.choice(LENGTHS_US) + rng.randrange(100) * MS))
    return faults


def _of_machines(rng: Random, config: WorldConfig) -> list[Fault]:
    machines = config.machines
    assert machines is not None
    at = rng.randrange(STARTED_US, LENGTH_US - 4 * SECOND) // MS * MS
    for_us = rng.choice(LENGTHS_US) + rng.randrange(100) * MS
    node, controller = rng.choice(machines.nodes), rng.choice(machines.controllers)
    kinds = ["node-kill", "node-pause", "controller-kill", "controller-pause"]
    kinds += ["split", "split", "split", "drain", "move", "pause-query"]
    match rng.choice(kinds):
        case "split":
            # One half has these controllers and nodes, or a node is cut off from all controllers.
            some = rng.sample(machines.nodes, rng.randint(1, len(machines.nodes) - 1))
            with_them = rng.sample(machines.controllers, rng.randint(0, len(machines.controllers)))
            found = [Fault(at, "split", " ".join(sorted([*some, *with_them])), for_us)]
            if rng.randrange(4) == 0:  # Kafka is away at the same time
                found.append(Fault(at + rng.randrange(SECOND) // MS * MS, "broker", "", for_us))
            return found
        case "node-kill" | "node-pause" | "drain" as kind:
            return [Fault(at, kind, node, for_us)]
        case "controller-kill" | "controller-pause" as kind:
            return [Fault(at, kind, controller, for_us)]
        case "move":
            fragment = rng.choice([*config.orderer_names, *config.root_names])
            return [Fault(at, "move", f"{fragment} {node}")]
        case kind:
            return [Fault(at, kind, "", for_us)]


def _of_processes(rng: Random, config: WorldConfig) -> Fault:
    """Faults as in a run without machines."""
    at = rng.randrange(STARTED_US, LENGTH_US) // MS * MS
    for_us = rng.randrange(50 * MS, 3 * config.bound_us) // MS * MS
    process = rng.choice([*config.orderer_names, *config.root_names])
    match rng.choice(["silence", "kill", "pause", "broker", "truncate"]):
        case "silence" as kind:
            return Fault(at, kind, rng.choice(config.streams), for_us)
        case "kill" as kind:
            return Fault(at, kind, process)
        case "pause" as kind:
            return Fault(at, kind, process, for_us)
        case "broker" as kind:
            return Fault(at, kind, "", for_us)
        case kind:
            return Fault(at, kind)
