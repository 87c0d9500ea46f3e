"""The replicated object of the control plane: operations on queries, nodes and placement.

``apply`` is deterministic: a state, an operation and its stamp give the next state and a response.
An operation on an unknown query, node or controller changes nothing, and its response lists the
known ones. An operation that would make the state too large is refused.

A placement number orders all placements of a fragment. Its 63 bits are (view number, logical time,
rank of the sender). Operations are applied in the order of the first two. Of two placements with
equal times the one with the smaller rank may come second, and is refused. Two halves of a split
network give different numbers, since a sender is in one half only and never uses a stamp twice. Its
rank is a hash of its name, and so independent of which controllers are members of the view or are
added later; names with the same hash are refused. A rank counted among the members of a view could
occur in both halves. The view number is greater than that of all numbers in the object, since a
view has a greater number than all earlier views of its members.

Pure: no clock, no randomness (IADS, section II).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

from slackwater.control.control_state import (
    OF_NO_QUERY,
    ControllerEntry,
    ControlState,
    NodeEntry,
    PlacementEntry,
    QueryEntry,
    Wanted,
    drop_tombstones,
    join_all,
)
from slackwater.model.limits import CONTROL_STATE_BYTES_MAX
from slackwater.protocols.iads.messages import Stamp
from slackwater.protocols.iads.topology import MEMBERS_MAX

VIEW_BITS: Final = 25
TIMESTAMP_BITS: Final = 28
RANK_BITS: Final = 10
NAME_CHARS_MAX: Final = 100
ROOM_FRAGMENTS_MAX: Final = 100_000
ANY_NUMBER: Final = -1
"""For ``MoveFragment.replaces``: the move replaces any placement."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)

assert VIEW_BITS + TIMESTAMP_BITS + RANK_BITS == 63


@dataclass(frozen=True, slots=True)
class ApplyQuery:
    """Register a query, or change it: a changed definition is a new generation."""

    query: str
    definition: str


@dataclass(frozen=True, slots=True)
class DeleteQuery:
    """The query ends; a tombstone remains.

    With ``beside`` it ends only while that query is there. The end of a change deletes the earlier
    generation beside the later one, its cancellation the later one beside the earlier: if both are
    requested, the first one counts (trace-44).
    """

    query: str
    beside: str = ""


@dataclass(frozen=True, slots=True)
class PauseQuery:
    """The query keeps its positions and computes nothing."""

    query: str


@dataclass(frozen=True, slots=True)
class ResumeQuery:
    """The query continues from its positions."""

    query: str


@dataclass(frozen=True, slots=True)
class JoinNode:
    """A machine offers to run ``room`` fragments.

    ``number_seen`` is the greatest placement number that it was given.
    """

    node: str
    room: int
    labels: tuple[tuple[str, str], ...] = ()
    number_seen: int = 0


@dataclass(frozen=True, slots=True)
class LeaveNode:
    """A machine is gone for good."""

    node: str


@dataclass(frozen=True, slots=True)
class DrainNode:
    """A machine takes no further fragments."""

    node: str


@dataclass(frozen=True, slots=True)
class MoveFragment:
    """A fragment of a query is placed on a node.

    ``replaces`` is the placement number that it has now, 0 for none. If it has another one, the
    operation is refused. So if two controllers plan the same move, the fragment is moved once.
    """

    query: str
    fragment: str
    node: str
    replaces: int = ANY_NUMBER


@dataclass(frozen=True, slots=True)
class AcknowledgeView:
    """The sender has persisted the state as merged in the view of this number.

    A controller requests it after a refresh. When the last controller has done so, tombstones of
    earlier views are dropped.
    """

    view_number: int


@dataclass(frozen=True, slots=True)
class LeaveController:
    """A controller is gone for good; tombstones no longer wait for it."""

    controller: str


