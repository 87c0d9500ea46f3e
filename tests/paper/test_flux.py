"""Flux, section by section: process pairs of partitions.

The paper is Shah, Hellerstein, Brewer, *Highly Available, Fault-Tolerant, Parallel Dataflows*. Each
test names the section on which it is based, and has three parts: set-up, events, expectations.
``docs/protocols/flux.md`` has the mechanisms, and where the product differs on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from random import Random

import numpy as np
import pytest
from bench.paper_flux import mttf
from bench.paper_flux.mttf import Life
from hypothesis import given
from hypothesis import strategies as st
from tests.scenarios.test_r61_state_is_moved import head_of, root, story_of_heads
from tests.scenarios.test_r62_deltas_are_kept_for_two_heads import truncated
from tests.simulator.readings import Habits
from tests.simulator.story import Story
from tests.unit.control.test_placement import Cluster

from slackwater.client.window_order import WindowOrder
from slackwater.codec.results import format_time
from slackwater.control.control_state import ControlState, NodeEntry, QueryEntry
from slackwater.control.placement import FragmentSpec, NodeReports, Standing, plan_moves
from slackwater.deployment.fragments import placed
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.kinds import HOST
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.flux.pair import (
    DOUBLINGS_MAX,
    FRESH_FACTOR,
    SUSPECT_US,
    UNREADY_FACTOR,
    Cause,
    Pair,
    PairRole,
    Tenure,
)
from slackwater.protocols.iads.messages import Stamp

MS = 1_000
BEAT_US = SUSPECT_US // 3


def pair(copy: int, tenure: Tenure, now: int = 0) -> Pair:
    """Return a copy that starts now, and finds this tenure in the log."""
    found = Pair(copy, is_alone=False)
    found.begin(tenure, now)
    return found


def answers(copy: int, found: Tenure) -> tuple[Pair, Tenure]:
    """Return a copy that has taken over, and its tenure."""
    one = pair(copy, found)
    one.take_over()
    tenure = one.next_term(found)
    one.installed(tenure)
    return one, tenure


OF_A = Tenure(term=3, copy=0)


def roots_of_hosts(replicas: int) -> list[set[str]]:
    """Return the roots in each host of one machine, of a query with three parts in two copies."""
    window = WindowSpec(1_000_000, 1_000_000)
    query = QuerySpec(
        *("q", ("s",), None, None, window, ("count",), 2_000_000),
        replicas=replicas, parts=3, copies=2,
    )  # fmt: skip
    hosts = placed(HOST, Deployment("wall", {}, {"q": query}))
    return [{name for name in of if name.startswith("root/")} for of in hosts.values()]


# --- 3.1: process pairs ---------------------------------------------------------------------------


def test_3_1_one_of_a_pair_answers_and_the_other_one_follows() -> None:
    a, b = pair(0, Tenure()), pair(1, Tenure())
    assert (a.cause(is_ready=False), b.cause(is_ready=False)) == (Cause.FIRST, None)
    a.take_over()
    assert a.cause(is_ready=True) is None, "it takes over once"
    tenure = a.next_term(Tenure())
    a.installed(tenure)
    b.read(tenure, 5 * MS)
    assert (a.role, b.role) == (PairRole.ANSWERING, PairRole.FOLLOWING)
    assert b.tenure == Tenure(term=1, copy=0, vain=1)


def test_3_1_a_part_with_one_copy_is_answered_by_it_whatever_the_log_tells() -> None:
    alone = Pair(-1, is_alone=True)
    alone.begin(OF_A, 0)
    assert alone.cause(is_ready=False) is Cause.FIRST


def test_3_1_a_copy_that_restarts_answers_only_in_its_own_place() -> None:
    assert pair(0, OF_A).cause(is_ready=False) is Cause.FIRST
    assert pair(1, OF_A).cause(is_ready=True) is None
    later = pair(0, OF_A)
    later.read(Tenure(term=4, copy=1), 1 * MS)
    assert later.cause(is_ready=True) is None, "the other one has taken over meanwhile"


def test_3_1_the_copies_of_a_part_are_in_two_hosts() -> None:
    assert roots_of_hosts(replicas=1) == [
        {"root/q.0.a", "root/q.1.b", "root/q.2.a"},
        {"root/q.0.b", "root/q.1.a", "root/q.2.b"},
    ]


# --- 3.2: take-over -------------------------------------------------------------------------------


def test_3_2_the_secondary_takes_over_when_the_primary_is_silent() -> None:
    b = pair(1, OF_A)
    b.received(3, 10 * MS)
    b.returned(10 * MS + SUSPECT_US - 1)
    assert b.cause(is_ready=True) is None
    b.returned(10 * MS + SUSPECT_US)
    assert b.cause(is_ready=True) is Cause.SILENT


def test_3_2_a_record_shows_as_well_as_a_heartbeat_that_the_primary_works() -> None:
    b = pair(1, OF_A)
    b.read(OF_A, SUSPECT_US)
    b.returned(SUSPECT_US + BEAT_US)
    assert b.cause(is_ready=True) is None


def test_3_2_a_heartbeat_of_an_earlier_term_shows_nothing() -> None:
    """It is one of a zombie."""
    b = pair(1, OF_A)
    b.received(2, SUSPECT_US)
    b.returned(SUSPECT_US)
    assert b.cause(is_ready=True) is Cause.SILENT


def test_3_2_a_secondary_that_is_not_ready_has_more_patience() -> None:
    b = pair(1, OF_A)
    b.returned(UNREADY_FACTOR * SUSPECT_US - 1)
    assert b.cause(is_ready=False) is None
    b.returned(UNREADY_FACTOR * SUSPECT_US)
    assert b.cause(is_ready=False) is Cause.SILENT


def test_3_2_nobody_is_silent_while_kafka_cannot_be_reached() -> None:
    """trace-51: this copy's own heartbeats do not return either."""
    b = pair(1, OF_A)
    b.returned(BEAT_US)
    b.read(OF_A, BEAT_US)
    assert b.cause(is_ready=True) is None, "a minute later its last one is still that of 40 ms"


