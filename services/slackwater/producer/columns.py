"""Converts one column of the caller's values to Arrow; errors name the column and the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.producer.sink import ProducerError

UNUSABLE: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""Raised by pyarrow for values that no column type can represent."""
SHORT_CHARS_MAX: Final = 32
"""Width of a numpy text up to which its characters are converted as one array."""


def is_column(value: Any) -> bool:
    """Return whether a value is a column, not the value of all rows."""
    return (
        isinstance(value, np.ndarray | list | tuple | pa.Array | pa.ChunkedArray)
        or hasattr(value, "__arrow_c_stream__")
        or (hasattr(value, "__array__") and getattr(value, "ndim", 0) == 1)
    )


def is_text(kind: Any) -> bool:
    """Return whether a type is text in one of Arrow's layouts."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def array_of(name: str, values: Any) -> Any:
    """Return a column as an Arrow array; what the caller can change is copied.

    Raises ``ProducerError`` if the values have no common type.
    """
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return plain(name, values)
        if hasattr(values, "__arrow_c_stream__"):
            copied = values.copy() if hasattr(values, "copy") else values
            return plain(name, pa.chunked_array(copied))
        if not hasattr(values, "ndim"):
            return _from_objects(values)
        if np.ma.isMaskedArray(values):
            return pa.array(values.copy())
        copied = np.array(values)
        if not copied.dtype.isnative:
            copied = copied.astype(copied.dtype.newbyteorder("="))
        if copied.dtype.kind == "O":
            return _from_objects(copied)
        return _from_texts(copied) if copied.dtype.kind == "U" else pa.array(copied)
    except UNUSABLE as error:
        raise unusable(name, values, error) from error


def plain(name: str, column: Any) -> Any:
    """Return a column of the caller's buffers without a dictionary; one of nulls is float64.

    Raises ``ProducerError`` if a text is not UTF-8.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type) or pa.types.is_nested(column.type):
        _check_utf8(name, column)
    return _without_null_type(column)


def repeated(name: str, value: Any, n: int) -> Any:
    """Return a column with the same value in n rows."""
    try:
        return _without_null_type(pa.repeat(pa.scalar(value), n))
    except UNUSABLE as error:
        raise ProducerError(f"column {name!r} cannot be converted: {error}") from error


def unusable(name: str, values: Any, error: Exception) -> ProducerError:
    """Return the error of a column that cannot be converted, with its first unusable row."""
    objects = values if isinstance(values, list | tuple) else list(values)
    low, high = 0, len(objects)
    while low < high:  # the number of rows that can be converted together
        middle = (low + high + 1) // 2
        if _is_usable(objects[:middle]):
            low = middle
        else:
            high = middle - 1
    row = f", row {low}," if low < len(objects) else ""
    return ProducerError(f"column {name!r}{row} cannot be converted: {error}")


def _without_null_type(column: Any) -> Any:
    return column.cast(pa.float64()) if pa.types.is_null(column.type) else column


def _check_utf8(name: str, texts: Any) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        for row, text in enumerate(texts):
            try:
                text.as_py()
            except UnicodeDecodeError as cause:
                raise ProducerError(f"column {name!r}, row {row}, is not UTF-8: {cause}") from error
        raise ProducerError(f"column {name!r} is not valid: {error}") from error


def _from_objects(values: Sequence[Any] | Any) -> Any:
    try:
        return _without_null_type(pa.array(values))
    except UNUSABLE:
        # With pandas' rules NaN among texts is a missing value.
        return _without_null_type(pa.array(values, from_pandas=True))


def _is_usable(objects: Sequence[Any]) -> bool:
    try:
        _from_objects(objects)
    except UNUSABLE:
        return False
    return True


def _from_texts(texts: Any) -> Any:
    """Return numpy texts as an Arrow array.

    pyarrow cuts them at a NUL character, and needs four times as long.
    """
    n, width = len(texts), texts.dtype.itemsize // 4
    if texts.ndim == 1 and 0 < width <= SHORT_CHARS_MAX and n:
        codes = texts.view(np.uint32).reshape(n, width)
        if codes.max() < 0x80:
            characters = codes.astype(np.uint8)
            used = characters != 0
            has_inner_nul = used.ravel()[1:] > used.ravel()[:-1]
            has_inner_nul[width - 1 :: width] = False  # from one row to the next
            if not has_inner_nul.any():
                ends = np.zeros(n + 1, np.int32)
                lengths = used.view(np.uint8) @ np.ones(width, np.uint8)
                np.cumsum(lengths, out=ends[1:], dtype=np.int32)
                buffers = [None, pa.py_buffer(ends), pa.py_buffer(characters[used])]
                return pa.Array.from_buffers(pa.string(), n, buffers)
    return pa.array(texts.tolist(), pa.string())
