"""The placement planner: what a plan may do, what it must do, and that its moves end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.mutation import Edit, Mutant, applied

from slackwater.control.control_object import ControlObject, MoveFragment
from slackwater.control.control_state import (
    ControlState,
    NodeEntry,
    PlacementEntry,
    QueryEntry,
)
from slackwater.control.placement import (
    ORDERLY_STARTS_MAX,
    FragmentKey,
    FragmentSpec,
    MovePlan,
    NodeReports,
    Standing,
    plan_moves,
)
from slackwater.protocols.iads.messages import Stamp

STAMP: Final = Stamp(1, 1, "a")
NODES: Final = ("n1", "n2", "n3", "n4")
SITES: Final = ("east", "west")


class Cluster(NamedTuple):
    """A record, what is to run, and what nodes report."""

    state: ControlState
    specs: tuple[FragmentSpec, ...]
    reports: NodeReports

    def plan(self) -> MovePlan:
        return plan_moves(self.state, self.specs, self.reports)

    def after(self, plan: MovePlan) -> Cluster:
        """The moves are in the record, and all that can run is ready."""
        view = 1 + max([1, *(e.number for e in self.state.placement.values())]) >> 38
        obj = ControlObject(frozenset("a"), self.state)
        for time, move in enumerate(plan.moves, 1):
            response = obj.apply(move, Stamp(view + 1, time, "a"))
            assert not response.refusal, response
        return self._replace(state=obj.state).all_ready()

    def all_ready(self) -> Cluster:
        reached = {n for n, s in self.reports.standings.items() if s is not Standing.SUSPECTED}
        numbers = {e.number for e in self.state.placement.values() if e.node in reached}
        ready = numbers - self.reports.fenced - self.reports.down
        return self._replace(reports=replace(self.reports, ready=frozenset(ready)))

    def with_standing(self, standing: Standing, *nodes: str) -> Cluster:
        standings = {**self.reports.standings, **dict.fromkeys(nodes, standing)}
        return self._replace(reports=replace(self.reports, standings=standings)).all_ready()

    def with_nodes(self, **nodes: NodeEntry) -> Cluster:
        state = replace(self.state, nodes={**self.state.nodes, **nodes})
        return self._replace(state=state).with_standing(Standing.STEADY, *nodes)

    def settled(self) -> Cluster:
        """Plan until there is nothing to do; a bound on the rounds."""
        cluster = self.all_ready()
        for _ in range(10 + 4 * len(self.specs)):
            plan = cluster.plan()
            if not plan.moves:
                return cluster
            cluster = cluster.after(plan)
        raise AssertionError("the moves do not end")

    def takers(self) -> dict[str, NodeEntry]:
        return {
            name: node
            for name, node in self.state.nodes.items()
            if not node.left and not node.draining and node.room and name in self.reached()
        }

    def reached(self) -> set[str]:
        alive = {n for n, s in self.reports.standings.items() if s is not Standing.SUSPECTED}
        return alive & {n for n, e in self.state.nodes.items() if not e.left}

    def runs(self) -> dict[FragmentKey, str]:
        """Where each fragment runs or starts."""
        found = {}
        for spec in self.specs:
            entry = self.state.placement.get((spec.query, spec.fragment))
            if (
                entry is not None
                and entry.generation == self.state.queries[spec.query].generation
                and entry.node in self.reached()
                and spec.bound_node in ("", entry.node)
                and entry.number not in self.reports.fenced | self.reports.down
            ):
                found[spec.query, spec.fragment] = entry.node
        return found

    def load(self) -> Counter[str]:
        return Counter(self.runs().values())

    def groups(self) -> dict[tuple[str, str], list[FragmentKey]]:
        found: dict[tuple[str, str], list[FragmentKey]] = {}
        for spec in self.specs:
            found.setdefault((spec.query, spec.group), []).append((spec.query, spec.fragment))
        return found


def node(room: int = 100, site: str = "") -> NodeEntry:
    return NodeEntry(STAMP, room=room, labels=(("site", site),) if site else ())


def spec(name: str, site: str = "", bound: str = "") -> FragmentSpec:
    """``q/0.a`` is replica a of group 0 of query q."""
    query, _, fragment = name.partition("/")
    group = fragment.partition(".")[0]
    return FragmentSpec(query, fragment, group, (("site", site),) if site else (), bound)


def cluster(nodes: dict[str, NodeEntry], specs: Iterable[FragmentSpec]) -> Cluster:
    specs = tuple(specs)
    queries = {s.query: QueryEntry(0, STAMP, "running", "x") for s in specs}
    standings = dict.fromkeys(nodes, Standing.STEADY)
    return Cluster(ControlState(queries, nodes), specs, NodeReports(standings))


def replicas(count: int, of: str = "ab") -> list[FragmentSpec]:
    return [spec(f"q/{child}.{letter}") for child in range(count) for letter in of]


def equal_nodes(count: int, room: int = 100) -> dict[str, NodeEntry]:
    return {name: node(room) for name in NODES[:count]}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Any placement on any nodes: also with shared nodes, stale generations, too small rooms."""
    names = NODES[: draw(st.integers(1, 4))]
    sites, flags = st.sampled_from(("", *SITES)), st.booleans()
    nodes = {
        name: node(draw(st.integers(0, 8)), draw(sites))._replace(
            draining=draw(flags), left=draw(flags) and draw(flags)
        )
        for name in names
    }
    bounds = st.sampled_from(("", "", "", *names))
    specs = [
        spec(f"{query}/{child}.{letter}", draw(sites), draw(bounds) if copies == "a" else "")
        for query in draw(st.sampled_from(("q", "qr")))
        for child in range(draw(st.integers(1, 4)))
        for copies in [draw(st.sampled_from(("a", "ab", "abc")))]
        for letter in copies
    ]
    numbers = st.frozensets(st.integers(1, len(specs)))
    before = _placed(draw, nodes, specs, draw(st.sampled_from((0, 1))))
    standings = {name: draw(st.sampled_from(Standing)) for name in names}
    return before._replace(reports=NodeReports(standings, *(draw(numbers) for _ in range(4))))


