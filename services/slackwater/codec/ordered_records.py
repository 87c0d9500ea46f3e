"""Codec of ordered records: one piece of a bucket emitted by an orderer.

Readings are grouped by key (``offsets``), or are rows with a time and a key index each. A record
with states has a schema of its own, as a delta with figures of its own has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from slackwater.codec.avro_types import DamageError
from slackwater.codec.record_fields import (
    KEYS_MAX,
    KINDS,
    NO_FRONTIER,
    SPAN_US_MAX,
    Bytes,
    check_place,
    decode,
    integer_array,
    integer_key_index,
    one_of,
    record_states,
    same,
    split_times,
    start_frontier,
    state_values,
)
from slackwater.codec.schemas import codec
from slackwater.model.records import Gap, OrderedRecord, type_f64, type_i32, type_i64

_NO_TIMES: Final = np.zeros(0, np.int64)
_NO_INDEX: Final = np.zeros(0, np.int32)
_WIDE: Final = "wide_ordered"
_HEADER_BYTES: Final = 10
_STATES: Final = 23
"""The place of the states among the fields of a wide record."""


def encode_ordered(record: OrderedRecord) -> bytes:
    """Encode an ordered record; raises ``ValueError`` if its columns do not fit each other."""
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
    frontier = record.frontier or NO_FRONTIER
    states = (state_values(record.states),) if record.states else ()
    return codec(_WIDE if states else "ordered").encode(
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
        record.placement,
        *states,
    )


def _row_times(record: OrderedRecord) -> tuple[int, Any, Any]:
    """Return base and times of rows, checked like those of a source record."""
    base, last = int(record.stimes.min()), int(record.stimes.max())
    if last - base >= SPAN_US_MAX:
        raise ValueError(f"a span of {last - base} us")
    index, keys = record.key_index, len(record.keys)
    if len(index) != len(record.stimes) or index.min() < 0 or index.max() >= keys:
        raise ValueError("a key index without a key, or a row without a key index")
    if keys >= KEYS_MAX:
        raise ValueError(f"{keys} keys")
    return base, *split_times(record.stimes, base, last)


def decode_ordered(buf: Bytes, where: object = "") -> OrderedRecord:
    """Decode an ordered record completely; raises ``MalformedRecordError``."""
    name = _WIDE if buf[:_HEADER_BYTES] == codec(_WIDE).header else "ordered"
    return decode(name, buf, where, _make_ordered)


def _make_ordered(values: list[Any]) -> OrderedRecord:
    kind, child, replica, inc, start, end, piece, pieces, first, last = values[:10]
    bucket, frontier_piece, missing, gap, keys, offsets, fields, columns = values[10:18]
    check_place(start, end, piece, pieces)
    same(len(columns), len(fields), "columns", "fields")
    stimes, index = _rows(values[18:22], keys, offsets, columns)
    if not len(stimes):
        _check_offsets(offsets, len(keys), columns)
    states = record_states(values[_STATES], len(fields), len(keys)) if values[_STATES:] else {}
    return OrderedRecord(
        KINDS[kind],
        child,
        replica,
        inc,
        start,
        end,
        piece,
        pieces,
        first,
        last,
        start_frontier(kind, bucket, frontier_piece),
        missing,
        tuple(map(Gap._make, gap)),
        keys,
        offsets,
        fields,
        columns,
        stimes,
        index,
        values[22],
        states=states,
    )


def _rows(
    values: list[Any], keys: Sequence[str], offsets: type_f64, columns: Sequence[type_f64]
) -> tuple[type_i64, type_i32]:
    """Return times and key indices of rows; empty where readings are grouped by key."""
    base, times, times64, index = values
    after = one_of(times, times64)
    n = len(after)
    same(len(index), n, "key indices", "rows")
    if not n:
        return _NO_TIMES, _NO_INDEX
    if len(offsets) != 1 or offsets[0] != 0:
        raise DamageError(f"{len(offsets)} offsets where there are rows")
    for column in columns:
        same(len(column), n, "values", "rows")
    if not (after.min() == 0 and after.max() < SPAN_US_MAX):
        raise DamageError("times that do not begin at their base")
    stimes = integer_array(after, np.int64, "time")
    stimes += base
    return stimes, integer_key_index(index, len(keys))


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
    # A NaN fails this comparison. Values that do not decrease lie between 0 and the last: finite.
    if not (offsets[1:] >= offsets[:-1]).all():
        raise DamageError("offsets that decrease")
    if not (offsets == np.floor(offsets)).all():
        raise DamageError("an offset that is not an integer")
