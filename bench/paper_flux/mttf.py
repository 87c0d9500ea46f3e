"""Section 4.2: the time until a dataflow on N machines has lost both copies of a part.

Machines fail and are repaired independently of each other, after exponential times: F on average
until a failure, R until a repair, take-over and catch-up included. A *fatal pair* is two machines
that together hold all copies of some part. A dataflow is lost at the first moment at which both
machines of a fatal pair are down. A placement is therefore a graph of machines whose edges are the
fatal pairs.

The closed form, for N R << F: of a fatal pair, each machine fails at rate 1/F, and finds the other
one down during a share R/F of the time. The pair is lost at rate 2 R / F^2, and of E fatal pairs
the first one after F^2 / (2 E R).

====================  ============  ================  ==================
placement             fatal pairs   closed form       paper, section 4.2
====================  ============  ================  ==================
one copy              (machines)    F / N             -
disjoint pairs        N / 2         F^2 / (N R)       2 F^2 / (N R)
chained declustering  N             F^2 / (2 N R)     2 F^2 / (N R)
cluster pairs         N^2 / 4       2 F^2 / (N^2 R)   4 F^2 / (N^2 R)
====================  ============  ================  ==================

The paper takes F^2 / R for one pair, which counts only one order of the two failures, and has no
form of its own for the chain of its section 5.4. With cluster pairs one half of the machines holds
the first copies, the other half the second ones, and a half with a machine that is down is of no
use: each machine of one half is a fatal pair with each of the other one. Here a half is complete
again as soon as all of its machines are repaired, which is the best case for cluster pairs: the
paper allows the recovery of a half to take up to N R.

The simulation skips what decides nothing. Nearly always a machine fails alone and is repaired; the
number of such episodes until two machines are down at once is geometric, and the time they take is
a sum of exponential times. Both are drawn at once, which is exact. Rejected: events one by one
(F / R of them and more in each run), and importance sampling, whose weights would need a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_state import ControlState, NodeEntry, QueryEntry
from slackwater.control.placement import FragmentSpec, NodeReports, Standing, plan_moves
from slackwater.control.recorded import fragment_specs
from slackwater.deployment.parse import parse_deployment
from slackwater.protocols.iads.messages import Stamp

Pairs = npt.NDArray[np.bool_]
"""Shape (machines, machines), symmetric: whether two machines are a fatal pair."""
Times = npt.NDArray[np.float64]

STAMP: Final = Stamp(1, 1, "a")
SEED: Final = 2004
MACHINES: Final = (4, 8, 16, 32, 64)
RUNS: Final = 10_000
CHILDREN: Final = 4
STREAM: Final = (
    "  {name}: {{topic: {{name: in-{name}, format: json}}, key: {{field: k}},"
    " time: {{field: t, unit: us}}, fields: [v], sporadic: true}}\n"
)
QUERY: Final = (
    "apiVersion: slackwater/v1\nstreams:\n{streams}queries:\n"
    "  q: {{from: [{sources}], window: {{size: 1s}}, aggregate: [count], bound: 2s,"
    " copies: 2, parts: {parts}, children: {children}}}\n"
)


@dataclass(frozen=True, slots=True)
class Life:
    """Mean times of one machine, in one unit: until it fails (F), until it is repaired (R)."""

    mttf: float
    mttr: float


HOURLY: Final = Life(mttf=1.0, mttr=1 / 8_760)
"""A failure a year, repaired in an hour; in years."""


# Placements.


def disjoint_pairs(machines: int) -> Pairs:
    """Process pairs: machines 0 and 1, 2 and 3, and so on."""
    return _graph(machines, ((n, n + 1) for n in range(0, machines, 2)))


def cluster_pairs(machines: int) -> Pairs:
    """Whole-dataflow pairs: each machine of the first half with each of the second one."""
    half = machines // 2
    return _graph(machines, product(range(half), range(half, machines)))


def chain(machines: int) -> Pairs:
    """As the product's planner places the two copies of each of N parts on N empty nodes."""
    state = _cluster(machines, "any definition")
    specs = [FragmentSpec("q", f"root.{n}.{c}", f"root.{n}") for n in range(machines) for c in "ab"]
    return _planned(state, specs)