@st.composite
def calm_clusters(draw: st.DrawFn) -> Cluster:
    """All nodes are there and almost all fragments are ready, somewhere."""
    names = NODES[: draw(st.integers(2, 4))]
    nodes = {
        name: node(draw(st.integers(6, 20)), draw(st.sampled_from(("", *SITES))))._replace(
            draining=draw(st.integers(0, 3)) == 0
        )
        for name in names
    }
    specs = [
        spec(f"q/{child}.{letter}", draw(st.sampled_from(("", *SITES))))
        for child in range(draw(st.integers(1, 4)))
        for letter in draw(st.sampled_from(("ab", "abc")))
    ]
    before = _placed(draw, nodes, specs, 1)
    unready = draw(st.frozensets(st.integers(1, len(specs)), max_size=2))
    overdue = draw(st.sampled_from((frozenset[int](), unready)))
    settling = draw(st.sampled_from(("", *names)))
    standings = {n: Standing.SETTLING if n == settling else Standing.STEADY for n in names}
    ready = frozenset(range(1, len(specs) + 1)) - unready
    return before._replace(reports=NodeReports(standings, ready, overdue))


def _placed(
    draw: st.DrawFn, nodes: dict[str, NodeEntry], specs: list[FragmentSpec], oldest: int
) -> Cluster:
    """Everything is of generation 1; placements are of ``oldest`` or later."""
    places = st.sampled_from((*(() if oldest else ("",)), *nodes))
    placement = {
        (s.query, s.fragment): PlacementEntry(draw(st.integers(oldest, 1)), number, STAMP, at)
        for number, s in enumerate(specs, 1)
        if (at := draw(places))
    }
    queries = {name: QueryEntry(1, STAMP, "running", "x") for name in "qr"}
    return Cluster(ControlState(queries, nodes, placement), tuple(specs), NodeReports({}))


# What a plan may do.


@given(clusters())
def test_a_move_goes_to_a_node_that_can_take_it(before: Cluster) -> None:
    plan = before.plan()
    after = before.after(plan)
    specs = {(s.query, s.fragment): s for s in before.specs}
    for move in plan.moves:
        assert move.node in before.takers()
        assert specs[move.query, move.fragment].bound_node in ("", move.node)
        room = before.takers()[move.node].room
        assert after.load()[move.node] <= max(room, before.load()[move.node])
    keys = [(move.query, move.fragment) for move in plan.moves]
    assert len(set(keys)) == len(keys)


