"""Codec of source records: the readings of one stream, in columns.

A source record is decoded in two steps. A reader that seeks its position in a log needs headers
only (rule-13), so ``decode_source`` reads the header and keeps the columns as bytes until
``columns.load()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from slackwater.codec.avro_types import DamageError, read_last_long
from slackwater.codec.record_fields import (
    KEYS_MAX,
    KINDS,
    SPAN_US_MAX,
    Bytes,
    integer_array,
    integer_key_index,
    one_of,
    same,
    split_times,
)
from slackwater.codec.schemas import codec
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import NO_EPOCH, Gap, SourceColumns, SourceRecord

_HEADER_FIELDS: Final = 11  # kind .. gap: decoded by decode_source
EPOCH_MAX: Final = 2**31 - 1
"""Leader epochs are 32-bit integers in Kafka."""


def encode_source(record: SourceRecord) -> bytes:
    """Encode a source record; raises ``ValueError`` if its columns do not match its header."""
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
        times, times64 = split_times(columns.stimes, base, record.stime_max)
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
        record.partitions,
        record.input_epoch,
    )


def _check_columns(record: SourceRecord, columns: SourceColumns) -> None:
    """Check the columns before they are written, since a log is permanent."""
    n = record.readings
    lengths = {len(columns.stimes), len(columns.key_index), *map(len, columns.values)}
    if lengths != {n}:
        raise ValueError(f"{n} readings in columns of {sorted(lengths)}")
    if len(columns.values) != len(columns.fields):
        raise ValueError(f"{len(columns.values)} columns for {len(columns.fields)} fields")
    low, high = int(columns.stimes.min()), int(columns.stimes.max())
    if low != record.stime_min or high != record.stime_max:
        raise ValueError(f"times from {low} to {high} are not those of the header")
    if high - low >= SPAN_US_MAX:
        raise ValueError(f"a span of {high - low} us")
    if len(columns.keys) >= KEYS_MAX:
        raise ValueError(f"{len(columns.keys)} keys")
    if columns.key_index.min() < 0 or columns.key_index.max() >= len(columns.keys):
        raise ValueError("a key index without a key")


class _StoredColumns:
    """Columns of a source record as bytes, checked and decoded at the first ``load``.

    The decoded columns are kept, since several fragments of a host read the same record.
    """

    __slots__ = ("_buf", "_loaded", "_pos", "_readings", "_span", "_where", "partitions")

    def __init__(
        self, buf: bytes, pos: int, readings: int, span: tuple[int, int], where: object
    ) -> None:
        self._buf = buf
        self._pos = pos
        self._readings = readings
        self._span = span
        self._where = where
        self._loaded: SourceColumns | None = None
        self.partitions = 0

    def load(self) -> SourceColumns:
        """Return the readings, read-only; raises ``MalformedRecordError`` for damaged bytes."""
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
        base, times, times64, keys, index, fields, columns, self.partitions, epoch = values
        if not NO_EPOCH <= epoch <= EPOCH_MAX:
            raise DamageError(f"leader epoch {epoch}")
        n = self._readings
        low, high = self._span
        offsets = one_of(times, times64)
        same(len(offsets), n, "times", "readings")
        same(len(index), n, "key indices", "readings")
        same(len(columns), len(fields), "columns", "fields")
        for column in columns:
            same(len(column), n, "values", "readings")
        if n == 0:
            same(len(keys), 0, "keys", "readings")
            return SourceColumns(np.empty(0, np.int64), np.empty(0, np.int32), (), fields, columns)
        if base != low or offsets.min() != 0 or offsets.max() != high - low:
            raise DamageError("the times are not those of the header")
        stimes = integer_array(offsets, np.int64, "time")
        stimes += low
        places = integer_key_index(index, len(keys))
        for shared in (stimes, places, *columns):
            shared.flags.writeable = False
        return SourceColumns(stimes, places, keys, fields, columns)


def decode_source(buf: Bytes, where: object = "", offset: int | None = None) -> SourceRecord:
    """Decode a source record's header; ``record.columns.load()`` decodes its columns.

    If ``offset``, the record's offset in its log, is given, the incarnation is checked: it is the
    offset of a START before the record (rule-6). A reader that accepted a greater one would drop
    all further records of the log's writer (rule-10).

    Raises:
        MalformedRecordError: the header is damaged, or the incarnation is impossible.
    """
    source = codec("source")
    data = source.of_today(bytes(buf))
    try:
        values, pos = source.read_fields(data, source.check_header(data), 0, _HEADER_FIELDS)
        kind, stream, inc, first_id, last_id, boundary, low, high, position, spool, gap = values
        readings = last_id - first_id + 1
        # Each reading takes at least a 4-byte time and a 4-byte index.
        if not 0 <= readings * 8 <= len(data) - pos:
            raise DamageError(f"{readings} readings in {len(data) - pos} bytes")
        if low > high or high - low >= SPAN_US_MAX:
            raise DamageError(f"times from {low} to {high}")
        if offset is not None and inc > offset:
            raise DamageError(f"incarnation {inc} has not begun before offset {offset}")
    except DamageError as error:
        raise MalformedRecordError(where, f"source record: {error}") from error
    stored = _StoredColumns(data, pos, readings, (low, high), where)
    if not readings:
        stored.load()
    return SourceRecord(
        KINDS[kind],
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
        stored.partitions,
        _epoch_at_end(data),
    )


def _epoch_at_end(data: bytes) -> int:
    """Return the leader epoch of a record without its columns; none if it is damaged.

    Who loads the columns finds the damage.
    """
    try:
        epoch = read_last_long(data)
    except DamageError:
        return NO_EPOCH
    return epoch if 0 <= epoch <= EPOCH_MAX else NO_EPOCH
