"""What records of several types have in common: event times, key indices, a bucket's place.

Event times within a record are offsets from its smallest time, as floats: 4 bytes while all are
below 2**24 us, where floats are exact, else 8 bytes in a second field. Whatever the Avro types
cannot exclude (columns of different lengths, a key index without a key) is a ``DamageError`` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from slackwater.codec.avro_types import DamageError
from slackwater.codec.schemas import codec
from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Kind, Position, type_i32, type_i64

Bytes = bytes | bytearray | memoryview
_T = TypeVar("_T")
FLOAT_EXACT_US_MAX: Final = 2**24
"""Spans below it are written as 4-byte floats, which hold every whole number up to here."""
SPAN_US_MAX: Final = 2**53
"""Longest span of one source record (285 years): beyond, a double is not exact either."""
KEYS_MAX: Final = 2**24
"""Most keys of a source record: an index is a 4-byte float."""
KINDS: Final = tuple(Kind)
NO_FRONTIER: Final = Position(0, -1)


def decode(name: str, buf: Bytes, where: object, make: Callable[[list[Any]], _T]) -> _T:
    """The record that ``make`` builds of the values; ``MalformedRecordError`` if it is damaged."""
    try:
        return make(codec(name).decode(bytes(buf)))
    except DamageError as error:
        raise MalformedRecordError(where, f"{name} record: {error}") from error


def same(found: int, wanted: int, what: str, of: str) -> None:
    """Two lengths agree. The sentence is made only when they do not: this runs per column."""
    if found != wanted:
        raise DamageError(f"{found} {what} for {wanted} {of}")


def split_times(stimes: type_i64, base: int, last: int) -> tuple[Any, Any]:
    """Times after ``base`` as 4-byte floats where they are exact, else as doubles."""
    if last - base < FLOAT_EXACT_US_MAX:
        return (stimes - base).astype(np.float32), ()
    return (), (stimes - base).astype(np.float64)


def one_of(times: Any, times64: Any) -> Any:
    """The times, from the field that has them."""
    if len(times) and len(times64):
        raise DamageError("times in both fields")
    return times if len(times) else times64


def integer_key_index(index: Any, keys: int) -> type_i32:
    """Key indices as whole numbers, each below ``keys``."""
    # Also false for NaN: the conversion meets numbers only.
    if not (index.min() >= 0 and index.max() < keys):
        raise DamageError(f"a key index outside 0..{keys - 1}")
    complete: type_i32 = integer_array(index, np.int32, "key index")
    return complete


def integer_array(numbers: Any, dtype: type[Any], what: str) -> Any:
    """Finite floats of a known range as whole numbers."""
    complete = numbers.astype(dtype)
    if not (complete == numbers).all():
        raise DamageError(f"a {what} that is not whole")
    return complete


def check_place(start: int, end: int, piece: int, pieces: int) -> None:
    """A bucket that ends before it begins, or a piece that is none of its, is damage."""
    if start > end:
        raise DamageError(f"a bucket from {start} to {end}")
    if not 0 <= piece < max(pieces, 1):
        raise DamageError(f"piece {piece} of {pieces}")


def start_frontier(kind: int, bucket: int, piece: int) -> Position | None:
    """The frontier that a START carries; None of other records."""
    return Position(bucket, piece) if kind == Kind.START and piece >= 0 else None