@pytest.mark.parametrize("vain", range(DOUBLINGS_MAX + 3))
def test_3_2_each_take_over_in_vain_doubles_the_next_silence(vain: int) -> None:
    """trace-52."""
    b = pair(1, Tenure(9, 0, vain))
    assert b.silent_at(is_ready=True) == SUSPECT_US * 2 ** min(vain, DOUBLINGS_MAX)


def test_3_2_an_answer_ends_the_doubling() -> None:
    a, tenure = answers(0, Tenure(9, 1, vain=4))
    assert tenure == Tenure(10, 0, vain=5)
    a.answered()
    assert a.tenure == Tenure(10, 0, vain=0)


def test_3_2_the_secondary_that_is_told_of_a_failure_waits_for_no_silence() -> None:
    """In the paper a controller tells both; here the supervisor of the process (trace-55)."""
    b = pair(1, OF_A)
    b.died(3, answered=True)
    assert (b.cause(is_ready=False), b.cause(is_ready=True)) == (None, Cause.DEAD)
    b.read(Tenure(term=4, copy=0), 1 * MS)
    assert b.cause(is_ready=True) is None, "another process answers meanwhile"


def test_3_2_a_report_about_a_secondary_or_a_zombie_tells_nothing() -> None:
    b = pair(1, OF_A)
    b.died(3, answered=False)
    b.died(2, answered=True)
    assert b.cause(is_ready=True) is None


# --- A planned end: not in the paper, whose partitions move with a pause (4.3) --------------------


