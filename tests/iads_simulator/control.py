"""The product's control object in the simulator: operations, observations, and its own checkers.

The observations are the history of entries: an operation that changes an entry *follows* the one
whose stamp the entry had. So the operations that led to a state can be found from its stamps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from random import Random
from typing import Any

from slackwater.control.control_object import (
    ApplyQuery,
    ControlObject,
    DeleteQuery,
    DrainNode,
    JoinNode,
    LeaveNode,
    MoveFragment,
    Operation,
    PauseQuery,
    ResumeQuery,
)
from slackwater.control.control_state import ControlState
from slackwater.protocols.iads.messages import Stamp

Key = tuple[str, Any]
"""A map of the state, and the name of an entry in it."""
_KINDS = ("apply", "apply", "apply", "delete", "pause", "resume", "join", "leave", "drain", "move")


def draw_operation(seed: int, number: int) -> Operation:
    """Draw the operation of a request; few names, so that operations meet."""
    rng = Random(seed * 1_000 + number)
    query, node = f"q{rng.randrange(3)}", f"n{rng.randrange(3)}"
    match rng.choice(_KINDS):
        case "apply":
            return ApplyQuery(query, f"definition {rng.randrange(8)}")
        case "delete":
            return DeleteQuery(query)
        case "pause":
            return PauseQuery(query)
        case "resume":
            return ResumeQuery(query)
        case "join":
            return JoinNode(node, rng.randrange(9))
        case "leave":
            return LeaveNode(node)
        case "drain":
            return DrainNode(node)
        case _:
            return MoveFragment(query, "root.0", node)


def key_of(operation: Any) -> Key | None:
    """The entry that an operation changes; None for one that changes no single entry."""
    match operation:
        case ApplyQuery(query) | DeleteQuery(query) | PauseQuery(query) | ResumeQuery(query):
            return "queries", query
        case JoinNode(node) | LeaveNode(node) | DrainNode(node):
            return "nodes", node
        case MoveFragment(query, fragment):
            return "placement", (query, fragment)
    return None


def entries(state: ControlState) -> dict[Key, Stamp]:
    """The stamp of each entry, but those of controllers."""
    maps: dict[str, Mapping[Any, Any]] = {
        "queries": state.queries,
        "nodes": state.nodes,
        "placement": state.placement,
    }
    return {(kind, name): e.stamp for kind, map_ in maps.items() for name, e in map_.items()}


@dataclass
class Entries:
    """What all replicas have done to entries."""

    operations: dict[Stamp, Any] = field(default_factory=dict)
    follows: dict[Stamp, set[Stamp]] = field(default_factory=lambda: defaultdict(set))
    dropped: dict[Key, set[Stamp]] = field(default_factory=lambda: defaultdict(set))
    """Stamps of entries that are in no state any more, such as tombstones."""
    numbers: dict[int, Stamp] = field(default_factory=dict)
    """Placement numbers, and the operation for which each was given."""

    def led_to(self, stamp: Stamp) -> Iterator[tuple[Stamp, bool]]:
        """The operations that led to one, with whether a later one replaced the definition."""
        seen: set[tuple[Stamp, bool]] = set()
        open_ = [(stamp, False)]
        while open_:
            found = open_.pop()
            if found in seen:
                continue
            seen.add(found)
            yield found
            one, is_replaced = found
            replaces = isinstance(self.operations.get(one), ApplyQuery | DeleteQuery)
            open_ += [(before, is_replaced or replaces) for before in self.follows[one]]


class ObservedControl(ControlObject):
    """The object of one member; it notes what it does."""

    def __init__(self, roster: frozenset[str], state: ControlState, noted: Entries) -> None:
        super().__init__(roster, state)
        self.applied: list[Stamp] = []
        self._noted = noted

    def apply(self, operation: Any, stamp: Stamp) -> Any:
        before, noted = entries(self.state), self._noted
        response = super().apply(operation, stamp)
        self.applied.append(stamp)
        after = entries(self.state)
        for key in before.keys() | after.keys():
            old, new = before.get(key), after.get(key)
            if new is None:
                assert old is not None
                noted.dropped[key].add(old)
            elif new != old and old is not None:
                noted.follows[new].add(old)
        noted.operations[stamp] = operation
        if isinstance(operation, MoveFragment) and not response.refusal:
            other = noted.numbers.setdefault(response.number, stamp)
            assert other == stamp, f"number {response.number} was given to {other} and {stamp}"
        return response


def unaccounted(noted: Entries, final: ControlState, stamp: Stamp, overridden: Set[Stamp]) -> bool:
    """Whether an answered operation that was not named is gone.

    It is not if it led to the final state, or to an entry that was dropped on purpose, or if it was
    replaced before a merge by an operation that the merge has overridden. A pause does not replace
    a definition, so an ``apply`` is not replaced by one.
    """
    operation = noted.operations[stamp]
    key = key_of(operation)
    assert key is not None
    ends = noted.dropped[key] | {s for k, s in entries(final).items() if k == key}
    is_apply = isinstance(operation, ApplyQuery)
    # Two halves that apply one definition have what both wanted.
    equal = {s for s, o in noted.operations.items() if o == operation} if is_apply else {stamp}
    if any(s in equal for end in ends for s, _ in noted.led_to(end)):
        return False
    return not any(
        s in equal and end != s and (replaced or not is_apply)
        for end in overridden
        for s, replaced in noted.led_to(end)
    )