@given(clusters() | calm_clusters())
def test_replicas_never_come_to_share_a_node_while_there_are_enough(before: Cluster) -> None:
    plan = before.plan()
    after = before.after(plan)
    moved = {(move.query, move.fragment): move.node for move in plan.moves}
    for keys in before.groups().values():
        limit = -(-len(keys) // max(len(before.takers()), 1))
        shares = Counter(after.runs()[key] for key in keys if key in after.runs())
        assert all(shares[moved[key]] <= limit for key in keys if key in moved)


@given(clusters() | calm_clusters())
def test_a_plan_takes_no_groups_last_ready_replica_while_another_one_starts(
    before: Cluster,
) -> None:
    ready = {
        key for key in before.runs() if before.state.placement[key].number in before.reports.ready
    }
    plan = before.plan()
    moved = {(move.query, move.fragment) for move in plan.moves}
    draining = {key for key, at in before.runs().items() if before.state.nodes[at].draining}
    for keys in before.groups().values():
        if ready & set(keys) and ready & set(keys) <= moved:
            assert ready & set(keys) <= draining
            overdue = {k for k in keys if k in before.runs()} - ready - moved
            assert all(before.state.placement[k].number in before.reports.overdue for k in overdue)
            assert len(moved & set(keys)) == 1


@given(clusters() | calm_clusters())
def test_orderly_moves_are_few(before: Cluster) -> None:
    runs = before.runs()
    orderly = [m for m in before.plan().moves if (m.query, m.fragment) in runs]
    assert len(orderly) <= ORDERLY_STARTS_MAX
    for move in orderly:
        assert before.reports.standings[move.node] is Standing.STEADY


@given(clusters(), st.randoms(use_true_random=False))
def test_a_plan_depends_on_no_order(before: Cluster, rng: st.DataObject) -> None:
    specs = list(before.specs)
    rng.shuffle(specs)  # type: ignore[attr-defined]
    state = replace(
        before.state,
        queries=dict(reversed([*before.state.queries.items()])),
        nodes=dict(reversed([*before.state.nodes.items()])),
        placement=dict(reversed([*before.state.placement.items()])),
    )
    assert plan_moves(state, specs, before.reports) == before.plan()


def test_a_fragment_that_was_fenced_stays_down_until_it_is_reported_as_down() -> None:
    before = cluster(equal_nodes(2), [spec("q/0.a")]).settled()
    number = before.state.placement["q", "0.a"].number
    fenced = replace(before.reports, fenced=frozenset({number}))
    assert not before._replace(reports=fenced).with_standing(Standing.SUSPECTED, "n1").plan().moves
    down = replace(before.reports, down=frozenset({number}))
    moves = before._replace(reports=down).plan().moves
    assert [move.replaces for move in moves] == [number]


# What a plan must do.


@given(clusters())
def test_what_runs_nowhere_is_placed_or_no_node_can_take_it(before: Cluster) -> None:
    plan = before.plan()
    after, load = before.after(plan), before.after(plan).load()
    moved = {(m.query, m.fragment) for m in plan.moves}
    unplaced = {(u.query, u.fragment) for u in plan.unplaced}
    assert not moved & unplaced
    for s in before.specs:
        key = (s.query, s.fragment)
        if key in before.runs() or key in moved or _rests(before, s):
            continue
        assert key in unplaced
        keys = before.groups()[s.query, s.group]
        limit = -(-len(keys) // max(len(before.takers()), 1))
        shares = Counter(after.runs()[k] for k in keys if k in after.runs())
        leavers = Counter(at for k, at in before.runs().items() if k in moved)
        for name, at in before.takers().items():
            assert (
                load[name] + leavers[name] >= at.room
                or shares[name] >= limit
                or any(before.runs().get(k) == name and k in moved for k in keys)
                or s.bound_node not in ("", name)
            )


def _rests(before: Cluster, s: FragmentSpec) -> bool:
    """It is fenced, or its only node is away."""
    entry = before.state.placement.get((s.query, s.fragment))
    if entry is None or entry.number in before.reports.down or entry.generation != 1:
        return False
    return entry.number in before.reports.fenced or s.bound_node == entry.node


def test_a_suspected_nodes_fragments_go_to_the_others_at_once_and_in_balance() -> None:
    before = cluster(equal_nodes(3), replicas(30)).settled()
    assert set(before.load().values()) == {20}
    plan = before.with_standing(Standing.SUSPECTED, "n2").plan()
    assert len(plan.moves) == 20
    assert Counter(move.node for move in plan.moves) == {"n1": 10, "n3": 10}
    assert not plan.unplaced


def test_with_little_room_each_group_has_one_replica_before_any_has_two() -> None:
    plan = cluster(equal_nodes(2, room=3), replicas(4)).plan()
    assert {move.fragment[0] for move in plan.moves} == {"0", "1", "2", "3"}
    assert len(plan.moves) == 6
    assert [u.reason for u in plan.unplaced] == [
        "2 of 2 nodes are full (6 fragments, room for 6)"
    ] * 2


def test_replicas_share_the_only_node_and_part_when_there_is_a_second() -> None:
    before = cluster(equal_nodes(1), replicas(2)).settled()
    assert before.load() == {"n1": 4}
    after = before.with_nodes(n2=node()).settled()
    assert after.load() == {"n1": 2, "n2": 2}
    assert len({after.runs()["q", "0.a"], after.runs()["q", "0.b"]}) == 2


def test_of_two_replicas_that_share_a_node_the_one_that_is_not_ready_moves() -> None:
    before = cluster(equal_nodes(1), replicas(1)).settled()
    for letter, other in ("ab", "ba"):
        wider = before.with_nodes(n2=node())
        number = before.state.placement["q", f"0.{letter}"].number
        reports = replace(wider.reports, ready=frozenset({number}))
        (move,) = wider._replace(reports=reports).plan().moves
        assert move.fragment == f"0.{other}"


def test_a_replica_waits_for_room_rather_than_share_a_node() -> None:
    plan = cluster({"n1": node(9), "n2": node(1)}, [*replicas(1), spec("q/1.a", bound="n2")])
    (unplaced,) = plan.plan().unplaced
    assert (
        unplaced.reason == "1 of 2 nodes are full (1 fragments, room for 1), 1 have a replica of it"
    )


def test_orderers_are_placed_at_the_site_of_their_streams_and_go_back_there() -> None:
    nodes = {"n1": node(site="east"), "n2": node(site="east"), "n3": node(site="west")}
    specs = [spec(f"q/{child}.{letter}", site="east") for child in range(3) for letter in "ab"]
    before = cluster(nodes, specs).settled()
    assert before.load() == {"n1": 3, "n2": 3}
    away = before.with_standing(Standing.SUSPECTED, "n2").settled()
    assert away.load() == {"n1": 3, "n3": 3}
    assert away.with_standing(Standing.STEADY, "n2").settled().load() == before.load()


def test_a_fragment_whose_data_are_on_a_node_waits_for_it() -> None:
    before = cluster(equal_nodes(2), [spec("q/0", bound="n2")]).settled()
    assert before.runs() == {("q", "0"): "n2"}
    away = before.with_standing(Standing.SUSPECTED, "n2")
    assert away.plan() == MovePlan((), ())
    assert away.with_standing(Standing.STEADY, "n2").plan() == MovePlan((), ())
    elsewhere = before._replace(specs=(spec("q/0", bound="n9"),))
    (unplaced,) = elsewhere.plan().unplaced
    assert unplaced.reason == "its data are on node n9, which takes no fragments"


def test_a_drained_node_is_empty_in_the_end_and_a_full_cluster_is_named() -> None:
    before = cluster(equal_nodes(3, room=4), replicas(4)).settled()
    drained = before.with_nodes(n1=node(4)._replace(draining=True))
    assert drained.settled().load() == {"n2": 4, "n3": 4}
    larger = cluster(equal_nodes(3), replicas(12)).settled()
    larger = larger.with_nodes(n1=node()._replace(draining=True))
    assert len(larger.plan().moves) == ORDERLY_STARTS_MAX
    assert larger.settled().load() == {"n2": 12, "n3": 12}
    full = cluster(equal_nodes(2, room=4), replicas(4)).settled()
    full = full.with_nodes(n1=node(4)._replace(draining=True))
    assert not full.plan().moves
    assert {u.reason for u in full.plan().unplaced} == {
        "it stays on node n1, which drains: 1 of 1 nodes are full (4 fragments, room for 4)"
    }


def test_a_drain_waits_for_a_replica_that_starts_and_not_for_one_that_is_overdue() -> None:
    before = cluster(equal_nodes(3), replicas(1)).settled()
    at, number = before.runs(), before.state.placement["q", "0.b"].number
    drained = before.with_nodes(**{at["q", "0.a"]: node()._replace(draining=True)})
    ready = drained.reports.ready - {number}
    starting = replace(drained.reports, ready=ready)
    assert not drained._replace(reports=starting).plan().moves
    overdue = replace(starting, overdue=frozenset({number}))
    moves = drained._replace(reports=overdue).plan().moves
    assert [move.fragment for move in moves] == ["0.a"]


def test_a_groups_only_replica_moves_for_a_drain_and_not_for_balance() -> None:
    before = cluster(equal_nodes(1), replicas(4, of="a")).settled()
    wider = before.with_nodes(n2=node())
    assert not wider.plan().moves
    assert len(wider.with_nodes(n1=node()._replace(draining=True)).plan().moves) == 4


# The ring: of equally loaded nodes a second copy gets the one after the first one's.


def ring_of(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def pairs(of: Cluster) -> list[tuple[str, str]]:
    """The nodes of the copies of each group of two."""
    runs = of.runs()
    return [(runs[first], runs[second]) for first, second in of.groups().values()]


def distance(ring: list[str], one: str, other: str) -> int:
    onward = (ring.index(other) - ring.index(one)) % len(ring)
    return min(onward, len(ring) - onward)


@given(st.integers(2, 8), st.integers(1, 4))
def test_equally_loaded_nodes_are_a_chain(count: int, firsts: int) -> None:
    ring = ring_of(count)
    after = cluster({name: node() for name in ring}, replicas(count * firsts)).settled()
    assert set(after.load().values()) == {2 * firsts}
    following = dict(zip(ring, [*ring[1:], ring[0]], strict=True))
    assert all(second == following[first] for first, second in pairs(after))


@given(st.integers(2, 8), st.integers(1, 30))
def test_the_partners_of_a_node_are_its_neighbours_but_for_a_remainder(
    count: int, parts: int
) -> None:
    """Balance comes first. However many parts there are, at most N/2 pairs are no neighbours."""
    ring = ring_of(count)
    after = cluster({name: node() for name in ring}, replicas(parts)).settled()
    distances = [distance(ring, *pair) for pair in pairs(after)]
    assert 0 not in distances
    assert len([steps for steps in distances if steps > 1]) <= count // 2
    assert max(after.load().values()) - min(after.load()[name] for name in ring) <= 1


def test_with_disjoint_pairs_one_node_would_have_all_the_load_of_another() -> None:
    after = cluster(equal_nodes(4), replicas(8)).settled()
    partners = {name: Counter(b if a == name else a for a, b in pairs(after) if name in (a, b))
                for name in NODES}  # fmt: skip
    assert partners == {
        "n1": {"n2": 2, "n4": 2}, "n2": {"n1": 2, "n3": 2},
        "n3": {"n2": 2, "n4": 2}, "n4": {"n1": 2, "n3": 2},
    }  # fmt: skip


@given(st.integers(2, 8), st.integers(1, 3), st.randoms(use_true_random=False))
def test_no_copy_is_moved_for_the_ring(count: int, each: int, rng: Random) -> None:
    """Any pairing of equally loaded nodes stays as it is."""
    ring, specs = ring_of(count), replicas(count * each)
    shift = rng.randrange(1, count)
    shuffled = rng.sample(ring, count)
    at = {
        (s.query, s.fragment): shuffled[(int(s.group) + (shift if s.fragment[-1] == "b" else 0))
                                        % count]
        for s in specs
    }  # fmt: skip
    placement = {
        key: PlacementEntry(0, number, STAMP, name)
        for number, (key, name) in enumerate(at.items(), 1)
    }
    before = cluster({name: node() for name in ring}, specs)
    before = before._replace(state=replace(before.state, placement=placement)).all_ready()
    assert before.plan() == MovePlan((), ())


def test_the_ring_leaves_out_nodes_that_take_no_fragments() -> None:
    nodes = {name: node() for name in ring_of(5)}
    nodes["n2"] = node(room=0)
    after = cluster(nodes, replicas(4)).settled()
    assert sorted(pairs(after)) == [("n1", "n3"), ("n3", "n4"), ("n4", "n5"), ("n5", "n1")]


def test_of_equal_moves_to_an_empty_node_one_beside_the_other_copy_is_made() -> None:
    """The moves of all copies are equal. Group 1 keeps n4, and n1 is the node after it."""
    at = ("n2", "n3", "n3", "n4", "n4", "n2")
    specs = replicas(3)
    placement = {
        (s.query, s.fragment): PlacementEntry(0, number, STAMP, name)
        for number, (s, name) in enumerate(zip(specs, at, strict=True), 1)
    }
    before = cluster(equal_nodes(4), specs)
    before = before._replace(state=replace(before.state, placement=placement)).all_ready()
    assert [(move.fragment, move.node) for move in before.plan().moves] == [("1.a", "n1")]


# That the moves end, and how many there are.


@given(clusters() | calm_clusters())
def test_the_moves_end(before: Cluster) -> None:
    after = before.settled()
    full = {u[:2] for u in after.plan().unplaced}
    for key, at in after.runs().items():
        assert not after.state.nodes[at].draining or key in full or _no_steady_target(after, key)


def _no_steady_target(after: Cluster, key: FragmentKey) -> bool:
    load = after.load()
    keys = next(keys for keys in after.groups().values() if key in keys)
    shares = Counter(after.runs()[k] for k in keys if k in after.runs())
    limit = -(-len(keys) // len(after.takers()))
    return not any(
        load[n] < at.room and shares[n] < limit
        for n, at in after.takers().items()
        if after.reports.standings[n] is Standing.STEADY
    )


@given(st.integers(2, 4), st.integers(1, 12), st.sampled_from(NODES), st.booleans())
def test_a_node_that_comes_back_gets_its_share_and_nothing_else_moves(
    count: int, children: int, away: str, settling: bool
) -> None:
    away = NODES[NODES.index(away) % count]
    before = cluster(equal_nodes(count), replicas(children)).settled()
    lost = before.with_standing(Standing.SUSPECTED, away).settled()
    back = lost.with_standing(Standing.SETTLING if settling else Standing.STEADY, away)
    moves: list[MoveFragment] = []
    while (plan := back.plan()).moves:
        assert len(plan.moves) <= ORDERLY_STARTS_MAX
        moves += plan.moves
        back = back.after(plan)
    assert {move.node for move in moves} <= {away}
    share = 2 * children // count
    assert len(moves) == 0 if settling else share <= len(moves) <= share + 1
    if not settling:
        assert max(back.load().values()) - min(back.load()[n] for n in NODES[:count]) <= 1


def test_nothing_moves_to_a_node_that_came_back_while_something_starts() -> None:
    before = cluster(equal_nodes(3), replicas(9)).settled()
    back = before.with_standing(Standing.SUSPECTED, "n3").settled()
    back = back.with_standing(Standing.STEADY, "n3")
    starting = sorted(back.reports.ready)[:ORDERLY_STARTS_MAX]
    busy = replace(back.reports, ready=back.reports.ready - set(starting))
    assert back.plan().moves
    assert not back._replace(reports=busy).plan().moves


def test_a_larger_node_gets_more() -> None:
    nodes = {"n1": node(10), "n2": node(10), "n3": node(40)}
    load = cluster(nodes, replicas(15)).settled().load()
    assert load == {"n1": 8, "n2": 7, "n3": 15}, "a replica of each group, and no more"


def test_two_controllers_that_plan_the_same_start_nothing_twice() -> None:
    before = cluster(equal_nodes(2), replicas(2))
    obj = ControlObject(frozenset("ab"), before.state)
    first = [obj.apply(m, Stamp(2, t, "a")) for t, m in enumerate(before.plan().moves, 1)]
    placed = obj.state
    second = [obj.apply(m, Stamp(2, t, "b")) for t, m in enumerate(before.plan().moves, 5)]
    assert not any(response.refusal for response in first)
    assert all("placed by another operation" in response.refusal for response in second)
    assert obj.state == placed


@pytest.mark.parametrize("other", ["generation", "deleted"])
def test_a_new_generation_is_placed_again_and_a_deleted_query_is_not(other: str) -> None:
    before = cluster(equal_nodes(2), replicas(1)).settled()
    wanted, generation = ("running", 1) if other == "generation" else ("deleted", 0)
    queries = {"q": QueryEntry(generation, STAMP, wanted, "x")}
    plan = before._replace(state=replace(before.state, queries=queries)).plan()
    assert len(plan.moves) == (2 if other == "generation" else 0)
    assert not plan.unplaced


def ended(*moved: str) -> Cluster:
    """A deleted query's only fragment on n1, which has no room beside it, has ended."""
    placement = {("p", "end"): PlacementEntry(0, 1, STAMP, "n1")}
    queries = {"p": QueryEntry(0, STAMP, "deleted"), "q": QueryEntry(0, STAMP, "running", "x")}
    nodes = {"n1": node(room=1), "n2": node(room=1)}
    state = ControlState(queries=queries, nodes=nodes, placement=placement, number_greatest=1)
    specs = (FragmentSpec("p", "end", "end"), FragmentSpec("q", "0.a", "0"))
    reports = NodeReports(dict.fromkeys(nodes, Standing.STEADY), ended=frozenset({1}))
    return Cluster(state, specs, reports)


def test_what_has_ended_takes_no_room_and_stays() -> None:
    moves = ended().plan().moves
    assert [(move.query, move.node) for move in moves] == [("q", "n1")]


def test_what_has_ended_on_a_node_that_is_lost_is_placed_again() -> None:
    lost = ended().with_standing(Standing.SUSPECTED, "n1")
    assert [(move.query, move.node) for move in lost.plan().moves] == [("p", "n2")]


def test_what_carries_out_a_deletion_takes_room_until_it_has_ended() -> None:
    carries_out = ended()._replace(reports=replace(ended().reports, ended=frozenset()))
    moves = carries_out.plan().moves
    assert [(move.query, move.node) for move in moves] == [("q", "n2")]


_PLACEMENT: Final = "slackwater.control.placement"


def _mutant(name: str, target: str, old: str, new: str, scenario: Callable[[], None]) -> Mutant:
    here = f"{__name__}:{getattr(scenario, '__name__', '')}"
    return Mutant(name, "placement", (Edit(f"{_PLACEMENT}:{target}", old, new),), here)


MUTANTS: Final = (
    _mutant(
        "replicas share a node", "_Table.limit", "return", "return 9 or",
        test_replicas_never_come_to_share_a_node_while_there_are_enough,
    ),
    _mutant(
        "replicas never share a node", "_Table.limit",
        "return -(-len(self.groups[_group(spec)]) // max(len(self.takers), 1))", "return 1",
        test_replicas_share_the_only_node_and_part_when_there_is_a_second,
    ),
    _mutant(
        "the room is not counted", "_Table.candidates",
        "self.load[name] < node.room", "True",
        test_a_move_goes_to_a_node_that_can_take_it,
    ),
    _mutant(
        "a draining node takes fragments", "_table_of", "not state.nodes[name].draining", "True",
        test_a_move_goes_to_a_node_that_can_take_it,
    ),
    _mutant(
        "a suspected node keeps its fragments", "_find",
        "or not _is_reached(entry.node, reports)", "",
        test_a_suspected_nodes_fragments_go_to_the_others_at_once_and_in_balance,
    ),
    _mutant(
        "bound fragments are placed anywhere", "_Table.candidates",
        'and spec.bound_node in ("", name)', "",
        test_a_fragment_whose_data_are_on_a_node_waits_for_it,
    ),
    _mutant(
        "a bound fragment is lost with its node", "_find", "if not spec.bound_node:", "if True:",
        test_a_fragment_whose_data_are_on_a_node_waits_for_it,
    ),
    _mutant(
        "what was fenced is placed again", "_find", "if entry.number in reports.fenced:",
        "if False:",
        test_a_fragment_that_was_fenced_stays_down_until_it_is_reported_as_down,
    ),
    _mutant(
        "what is down is not placed again", "_find", "or entry.number in reports.down", "",
        test_a_fragment_that_was_fenced_stays_down_until_it_is_reported_as_down,
    ),
    _mutant(
        "a stale generation runs on", "_find",
        "or entry.generation != _generation(table.state, spec)", "",
        test_what_runs_nowhere_is_placed_or_no_node_can_take_it,
    ),
    _mutant(
        "a drain takes the last ready replica", "_is_awaited", "return", "return False and",
        test_a_drain_waits_for_a_replica_that_starts_and_not_for_one_that_is_overdue,
    ),
    _mutant(
        "a drain waits for a replica that does not start", "_is_awaited",
        "bool(peers & table.starting)", "bool(peers)",
        test_a_drain_waits_for_a_replica_that_starts_and_not_for_one_that_is_overdue,
    ),
    _mutant(
        "balance takes the last ready replica", "_rebalance",
        "and table.has_ready_peer(key)", "",
        test_a_groups_only_replica_moves_for_a_drain_and_not_for_balance,
    ),
    _mutant(
        "separation takes the last ready replica", "_separate",
        "key not in table.ready or table.has_ready_peer(key)", "True",
        test_of_two_replicas_that_share_a_node_the_one_that_is_not_ready_moves,
    ),
    _mutant(
        "a storm of balance", "_rebalance",
        "len(table.starting) >= ORDERLY_STARTS_MAX", "False",
        test_a_node_that_comes_back_gets_its_share_and_nothing_else_moves,
    ),
    _mutant(
        "a storm of drains", "_move_orderly",
        "len(table.starting | {key}) <= ORDERLY_STARTS_MAX", "True",
        test_a_drained_node_is_empty_in_the_end_and_a_full_cluster_is_named,
    ),
    _mutant(
        "a settling node gets what runs elsewhere", "_Table.is_steady",
        "is Standing.STEADY", "is not Standing.SUSPECTED",
        test_a_node_that_comes_back_gets_its_share_and_nothing_else_moves,
    ),
    _mutant(
        "balance goes to and fro", "_gain", "table.ratio(name, 1)", "table.ratio(name)",
        test_a_larger_node_gets_more,
    ),
    _mutant(
        "labels go to and fro", "_gain",
        "_matches(spec, table.takers[name]) - _matches(spec, table.takers[old])", "1",
        test_orderers_are_placed_at_the_site_of_their_streams_and_go_back_there,
    ),
    _mutant(
        "labels are not respected", "_matches", "return", "return 0 *",
        test_orderers_are_placed_at_the_site_of_their_streams_and_go_back_there,
    ),
    _mutant(
        "copies make disjoint pairs", "_Table.best", "self.steps(key, node), node", "node",
        test_with_disjoint_pairs_one_node_would_have_all_the_load_of_another,
    ),
    _mutant(
        "the copy before is as near as the copy after", "_Table.steps",
        "(min(onward, back), onward)", "(min(onward, back), 0)",
        test_equally_loaded_nodes_are_a_chain,
    ),
    _mutant(
        "a copy is moved for the ring", "_rebalance", "> (0, 0)",
        "> (0, 0) or table.steps(key, name) < table.steps(key, table.at[key])",
        test_no_copy_is_moved_for_the_ring,
    ),
    _mutant(
        "the ring has nodes that take no fragments", "_Table.steps",
        "[*self.takers]", "[*self.state.live_nodes()]",
        test_the_ring_leaves_out_nodes_that_take_no_fragments,
    ),
    _mutant(
        "of equal moves any is made", "_rebalance", "table.steps(g[2], g[3]), ", "",
        test_of_equal_moves_to_an_empty_node_one_beside_the_other_copy_is_made,
    ),
    _mutant(
        "a group's second replica before another's first", "_place_lost",
        "placed[group] += 1", "pass",
        test_with_little_room_each_group_has_one_replica_before_any_has_two,
    ),
    _mutant(
        "what carries out a deletion is not placed again", "_table_of",
        "known, deleted = {*state.queries, *OF_NO_QUERY}",
        "known, deleted = {*state.live_queries()}",
        test_what_has_ended_on_a_node_that_is_lost_is_placed_again,
    ),
    _mutant(
        "what has ended takes room", "_has_ended", "return", "return False and",
        test_what_has_ended_takes_no_room_and_stays,
    ),
    _mutant(
        "what has ended stays on a node that is lost", "_has_ended",
        "and entry.node in table.takers", "",
        test_what_has_ended_on_a_node_that_is_lost_is_placed_again,
    ),
    _mutant(
        "what is deleted has ended", "_has_ended", "entry.number in table.reports.ended", "True",
        test_what_carries_out_a_deletion_takes_room_until_it_has_ended,
    ),
    _mutant(
        "a move replaces whatever there is", "_Table.move",
        "entry.number if entry else 0", "-1",
        test_two_controllers_that_plan_the_same_start_nothing_twice,
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_mutant_is_noticed(mutant: Mutant) -> None:
    with applied(mutant), pytest.raises((AssertionError, ExceptionGroup)):
        mutant.run()
