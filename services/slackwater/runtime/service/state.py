"""State records: the latest positions of each fragment (rule-5, rule-23).

State records are in ``sw.state.<query>``, compacted by fragment. An orderer may continue from an
older record as well as from the newest, so its record is written asynchronously and without a
transaction. A root's record is part of the transaction with the answers that it accounts for, and
the root itself writes it. Both are read in the same way: committed records up to the end, of which
the last one of each fragment counts.

All generations of a query have one topic, in which each fragment has its own records (rule-29).

A root writes into the partition of its part; orderers write into partition 0. With one partition
for all parts, the open transaction of a stopped root would hide committed records of other parts,
and the restarted roots of those parts would answer twice (trace-18).

Records that are not valid state records are skipped and counted; the newest valid one is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from slackwater.codec.state_records import (
    decode_orderer_state,
    decode_root_state,
    encode_state,
)
from slackwater.delivery.records import POSITION_KEY, DeliveryPosition, decode_delivery
from slackwater.model.errors import MalformedRecordError
from slackwater.model.limits import FOREVER, NEVER
from slackwater.model.names import Names, RootName, base_of, copy_names, generation_of
from slackwater.model.records import OrdererState, RootState
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import RawRecord, Transport, Writer, read_to_end

_QUERY: Final = r"([^./]+(?:\.g\d+)?)"
_FRAGMENT: Final = re.compile(rf"root/{_QUERY}\.\d+(?:\.[a-z])?|orderer/{_QUERY}\.\d+\.[a-z]")

State: TypeAlias = OrdererState | RootState
Fits: TypeAlias = Callable[[State], bool]

OFFSET_MAX: Final = 2**48
"""Bound on offsets, ids, seqs and incarnations: 9 years at a million a second."""
PLACEMENT_MAX: Final = 2**58
"""Bound on placement numbers that controllers have recorded: those of a million views."""


def write_state(writer: Writer, names: Names, query: str, state: State, part: int = 0) -> None:
    """Append a state record outside transactions, without waiting for its delivery."""
    writer.append(names.state(query), part, encode_state(state), state.fragment.encode())


def _any(_: State) -> bool:
    return True


def read_states(
    transport: Transport, query: str, parts: int, *, timeout_s: float = 30.0, fits: Fits = _any
) -> dict[str, State]:
    """The newest state record of each fragment of the query, by the fragment's name.

    ``fits`` decides whether a decoded record can belong to this deployment.
    """
    newest: dict[str, State] = {}
    for part in range(parts):
        newest |= _read(transport, query, part, timeout_s, fits)
    return newest


def read_root_states(
    transport: Transport, query: str, parts: int, *, timeout_s: float = 30.0
) -> dict[str, RootState]:
    """The newest state record of each part's root, by the fragment's name."""
    states = read_states(transport, query, parts, timeout_s=timeout_s)
    return {name: state for name, state in states.items() if isinstance(state, RootState)}


def read_root_state(
    transport: Transport, query: str, part: int, *, timeout_s: float = 30.0, fits: Fits = _any
) -> RootState | None:
    """The newest state record of a part's root, regardless of open transactions of other parts."""
    return read_part(transport, query, part, timeout_s=timeout_s, fits=fits)[0]


def read_part(
    transport: Transport, query: str, part: int, *, timeout_s: float = 30.0, fits: Fits = _any
) -> tuple[RootState | None, dict[int, RootState]]:
    """The newest state records of a part's roots: the query's, and by number other generations'.

    ``fits`` applies to the record of the query's root.
    """
    own: RootState | None = None
    others: dict[int, RootState] = {}
    # A topic created with one partition for all parts has the older records in partition 0.
    for partition in sorted({part, 0}):
        written = _written(transport, query, partition, timeout_s)
        for name in {_query_of(key) for key in written} | {query}:
            fragment = RootName(name, part).process
            found = _newest(fragment, written.get(fragment, ()), fits if name == query else _any)
            if not isinstance(found, RootState):
                continue
            if name == query:
                own = found
            else:
                others[generation_of(name)] = found
    return own, others


def read_copies(
    transport: Transport, query: str, part: int, *, timeout_s: float = 30.0
) -> dict[str, RootState]:
    """The own records of a part's copies, of each the last one with the greatest number (rule-5).

    They are written outside transactions, and read regardless of those: an open transaction of the
    part would hide them.
    """
    log, found = (transport.names.state(query), part), dict[str, RootState]()
    names = {of.process for of in copy_names(query, part, 2)}
    for raw in read_to_end(transport, log, isolation="read_uncommitted", timeout_s=timeout_s):
        name = (raw.key or b"").decode(errors="replace")
        state = _newest(name, [raw], _any) if name in names else None
        if isinstance(state, RootState):
            known = found.get(name)
            if known is None or known.placement <= state.placement:
                found[name] = state
    return found