def full_query(machines: int) -> Pairs:
    """As the planner places all fragments of a query with N parts, two copies and four children.

    The replicas of a child are also a group, of which one has to be left. Proxies have one copy and
    start again elsewhere; they are loads, but no group.
    """
    names = [f"s{n}" for n in range(CHILDREN)]
    streams = "".join(STREAM.format(name=name) for name in names)
    text = QUERY.format(
        streams=streams, sources=", ".join(names), parts=machines, children=CHILDREN
    )
    deployment = parse_deployment(text, "the query").deployment
    state = _cluster(machines, to_text(AppliedQuery("q", deployment)))
    return _planned(state, list(fragment_specs(state)))


def n_pairs(fatal: Pairs) -> int:
    """The number of fatal pairs, E."""
    return int(fatal.sum()) // 2


def _cluster(machines: int, definition: str) -> ControlState:
    nodes = {f"n{n:03d}": NodeEntry(STAMP, room=10 * machines) for n in range(machines)}
    return ControlState({"q": QueryEntry(0, STAMP, "running", definition)}, nodes)


def _planned(state: ControlState, specs: Sequence[FragmentSpec]) -> Pairs:
    """The fatal pairs of a plan for empty nodes."""
    names = sorted(state.nodes)
    plan = plan_moves(state, specs, NodeReports(dict.fromkeys(names, Standing.STEADY)))
    assert not plan.unplaced, plan.unplaced
    at = {(move.query, move.fragment): names.index(move.node) for move in plan.moves}
    groups: dict[tuple[str, str], list[int]] = {}
    for spec in specs:
        groups.setdefault((spec.query, spec.group), []).append(at[spec.query, spec.fragment])
    return _graph(len(names), ((of[0], of[1]) for of in groups.values() if len(of) == 2))


def _graph(machines: int, pairs: Iterable[tuple[int, int]]) -> Pairs:
    fatal = np.zeros((machines, machines), dtype=np.bool_)
    for one, other in pairs:
        assert one != other, "two copies on one machine"
        fatal[one, other] = fatal[other, one] = True
    return fatal


# Simulation.


def times_to_loss(fatal: Pairs, life: Life, runs: int, rng: np.random.Generator) -> Times:
    """Simulated times, shape (runs,), until both machines of a fatal pair are down.

    All machines are up at first. Each turn of the loop is one event in every run that is left.
    """
    machines = len(fatal)
    assert fatal.any(), "without a fatal pair nothing is ever lost"
    times, running = np.zeros(runs), np.arange(runs)
    down = np.zeros((runs, machines), dtype=np.bool_)
    while running.size:
        n_down = down.sum(axis=1)
        is_idle = n_down == 0
        fail_rate, repair_rate = (machines - n_down) / life.mttf, n_down / life.mttr
        took = rng.exponential(1 / (fail_rate + repair_rate))
        fails = rng.random(running.size) * (fail_rate + repair_rate) < fail_rate
        # A run without a machine down continues at the first failure that finds another one down.
        took[is_idle] = _until_second(int(is_idle.sum()), machines, life, rng)
        down[is_idle, rng.integers(machines, size=int(is_idle.sum()))] = True
        fails |= is_idle
        # Of the machines that are up, if one fails, else of those that are down: any, alike.
        chance = 1.0 - rng.random(down.shape)
        which = np.argmax(chance * (down != fails[:, np.newaxis]), axis=1)
        is_lost = fails & (fatal[which] & down).any(axis=1)
        down[np.arange(running.size), which] = fails
        times[running] += took
        running, down = running[~is_lost], down[~is_lost]
    return times


def _until_second(count: int, machines: int, life: Life, rng: np.random.Generator) -> Times:
    """Times, shape (count,), from no machine down to the failure of one while another one is."""
    fail_rate, repair_rate = (machines - 1) / life.mttf, 1 / life.mttr
    episodes = rng.geometric(fail_rate / (fail_rate + repair_rate), count)
    all_up = rng.gamma(episodes, life.mttf / machines)
    one_down = rng.gamma(episodes, 1 / (fail_rate + repair_rate))
    return all_up + one_down


