"""The records of the internal logs as bytes, and back.

Which record has which shape is the schemas' word (``schemas/*.avsc``), what it means is the
model's (``slackwater.model.records``); here the two meet, and here everything is refused that the
types cannot say: columns of different lengths, offsets that fall, a key index without a key.

A source record is decoded in two steps. A reader that looks for its place in a log needs headers
only (rule 13), so ``decode_source`` reads the header and leaves the columns as bytes until
``columns.load()``. The other records are decoded at once.

Event times within a record are offsets from its smallest time, as floats: 4 bytes while all are
below 2**24 us, where floats are exact, else 8 bytes in a second field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from slackwater.codec.avro import DamageError, RecordCodec
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import (
    DeltaRecord,
    Gap,
    Heartbeat,
    HeartbeatPart,
    Hole,
    Kind,
    LogPosition,
    LogState,
    OrderedRecord,
    OrdererState,
    Position,
    RegistryRecord,
    RootState,
    SourceColumns,
    SourcePosition,
    SourceRecord,
    StreamPositions,
    type_f64,
    type_i32,
    type_i64,
)

Bytes = bytes | bytearray | memoryview
_T = TypeVar("_T")

SCHEMAS: Final = (
    "source",
    "ordered",
    "delta",
    "orderer_state",
    "root_state",
    "heartbeat",
    "registry",
)
float_exact_us_max: Final = 2**24
"""Spans below it are written as 4-byte floats, which hold every whole number up to here."""
span_us_max: Final = 2**53
"""Longest span of one source record (285 years): beyond, a double is not exact either."""
keys_max: Final = 2**24
"""Most keys of a source record: an index is a 4-byte float."""

_KEY_FIELDS: Final = {"source": ("keys", "fields"), "ordered": ("keys",), "delta": ("keys",)}
_KINDS: Final = tuple(Kind)
_SCHEMA_DIR: Final = Path(__file__).resolve().parents[3] / "schemas"
_NO_FRONTIER: Final = Position(0, -1)
_NO_TIMES: Final = np.zeros(0, np.int64)
_NO_INDEX: Final = np.zeros(0, np.int32)


@cache
def schema_json(name: str) -> str:
    """The schema's text, as Spark and fastavro want it."""
    assert name in SCHEMAS, f"no schema is called {name}"
    return (_SCHEMA_DIR / f"{name}.avsc").read_text(encoding="utf-8")


@cache
def codec(name: str) -> RecordCodec:
    """The compiled schema, and the recorded ones before it (schemas/README.md)."""
    recorded = json.loads((_SCHEMA_DIR / "fingerprints.json").read_text(encoding="utf-8"))[name]
    older = [
        json.loads((_SCHEMA_DIR / "recorded" / f"{name}-{version}.avsc").read_text("utf-8"))
        for version in recorded[:-1]
    ]
    return RecordCodec(json.loads(schema_json(name)), _KEY_FIELDS.get(name, ()), older)


def fingerprint(name: str) -> bytes:
    """The schema's CRC-64-AVRO, 8 bytes, as bytes 3 to 10 of each of its records."""
    return codec(name).fingerprint


def older_versions(name: str) -> dict[bytes, bytes]:
    """Per older version its header, and the bytes that make its records ones of today."""
    return dict(codec(name).older)


def _decode(name: str, buf: Bytes, where: object, make: Callable[[list[Any]], _T]) -> _T:
    try:
        return make(codec(name).decode(bytes(buf)))
    except DamageError as error:
        raise MalformedRecordError(where, f"{name} record: {error}") from error


def _same(found: int, wanted: int, what: str, of: str) -> None:
    """Two lengths agree. The sentence is made only when they do not: this runs per column."""
    if found != wanted:
        raise DamageError(f"{found} {what} for {wanted} {of}")


# --- source ---------------------------------------------------------------------------------------

_HEADER_FIELDS: Final = 11  # kind .. gap: what decode_source reads at once