def read_alert_placement(transport: Transport, query: str, *, timeout_s: float = 30.0) -> int:
    """The greatest placement number in the alerts of a query; -1 without one."""
    log, number = (transport.names.alerts(query), 0), -1
    for raw in read_to_end(transport, log, isolation="read_committed", timeout_s=timeout_s):
        if raw.key != POSITION_KEY:
            continue
        try:
            found = decode_delivery(raw.value, f"{log[0]}:0:{raw.offset}")
        except MalformedRecordError as error:
            SKIPPED.note(*log, raw.offset, "not a record of alerts", error.reason)
            continue
        if isinstance(found, DeliveryPosition):
            number = max(number, found.placement)
    return number


def read_orderer_states(
    transport: Transport, query: str, frontier_max: int, *, timeout_s: float = 30.0
) -> list[OrdererState]:
    """Of each orderer of a query, the newest state record whose frontier is not above this one.

    The orderers of all generations of the query are included.
    """

    def is_below(state: State) -> bool:
        return isinstance(state, OrdererState) and state.frontier <= frontier_max

    found = [
        _newest(name, records, is_below, is_fault=False)
        for name, records in _written(transport, query, 0, timeout_s).items()
        if not name.startswith("root/")
    ]
    return [state for state in found if isinstance(state, OrdererState)]


def _read(
    transport: Transport, query: str, partition: int, timeout_s: float, fits: Fits
) -> dict[str, State]:
    written = _written(transport, query, partition, timeout_s)
    own = {name: records for name, records in written.items() if _query_of(name) == query}
    newest = {name: _newest(name, records, fits) for name, records in own.items()}
    return {name: state for name, state in newest.items() if state is not None}


def _written(
    transport: Transport, query: str, partition: int, timeout_s: float
) -> dict[str, list[RawRecord]]:
    """The records of all generations of a query, by fragment."""
    log = (transport.names.state(query), partition)
    written: dict[str, list[RawRecord]] = {}
    for raw in read_to_end(transport, log, isolation="read_committed", timeout_s=timeout_s):
        name = (raw.key or b"").decode(errors="replace")
        if base_of(_query_of(name)) == base_of(query):
            written.setdefault(name, []).append(raw)
        else:
            SKIPPED.note(*log, raw.offset, "key is not a fragment of the query")
    return written


def _query_of(process: str) -> str:
    """The query, or generation, of a fragment; empty if the name is not that of a fragment."""
    match = _FRAGMENT.fullmatch(process)
    return "" if match is None else match[1] or match[2]


def _newest(
    name: str, records: Sequence[RawRecord], fits: Fits, *, is_fault: bool = True
) -> State | None:
    """The newest valid record that fits; older ones are not decoded.

    Thousands of records may await compaction. ``is_fault``: count the records that do not fit.
    """
    for raw in reversed(records):
        try:
            state = _decode(name, raw)
        except MalformedRecordError as error:
            SKIPPED.note(*raw.log, raw.offset, "not a state record", error.reason)
            continue
        if fits(state):
            return state
        if is_fault:
            SKIPPED.note(*raw.log, raw.offset, "a state record that does not fit the deployment")
    return None


def _decode(name: str, raw: RawRecord) -> State:
    where = f"{raw.topic}:{raw.partition}:{raw.offset}"
    if name.startswith("root/"):
        root = decode_root_state(raw.value, where)
        possible = _is_possible_root(root)
        state: State = root
    else:
        orderer = decode_orderer_state(raw.value, where)
        possible = _is_possible_orderer(orderer)
        state = orderer
    if state.fragment != name:
        raise MalformedRecordError(where, f"a record of {state.fragment[:80]} under another name")
    if not possible:
        raise MalformedRecordError(where, "numbers that no fragment can have")
    return state


def _is_possible_orderer(state: OrdererState) -> bool:
    positions = [p for of in state.streams for p in (of.next, of.rebuild, of.live)]
    return (
        _are_counts(state.stable_offset, state.live_offset, *(p.offset for p in positions))
        and _are_counts(*(n + 1 for n in (state.last_id, *(p.next_id for p in positions))))
        and _are_counts(*(p.inc + 1 for p in positions))
        and _are_times(state.frontier, state.live_frontier)
        and all(p.boundary < FOREVER for p in positions)
    )


def _is_possible_root(state: RootState) -> bool:
    positions = [p for log in state.logs for p in (log.stable, log.live)]
    return (
        -1 <= state.placement < PLACEMENT_MAX
        and -1 <= state.copy < 26
        and _are_counts(state.term, state.vain)
        and _are_counts(state.next_seq, state.epoch)
        and _are_counts(*(p.offset for p in positions), *(log.contiguous_seq for log in state.logs))
        and _are_counts(*(n + 1 for p in positions for n in (p.next_seq, p.inc)))
        and _are_times(*(f.bucket_start for f in state.child_frontiers))
        and _are_times(*(p.frontier.bucket_start for p in positions))
        and _are_counts(*state.kept_from)
        and _are_times(state.stable_from, state.answered_to, *state.moved_to)
        and state.stable_from <= state.answered_to
    )


def _are_counts(*numbers: int) -> bool:
    return all(0 <= n <= OFFSET_MAX for n in numbers)


def _are_times(*times: int) -> bool:
    return all(NEVER <= time <= FOREVER for time in times)