def times_to_first_failure(machines: int, life: Life, runs: int, rng: np.random.Generator) -> Times:
    """Simulated times, shape (runs,), until one machine is down: the loss of a single copy."""
    times: Times = rng.exponential(life.mttf, (runs, machines)).min(axis=1)
    return times


# Closed forms.


def first_order(fatal: Pairs, life: Life) -> float:
    """The mean time to loss for N R << F, of any placement."""
    return life.mttf**2 / (2 * n_pairs(fatal) * life.mttr)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to place copies. ``pairs`` is None for one copy.

    ``closed`` and ``paper`` give the mean time to loss for a number of machines; ``power`` is that
    of 1/N by which it falls.
    """

    title: str
    power: int
    pairs: Callable[[int], Pairs] | None
    form: str
    closed: Callable[[int, Life], float]
    paper_form: str = ""
    paper: Callable[[int, Life], float] | None = None

    def sample(self, machines: int, life: Life, runs: int, rng: np.random.Generator) -> Times:
        """Simulated times to loss, shape (runs,)."""
        if self.pairs is None:
            return times_to_first_failure(machines, life, runs, rng)
        return times_to_loss(self.pairs(machines), life, runs, rng)


def _paper_pairs(n: int, life: Life) -> float:
    return 2 * life.mttf**2 / (n * life.mttr)


SCHEMES: Final = {
    "single": Scheme("one copy", 1, None, "F / N", lambda n, life: life.mttf / n),
    "disjoint": Scheme(
        "disjoint pairs", 1, disjoint_pairs,
        "F² / (N R)", lambda n, life: life.mttf**2 / (n * life.mttr),
        "2 F² / (N R)", _paper_pairs,
    ),
    "chain": Scheme(
        "chain, by the planner", 1, chain,
        "F² / (2 N R)", lambda n, life: life.mttf**2 / (2 * n * life.mttr),
        "2 F² / (N R)", _paper_pairs,
    ),
    "query": Scheme(
        "full query, by the planner", 1, full_query,
        "F² / (2 E R)", lambda n, life: first_order(full_query(n), life),
        "2 F² / (N R)", _paper_pairs,
    ),
    "cluster": Scheme(
        "cluster pairs", 2, cluster_pairs,
        "2 F² / (N² R)", lambda n, life: 2 * life.mttf**2 / (n**2 * life.mttr),
        "4 F² / (N² R)", lambda n, life: 4 * life.mttf**2 / (n**2 * life.mttr),
    ),
}  # fmt: skip


def power_of(machines: Sequence[int], means: Sequence[float]) -> float:
    """The p of the best fit of mean ~ N^-p: least squares of the logarithms."""
    slope, _ = np.polyfit(np.log(machines), np.log(means), 1)
    return -float(slope)


def power_deviation(machines: Sequence[int], runs: int) -> float:
    """The standard deviation of ``power_of``.

    Times to loss are nearly exponential, so their mean over ``runs`` has a relative deviation of
    1 / sqrt(runs), and its logarithm has the same.
    """
    logs = np.log(machines)
    return float(1 / np.sqrt(runs * ((logs - logs.mean()) ** 2).sum()))


def run(*, quick: bool = False) -> dict[str, Any]:
    """Simulate all schemes; return their mean times (years), closed forms and powers."""
    machines, runs = (MACHINES[:3], 500) if quick else (MACHINES, RUNS)
    rng, schemes = np.random.default_rng(SEED), {}
    for name, scheme in SCHEMES.items():
        means = [float(scheme.sample(n, HOURLY, runs, rng).mean()) for n in machines]
        schemes[name] = {
            "pairs": [n_pairs(scheme.pairs(n)) if scheme.pairs else 0 for n in machines],
            "mean_years": means,
            "closed_years": [scheme.closed(n, HOURLY) for n in machines],
            "power": power_of(machines, means),
        }
    return {
        "machines": list(machines),
        "runs": runs,
        "seed": SEED,
        "mttf_years": HOURLY.mttf,
        "mttr_hours": HOURLY.mttr * 8_760,
        "power_deviation": power_deviation(machines, runs),
        "schemes": schemes,
    }