def encode_source(record: SourceRecord) -> bytes:
    """Bytes of a source record; its columns must fit its header."""
    columns = None if record.columns is None else record.columns.load()
    base = record.stime_min
    times: Any = ()
    times64: Any = ()
    keys: Sequence[str] = ()
    index: Any = ()
    fields: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    if columns is None or not len(columns.stimes):
        if record.readings:
            raise ValueError("readings without columns")
    else:
        _check_columns(record, columns)
        times, times64 = _split_times(columns.stimes, base, record.stime_max)
        keys, fields, values = columns.keys, columns.fields, columns.values
        index = columns.key_index.astype(np.float32)
    return codec("source").encode(
        record.kind,
        record.stream,
        record.inc,
        record.first_id,
        record.last_id,
        record.boundary,
        record.stime_min,
        record.stime_max,
        record.input_position,
        record.spool,
        record.gap,
        base,
        times,
        times64,
        keys,
        index,
        fields,
        values,
    )


def _check_columns(record: SourceRecord, columns: SourceColumns) -> None:
    """Our own mistakes, found before they are in a log for good."""
    n = record.readings
    lengths = {len(columns.stimes), len(columns.key_index), *map(len, columns.values)}
    if lengths != {n}:
        raise ValueError(f"{n} readings in columns of {sorted(lengths)}")
    if len(columns.values) != len(columns.fields):
        raise ValueError(f"{len(columns.values)} columns for {len(columns.fields)} fields")
    low, high = int(columns.stimes.min()), int(columns.stimes.max())
    if low != record.stime_min or high != record.stime_max:
        raise ValueError(f"times from {low} to {high} are not those of the header")
    if high - low >= span_us_max:
        raise ValueError(f"a span of {high - low} us")
    if len(columns.keys) >= keys_max:
        raise ValueError(f"{len(columns.keys)} keys")
    if columns.key_index.min() < 0 or columns.key_index.max() >= len(columns.keys):
        raise ValueError("a key index without a key")


class _StoredColumns:
    """Columns of a source record as bytes, checked and decoded at the first ``load``.

    The fragments of a host hold one record together, and read it one after the other; so it keeps
    what the first of them has decoded.
    """

    __slots__ = ("_buf", "_loaded", "_pos", "_readings", "_span", "_where")

    def __init__(
        self, buf: bytes, pos: int, readings: int, span: tuple[int, int], where: object
    ) -> None:
        self._buf = buf
        self._pos = pos
        self._readings = readings
        self._span = span
        self._where = where
        self._loaded: SourceColumns | None = None

    def load(self) -> SourceColumns:
        """The readings, not to be changed; ``MalformedRecordError`` if the bytes are damaged."""
        if self._loaded is None:
            try:
                self._loaded = self._load()
            except DamageError as error:
                raise MalformedRecordError(self._where, f"source record: {error}") from error
        return self._loaded

    def _load(self) -> SourceColumns:
        source = codec("source")
        values, pos = source.read_fields(self._buf, self._pos, _HEADER_FIELDS, len(source.fields))
        if pos != len(self._buf):
            raise DamageError(f"{len(self._buf) - pos} bytes too many")
        base, times, times64, keys, index, fields, columns = values
        n = self._readings
        low, high = self._span
        offsets = _one_of(times, times64)
        _same(len(offsets), n, "times", "readings")
        _same(len(index), n, "key indices", "readings")
        _same(len(columns), len(fields), "columns", "fields")
        for column in columns:
            _same(len(column), n, "values", "readings")
        if n == 0:
            _same(len(keys), 0, "keys", "readings")
            return SourceColumns(np.empty(0, np.int64), np.empty(0, np.int32), (), fields, columns)
        if base != low or offsets.min() != 0 or offsets.max() != high - low:
            raise DamageError("the times are not those of the header")
        stimes = _whole(offsets, np.int64, "time")
        stimes += low
        places = _key_index(index, len(keys))
        for shared in (stimes, places, *columns):
            shared.flags.writeable = False
        return SourceColumns(stimes, places, keys, fields, columns)


def _split_times(stimes: type_i64, base: int, last: int) -> tuple[Any, Any]:
    """Times after ``base`` as 4-byte floats where they are exact, else as doubles."""
    if last - base < float_exact_us_max:
        return (stimes - base).astype(np.float32), ()
    return (), (stimes - base).astype(np.float64)


def _one_of(times: Any, times64: Any) -> Any:
    if len(times) and len(times64):
        raise DamageError("times in both fields")
    return times if len(times) else times64


def _key_index(index: Any, keys: int) -> type_i32:
    # Also false for NaN: the conversion meets numbers only.
    if not (index.min() >= 0 and index.max() < keys):
        raise DamageError(f"a key index outside 0..{keys - 1}")
    whole: type_i32 = _whole(index, np.int32, "key index")
    return whole


