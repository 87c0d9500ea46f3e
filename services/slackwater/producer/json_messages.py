"""Encodes tables as messages of JSON.

The definition of ``json-columns`` is ``orjson.dumps(rows.to_pydict())`` of each message's rows. The
bytes are the same, but there is no Python object for each value: orjson writes numbers from the
column's buffer, Arrow's kernels join texts. Values of other types, such as lists, are written one
by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.producer.columns import is_text
from slackwater.producer.sink import Format, ProducerError

READINGS_A_MESSAGE_MAX: Final = 4_096
"""Maximum readings of a message: far below Kafka's default limit for tens of fields."""
_Encoder = Callable[[int, int], Any]
"""Encodes the rows from the first number up to the second, which is not included."""
_TEXT: Final = pa.large_string()
_QUOTE, _END = pa.scalar('"', _TEXT), pa.scalar("", _TEXT)


def messages(table: Any, format_: Format, bytes_max: int) -> Iterator[bytes]:
    """Encode a table; a message above ``bytes_max`` is divided in halves.

    Raises:
        ProducerError: at once, if JSON cannot represent a value; during the iteration, if a single
            reading is larger than ``bytes_max``.
    """
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pa.types.is_temporal(kind):
            raise ProducerError(
                f"column {name!r} is {kind}: to a topic send times as numbers in the stream's unit,"
                " such as times.astype('datetime64[ms]').astype('int64')"
            )
    if format_ == "json-columns":
        return _divided(len(table), READINGS_A_MESSAGE_MAX, _columns(table), bytes_max)
    readings = [_reading(row, values) for row, values in enumerate(table.to_pylist())]
    if format_ == "json":
        return _divided(len(readings), 1, lambda start, _: readings[start], bytes_max)

    def array(start: int, stop: int) -> bytes:
        return b"[" + b",".join(readings[start:stop]) + b"]"

    return _divided(len(readings), READINGS_A_MESSAGE_MAX, array, bytes_max)


def _divided(
    n: int, rows_max: int, encode: Callable[[int, int], bytes], bytes_max: int
) -> Iterator[bytes]:
    left = [(start, min(start + rows_max, n)) for start in range(0, n, rows_max)][::-1]
    while left:
        start, stop = left.pop()
        message = encode(start, stop)
        if len(message) <= bytes_max:
            yield message
        elif stop - start > 1:
            middle = (start + stop) // 2
            left += [(middle, stop), (start, middle)]
        else:
            raise ProducerError(
                f"row {start} of a batch has {len(message):,} bytes as a message; {bytes_max:,} are"
                " the maximum (message.max.bytes)"
            )


def _reading(row: int, values: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(values)
    except TypeError:
        for name, value in values.items():
            _value(name, row, value)
        raise


def _value(name: str, row: int, value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise ProducerError(f"column {name!r}, row {row}: {error}") from error


def _columns(table: Any) -> Callable[[int, int], bytes]:
    encoders = {
        name: _encoder(name, column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return lambda start, stop: orjson.dumps(
        {name: encode(start, stop) for name, encode in encoders.items()},
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def _encoder(name: str, column: Any) -> _Encoder:
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        # Cast: orjson writes a float32 with fewer digits than its value has as a double.
        return _numbers(column.cast(pa.float64()))
    if types.is_integer(kind) or types.is_boolean(kind):
        return _numbers(column) if not column.null_count else _joined(column.cast(_TEXT))
    if is_text(kind):
        return _strings(column.cast(_TEXT).combine_chunks())
    values = enumerate(column.to_pylist())
    return _joined(pa.array([_value(name, row, value).decode() for row, value in values], _TEXT))


def _numbers(column: Any) -> _Encoder:
    """Return an encoder of numbers or booleans; orjson writes NaN, and so a null, as null."""
    values = column.to_numpy()
    return lambda start, stop: values[start:stop]


def _joined(texts: Any) -> _Encoder:
    """Return an encoder of values that are JSON already; null stands for ``null``."""
    return lambda start, stop: _array(texts.slice(start, stop - start).fill_null("null"), b",")


def _strings(texts: Any) -> _Encoder:
    def encode(start: int, stop: int) -> Any:
        escaped = _escaped(texts.slice(start, stop - start))
        if not escaped.null_count:
            return _array(escaped, b'","', b'"')
        quoted = pc.binary_join_element_wise(_QUOTE, escaped, _QUOTE, _END)
        return _array(quoted.fill_null("null"), b",")

    return encode


def _array(texts: Any, between: bytes, outer: bytes = b"") -> orjson.Fragment:
    """Join texts of which none is null, as a JSON array."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    rows = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    content = pc.binary_join(rows, pa.scalar(between.decode(), _TEXT))[0].as_buffer()
    return orjson.Fragment(b"".join((b"[", outer, content, outer, b"]")))


def _escaped(texts: Any) -> Any:
    """Replace the characters that JSON strings cannot contain."""
    _, offsets, data = texts.buffers()
    if data is None:
        return texts
    first = texts.offset
    ends = np.frombuffer(offsets, np.int64)[[first, first + len(texts)]]
    content = np.frombuffer(data, np.uint8)[ends[0] : ends[1]]
    if not ((content < 0x20) | (content == ord('"')) | (content == ord("\\"))).any():
        return texts
    found = np.flatnonzero(np.bincount(content, minlength=0x80)[:0x80]).tolist()
    # The backslash first, since the others are replaced by texts that contain one.
    for code in sorted(found, key=lambda code: code != ord("\\")):
        character = chr(code)
        escape = orjson.dumps(character)[1:-1].decode()
        if escape != character:
            texts = pc.replace_substring(texts, character, escape)
    return texts
