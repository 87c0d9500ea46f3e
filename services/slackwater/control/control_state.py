"""The state of the control plane: queries, nodes, placement and controllers, as a join.

Every entry is a register. Of two entries of one name the greater remains. Entries are compared
field by field: queries by generation and then stamp, placements by generation and then number, the
others in the order of their fields. A stamp is (view number, logical time, sender). No wall time
is compared: clocks of two machines differ. A stamp is used once, since a member's views have rising
numbers and its logical time rises in a view. So ``join`` is idempotent, commutative and
associative, and halves of a split network that merge repeatedly reach one state. The paper requires
only the identity property (IADS, section II), which is not enough for repeated splits.

A deletion is a tombstone: an entry that remains, and is compared as any other. Without it, a half
that has not received the deletion would bring the entry back at the merge.

Pure values; the maps are never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Final, NamedTuple, Protocol, TypeVar

from slackwater.model.names import generation_of
from slackwater.protocols.iads.messages import Stamp

STREAMS: Final = "-streams"
"""In place of a query, in the key of a placement: the fragment is a stream's proxy, which serves
all queries. No query can have this name."""
CHILDREN: Final = "-children"
"""The same for an orderer of children that several queries share (Fargo's children): it runs also
when the query has been deleted that the children are named after."""
OF_NO_QUERY: Final = (STREAMS, CHILDREN)
ENTRY_BYTES: Final = 160
"""Upper bound of an entry's bytes in the encoded state, without its name and texts."""


class Wanted(Enum):
    """The state of a query that an operator has requested."""

    RUNNING = "running"
    PAUSED = "paused"
    DELETED = "deleted"
    """The tombstone of a query."""


class QueryEntry(NamedTuple):
    """A registered query. ``definition`` is opaque text, empty in a tombstone."""

    generation: int
    stamp: Stamp
    wanted: str
    definition: str = ""

    def text_bytes(self) -> int:
        """Bytes of the texts in it."""
        return len(self.definition.encode())


class NodeEntry(NamedTuple):
    """A machine. ``room`` counts the fragments that it can take; ``left`` is its tombstone."""

    stamp: Stamp
    left: bool = False
    draining: bool = False
    room: int = 0
    labels: tuple[tuple[str, str], ...] = ()

    def text_bytes(self) -> int:
        """Bytes of the texts in it."""
        return sum(len(key.encode()) + len(value.encode()) + 8 for key, value in self.labels)


class PlacementEntry(NamedTuple):
    """The node on which a fragment of a query's generation runs.

    ``number`` is the placement number; it rises with every placement.
    """

    generation: int
    number: int
    stamp: Stamp
    node: str

    def text_bytes(self) -> int:
        """Bytes of the texts in it."""
        return len(self.node.encode())


class ControllerEntry(NamedTuple):
    """A controller, and the view in which it last persisted the merged state."""

    acknowledged_view: int
    stamp: Stamp
    left: bool = False

    def text_bytes(self) -> int:
        """Bytes of the texts in it."""
        return 0


class _Entry(Protocol):
    def text_bytes(self) -> int: ...


E = TypeVar("E", QueryEntry, NodeEntry, PlacementEntry, ControllerEntry)


@dataclass(frozen=True)
class ControlState:
    """The replicated object's state.

    ``placement`` is keyed by query and fragment. ``generation_unused`` is greater than the
    generation of every dropped tombstone, and than the number in its name (``climate.g1``).
    ``number_greatest`` is the greatest placement number that was given or that a node reported.
    """

    queries: Mapping[str, QueryEntry] = field(default_factory=dict)
    nodes: Mapping[str, NodeEntry] = field(default_factory=dict)
    placement: Mapping[tuple[str, str], PlacementEntry] = field(default_factory=dict)
    controllers: Mapping[str, ControllerEntry] = field(default_factory=dict)
    generation_unused: int = 0
    number_greatest: int = 0

    def size_bytes(self) -> int:
        """An upper bound of the encoded size, in bytes."""
        return sum(
            _map_bytes(entries) for entries in (self.queries, self.nodes, self.controllers)
        ) + _map_bytes({f"{query}/{part}": e for (query, part), e in self.placement.items()})

    def stamps(self) -> frozenset[Stamp]:
        """The operations whose effect is in the state."""
        maps = (self.queries, self.nodes, self.placement, self.controllers)
        return frozenset(entry.stamp for entries in maps for entry in entries.values())

    def has_tombstones(self) -> bool:
        """True if a query is deleted or a node has left, and the tombstone is still there."""
        deleted = Wanted.DELETED.value
        return any(query.wanted == deleted for query in self.queries.values()) or any(
            node.left for node in self.nodes.values()
        )

    def queries_wanted(self, wanted: Wanted) -> list[str]:
        """Names of the queries with this wanted state."""
        return [name for name, query in self.queries.items() if query.wanted == wanted.value]

    def live_queries(self) -> tuple[str, ...]:
        """Names of the queries that are not deleted."""
        deleted = Wanted.DELETED.value
        return tuple(sorted(n for n, q in self.queries.items() if q.wanted != deleted))

    def live_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that have not left."""
        return tuple(sorted(name for name, node in self.nodes.items() if not node.left))


def join(one: ControlState, other: ControlState) -> ControlState:
    """The least state that holds both: idempotent, commutative, associative."""
    return ControlState(
        _join_maps(one.queries, other.queries),
        _join_maps(one.nodes, other.nodes),
        _join_maps(one.placement, other.placement),
        _join_maps(one.controllers, other.controllers),
        max(one.generation_unused, other.generation_unused),
        max(one.number_greatest, other.number_greatest),
    )


def join_all(states: Iterable[ControlState]) -> ControlState:
    """The join of any number of states; the empty state is neutral."""
    return reduce(join, states, ControlState())


def drop_tombstones(state: ControlState, view_number: int) -> ControlState:
    """Drop the tombstones of earlier views, with the placements of the queries that they delete.

    Placements of shared children that no query reads any more are dropped, too.

    Legal only if every controller that has not left has persisted the state as merged in this
    view: then none holds an older entry that a later merge could bring back.
    """
    deleted = Wanted.DELETED.value
    dropped = {
        name: entry
        for name, entry in state.queries.items()
        if entry.wanted == deleted and entry.stamp.view_number < view_number
    }
    # Neither a dropped entry's generation nor the number in a name like climate.g1 is used again.
    generations = [
        1 + max(entry.generation, generation_of(name)) for name, entry in dropped.items()
    ]
    return ControlState(
        {name: e for name, e in state.queries.items() if name not in dropped},
        {
            n: e
            for n, e in state.nodes.items()
            if not (e.left and e.stamp.view_number < view_number)
        },
        {
            key: e
            for key, e in state.placement.items()
            if key[0] not in dropped and (key[0] != CHILDREN or _is_read(key[1], state))
        },
        state.controllers,
        max([state.generation_unused, *generations]),
        state.number_greatest,
    )


def _is_read(orderer: str, state: ControlState) -> bool:
    """Whether a query may read shared children: its definition has the name of their query."""
    of = f'"{orderer.rsplit(".", 2)[0]}"'
    return any(of in query.definition for query in state.queries.values())


def _join_maps(one: Mapping[K, E], other: Mapping[K, E]) -> dict[K, E]:
    both = dict(one)
    for name, entry in other.items():
        mine = both.get(name)
        both[name] = entry if mine is None else max(mine, entry)
    return both


K = TypeVar("K", str, tuple[str, str])


def _map_bytes(entries: Mapping[str, _Entry]) -> int:
    return sum(
        ENTRY_BYTES + len(name.encode()) + entry.text_bytes() for name, entry in entries.items()
    )