def test_a_primary_that_is_to_end_hands_over_to_a_secondary_that_is_ready() -> None:
    """trace-54."""
    a, tenure = answers(0, Tenure(2, 1))
    b = pair(1, tenure)
    assert not a.may_resign(0)
    a.followed(tenure.term, 0)
    assert a.may_resign(FRESH_FACTOR * SUSPECT_US - 1)
    assert not a.may_resign(FRESH_FACTOR * SUSPECT_US), "it is silent"
    last = a.resign(0)
    assert (a.role, last) == (PairRole.RESIGNING, Tenure(3, 0, vain=1, resigned=True))
    b.read(last, 1 * MS)
    assert b.cause(is_ready=False) is Cause.RESIGNED
    b.take_over()
    assert b.next_term(last) == Tenure(4, 1, vain=2)


def test_a_primary_knows_only_of_a_secondary_that_has_read_its_term() -> None:
    a, tenure = answers(0, Tenure(2, 1))
    a.followed(tenure.term - 1, 0)
    assert not a.may_resign(0)


def test_of_two_copies_that_start_after_a_resignation_the_other_one_answers() -> None:
    resigned = Tenure(3, 0, resigned=True)
    assert pair(0, resigned).cause(is_ready=True) is None
    assert pair(1, resigned).cause(is_ready=False) is Cause.RESIGNED


def test_a_copy_that_has_resigned_waits_while_the_other_one_takes_over() -> None:
    a, tenure = answers(0, Tenure(2, 1))
    a.followed(tenure.term, 0)
    a.resign(10 * MS)
    assert not a.waits_in_vain(SUSPECT_US)
    a.received(tenure.term, 100 * MS)
    assert not a.waits_in_vain(100 * MS + SUSPECT_US - 1)
    assert a.waits_in_vain(100 * MS + SUSPECT_US)
    a.received(tenure.term, 300 * MS)
    a.died(tenure.term, answered=True)
    assert a.waits_in_vain(300 * MS)


# --- 3.2: properties of two copies and a log ------------------------------------------------------


@dataclass
class Copies:
    """Two copies with a log of heartbeats and records; a take-over is one step."""

    now: int = 0
    log: list[tuple[str, int, int, Tenure]] = field(default_factory=list)
    """Kind, copy, time sent, tenure."""
    pairs: list[Pair] = field(default_factory=lambda: [pair(0, Tenure()), pair(1, Tenure())])
    read_to: list[int] = field(default_factory=lambda: [0, 0])
    took_over: list[tuple[int, int]] = field(default_factory=list)
    """Time and copy."""

    @property
    def tenure(self) -> Tenure:
        return next((t for kind, *_, t in reversed(self.log) if kind == "record"), Tenure())

    def beat(self, copy: int) -> None:
        of = self.pairs[copy]
        kind = "answers" if of.role is PairRole.ANSWERING else "follows"
        self.log.append((kind, copy, self.now, of.tenure))

    def answer(self, copy: int) -> None:
        of = self.pairs[copy]
        is_fenced = self.tenure.term != of.tenure.term
        if of.role is PairRole.ANSWERING and not is_fenced:
            of.answered()
            self.log.append(("record", copy, self.now, of.tenure))

    def turn(self, copy: int) -> None:
        """Read the log to its end, and take over if there is cause."""
        of = self.pairs[copy]
        for kind, writer, sent_at, tenure in self.log[self.read_to[copy] :]:
            if writer == copy:
                of.returned(sent_at if kind != "record" else 0)
            elif kind == "record":
                if of.role is PairRole.ANSWERING and tenure.term > of.tenure.term:
                    of = self.pairs[copy] = pair(copy, tenure, self.now)  # it is built again
                elif of.role is PairRole.FOLLOWING:
                    of.read(tenure, self.now)
            elif kind == "answers":
                of.received(tenure.term, self.now)
        self.read_to[copy] = len(self.log)
        if of.cause(is_ready=True) is not None:
            of.take_over()
            of.installed(of.next_term(self.tenure))
            self.took_over.append((self.now, copy))
            self.log.append(("record", copy, self.now, of.tenure))


