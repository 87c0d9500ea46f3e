"""Decides at a controller when nodes are suspected, and which moves to request.

Every controller receives the heartbeats of all nodes that reach it. In a view only the member with
the first name plans moves, because two controllers with heartbeats of different nodes would move a
fragment to and fro. No election is needed: a view lists its members. Each half of a split network
has its own first member.

A controller that has just started has no heartbeats. It plans once it has one of each recorded
node, or after ``FIRST_HEARTBEATS_US_MAX``; otherwise its start would move every fragment. The same
holds when two halves of a split network merge: the nodes of the other half, which were suspected,
are about to connect, and what runs there must not be moved.

A closed connection means that the node's process has probably ended; the node has
``RECONNECT_US_MAX`` to connect again. Otherwise a node is suspected by the detector, but not before
a silence of ``Suspicion.after_us``: moving its fragments costs more than a short wait, and load
delays a node's heartbeats for longer than a controller's.

Pure: times come in as arguments. Times are monotonic us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from slackwater.control.control_object import MoveFragment
from slackwater.control.control_state import ControlState, Wanted
from slackwater.control.evening import next_resignation
from slackwater.control.node_watch import NodeWatch
from slackwater.control.placement import FragmentSpec, NodeReports, Unplaced, plan_moves
from slackwater.protocols.iads.detector import PHI_THRESHOLD, PhiAccrual

FIRST_HEARTBEATS_US_MAX: Final = 5_000_000
RECONNECT_US_MAX: Final = 500_000
RESIGNATION_US_MIN: Final = 5_000_000
"""Shortest time between two resignations that a controller asks for: a copy that has resigned reads
its state again before it follows."""

Specs = Callable[[ControlState], Iterable[FragmentSpec]]
"""Returns the fragments that are to be run, for a state of the record."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """When a node without heartbeats is suspected.

    Not before ``after_us``, and not before a silence as long has a probability of 10^-``phi``.
    """

    after_us: int = 2_000_000
    phi: float = PHI_THRESHOLD


SUSPICION: Final = Suspicion()
"""The default."""


@dataclass(slots=True)
class _Observed:
    detector: PhiAccrual
    latest: int
    after_us: int
    closed_at: int | None = None
    suspected: bool = False

    def suspect_at(self) -> int:
        """The time from which on the node is suspected, unless a heartbeat arrives before."""
        silent = max(self.detector.suspect_at(), self.latest + self.after_us)
        return silent if self.closed_at is None else min(silent, self.closed_at + RECONNECT_US_MAX)


@dataclass(slots=True)
class Placing:
    """The nodes as observed by controller ``name``, which started at ``started``, and its moves."""

    name: str
    specs_of: Specs
    started: int
    suspicion: Suspicion = SUSPICION
    unplaced: tuple[Unplaced, ...] = ()
    """The fragments that the last plan could not place."""
    _resigned_at: int | None = None
    """When it has asked a copy to resign last."""
    _view_number: int = 0
    _members: frozenset[str] = frozenset()
    _waits_from: int = 0
    """Since when it waits for heartbeats: its start, or the last merge."""
    _connected: set[str] = field(default_factory=set)
    """The nodes that it does not wait for: they have sent a heartbeat since."""
    _nodes: dict[str, _Observed] = field(default_factory=dict)
    _watch: NodeWatch = field(default_factory=lambda: NodeWatch(0))

    def __post_init__(self) -> None:
        """It waits from its start on."""
        self._waits_from = self.started

    def heartbeat(
        self,
        node: str,
        ready: Iterable[int],
        fenced: Iterable[int],
        now: int,
        ended: Iterable[int] = (),
        answering: Iterable[int] = (),
    ) -> None:
        """Record a node's heartbeat, with the placements there that are ready or were fenced.

        ``ended``: those of deleted queries that have carried out the deletion. ``answering``: the
        copies of parts that answer.
        """
        self._connected.add(node)
        observed = self._nodes.get(node)
        if observed is None or observed.suspected:
            detector = PhiAccrual(now, threshold=self.suspicion.phi)
            self._nodes[node] = _Observed(detector, now, self.suspicion.after_us)
        else:
            observed.detector.heartbeat(now)
            observed.latest, observed.closed_at = now, None
        reported = frozenset(ready), frozenset(fenced), now, frozenset(ended), frozenset(answering)
        self._watch.heartbeat(node, *reported)

    def closed(self, node: str, now: int) -> None:
        """Record that a node's connection was closed."""
        if node in self._nodes:
            self._nodes[node].closed_at = now

    def is_connected(self, node: str, now: int) -> bool:
        """True if a node of this name is connected and not suspected."""
        observed = self._nodes.get(node)
        return observed is not None and observed.closed_at is None and now < observed.suspect_at()

    def view(self, number: int, members: Iterable[str], now: int) -> None:
        """Record the controllers' new view: its number and the names of its members."""
        if number > self._view_number:
            self._watch.view(number)
        members = frozenset(members)
        if self._members and members - self._members:
            self._waits_from = now
            self._connected = {node for node, at in self._nodes.items() if not at.suspected}
        self._view_number, self._members = number, members

    def moves(self, state: ControlState, now: int) -> tuple[MoveFragment, ...]:
        """The moves that this controller is to request now."""
        for node, observed in self._nodes.items():
            if not observed.suspected and now >= observed.suspect_at():
                observed.suspected = True
                self._watch.suspect(node, now)
        live = frozenset(state.live_nodes())
        numbers = frozenset(entry.number for entry in state.placement.values())
        self._watch.keep(live, numbers, now)
        self._nodes = {
            n: observed
            for n, observed in self._nodes.items()
            if n in live or not observed.suspected
        }
        if not live or not self._plans(live, now):
            self.unplaced = ()
            return ()
        plan = plan_moves(state, self.specs_of(state), self._watch.reports(now))
        self.unplaced = plan.unplaced
        return plan.moves

    def resignation(self, state: ControlState, now: int) -> tuple[str, int] | None:
        """The copy that this controller is to ask to resign now: its node and placement number.

        None if ``moves`` has found something to do, and for a while after the last one.
        """
        live = frozenset(state.live_nodes())
        if not live or not self._plans(live, now) or now < self._resign_at:
            return None
        number = next_resignation(state, self.specs_of(state), self._watch.reports(now))
        if number is None:
            return None
        self._resigned_at = now
        return next(e.node for e in state.placement.values() if e.number == number), number

    @property
    def _resign_at(self) -> int:
        """The time from which on a copy may be asked to resign."""
        return (
            self._waits_from
            if self._resigned_at is None
            else (self._resigned_at + RESIGNATION_US_MIN)
        )

    def may_forget(self, state: ControlState) -> bool:
        """True if nodes have carried out all deletions, so that tombstones may be dropped.

        Else nobody would know that something of a deleted query is still to be done.
        """
        ended, deleted = self._watch.ended(), {*state.queries_wanted(Wanted.DELETED)}
        entries = (
            state.placement.get((spec.query, spec.fragment))
            for spec in self.specs_of(state)
            if spec.query in deleted
        )
        return all(entry is not None and entry.number in ended for entry in entries)

    def _plans(self, live: frozenset[str], now: int) -> bool:
        if not self._members or self.name != min(self._members):
            return False
        return live <= self._connected or now >= self._waits_from + FIRST_HEARTBEATS_US_MAX

    def reports(self, now: int) -> NodeReports:
        """The nodes' standings and the states of placements."""
        return self._watch.reports(now)

    def next_deadline(self, now: int) -> int | None:
        """The time at which ``moves`` may change without further input; None if there is none."""
        found = [h.suspect_at() for h in self._nodes.values() if not h.suspected]
        found += [self._waits_from + FIRST_HEARTBEATS_US_MAX, self._resign_at]
        if (settled := self._watch.next_deadline(now)) is not None:
            found.append(settled)
        return min((at for at in found if at > now), default=None)
