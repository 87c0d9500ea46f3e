"""Plans which node runs each fragment: the next moves, from the record and the nodes' reports.

A fragment that runs on no node is placed at once. A fragment that runs is moved for four reasons:
its node drains, replicas of its group share a node, another node has more of the labels that it
prefers, or another node has less load. Such an *orderly* move takes no group's last ready replica
while another one starts, and at most ``ORDERLY_STARTS_MAX`` fragments start at a time. A node that
comes back therefore gets its share in small steps, and while it is settling (``node_watch.py``) it
gets no fragment that runs on another node.

The moves come to an end, since each orderly move lowers this sequence of numbers, compared from the
first on: fragments on draining nodes; replicas above their limit on a node; preferred labels that
the fragments' nodes lack; the loads of nodes in descending order.

The nodes that take fragments are a ring, in order of their names. Of equally loaded nodes a replica
gets one beside another replica of its group, if possible the one after it (chained declustering:
Flux, section 5.4). The replicas of many groups therefore make pairs of neighbours, and the load of
a node that dies is divided between two others; with disjoint pairs one node would get it all. The
ring decides only between choices that are equal otherwise, and is no reason for a move.

The same record and reports give the same moves at every controller. A move names the placement that
it replaces, so if two controllers request one move, the second request is refused and no fragment
starts twice. Rejected: an optimal assignment, which would move fragments that run to make room for
others.

Pure functions over values: no clock, no randomness.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Final, NamedTuple

from slackwater.control.control_object import MoveFragment
from slackwater.control.control_state import OF_NO_QUERY, ControlState, NodeEntry, Wanted

ORDERLY_STARTS_MAX: Final = 4
"""Most fragments that are starting after an orderly move, including the one that it moves."""

FragmentKey = tuple[str, str]
"""Query and fragment, the key of the record's placement."""
_Group = tuple[str, str]


class Standing(Enum):
    """A node's state by its heartbeats, at one controller."""

    SUSPECTED = "suspected"
    """Its heartbeats have stopped. Its fragments are placed on other nodes."""
    SETTLING = "settling"
    """It was suspected a short time ago. It takes a fragment only if this runs on no node, and no
    steady node can take it."""
    STEADY = "steady"
    """It takes any fragment."""


@dataclass(frozen=True, slots=True)
class FragmentSpec:
    """A fragment that is to be run.

    ``group`` is the same for the replicas of a child, and for the copies of a part. ``prefers`` are
    labels of nodes; ``bound_node`` is the only node that can run it (its data are on that disk).
    """

    query: str
    fragment: str
    group: str
    prefers: tuple[tuple[str, str], ...] = ()
    bound_node: str = ""


@dataclass(frozen=True, slots=True)
class NodeReports:
    """The nodes' standings, and sets of fragments, each given by its placement number.

    A node without a standing is suspected. ``ready``: fragments that run and follow their input.
    ``overdue``: fragments placed so long ago that, if they are not ready, no move waits for them.
    ``fenced``: fragments that a writer with a greater number has fenced in this view; they stay
    down. ``down``: fragments that do not run and are placed again. ``ended``: those of deleted
    queries that have carried out the deletion. ``answering``: of two copies of a part, that which
    answers.
    """

    standings: Mapping[str, Standing]
    ready: frozenset[int] = frozenset()
    overdue: frozenset[int] = frozenset()
    fenced: frozenset[int] = frozenset()
    down: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    answering: frozenset[int] = frozenset()


class Unplaced(NamedTuple):
    """A fragment that no node can take."""

    query: str
    fragment: str
    reason: str


class MovePlan(NamedTuple):
    """``moves`` in the order in which they are to be requested; ``unplaced`` in order of names."""

    moves: tuple[MoveFragment, ...]
    unplaced: tuple[Unplaced, ...]


def plan_moves(
    state: ControlState, specs: Iterable[FragmentSpec], reports: NodeReports
) -> MovePlan:
    """The next moves. Fragments of queries that are not in the record are left out.

    The result does not depend on the order of ``specs``, whose (query, fragment) are distinct.
    """
    table = _table_of(state, specs, reports)
    _place_lost(table)
    _vacate(table)
    _separate(table)
    while _rebalance(table):
        pass
    return MovePlan(tuple(table.moves), tuple(sorted(table.unplaced)))