def _whole(numbers: Any, dtype: type[Any], what: str) -> Any:
    """Finite floats of a known range as whole numbers."""
    whole = numbers.astype(dtype)
    if not (whole == numbers).all():
        raise DamageError(f"a {what} that is not whole")
    return whole


def decode_source(buf: Bytes, where: object = "", offset: int | None = None) -> SourceRecord:
    """The header of a source record; its columns are decoded by ``record.columns.load()``.

    ``offset``, where it was read from a log, tells a record that nobody can have written: its
    incarnation is the offset of a START before it (rule 6). Readers that believed a greater one
    would drop for ever what its log's writer says (rule 10).
    """
    source = codec("source")
    data = bytes(buf)
    try:
        values, pos = source.read_fields(data, source.check_header(data), 0, _HEADER_FIELDS)
        kind, stream, inc, first_id, last_id, boundary, low, high, position, spool, gap = values
        readings = last_id - first_id + 1
        # Each reading takes at least a 4-byte time and a 4-byte index.
        if not 0 <= readings * 8 <= len(data) - pos:
            raise DamageError(f"{readings} readings in {len(data) - pos} bytes")
        if low > high or high - low >= span_us_max:
            raise DamageError(f"times from {low} to {high}")
        if offset is not None and inc > offset:
            raise DamageError(f"incarnation {inc} has not begun before offset {offset}")
    except DamageError as error:
        raise MalformedRecordError(where, f"source record: {error}") from error
    stored = _StoredColumns(data, pos, readings, (low, high), where)
    if not readings:
        stored.load()
    return SourceRecord(
        _KINDS[kind],
        stream,
        inc,
        first_id,
        last_id,
        boundary,
        low,
        high,
        position,
        spool,
        tuple(map(Gap._make, gap)) if gap else (),
        stored if readings else None,
    )


# --- ordered --------------------------------------------------------------------------------------


def encode_ordered(record: OrderedRecord) -> bytes:
    """Bytes of an ordered record."""
    offsets = 1 if len(record.stimes) else len(record.keys) + 1
    if len(record.offsets) != offsets:
        raise ValueError(f"{len(record.offsets)} offsets for {len(record.keys)} keys")
    if len(record.values) != len(record.fields):
        raise ValueError(f"{len(record.values)} columns for {len(record.fields)} fields")
    if any(len(column) != record.readings for column in record.values):
        raise ValueError("columns whose length is not that of the readings")
    base, times, times64 = 0, (), ()
    if len(record.stimes):
        base, times, times64 = _row_times(record)
    frontier = record.frontier or _NO_FRONTIER
    return codec("ordered").encode(
        record.kind,
        record.child,
        record.replica,
        record.inc,
        record.bucket_start,
        record.bucket_end,
        record.piece,
        record.pieces,
        record.first_id,
        record.last_id,
        frontier.bucket_start,
        frontier.piece,
        record.missing,
        record.gap,
        record.keys,
        record.offsets,
        record.fields,
        record.values,
        base,
        times,
        times64,
        record.key_index.astype(np.float32),
    )


def _row_times(record: OrderedRecord) -> tuple[int, Any, Any]:
    """The base and the times of rows, which are checked as those of a source record are."""
    base, last = int(record.stimes.min()), int(record.stimes.max())
    if last - base >= span_us_max:
        raise ValueError(f"a span of {last - base} us")
    index, keys = record.key_index, len(record.keys)
    if len(index) != len(record.stimes) or index.min() < 0 or index.max() >= keys:
        raise ValueError("a key index without a key, or a row without a key index")
    if keys >= keys_max:
        raise ValueError(f"{keys} keys")
    return base, *_split_times(record.stimes, base, last)


def decode_ordered(buf: Bytes, where: object = "") -> OrderedRecord:
    """An ordered record, decoded whole."""
    return _decode("ordered", buf, where, _make_ordered)


