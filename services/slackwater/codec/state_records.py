"""Codecs of state records, heartbeats and registry entries.

Decoding raises ``MalformedRecordError`` for damaged bytes; ``where`` is the record's place in the
error's message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from slackwater.codec.record_fields import Bytes, decode, log_position, position_values
from slackwater.codec.schemas import codec
from slackwater.model.records import (
    Heartbeat,
    HeartbeatPart,
    Hole,
    LogState,
    OrdererState,
    Position,
    RegistryRecord,
    RootState,
    SourcePosition,
    StreamPositions,
)


def _source_position(at: SourcePosition) -> tuple[int, int, int, int]:
    return at.offset, at.next_id, at.inc, at.boundary


def encode_orderer_state(state: OrdererState) -> bytes:
    """Encode an orderer's state record."""
    return codec("orderer_state").encode(
        state.fragment,
        state.frontier,
        state.last_id,
        state.live_frontier,
        state.stable_offset,
        state.live_offset,
        [
            (
                positions.stream,
                _source_position(positions.next),
                _source_position(positions.rebuild),
                _source_position(positions.live),
            )
            for positions in state.streams
        ],
        state.placement,
    )


def decode_orderer_state(buf: Bytes, where: object = "") -> OrdererState:
    """Decode an orderer's state record."""
    return decode("orderer_state", buf, where, _make_orderer_state)


def _make_orderer_state(values: list[Any]) -> OrdererState:
    streams = tuple(
        StreamPositions(name, *(SourcePosition(*position) for position in positions))
        for name, *positions in values[6]
    )
    fragment, frontier, last_id, live_frontier, stable_offset, live_offset = values[:6]
    return OrdererState(
        fragment, frontier, last_id, live_frontier, stable_offset, live_offset, streams, values[7]
    )


def encode_root_state(state: RootState) -> bytes:
    """Encode a root copy's state record."""
    return codec("root_state").encode(
        state.fragment,
        state.placement,
        state.next_seq,
        state.epoch,
        state.stable_from,
        state.answered_to,
        state.child_frontiers,
        [
            (
                log.child,
                log.replica,
                log.line,
                position_values(log.stable),
                position_values(log.live),
                log.contiguous_seq,
            )
            for log in state.logs
        ],
        state.term,
        state.copy,
        state.vain,
        state.resigned,
        state.digest,
        state.kept_from,
        state.moved_to,
        state.merged_from,
    )


def decode_root_state(buf: Bytes, where: object = "") -> RootState:
    """Decode a root copy's state record."""
    return decode("root_state", buf, where, _make_root_state)


def _make_root_state(values: list[Any]) -> RootState:
    fragment, placement, next_seq, epoch, stable_from, answered_to = values[:6]
    frontiers = tuple(Position(*frontier) for frontier in values[6])
    logs = tuple(
        LogState(
            child,
            replica,
            line,
            log_position(stable),
            log_position(live),
            contiguous_seq,
        )
        for child, replica, line, stable, live, contiguous_seq in values[7]
    )
    return RootState(
        fragment, placement, next_seq, epoch, stable_from, answered_to, frontiers, logs, *values[8:]
    )


def encode_state(state: OrdererState | RootState) -> bytes:
    """Encode a state record of either kind."""
    if isinstance(state, RootState):
        return encode_root_state(state)
    return encode_orderer_state(state)


def decode_state(buf: Bytes, where: object = "") -> OrdererState | RootState:
    """Decode a state record of either kind."""
    of_root = codec("root_state")
    if bytes(buf[: len(of_root.header)]) in {of_root.header, *of_root.older}:
        return decode_root_state(buf, where)
    return decode_orderer_state(buf, where)


def encode_heartbeat(beat: Heartbeat) -> bytes:
    """Encode a heartbeat."""
    return codec("heartbeat").encode(
        beat.process,
        beat.pid,
        beat.started_at,
        beat.at,
        beat.inc,
        beat.ready,
        beat.states,
        _hole_values(beat.holes),
        beat.detail,
        [
            (
                part.process,
                part.started_at,
                part.inc,
                part.ready,
                part.states,
                _hole_values(part.holes),
                part.detail,
            )
            for part in beat.parts
        ],
        beat.repeats,
    )


def decode_heartbeat(buf: Bytes, where: object = "") -> Heartbeat:
    """Decode a heartbeat."""
    return decode("heartbeat", buf, where, _make_heartbeat)


def _make_heartbeat(values: list[Any]) -> Heartbeat:
    process, pid, started_at, at, inc, ready, states, holes, detail, parts, repeats = values
    return Heartbeat(
        process,
        pid,
        started_at,
        at,
        inc,
        ready,
        states,
        _holes(holes),
        detail,
        tuple(map(_make_part, parts)),
        repeats,
    )


def _make_part(values: Sequence[Any]) -> HeartbeatPart:
    process, started_at, inc, ready, states, holes, detail = values
    return HeartbeatPart(process, started_at, inc, ready, states, _holes(holes), detail)


def _hole_values(holes: Iterable[Hole]) -> list[tuple[str, int, int]]:
    return [(hole.topic, hole.partition, hole.inc) for hole in holes]


def _holes(values: Iterable[Sequence[Any]]) -> tuple[Hole, ...]:
    return tuple(Hole(*hole) for hole in values)


def encode_registry(record: RegistryRecord) -> bytes:
    """Encode a registry entry."""
    return codec("registry").encode(record.name, record.definition)


def decode_registry(buf: Bytes, where: object = "") -> RegistryRecord:
    """Decode a registry entry."""
    return decode("registry", buf, where, lambda values: RegistryRecord(*values))