@dataclass(slots=True)
class _Table:
    """The placement as it would be after the moves planned so far."""

    state: ControlState
    reports: NodeReports
    specs: dict[FragmentKey, FragmentSpec]
    takers: dict[str, NodeEntry]
    groups: defaultdict[_Group, list[FragmentKey]] = field(
        default_factory=lambda: defaultdict(list)
    )
    at: dict[FragmentKey, str] = field(default_factory=dict)
    lost: list[FragmentKey] = field(default_factory=list)
    ready: set[FragmentKey] = field(default_factory=set)
    starting: set[FragmentKey] = field(default_factory=set)
    load: Counter[str] = field(default_factory=Counter)
    replicas: Counter[tuple[_Group, str]] = field(default_factory=Counter)
    moves: list[MoveFragment] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)

    def limit(self, spec: FragmentSpec) -> int:
        """Most replicas of the group on one node: 1 if there are as many nodes as replicas."""
        return -(-len(self.groups[_group(spec)]) // max(len(self.takers), 1))

    def share(self, spec: FragmentSpec, node: str) -> int:
        """Number of replicas of the group on this node."""
        return self.replicas[_group(spec), node]

    def ratio(self, node: str, more: int = 0) -> Fraction:
        """The load of a node with ``more`` fragments, as a fraction of its room."""
        return Fraction(self.load[node] + more, self.takers[node].room)

    def has_ready_peer(self, key: FragmentKey) -> bool:
        """True if the group has another ready replica than this one."""
        return any(k != key and k in self.ready for k in self.groups[_group(self.specs[key])])

    def candidates(self, spec: FragmentSpec) -> list[str]:
        """Nodes that can take one more replica of the group."""
        return [
            name
            for name, node in self.takers.items()
            if self.load[name] < node.room
            and self.share(spec, name) < self.limit(spec)
            and spec.bound_node in ("", name)
        ]

    def is_steady(self, node: str) -> bool:
        """True if the node may take fragments that run on another node."""
        return self.reports.standings[node] is Standing.STEADY

    def steps(self, key: FragmentKey, node: str) -> tuple[int, int]:
        """Steps in the ring between a node and the nearest other replica of the group.

        Their number in the shorter direction, and in that from the replica to the node: of two
        equally near nodes the one after the replica is less. (0, 0) if no other one is placed.
        """
        ring = [*self.takers]  # in order of names
        at, found = bisect_left(ring, node), []
        for peer in self.groups[_group(self.specs[key])]:
            if peer != key and (place := self.at.get(peer)) is not None:
                # It may be on a node that takes none, which is no step: so left and right differ.
                onward = (at - bisect_right(ring, place)) % len(ring) + 1
                back = (bisect_left(ring, place) - 1 - at) % len(ring) + 1
                found.append((min(onward, back), onward))
        return min(found, default=(0, 0))

    def best(self, key: FragmentKey, nodes: Iterable[str]) -> str | None:
        """The best of these nodes: steady, most preferred labels, least load, least steps."""
        spec = self.specs[key]

        def rank(node: str) -> tuple[bool, int, Fraction, tuple[int, int], str]:
            labels, ratio = _matches(spec, self.takers[node]), self.ratio(node, 1)
            return not self.is_steady(node), -labels, ratio, self.steps(key, node), node

        return min(nodes, key=rank, default=None)

    def put(self, key: FragmentKey, node: str) -> None:
        """Enter that the fragment is on this node."""
        self.at[key] = node
        self.load[node] += 1
        self.replicas[_group(self.specs[key]), node] += 1

    def move(self, key: FragmentKey, node: str) -> None:
        """Add the move to the plan, and enter its result."""
        if (old := self.at.get(key)) is not None:
            self.load[old] -= 1
            self.replicas[_group(self.specs[key]), old] -= 1
        self.put(key, node)
        self.ready.discard(key)
        self.starting.add(key)
        entry = self.state.placement.get(key)
        self.moves.append(MoveFragment(*key, node, replaces=entry.number if entry else 0))

    def refuse(self, key: FragmentKey, reason: str) -> None:
        """Add to the plan that no node can take the fragment."""
        self.unplaced.append(Unplaced(*key, reason))


def _table_of(state: ControlState, specs: Iterable[FragmentSpec], reports: NodeReports) -> _Table:
    known, deleted = {*state.queries, *OF_NO_QUERY}, {*state.queries_wanted(Wanted.DELETED)}
    ordered = sorted((s for s in specs if s.query in known), key=_key)
    takers = {
        name: state.nodes[name]
        for name in state.live_nodes()
        if _is_reached(name, reports) and not state.nodes[name].draining and state.nodes[name].room
    }
    table = _Table(state, reports, {_key(spec): spec for spec in ordered}, takers)
    assert len(table.specs) == len(ordered), "two fragments of one name"
    for key, spec in table.specs.items():
        table.groups[_group(spec)].append(key)
        if spec.query not in deleted or not _has_ended(table, key):
            _find(table, key, spec)
    return table


def _has_ended(table: _Table, key: FragmentKey) -> bool:
    """True if nothing remains to be done; it takes no room then, and stays where it is.

    It is placed again if its node is lost or drains: controllers that have started since do not
    know that it has ended.
    """
    entry = table.state.placement.get(key)
    return entry is not None and entry.number in table.reports.ended and entry.node in table.takers


def _find(table: _Table, key: FragmentKey, spec: FragmentSpec) -> None:
    """Enter the node of a fragment, or that it is lost: it runs on no node and must be placed."""
    entry, reports = table.state.placement.get(key), table.reports
    if (
        entry is None
        or entry.generation != _generation(table.state, spec)
        or entry.number in reports.down
        or spec.bound_node not in ("", entry.node)
    ):
        table.lost.append(key)
        return
    if entry.number in reports.fenced:
        return
    if entry.node not in table.state.live_nodes() or not _is_reached(entry.node, reports):
        if not spec.bound_node:
            table.lost.append(key)
        return
    table.put(key, entry.node)
    if entry.number in reports.ready:
        table.ready.add(key)
    elif entry.number not in reports.overdue:
        table.starting.add(key)


def _generation(state: ControlState, spec: FragmentSpec) -> int:
    return 0 if spec.query in OF_NO_QUERY else state.queries[spec.query].generation


def _place_lost(table: _Table) -> None:
    """Place lost fragments, while nodes have room: first one replica of every group."""
    placed = Counter(_group(table.specs[key]) for key in table.at)
    ordered = []
    for key in table.lost:
        group = _group(table.specs[key])
        ordered.append((placed[group], key))
        placed[group] += 1
    for _, key in sorted(ordered):
        spec = table.specs[key]
        node = table.best(key, table.candidates(spec))
        if node is None:
            table.refuse(key, _why_nowhere(table, spec))
        else:
            table.move(key, node)


def _vacate(table: _Table) -> None:
    """Move fragments away from nodes that drain, first those that are not ready there."""
    draining = [key for key, node in table.at.items() if table.state.nodes[node].draining]
    for key in sorted(draining, key=lambda key: (key in table.ready, key)):
        spec, node = table.specs[key], table.at[key]
        candidates = table.candidates(spec)
        if not candidates:
            reason = _why_nowhere(table, spec)
            table.refuse(key, f"it stays on node {node}, which drains: {reason}")
        elif not _is_awaited(table, key):
            _move_orderly(table, key, candidates)


def _is_awaited(table: _Table, key: FragmentKey) -> bool:
    """True if the group would be without a ready replica, while another one is starting."""
    peers = set(table.groups[_group(table.specs[key])]) - {key}
    return key in table.ready and not peers & table.ready and bool(peers & table.starting)


def _separate(table: _Table) -> None:
    """Move replicas that share a node, as after a network split has ended or a node has joined."""
    for key, spec in table.specs.items():
        node = table.at.get(key)
        if node is None or table.share(spec, node) <= table.limit(spec):
            continue
        if key not in table.ready or table.has_ready_peer(key):
            _move_orderly(table, key, table.candidates(spec))


def _move_orderly(table: _Table, key: FragmentKey, candidates: Iterable[str]) -> None:
    node = table.best(key, filter(table.is_steady, candidates))
    if node is not None and len(table.starting | {key}) <= ORDERLY_STARTS_MAX:
        table.move(key, node)


def _rebalance(table: _Table) -> bool:
    """Plan the best move to more preferred labels, or to less load; False if there is none.

    A group's only ready replica is not moved: the move would interrupt its answers.
    """
    if len(table.starting) >= ORDERLY_STARTS_MAX:
        return False
    gains = [
        (*gain, key, name)
        for key in sorted(table.ready)
        if table.at[key] in table.takers and table.has_ready_peer(key)
        for name in table.candidates(table.specs[key])
        if table.is_steady(name) and (gain := _gain(table, key, name)) > (0, 0)
    ]
    if not gains:
        return False
    *_, key, name = min(gains, key=lambda g: (-g[0], -g[1], table.steps(g[2], g[3]), g[2], g[3]))
    table.move(key, name)
    return True


def _gain(table: _Table, key: FragmentKey, name: str) -> tuple[int, Fraction]:
    """(preferred labels gained, source's load - target's load after the move), as fractions."""
    spec, old = table.specs[key], table.at[key]
    labels = _matches(spec, table.takers[name]) - _matches(spec, table.takers[old])
    return labels, table.ratio(old) - table.ratio(name, 1)


def _why_nowhere(table: _Table, spec: FragmentSpec) -> str:
    if spec.bound_node and spec.bound_node not in table.takers:
        return f"its data are on node {spec.bound_node}, which takes no fragments"
    if not table.takers:
        return f"of {len(table.state.live_nodes())} nodes none takes fragments"
    nodes = [spec.bound_node] if spec.bound_node else list(table.takers)
    full = [name for name in nodes if table.load[name] >= table.takers[name].room]
    shared = len(nodes) - len(full)
    taken, room = sum(table.load[n] for n in full), sum(table.takers[n].room for n in full)
    reason = f"{len(full)} of {len(nodes)} nodes are full ({taken} fragments, room for {room})"
    return f"{reason}, {shared} have a replica of it" if shared else reason


def _is_reached(node: str, reports: NodeReports) -> bool:
    return reports.standings.get(node, Standing.SUSPECTED) is not Standing.SUSPECTED


def _matches(spec: FragmentSpec, node: NodeEntry) -> int:
    return len(set(spec.prefers) & set(node.labels))


def _key(spec: FragmentSpec) -> FragmentKey:
    return spec.query, spec.fragment


def _group(spec: FragmentSpec) -> _Group:
    return spec.query, spec.group