def _make_ordered(values: list[Any]) -> OrderedRecord:
    kind, child, replica, inc, start, end, piece, pieces, first, last = values[:10]
    bucket, frontier_piece, missing, gap, keys, offsets, fields, columns = values[10:18]
    _check_place(start, end, piece, pieces)
    _same(len(columns), len(fields), "columns", "fields")
    stimes, index = _rows(values[18:], keys, offsets, columns)
    if not len(stimes):
        _check_offsets(offsets, len(keys), columns)
    return OrderedRecord(
        _KINDS[kind],
        child,
        replica,
        inc,
        start,
        end,
        piece,
        pieces,
        first,
        last,
        _frontier(kind, bucket, frontier_piece),
        missing,
        tuple(map(Gap._make, gap)),
        keys,
        offsets,
        fields,
        columns,
        stimes,
        index,
    )


def _rows(
    values: list[Any], keys: Sequence[str], offsets: type_f64, columns: Sequence[type_f64]
) -> tuple[type_i64, type_i32]:
    """Times and key indices of rows; empty where the readings are grouped by key."""
    base, times, times64, index = values
    after = _one_of(times, times64)
    n = len(after)
    _same(len(index), n, "key indices", "rows")
    if not n:
        return _NO_TIMES, _NO_INDEX
    if len(offsets) != 1 or offsets[0] != 0:
        raise DamageError(f"{len(offsets)} offsets where there are rows")
    for column in columns:
        _same(len(column), n, "values", "rows")
    if not (after.min() == 0 and after.max() < span_us_max):
        raise DamageError("times that do not begin at their base")
    stimes = _whole(after, np.int64, "time")
    stimes += base
    return stimes, _key_index(index, len(keys))


def _check_place(start: int, end: int, piece: int, pieces: int) -> None:
    if start > end:
        raise DamageError(f"a bucket from {start} to {end}")
    if not 0 <= piece < max(pieces, 1):
        raise DamageError(f"piece {piece} of {pieces}")


def _frontier(kind: int, bucket: int, piece: int) -> Position | None:
    return Position(bucket, piece) if kind == Kind.START and piece >= 0 else None


def _check_offsets(offsets: type_f64, keys: int, columns: Sequence[type_f64]) -> None:
    if len(offsets) != keys + 1:
        raise DamageError(f"{len(offsets)} offsets for {keys} keys")
    if offsets[0] != 0:
        raise DamageError("offsets that do not begin at 0")
    last = offsets[-1]
    if not 0 <= last < 2**53:
        raise DamageError(f"offsets that end at {last}")
    for column in columns:
        if len(column) != last:
            raise DamageError(f"offsets end at {last}, a column has {len(column)} values")
    # NaN makes the comparison false; between 0 and the last one all are then finite.
    if not (offsets[1:] >= offsets[:-1]).all():
        raise DamageError("offsets that fall")
    if not (offsets == np.floor(offsets)).all():
        raise DamageError("an offset that is not whole")


# --- delta ----------------------------------------------------------------------------------------

FIGURES: Final = ("count", "sum", "m2", "min", "max")
_ABSENT: Final = {"m2": 0.0, "min": math.nan, "max": math.nan}
"""What stands for a figure that was not computed, since no aggregate of the query needs it."""


def encode_delta(record: DeltaRecord) -> bytes:
    """Bytes of a delta record. In production Spark writes these; tests and the merger do here."""
    shape = (len(record.fields), len(record.keys))
    figures = (record.count, record.sum, record.m2, record.min, record.max)
    for name, figure in zip(FIGURES, figures, strict=True):
        if figure.shape != shape:
            raise ValueError(f"{name} has shape {figure.shape}, not {shape}")
    frontier = record.frontier or _NO_FRONTIER
    return codec("delta").encode(
        record.kind,
        record.child,
        record.replica,
        record.inc,
        record.bucket_start,
        record.bucket_end,
        record.seq,
        record.piece,
        record.pieces,
        record.first_id,
        record.last_id,
        frontier.bucket_start,
        frontier.piece,
        record.missing,
        record.gap,
        record.keys,
        record.keys_hash,
        record.fields,
        *figures,
    )


def decode_delta(
    buf: Bytes, where: object = "", known: Mapping[int, Sequence[str]] | None = None
) -> DeltaRecord:
    """A delta record, decoded whole.

    A key list met lately is recognised by its bytes and not decoded. ``known`` (key lists by
    ``keys_hash``) makes ``record.keys`` the caller's own object, so that it may compare by ``is``.
    """
    return _decode("delta", buf, where, lambda values: _make_delta(values, known))


