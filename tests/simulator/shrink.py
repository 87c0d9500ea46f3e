"""Shrinking: reduces a failing plan to the smallest one that violates the same guarantee.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input"): first
faults are removed, in halves and then one by one; then the deployment is simplified, one property
at a time, and the remaining faults are shortened. A step is kept if the plan fails in the same way;
the seed is unchanged, so random values change as little as possible. When the time limit is
reached, the smallest plan so far is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from tests.simulator.clock import MS, SECOND
from tests.simulator.config import START_TIME_US, WorldConfig
from tests.simulator.faults import OF_MACHINES, OF_TOPICS, Fault
from tests.simulator.plans import Plan, by_log
from tests.simulator.run import Outcome, run

DEFAULTS: Final = WorldConfig()


def shrink(failed: Outcome, *, seconds_max: float = 60.0) -> Outcome:
    """Return the smallest failing outcome found within the time limit."""
    assert failed.violation is not None
    until = monotonic() + seconds_max
    best, guarantee = failed, failed.violation.guarantee
    while True:
        for candidate in smaller(best):
            if monotonic() > until:
                return best
            outcome = run(candidate)
            if outcome.violation is not None and outcome.violation.guarantee == guarantee:
                best = outcome
                break  # start again from here
        else:
            return best


def smaller(outcome: Outcome) -> Iterator[Plan]:
    """Yield plans simpler than this one, the largest reductions first."""
    plan = outcome.plan
    yield from _without_faults(plan)
    yield from _shorter_life(outcome)
    for simplify in SIMPLER:
        config = simplify(plan.config)
        if config != plan.config:
            faults = tuple(fault for fault in plan.faults if _fits(fault, config))
            yield replace(plan, config=config, faults=faults)
    yield from _shorter_faults(plan)


def _without_faults(plan: Plan) -> Iterator[Plan]:
    faults, size = plan.faults, len(plan.faults)
    while size > 0:
        for start in range(0, len(faults), size):
            yield replace(plan, faults=faults[:start] + faults[start + size :])
        size = size // 2


def _shorter_life(outcome: Outcome) -> Iterator[Plan]:
    assert outcome.violation is not None
    plan, broken_us = outcome.plan, outcome.violation.at - START_TIME_US
    sharing = plan.config.sharing
    least = 0 if sharing is None else sharing.joins_us
    for length in (0, broken_us, plan.length_us // 2):
        if least <= length <= plan.length_us - 200 * MS:
            yield replace(plan, length_us=length // MS * MS)


def _shorter_faults(plan: Plan) -> Iterator[Plan]:
    for i, fault in enumerate(plan.faults):
        shorter = [replace(fault, for_us=fault.for_us // 2 // MS * MS)] * (fault.for_us > 60 * MS)
        rounded = replace(
            fault,
            at=round(fault.at, -5) or fault.at,
            for_us=round(fault.for_us, -5) or fault.for_us,
        )
        earlier = [replace(fault, at=SECOND)] * (fault.at > SECOND + 100 * MS)
        for other in (*shorter, *earlier, rounded):
            if other != fault:
                faults = (*plan.faults[:i], other, *plan.faults[i + 1 :])
                yield replace(plan, faults=tuple(sorted(faults, key=lambda f: f.at)))


def _fits(fault: Fault, config: WorldConfig) -> bool:
    """Return whether the target of the fault exists in the configuration."""
    whom, queries = fault.whom, config.queries
    match fault.what:
        case "silence" | "full" | "device":
            return whom in config.all_streams
        case "cut":
            kind, _, rest = whom.removeprefix("sw.").partition(".")
            return kind != "source" or rest in config.all_streams
        case "double":
            return f"aggregator/{whom}" in config.names
        case "deaf":
            name, log = whom.split()
            logs = [config.logs_of(c) for config in queries for c in range(len(config.children))]
            return name in config.names and any(log in of for of in logs)
        case "spoil":
            query, _, part = whom.removeprefix("sw.panes.").partition(":")
            return any(query == of.name and int(part) < of.parts for of in queries)
        case "damage" if whom.startswith("sw.source."):
            return whom.removeprefix("sw.source.") in config.all_streams
        case "damage":
            _, kind, query, at, partition = whom.replace(":", ".").split(".")
            if kind == "results":
                return config.chain is not None and int(partition) < config.parts
            for of in queries:
                ordered, children = 2 * of.replicas, len(of.children)
                if query == of.name and kind == "ordered":
                    return int(at) < children and int(partition) < ordered
                if query == of.name:
                    return int(at) < of.parts and int(partition) < children * ordered
            return False
        case "deaf-root":
            root, child, replica = whom.replace(" ", ".").rsplit(".", 2)
            return any(
                root in of.root_names
                and int(child) < len(of.children)
                and int(replica) < of.replicas
                for of in queries
            )
        case "unlink":
            return config.sites
        case "broker" | "truncate" | "change":
            return True
        case "apply" | "delete" | "delete-first":
            return config.added is not None
        case "move":
            return whom.split()[0] in config.names
        case what if what in OF_TOPICS:
            return whom in config.topics
        case what if what in OF_MACHINES:
            return config.machines is not None
        case _:
            return whom in config.names


# Simplifications of a deployment, one property each.


def _by_stream(config: WorldConfig) -> WorldConfig:
    """Return the deployment with one child, if its children are groups of logs."""
    return replace(config, by_log=False, children=(config.inputs,)) if config.by_log else config


SIMPLER: Final[list[Callable[[WorldConfig], WorldConfig]]] = [
    _by_stream,
    lambda c: by_log(c, len(c.children) // 2) if c.by_log and len(c.children) > 3 else c,
    lambda c: replace(_by_stream(c), topics={}),
    lambda c: replace(_by_stream(c), topics=dict.fromkeys(c.topics, 1)),
    lambda c: replace(_by_stream(c), topics=dict([*c.topics.items()][:1])),
    lambda c: replace(c, sites=False),
    lambda c: replace(c, chain=None),
    lambda c: replace(c, sharing=None),
    lambda c: _shared(c, joins_us=0),
    lambda c: replace(c, added=None),
    lambda c: _shared(c, slide_us=c.sharing.window_us) if c.sharing else c,
    lambda c: _shared(c, window_us=2 * c.window_us, slide_us=2 * c.window_us),
    lambda c: replace(c, join_us=0),
    lambda c: replace(c, rows=False, window_us=200 * MS, slide_us=200 * MS) if c.rows else c,
    lambda c: _chained(c, rows=False),
    lambda c: _chained(c, replicas=1),
    lambda c: _chained(c, parts=1),
    lambda c: _chained(c, children=(("q",),)),
    lambda c: _chained(c, window_us=c.window_us, slide_us=c.slide_us),
    lambda c: replace(c, replicas=1, skew_us=_known(c, replicas=1)),
    lambda c: replace(c, replicas=min(c.replicas, 2), skew_us=_known(c, replicas=2)),
    lambda c: c if c.by_log else replace(c, children=(c.streams,)),
    lambda c: c if c.by_log else replace(c, children=c.children[:1]),
    lambda c: c if c.by_log else replace(c, children=tuple(child[:1] for child in c.children)),
    lambda c: c if c.by_log else replace(c, children=tuple(child[:2] for child in c.children)),
    lambda c: replace(c, parts=1),
    lambda c: replace(c, policy=DEFAULTS.policy),
    lambda c: replace(c, skew_us={}),
    lambda c: replace(c, learns={}),
    lambda c: replace(c, learns={}, expect_every_us={}),
    lambda c: replace(c, disorder_more_us={}),
    lambda c: replace(
        c, disorder_more_us={s: us // 2 // MS * MS for s, us in c.disorder_more_us.items()}
    ),
    lambda c: replace(c, slide_us=c.window_us),
    lambda c: replace(c, habits=replace(c.habits, late_every=0, late_us=0)),
    lambda c: replace(c, disorder_us=0, habits=replace(c.habits, jitter_us=0)),
    lambda c: replace(c, habits=replace(c.habits, keys=1)),
    lambda c: replace(c, habits=replace(c.habits, every_us=max(c.habits.every_us, 150 * MS))),
    lambda c: replace(c, w_us=100 * MS, window_us=200 * MS, slide_us=200 * MS),
    lambda c: replace(c, record_readings_max=DEFAULTS.record_readings_max),
    lambda c: replace(c, piece_bytes_max=DEFAULTS.piece_bytes_max),
    lambda c: replace(c, ahead_buckets_max=DEFAULTS.ahead_buckets_max),
    lambda c: replace(c, ahead_bytes_max=DEFAULTS.ahead_bytes_max),
    lambda c: replace(c, backlog_records_max=DEFAULTS.backlog_records_max),
    lambda c: replace(c, zombie_us=(0, 100 * MS)),
    lambda c: replace(c, restart_us=(50 * MS, 250 * MS)),
]


def _chained(config: WorldConfig, **plainer: Any) -> WorldConfig:
    return (
        config if config.chain is None else replace(config, chain=replace(config.chain, **plainer))
    )


def _shared(config: WorldConfig, **plainer: int) -> WorldConfig:
    sharing = config.sharing
    return config if sharing is None else replace(config, sharing=replace(sharing, **plainer))


def _known(config: WorldConfig, replicas: int) -> dict[str, int]:
    names = set(replace(config, replicas=min(replicas, config.replicas)).names)
    return {name: skew for name, skew in config.skew_us.items() if name in names}
