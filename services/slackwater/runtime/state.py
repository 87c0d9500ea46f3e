"""State records: the newest word of each fragment about where it is (rules 5 and 23).

They lie in ``sw.state.<query>``, compacted by fragment. An orderer's is a hint, as right old as
new, so it is written without a transaction and without waiting; a root's is part of the
transaction whose answers it accounts for, and is written there (by the root itself). Reading is
the same for both: to the end, committed records only, the last of each fragment.

A root writes into the partition of its part (orderers into 0). In one partition for all, a root
that is stopped in the middle of its transaction would hide from those of other parts, started
again meanwhile, what they have committed themselves: they would answer it twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.codec.records import (
    decode_orderer_state,
    decode_root_state,
    encode_orderer_state,
)
from slackwater.model.deployment import QuerySpec
from slackwater.model.records import OrdererState, RootState
from slackwater.runtime.topics import state_topic
from slackwater.runtime.transport import Transport, Writer, read_to_end


def write_orderer_state(writer: Writer, query: str, state: OrdererState) -> None:
    """Append an orderer's state record; delivered when it is delivered."""
    writer.append(state_topic(query), 0, encode_orderer_state(state), state.fragment.encode())


def read_states(
    transport: Transport, query: str, parts: int, *, timeout_s: float = 30.0
) -> dict[str, OrdererState | RootState]:
    """The newest state record of each fragment of the query, by the fragment's name."""
    newest: dict[str, OrdererState | RootState] = {}
    for part in range(parts):
        newest |= _read(transport, query, part, timeout_s)
    return newest


def read_orderer_state(
    transport: Transport, query: str, fragment: str, *, timeout_s: float = 30.0
) -> OrdererState | None:
    """The newest state record of one orderer; None before its first."""
    state = read_states(transport, query, 1, timeout_s=timeout_s).get(fragment)
    return state if isinstance(state, OrdererState) else None


def read_root_states(
    transport: Transport, query: str, parts: int, *, timeout_s: float = 30.0
) -> dict[str, RootState]:
    """The newest state record of each part's root, by the fragment's name."""
    states = read_states(transport, query, parts, timeout_s=timeout_s)
    return {name: state for name, state in states.items() if isinstance(state, RootState)}


def read_placements(transport: Transport, queries: Iterable[QuerySpec]) -> dict[str, int]:
    """By the fragment's name, the greatest placement number under which it has answered (R17)."""
    return {
        name: state.placement
        for query in queries
        for name, state in read_root_states(transport, query.name, query.parts).items()
    }


def read_root_state(
    transport: Transport, query: str, part: int, *, timeout_s: float = 30.0
) -> RootState | None:
    """The newest state record of a part's root, whatever other parts are in the middle of."""
    # A topic that was made with one partition for all parts has the older records in that one.
    for partition in sorted({part, 0}, reverse=True):
        state = _read(transport, query, partition, timeout_s).get(f"root/{query}.{part}")
        if isinstance(state, RootState):
            return state
    return None


def _read(
    transport: Transport, query: str, partition: int, timeout_s: float
) -> dict[str, OrdererState | RootState]:
    newest: dict[str, bytes] = {}
    log = (state_topic(query), partition)
    for record in read_to_end(transport, log, isolation="read_committed", timeout_s=timeout_s):
        if record.key is not None:
            newest[record.key.decode()] = record.value
    return {name: _decode(name, query, value) for name, value in newest.items() if value}


def _decode(fragment: str, query: str, value: bytes) -> OrdererState | RootState:
    where = f"{state_topic(query)}, {fragment}"
    if fragment.startswith("root/"):
        return decode_root_state(value, where)
    return decode_orderer_state(value, where)
