"""The standing of nodes by their heartbeats, and the state of placements, for ``placement``.

A suspected node that is reachable again takes over no running fragment until it has been reachable
for ``SETTLE_US``. Otherwise a node whose link fails every few seconds would take and lose fragments
all the time. The time doubles with each suspicion, and starts again at its first value after a long
time without one. A new node does not wait.

A *fenced* fragment has been stopped by a writer of its log with a greater placement number, in the
other half of a split network. Its own half does not place it again in this view. It does in the
next view, if the record then still has the fenced placement: the other half's placement has been
lost with its controllers (rule-27). It also does if a node comes back in this view: the other
writer may have run there, without a controller, and it ends when the node receives the record.

Pure: times come in as arguments. Times are monotonic us.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from slackwater.control.placement import NodeReports, Standing

SETTLE_US: Final = 10_000_000
"""The settling time: how long a node must have been reachable again after its first suspicion."""
SETTLE_US_MAX: Final = 320_000_000
"""The settling time from the sixth suspicion on. After so long without a suspicion the count starts
again."""
NO_VIEW: Final = -1
START_US_MAX: Final = 30_000_000
"""A fragment that is not ready so long after its placement is overdue."""


@dataclass(slots=True)
class _Node:
    steady_at: int
    suspected: bool = False
    suspicions: int = 0


class NodeWatch:
    """The nodes' standings and the states of placements, as observed by one controller."""

    def __init__(self, view_number: int) -> None:
        self._view_number = view_number
        self._nodes: dict[str, _Node] = {}
        self._placed_since: dict[int, int] = {}
        self._ready: dict[str, frozenset[int]] = {}
        self._ended: dict[str, frozenset[int]] = {}
        """By node: what it has reported last. A deletion in Kafka outlives the node."""
        self._answering: dict[str, frozenset[int]] = {}
        self._fenced_in: dict[int, int] = {}

    def heartbeat(
        self,
        node: str,
        ready: AbstractSet[int],
        fenced: AbstractSet[int],
        now: int,
        ended: frozenset[int] = frozenset(),
        answering: frozenset[int] = frozenset(),
    ) -> None:
        """Record a node's heartbeat, with the placements there that are ready or were fenced.

        ``ended``: those of deleted queries that have carried out the deletion. ``answering``: the
        copies of parts that answer.
        """
        known = self._nodes.setdefault(node, _Node(now))
        if known.suspected:
            known.suspected = False
            self._fenced_in = dict.fromkeys(self._fenced_in, NO_VIEW)
            known.steady_at = now + min(SETTLE_US << known.suspicions - 1, SETTLE_US_MAX)
        self._ready[node] = frozenset(ready)
        self._ended[node] = ended
        self._answering[node] = answering
        for number in fenced:
            self._fenced_in.setdefault(number, self._view_number)

    def suspect(self, node: str, now: int) -> None:
        """Record that a node's heartbeats have stopped."""
        known = self._nodes.setdefault(node, _Node(now))
        if known.suspected:
            return
        if now - known.steady_at >= SETTLE_US_MAX:
            known.suspicions = 0
        known.suspected = True
        known.suspicions = min(known.suspicions + 1, 10)
        self._ready.pop(node, None)
        self._answering.pop(node, None)

    def view(self, view_number: int) -> None:
        """Record the number of the controllers' new view."""
        assert view_number > self._view_number
        self._view_number = view_number

    def keep(self, nodes: AbstractSet[str], numbers: AbstractSet[int], now: int) -> None:
        """Drop all nodes and placement numbers but these, which are in the record."""
        self._nodes = {name: node for name, node in self._nodes.items() if name in nodes}
        self._ready = {
            name: ready & numbers for name, ready in self._ready.items() if name in nodes
        }
        self._answering = {n: of & numbers for n, of in self._answering.items() if n in nodes}
        self._ended = {name: ended for name, ended in self._ended.items() if name in nodes}
        self._fenced_in = {n: view for n, view in self._fenced_in.items() if n in numbers}
        self._placed_since = {n: self._placed_since.get(n, now) for n in numbers}

    def ended(self) -> frozenset[int]:
        """The placements of deleted queries that have carried out the deletion."""
        return frozenset[int]().union(*self._ended.values())

    def reports(self, now: int) -> NodeReports:
        """The input of ``placement.plan_moves``."""
        ready = frozenset[int]().union(*self._ready.values())
        fenced = {n for n, view in self._fenced_in.items() if view == self._view_number}
        return NodeReports(
            {name: _standing(node, now) for name, node in self._nodes.items()},
            ready=ready - self._fenced_in.keys(),
            overdue=frozenset(n for n, t in self._placed_since.items() if now - t >= START_US_MAX),
            fenced=frozenset(fenced),
            down=frozenset(self._fenced_in) - fenced,
            ended=self.ended(),
            answering=frozenset[int]().union(*self._answering.values()),
        )

    def next_deadline(self, now: int) -> int | None:
        """The time at which the reports change without further input; None if they do not."""
        settled = (n.steady_at for n in self._nodes.values() if not n.suspected)
        started = (since + START_US_MAX for since in self._placed_since.values())
        return min((at for at in (*settled, *started) if at > now), default=None)


def _standing(node: _Node, now: int) -> Standing:
    if node.suspected:
        return Standing.SUSPECTED
    return Standing.STEADY if now >= node.steady_at else Standing.SETTLING