Operation = (
    ApplyQuery | DeleteQuery | PauseQuery | ResumeQuery | JoinNode | LeaveNode | DrainNode
    | MoveFragment | AcknowledgeView | LeaveController
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ControlResponse:
    """The response to an operation.

    ``refusal`` is the reason why it was refused, empty if it was applied. ``known`` lists the known
    names if it named an unknown one. ``number`` is the query's generation, the placement number, or
    the acknowledged view.
    """

    refusal: str = ""
    number: int = 0
    known: tuple[str, ...] = ()


_Result = tuple[ControlState, ControlResponse]


def ranks_of(roster: Iterable[str]) -> dict[str, int]:
    """By controller, the rank in its placement numbers.

    Raises:
        ValueError: two names have one rank.
    """
    ranks: dict[int, str] = {}
    for name in sorted(roster):
        other = ranks.setdefault(crc32(name.encode()) % 2**RANK_BITS, name)
        if other != name:
            raise ValueError(f"controllers {other!r} and {name!r} would give the same numbers")
    return {name: rank for rank, name in ranks.items()}


def placement_number(stamp: Stamp, rank: int) -> int:
    """63 bits: view number, logical time, rank.

    Raises:
        OverflowError: a component does not fit its bits.
    """
    for component, bits in (
        (stamp.view_number, VIEW_BITS), (stamp.timestamp, TIMESTAMP_BITS), (rank, RANK_BITS)
    ):  # fmt: skip
        if not 0 <= component < 2**bits:
            raise OverflowError(f"{component} does not fit {bits} bits of a placement number")
    return (stamp.view_number << TIMESTAMP_BITS | stamp.timestamp) << RANK_BITS | rank


def view_of_number(number: int) -> int:
    """The view in which a placement number was given."""
    return number >> TIMESTAMP_BITS + RANK_BITS


def greatest_view(state: ControlState) -> int:
    """The greatest view number that a state has, in its entries and in placement numbers."""
    used = [stamp.view_number for stamp in state.stamps()]
    return max([view_of_number(state.number_greatest), *used])


class ControlObject:
    """A replica of the object. ``roster`` names all controllers, and is the same at each of them.

    Raises:
        ValueError: two controllers have one rank.
    """

    def __init__(self, roster: frozenset[str], state: ControlState) -> None:
        assert 0 < len(roster) <= MEMBERS_MAX
        self._ranks: Final = ranks_of(roster)
        self.state = state
        self._overridden: list[Stamp] = []
        self._applied: dict[str, Stamp] = {}
        """By live query, the stamp of the operation that applied its definition, if this replica
        applied it. The query's entry in the state has only the stamp of its last change, which may
        be a later pause."""

    def apply(self, operation: Any, stamp: Stamp) -> ControlResponse:
        """Change the state and return the response; deterministic."""
        state, response = self._next(operation, stamp)
        if not response.refusal:
            size, limit = state.size_bytes(), CONTROL_STATE_BYTES_MAX
            if size > limit and size > self.state.size_bytes():
                return ControlResponse(f"the state would have {size} bytes; the limit is {limit}")
            self._note_applied(operation, stamp)
            self.state = state
        return response

    def _note_applied(self, operation: Operation, stamp: Stamp) -> None:
        match operation:
            case ApplyQuery(query):
                self._applied[query] = stamp
            case DeleteQuery(query):
                self._applied.pop(query, None)

    def merge(self, states: Mapping[str, Any]) -> None:
        """Replace the state by the join of these states (by member).

        Operations whose effect is lost are then returned by ``take_overridden``.
        """
        old = self.state
        self.state = join_all(states.values())
        lost = {query for query in self._applied if self._is_replaced(query, old)}
        overridden = {self._applied.pop(query) for query in lost}
        self._overridden += sorted(overridden | (old.stamps() - self.state.stamps()))

    def _is_replaced(self, query: str, old: ControlState) -> bool:
        """True if a query has another definition than in an older state, or none in one of them."""
        before, now = old.queries.get(query), self.state.queries.get(query)
        if before is None or now is None:
            return True
        return (before.generation, before.definition) != (now.generation, now.definition)

    def take_overridden(self) -> tuple[Stamp, ...]:
        """The operations that merges have overridden since the last call."""
        overridden, self._overridden = tuple(self._overridden), []
        return overridden

    def snapshot(self) -> ControlState:
        """The state as an immutable value."""
        return self.state

    def _next(self, operation: Operation, stamp: Stamp) -> _Result:
        match operation:
            case ApplyQuery():
                return self._apply_query(operation, stamp)
            case DeleteQuery(query, beside):
                if beside and beside not in self.state.live_queries():
                    return self._refuse(
                        f"query {query} is not deleted, since {beside} has been deleted meanwhile"
                    )
                return self._change(query, stamp, Wanted.DELETED)
            case PauseQuery(query):
                return self._change(query, stamp, Wanted.PAUSED)
            case ResumeQuery(query):
                return self._change(query, stamp, Wanted.RUNNING)
            case JoinNode():
                return self._join_node(operation, stamp)
            case LeaveNode(node):
                return self._replace_node(node, lambda _: NodeEntry(stamp, left=True))
            case DrainNode(node):
                return self._replace_node(node, lambda e: e._replace(stamp=stamp, draining=True))
            case MoveFragment():
                return self._move(operation, stamp)
            case AcknowledgeView(view_number):
                return self._acknowledge(view_number, stamp)
            case LeaveController(name):
                return self._leave_controller(name, stamp)

    def _apply_query(self, operation: ApplyQuery, stamp: Stamp) -> _Result:
        name, definition = operation.query, operation.definition
        if refusal := _why_no_name(name):
            return self._refuse(refusal)
        old = self.state.queries.get(name)
        generation, wanted = self.state.generation_unused, Wanted.RUNNING.value
        if old is not None and old.definition == definition and old.wanted != Wanted.DELETED.value:
            generation, wanted = old.generation, old.wanted
        elif old is not None:
            generation = old.generation + 1
        return self._set_query(name, QueryEntry(generation, stamp, wanted, definition))

    def _change(self, name: str, stamp: Stamp, wanted: Wanted) -> _Result:
        if name not in self.state.live_queries():
            return self._unknown("query", name, self.state.live_queries())
        old = self.state.queries[name]
        definition = "" if wanted is Wanted.DELETED else old.definition
        return self._set_query(name, QueryEntry(old.generation, stamp, wanted.value, definition))

    def _set_query(self, name: str, entry: QueryEntry) -> _Result:
        queries = {**self.state.queries, name: entry}
        return replace(self.state, queries=queries), ControlResponse(number=entry.generation)

    def _join_node(self, operation: JoinNode, stamp: Stamp) -> _Result:
        if refusal := _why_no_name(operation.node):
            return self._refuse(refusal)
        if not 0 <= operation.room <= ROOM_FRAGMENTS_MAX:
            limit = ROOM_FRAGMENTS_MAX
            return self._refuse(f"room {operation.room}: must be between 0 and {limit}")
        if not 0 <= operation.number_seen < 2**63:
            return self._refuse(f"placement number {operation.number_seen}: must have 63 bits")
        entry = NodeEntry(stamp, room=operation.room, labels=tuple(sorted(operation.labels)))
        nodes = {**self.state.nodes, operation.node: entry}
        greatest = max(self.state.number_greatest, operation.number_seen)
        return replace(self.state, nodes=nodes, number_greatest=greatest), ControlResponse()

    def _replace_node(self, name: str, change: Callable[[NodeEntry], NodeEntry]) -> _Result:
        if name not in self.state.live_nodes():
            return self._unknown("node", name, self.state.live_nodes())
        nodes = {**self.state.nodes, name: change(self.state.nodes[name])}
        return replace(self.state, nodes=nodes), ControlResponse()

    def _move(self, operation: MoveFragment, stamp: Stamp) -> _Result:
        query, fragment, name = operation.query, operation.fragment, operation.node
        old = self.state.placement.get((query, fragment))
        # What carries out a deletion may be moved, too, by a controller.
        is_placed = old is not None and query in self.state.queries
        is_planned = is_placed and operation.replaces != ANY_NUMBER
        if query not in (*OF_NO_QUERY, *self.state.live_queries()) and not is_planned:
            return self._unknown("query", query, self.state.live_queries())
        free = tuple(n for n in self.state.live_nodes() if not self.state.nodes[n].draining)
        if name not in free:
            return self._unknown("node", name, free)
        if refusal := _why_no_name(fragment):
            return self._refuse(refusal)
        if operation.replaces not in (ANY_NUMBER, old.number if old else 0):
            return self._refuse(f"fragment {query}/{fragment} was placed by another operation")
        number = placement_number(stamp, self._ranks[stamp.sender])
        if number <= self.state.number_greatest:
            seen = view_of_number(self.state.number_greatest)
            if seen == stamp.view_number:
                return self._refuse("another fragment was placed at the same time: try again")
            return self._refuse(
                f"a node has a placement number of view {seen}, and this is view"
                f" {stamp.view_number}: the data of a controller was lost"
            )
        generation = 0 if query in OF_NO_QUERY else self.state.queries[query].generation
        entry = PlacementEntry(generation, number, stamp, name)
        placement = {**self.state.placement, (query, fragment): entry}
        state = replace(self.state, placement=placement, number_greatest=number)
        return state, ControlResponse(number=number)

    def _acknowledge(self, view_number: int, stamp: Stamp) -> _Result:
        if view_number != stamp.view_number:
            return self._refuse(f"view {view_number} is over; this is view {stamp.view_number}")
        silent = ControllerEntry(0, Stamp(0, 0, ""))
        controllers = {name: self.state.controllers.get(name, silent) for name in self._ranks}
        controllers |= {stamp.sender: ControllerEntry(view_number, stamp)}
        state = replace(self.state, controllers={**self.state.controllers, **controllers})
        here = [c for c in state.controllers.values() if not c.left]
        if all(c.acknowledged_view == view_number == c.stamp.view_number for c in here):
            state = drop_tombstones(state, view_number)
        return state, ControlResponse(number=view_number)

    def _leave_controller(self, name: str, stamp: Stamp) -> _Result:
        entries = self.state.controllers
        here = {*self._ranks, *entries} - {each for each, entry in entries.items() if entry.left}
        if name not in here:
            return self._unknown("controller", name, tuple(sorted(here)))
        # This view: at a merge an acknowledgement of an earlier one must not bring it back.
        left = ControllerEntry(stamp.view_number, stamp, left=True)
        controllers = {**self.state.controllers, name: left}
        return replace(self.state, controllers=controllers), ControlResponse()

    def _refuse(self, refusal: str) -> _Result:
        return self.state, ControlResponse(refusal)

    def _unknown(self, kind: str, name: str, known: tuple[str, ...]) -> _Result:
        return self.state, ControlResponse(f"unknown {kind} {name!r}", known=known)


def _why_no_name(name: str) -> str:
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        return (
            f"{name[:NAME_CHARS_MAX]!r} is no name: letters, digits, dots, underscores and hyphens,"
            f" at most {NAME_CHARS_MAX} characters"
        )
    return ""