@given(pauses=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 2_000)), max_size=5))
def test_3_2_a_secondary_that_was_paused_does_not_suspect_a_primary_that_works(
    pauses: list[tuple[int, int]],
) -> None:
    """It reads first: a heartbeat that it sent before the pause shows nothing (trace-11)."""
    copies = Copies()
    for ms in range(0, 6_000, 10):
        copies.now = ms * MS
        is_paused = any(at <= ms < at + length for at, length in pauses)
        if ms % 40 == 0:
            copies.beat(0)
            if not is_paused:
                copies.beat(1)
        copies.turn(0)
        if not is_paused:
            copies.turn(1)
    assert copies.took_over == [(0, 0)]


@given(slow_ms=st.integers(130, 500), answers_too=st.booleans())
def test_3_2_two_copies_that_are_too_slow_for_each_other_stop_to_exchange_their_roles(
    slow_ms: int, answers_too: bool
) -> None:
    """trace-52: on an overloaded machine the heartbeats of whoever answers come too late."""
    copies = Copies()
    for ms in range(0, 60_000, 10):
        copies.now = ms * MS
        for copy in (0, 1):
            is_slow = copies.pairs[copy].role is PairRole.ANSWERING
            if ms % (slow_ms // 10 * 10 if is_slow else 40) == 0:
                copies.beat(copy)
            copies.turn(copy)
            if answers_too and ms > 30_000 and ms % 1_000 == 0:
                copies.answer(copy)
    in_vain = [at for at, _ in copies.took_over if at < 30_000 * MS]
    assert len(in_vain) <= 2 + DOUBLINGS_MAX


@given(dies_at_ms=st.integers(200, 2_000))
def test_3_2_a_primary_that_dies_is_replaced_within_the_silence_and_two_heartbeats(
    dies_at_ms: int,
) -> None:
    copies = Copies()
    for ms in range(0, 4_000, 10):
        copies.now = ms * MS
        if ms % 40 == 0:
            copies.beat(1)
            if ms < dies_at_ms:
                copies.beat(0)
        copies.turn(1)
        if ms < dies_at_ms:
            copies.turn(0)
            copies.answer(0)
    (first, second) = copies.took_over
    assert first[1] == 0
    assert second[1] == 1
    assert dies_at_ms * MS + SUSPECT_US - 10 * MS <= second[0]
    assert second[0] <= dies_at_ms * MS + SUSPECT_US + 2 * BEAT_US


# --- 4.1: a consumer merges partitions into order -------------------------------------------------


@pytest.mark.parametrize("turns", [(0, 0, 1, 1), (1, 1, 0, 0), (1, 0, 0, 1)])
def test_4_1_partitions_are_merged_by_their_largest_number(turns: tuple[int, ...]) -> None:
    """The number is a window's end. A correction of window 1 has that of window 2."""
    of = [boundary(0, 1), boundary(0, 2)], [boundary(1, 2), boundary(1, 1)]
    order, out, left = WindowOrder[tuple[int, int]](range(2)), [], [iter(of[0]), iter(of[1])]
    for part in turns:
        seq, record = next(left[part])
        order.offer(part, (part, seq), record)
        out += order.take()
    for part in range(2):
        order.end(part)
    assert out + order.take() == [(0, 1), (0, 2), (1, 2), (1, 1)]


def boundary(part: int, second: int) -> tuple[int, dict[str, object]]:
    end = format_time(second * 1_000 * MS)
    return second, {"part": part, "kind": "boundary", "window_end": end}


# --- 4.2: mean time to failure --------------------------------------------------------------------

GRAPHS = {
    "disjoint": mttf.disjoint_pairs,
    "chain": mttf.chain,
    "query": mttf.full_query,
    "cluster": mttf.cluster_pairs,
}
RARE = Life(mttf=1e6, mttr=1.0)
"""Terms of order N R / F, which the closed forms leave out, are below 1e-4."""


def exact_mean(fatal: mttf.Pairs, life: Life) -> float:
    """The mean time to loss, by the equations of the Markov chain over all sets of machines down.

    From each set without a fatal pair: mean = time to the next event + that of the next set.
    """
    machines = len(fatal)
    sets = [
        down
        for size in range(machines + 1)
        for down in combinations(range(machines), size)
        if not any(fatal[one, other] for one, other in combinations(down, 2))
    ]
    place = {down: n for n, down in enumerate(sets)}
    rates = np.zeros((len(sets), len(sets)))
    for down, at in place.items():
        for machine in range(machines):
            after = tuple(sorted({*down} ^ {machine}))
            rate = 1 / (life.mttr if machine in down else life.mttf)
            rates[at, at] += rate
            if after in place:
                rates[at, place[after]] -= rate
    return float(np.linalg.solve(rates, np.ones(len(sets)))[place[()]])


@pytest.mark.parametrize("name", GRAPHS)
def test_4_2_the_simulation_agrees_with_the_exact_mean(name: str) -> None:
    """Also where repairs are slow, so that several machines are down at once.

    The deviation of a time to loss is at most its mean (1/sqrt(runs) for that of a sample): five.
    """
    fatal, slow, runs = GRAPHS[name](6), Life(mttf=3.0, mttr=1.0), 10_000
    found = mttf.times_to_loss(fatal, slow, runs, np.random.default_rng(1)).mean()
    assert found == pytest.approx(exact_mean(fatal, slow), rel=5 / runs**0.5)


@pytest.mark.parametrize("machines", [4, 6, 8])
@pytest.mark.parametrize("name", GRAPHS)
def test_4_2_the_closed_forms_hold_where_repairs_are_quick(name: str, machines: int) -> None:
    life = Life(mttf=1e4, mttr=1.0)
    exact = exact_mean(GRAPHS[name](machines), life)
    assert mttf.SCHEMES[name].closed(machines, life) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("name", ["single", "disjoint", "chain", "cluster"])
def test_4_2_time_to_failure_falls_by_1_over_n_with_pairs_and_1_over_n2_with_cluster_pairs(
    name: str,
) -> None:
    """0.05 is more than three deviations of the power that is fitted to the sample means."""
    machines, runs, scheme = (4, 8, 16), 4_000, mttf.SCHEMES[name]
    rng = np.random.default_rng(mttf.SEED)
    means = [float(scheme.sample(n, RARE, runs, rng).mean()) for n in machines]
    assert 3 * mttf.power_deviation(machines, runs) < 0.05
    assert mttf.power_of(machines, means) == pytest.approx(scheme.power, abs=0.05)
    closed = [scheme.closed(n, RARE) for n in machines]
    assert means == pytest.approx(closed, rel=5 / runs**0.5)


@pytest.mark.parametrize(("name", "factor"), [("disjoint", 2), ("chain", 4), ("cluster", 2)])
def test_4_2_the_papers_forms_are_too_large(name: str, factor: int) -> None:
    """F^2/R for a pair counts one order of its two failures; a chain has twice as many pairs."""
    scheme = mttf.SCHEMES[name]
    assert scheme.paper is not None
    for machines in (4, 16, 64):
        exact = mttf.first_order(GRAPHS[name](machines), RARE)
        assert scheme.paper(machines, RARE) / exact == pytest.approx(factor)


@pytest.mark.parametrize("machines", [4, 8, 32])
def test_4_2_the_planner_makes_no_more_fatal_pairs_than_a_chain_has(machines: int) -> None:
    """With as many parts as machines; that of a full query has a few more, of its children."""
    fatal = mttf.chain(machines)
    assert mttf.n_pairs(fatal) == machines
    assert {tuple(row.nonzero()[0]) for row in fatal} == {
        tuple(sorted(((n - 1) % machines, (n + 1) % machines))) for n in range(machines)
    }
    assert mttf.n_pairs(mttf.full_query(machines)) <= machines + mttf.CHILDREN


def test_4_2_the_planner_keeps_the_number_of_fatal_pairs_while_machines_fail_and_return() -> None:
    machines = [f"m{n}" for n in range(8)]
    stamp = Stamp(1, 1, "a")
    state = ControlState(
        {"q": QueryEntry(0, stamp, "running", "x")},
        {name: NodeEntry(stamp, room=100) for name in machines},
    )
    specs = [FragmentSpec("q", f"root.{n}.{c}", f"root.{n}") for n in range(16) for c in "ab"]
    reports = NodeReports(dict.fromkeys(machines, Standing.STEADY))
    cluster, random = Cluster(state, tuple(specs), reports).settled(), Random(2)
    for _ in range(16):
        machine = random.choice(machines)
        cluster = cluster.with_standing(Standing.SUSPECTED, machine).settled()
        cluster = cluster.with_standing(Standing.STEADY, machine).settled()
        at = {fragment: entry.node for (_, fragment), entry in cluster.state.placement.items()}
        fatal = {frozenset({at[f"root.{n}.a"], at[f"root.{n}.b"]}) for n in range(16)}
        assert all(len(pair) == 2 for pair in fatal)
        assert len(fatal) <= len(machines) + 1


# --- 5.2: take-over in the whole system -----------------------------------------------------------


def test_5_2_a_window_is_answered_in_time_although_its_root_dies_before_it() -> None:
    story = Story(copies=2, bound_us=500_000, window_us=500_000, slide_us=500_000)
    story.time_passes(3.4)
    story.kill_for_good("root/q.0.a")
    story.time_passes(3)
    terms = [(t.state.copy, t.state.term) for t in story.history.tenures]
    assert terms == [(0, 1), (1, 2)]
    assert story.tentative == []
    assert story.latest_first_answer_s(since_s=2.0) < 0.3
    story.every_guarantee_holds()


def test_5_2_the_secondary_of_a_consumer_and_a_producer_may_die_without_an_effect() -> None:
    story = Story(copies=2)
    story.time_passes(3)
    story.kill_for_good("root/q.0.b")
    story.kill_for_good("orderer/q.0.b")
    story.time_passes(5)
    assert len(story.history.tenures) == 1
    assert story.tentative == []
    story.every_guarantee_holds()


def test_5_2_both_primaries_may_die_at_once() -> None:
    story = Story(copies=2, bound_us=1_000_000, window_us=500_000, slide_us=500_000)
    story.time_passes(3.2)
    story.kill_for_good("orderer/q.0.a")
    story.kill_for_good("root/q.0.a")
    story.time_passes(5)
    assert story.tentative == []
    assert story.latest_first_answer_s(since_s=2.0) < 0.6
    story.every_guarantee_holds()


# --- 3.3, 3.4 and 5.3: catch-up -------------------------------------------------------------------


def test_3_3_state_is_installed_where_keys_have_other_numbers() -> None:
    """``getState`` marshals into a form that is independent of the machine."""
    active, standby = KeyTable(), KeyTable()
    standby.indices(("c", "b"))
    of, into = Aggregates(active, ("v",)), Aggregates(standby, ("v",))
    figures = [np.array([[1.0, 2.0]]) for _ in range(5)]
    state = Slice.build(active.indices(("a", "b")), figures)
    installed = into.install([of.extract(state, piece) for piece in range(of.pieces(state))])
    assert installed.index.tolist() != state.index.tolist()
    assert installed.to_bytes(standby) == state.to_bytes(active)
    assert into.digest(installed) == of.digest(state)


@pytest.mark.parametrize("head_us", [0, 100])
def test_3_3_the_active_copy_answers_while_its_state_is_moved(head_us: int) -> None:
    """In the paper it is paused: no input is taken and no result is given meanwhile."""
    story = story_of_heads(copies=2, head_us=head_us)
    story.time_passes(5)
    story.kill("root/q.0.b")
    story.time_passes(3)
    assert (head_of(root(story, 1)) is not None) == bool(head_us)
    assert story.tentative == []
    assert story.latest_first_answer_s() < 0.15
    story.every_guarantee_holds()


def test_3_3_the_new_copy_continues_at_the_version_of_its_state() -> None:
    story = story_of_heads(copies=2)
    story.time_passes(5)
    story.kill("root/q.0.b")
    story.time_passes(2)
    standby = root(story, 1)
    head = head_of(standby)
    assert head is not None
    assert standby.session.core.movable.records_read < sum(log.stable.offset for log in head.logs)
    story.kill("root/q.0.a")
    story.time_passes(3)
    assert standby.session.pair.role is PairRole.ANSWERING
    story.all_is_well_again()
    story.every_guarantee_holds()


@pytest.mark.parametrize("dies_after_s", [0.05, 0.3, 0.6, 0.75, 0.9])
def test_3_4_catch_up_is_idempotent(dies_after_s: float) -> None:
    """The standby dies at any moment of it, and then the active copy."""
    story = story_of_heads(copies=2)
    story.time_passes(5)
    for _ in range(2):
        story.kill("root/q.0.b")
        story.time_passes(dies_after_s)
    story.kill("root/q.0.b")
    story.time_passes(2)
    story.kill("root/q.0.a")
    story.time_passes(2)
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_5_3_partitions_catch_up_one_by_one_while_all_others_run() -> None:
    story = story_of_heads(copies=2, parts=2, habits=Habits(every_us=20_000, keys=6))
    story.time_passes(5)
    story.kill("root/q.0.b")
    story.time_passes(3)
    assert head_of(root(story, 1)) is not None
    others = [story.world.q.roots[1, copy] for copy in (0, 1)]
    assert [head_of(each) for each in others] == [None, None], "they have not started again"
    assert story.latest_first_answer_s() < 0.15
    story.every_guarantee_holds()


def test_5_3_a_replica_that_finds_no_state_is_built_from_the_sources() -> None:
    """In the paper the surviving copy has it; here both may be down, and a log is damaged."""
    story = story_of_heads()
    story.time_passes(5)
    truncated(story)
    story.world.spoil_panes("sw.panes.q:0", 1_000)
    story.kill("root/q.0")
    story.time_passes(4)
    assert head_of(root(story)) is None
    story.all_is_well_again()
    story.every_guarantee_holds()


# --- 5.4: chained declustering --------------------------------------------------------------------


def four_partitions_on(machines: list[str]) -> list[tuple[str, str]]:
    """Where the planner places the two copies of each of four parts, on empty machines."""
    stamp = Stamp(1, 1, "a")
    state = ControlState(
        {"q": QueryEntry(0, stamp, "running", "x")},
        {name: NodeEntry(stamp, room=100) for name in machines},
    )
    specs = [FragmentSpec("q", f"root.{n}.{c}", f"root.{n}") for n in range(4) for c in "ab"]
    plan = plan_moves(state, specs, NodeReports(dict.fromkeys(machines, Standing.STEADY)))
    at = {move.fragment: move.node for move in plan.moves}
    return [(at[f"root.{n}.a"], at[f"root.{n}.b"]) for n in range(4)]


def test_5_4_each_partition_has_its_replica_on_the_next_machine_and_the_last_on_the_first() -> None:
    machines = ["m0", "m1", "m2", "m3"]
    assert four_partitions_on(machines) == [("m0", "m1"), ("m1", "m2"), ("m2", "m3"), ("m3", "m0")]


def test_5_4_each_machine_that_fails_has_a_primary_and_the_secondary_of_another_partition() -> None:
    """In the paper all survival cases occur in one failure of a machine."""
    machines = ["m0", "m1", "m2", "m3"]
    placed_at = four_partitions_on(machines)
    for machine in machines:
        (lost,) = [second for first, second in placed_at if first == machine]
        (kept,) = [first for first, second in placed_at if second == machine]
        assert len({machine, lost, kept}) == 3, "two others share what it did"


def test_5_4_three_hosts_of_one_machine_are_a_chain_too() -> None:
    assert roots_of_hosts(replicas=3) == [
        {"root/q.0.a", "root/q.2.b"},
        {"root/q.0.b", "root/q.1.a"},
        {"root/q.1.b", "root/q.2.a"},
    ]