def _make_delta(values: list[Any], known: Mapping[int, Sequence[str]] | None) -> DeltaRecord:
    kind, child, replica, inc, start, end, seq, piece, pieces, first, last = values[:11]
    bucket, frontier_piece, missing, gap, keys, keys_hash, fields = values[11:18]
    _check_place(start, end, piece, pieces)
    mine = None if known is None else known.get(keys_hash)
    if mine is not None and mine is not keys and tuple(mine) == keys:
        keys = mine
    shape = (len(fields), len(keys))
    figures = [
        _matrix(name, columns, shape) for name, columns in zip(FIGURES, values[18:], strict=True)
    ]
    return DeltaRecord(
        _KINDS[kind],
        child,
        replica,
        inc,
        start,
        end,
        seq,
        piece,
        pieces,
        first,
        last,
        _frontier(kind, bucket, frontier_piece),
        missing,
        tuple(map(Gap._make, gap)),
        keys,
        keys_hash,
        fields,
        *figures,
    )


def _matrix(name: str, columns: Sequence[type_f64], shape: tuple[int, int]) -> type_f64:
    """The columns of one figure as an array (fields, keys); the neutral value if it is absent."""
    if not columns and name in _ABSENT:
        return np.full(shape, _ABSENT[name])
    if len(columns) != shape[0]:
        raise DamageError(f"{len(columns)} columns of {name} for {shape[0]} fields")
    for column in columns:
        if len(column) != shape[1]:
            raise DamageError(f"{len(column)} values of {name} for {shape[1]} keys")
    if shape[0] == 1:
        return columns[0].reshape(shape)
    matrix = np.empty(shape)
    for row, column in zip(matrix, columns, strict=True):
        row[:] = column
    return matrix


# --- states, heartbeats, registry -----------------------------------------------------------------


def _source_position(at: SourcePosition) -> tuple[int, int, int, int]:
    return at.offset, at.next_id, at.inc, at.boundary


def encode_orderer_state(state: OrdererState) -> bytes:
    """Bytes of an orderer's state record."""
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
    )


def decode_orderer_state(buf: Bytes, where: object = "") -> OrdererState:
    """An orderer's state record."""
    return _decode("orderer_state", buf, where, _make_orderer_state)


def _make_orderer_state(values: list[Any]) -> OrdererState:
    streams = tuple(
        StreamPositions(name, *(SourcePosition(*position) for position in positions))
        for name, *positions in values[-1]
    )
    fragment, frontier, last_id, live_frontier, stable_offset, live_offset = values[:-1]
    return OrdererState(
        fragment, frontier, last_id, live_frontier, stable_offset, live_offset, streams
    )


def _log_position(at: LogPosition) -> tuple[int, int, int, Position]:
    return at.offset, at.next_seq, at.inc, at.frontier


def encode_root_state(state: RootState) -> bytes:
    """Bytes of a root copy's state record."""
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
                _log_position(log.stable),
                _log_position(log.live),
                log.whole,
            )
            for log in state.logs
        ],
    )


def decode_root_state(buf: Bytes, where: object = "") -> RootState:
    """A root copy's state record."""
    return _decode("root_state", buf, where, _make_root_state)


def _make_log_position(values: tuple[Any, ...]) -> LogPosition:
    offset, next_seq, inc, frontier = values
    return LogPosition(offset, next_seq, inc, Position(*frontier))


def _make_root_state(values: list[Any]) -> RootState:
    fragment, placement, next_seq, epoch, stable_from, answered_to = values[:6]
    frontiers = tuple(Position(*frontier) for frontier in values[6])
    logs = tuple(
        LogState(child, replica, line, _make_log_position(stable), _make_log_position(live), whole)
        for child, replica, line, stable, live, whole in values[7]
    )
    return RootState(
        fragment, placement, next_seq, epoch, stable_from, answered_to, frontiers, logs
    )


def encode_heartbeat(beat: Heartbeat) -> bytes:
    """Bytes of a heartbeat."""
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
    """A heartbeat."""
    return _decode("heartbeat", buf, where, _make_heartbeat)


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
    """Bytes of an entry of the registry."""
    return codec("registry").encode(record.name, record.definition)


def decode_registry(buf: Bytes, where: object = "") -> RegistryRecord:
    """An entry of the registry."""
    return _decode("registry", buf, where, lambda values: RegistryRecord(*values))
