"""Fields common to several record types: event times, key indices, a piece's place in a bucket.

Event times within a record are stored as differences from its smallest time, as floats: of 4 bytes
if all are below 2**24 us, where these are exact, else of 8 bytes in a second field. Errors that the
Avro types cannot exclude (columns of different lengths, an index without a key) raise
``DamageError`` here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from slackwater.codec.avro_types import DamageError
from slackwater.codec.schemas import codec
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Kind, LogPosition, Position, Ragged, type_i32, type_i64

Bytes = bytes | bytearray | memoryview
_T = TypeVar("_T")
FLOAT_EXACT_US_MAX: Final = 2**24
"""Spans below this are written as 4-byte floats, which are exact for integers up to it."""
SPAN_US_MAX: Final = 2**53
"""Upper bound of the span of a record's times (285 years); a larger one is inexact in a double."""
KEYS_MAX: Final = 2**24
"""Upper bound of the keys of a record: an index is a 4-byte float."""
KINDS: Final = tuple(Kind)
NO_FRONTIER: Final = Position(0, -1)


def decode(name: str, buf: Bytes, where: object, make: Callable[[list[Any]], _T]) -> _T:
    """Decode ``buf`` and build the record by ``make``.

    Raises:
        MalformedRecordError: the bytes are damaged; ``where`` is the record's place in the message.
    """
    try:
        return make(codec(name).decode(bytes(buf)))
    except DamageError as error:
        raise MalformedRecordError(where, f"{name} record: {error}") from error


def same(found: int, wanted: int, what: str, of: str) -> None:
    """Check that two lengths agree; raises ``DamageError``.

    The message is built only on failure, since the check runs for each column.
    """
    if found != wanted:
        raise DamageError(f"{found} {what} for {wanted} {of}")


def record_states(values: Sequence[Any], fields: int, keys: int) -> dict[str, Ragged]:
    """Return the states of a record, by name, after a check of their shape."""
    found = {}
    for name, *columns in values:
        for column in columns:
            same(len(column), fields, f"columns of state {name}", "fields")
        for lengths, ids, weights in zip(*columns, strict=True):
            same(len(lengths), keys, f"lengths of state {name}", "keys")
            # A NaN fails each comparison.
            if not ((lengths >= 0).all() and (lengths == np.floor(lengths)).all()):
                raise DamageError(f"a length of state {name} that is not a number of entries")
            same(len(ids), len(weights), f"ids of state {name}", "weights")
            if lengths.sum() != len(ids):
                raise DamageError(f"{len(ids)} entries of state {name}, its lengths differ")
            if np.isnan(ids).any() or np.isnan(weights).any():
                raise DamageError(f"an entry of state {name} that is not a number")
        found[name] = Ragged(*columns)
    return found


def state_values(states: Mapping[str, Ragged]) -> list[tuple[Any, ...]]:
    """Return the states of a record as they are encoded."""
    return [(name, of.lengths, of.ids, of.weights) for name, of in states.items()]


def position_values(at: LogPosition) -> tuple[int, int, int, Position]:
    """Return a root's position in a log as it is encoded."""
    return at.offset, at.next_seq, at.inc, at.frontier


def log_position(values: Sequence[Any]) -> LogPosition:
    """Return a root's position in a log."""
    offset, next_seq, inc, frontier = values
    return LogPosition(offset, next_seq, inc, Position(*frontier))


def split_times(stimes: type_i64, base: int, last: int) -> tuple[Any, Any]:
    """Return times relative to ``base`` as 4-byte floats where exact, else as doubles."""
    if last - base < FLOAT_EXACT_US_MAX:
        return (stimes - base).astype(np.float32), ()
    return (), (stimes - base).astype(np.float64)


def one_of(times: Any, times64: Any) -> Any:
    """Return the times from the field that has them."""
    if len(times) and len(times64):
        raise DamageError("times in both fields")
    return times if len(times) else times64


def integer_key_index(index: Any, keys: int) -> type_i32:
    """Convert key indices to integers, each below ``keys``."""
    # The comparison is also false if an index is NaN.
    if not (index.min() >= 0 and index.max() < keys):
        raise DamageError(f"a key index outside 0..{keys - 1}")
    complete: type_i32 = integer_array(index, np.int32, "key index")
    return complete


def integer_array(numbers: Any, dtype: type[Any], what: str) -> Any:
    """Convert finite floats of a known range to integers."""
    complete = numbers.astype(dtype)
    if not (complete == numbers).all():
        raise DamageError(f"a {what} that is not an integer")
    return complete


def check_place(start: int, end: int, piece: int, pieces: int) -> None:
    """Check that a bucket does not end before it begins and that the piece number is valid."""
    if start > end:
        raise DamageError(f"a bucket from {start} to {end}")
    if not 0 <= piece < max(pieces, 1):
        raise DamageError(f"piece {piece} of {pieces}")


def start_frontier(kind: int, bucket: int, piece: int) -> Position | None:
    """Return the frontier of a START; None for other records."""
    return Position(bucket, piece) if kind == Kind.START and piece >= 0 else None
