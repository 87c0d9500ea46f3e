"""Readers and writers of Avro's types, one pair per type.

A reader takes bytes and a position and returns the value and the position after it; a writer
appends the bytes of a value to a list. ``slackwater.codec.avro`` combines them by schema.

A length is checked against the remaining bytes before any allocation. Lists of objects have a limit
of their own, since one byte of input can take a hundred bytes of memory there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Buffer = bytes | memoryview
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[list[Buffer], Any], None]
ITEMS_MAX: Final = 65_536
"""Maximum items of a list of records, a map or a set of columns; each item is a Python object."""
_LONG_MAX: Final = 2**63
_INT_MAX: Final = 2**31
_U64: Final = 2**64 - 1
SMALL_LONGS: Final = tuple(bytes([n]) for n in range(128))
END: Final = b"\x00"


class DamageError(ValueError):
    """Raised when the bytes do not match the schema."""


def read_long(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of at most ten bytes; a longer or larger one is damage."""
    byte = buf[pos]
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    value = byte & 127
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        if byte < 128:
            break
        value |= (byte & 127) << shift
        shift += 7
        if shift > 63:
            raise DamageError("a number of more than ten bytes")
    value |= byte << shift
    if value > _U64:
        raise DamageError("a number of more than 64 bits")
    return (value >> 1) ^ -(value & 1), pos


def read_last_long(buf: bytes) -> int:
    """Read the long at the end of a record without what precedes it.

    What precedes must end with a long or an array. Of a varint only the last byte is below 128.
    """
    pos = len(buf) - 1
    if buf[pos] >= 128:
        raise DamageError("ends within a number")
    while pos > 0 and buf[pos - 1] >= 128:
        pos -= 1
    return read_long(buf, pos)[0]


def long_bytes(value: int) -> bytes:
    """Encode an int64 as a zigzag varint."""
    if not -_LONG_MAX <= value < _LONG_MAX:
        raise ValueError(f"{value} is not an int64")
    left = (value << 1) ^ (value >> 63)
    if left < 128:
        return SMALL_LONGS[left]
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def read_int(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a long that fits into 32 bits."""
    value, pos = read_long(buf, pos)
    if not -_INT_MAX <= value < _INT_MAX:
        raise DamageError(f"int {value} has more than 32 bits")
    return value, pos


def read_text(buf: bytes, pos: int) -> tuple[str, int]:
    """Read a string: its length in bytes, then UTF-8."""
    size, pos = read_long(buf, pos)
    end = pos + size
    if size < 0 or end > len(buf):
        raise DamageError(f"a string of {size} bytes where {len(buf) - pos} are left")
    return str(buf[pos:end], "utf-8"), end


def read_bytes(buf: bytes, pos: int) -> tuple[bytes, int]:
    """Read bytes: their number, then they themselves."""
    size, pos = read_long(buf, pos)
    end = pos + size
    if size < 0 or end > len(buf):
        raise DamageError(f"{size} bytes where {len(buf) - pos} are left")
    return buf[pos:end], end


def read_block(buf: bytes, pos: int, item_bytes_min: int) -> tuple[int, int]:
    """Read a block's number of items, each of at least ``item_bytes_min`` bytes.

    A negative count is followed by the block's size in bytes.
    """
    count, pos = read_long(buf, pos)
    if count < 0:
        count = -count
        size, pos = read_long(buf, pos)
        if not 0 <= size <= len(buf) - pos:
            raise DamageError(f"a block of {size} bytes where {len(buf) - pos} are left")
    if count * item_bytes_min > len(buf) - pos:
        raise DamageError(f"{count} items where {len(buf) - pos} bytes are left")
    return count, pos


def number_reader(dtype: np.dtype[Any]) -> Reader:
    """Return a reader of number arrays, as one numpy array."""
    width = dtype.itemsize

    def read(buf: bytes, pos: int) -> tuple[npt.NDArray[Any], int]:
        count, pos = read_block(buf, pos, width)
        if not count:
            return np.empty(0, dtype), pos
        first = np.frombuffer(buf, dtype, count, pos)
        pos += count * width
        if buf[pos] == 0:
            # Copied for alignment: numpy indexes unaligned arrays six times slower.
            return first.copy(), pos + 1
        blocks = [first]
        while True:
            count, pos = read_block(buf, pos, width)
            if not count:
                return np.concatenate(blocks), pos
            blocks.append(np.frombuffer(buf, dtype, count, pos))
            pos += count * width
            if len(blocks) > ITEMS_MAX:
                raise DamageError(f"a column of more than {ITEMS_MAX} blocks")

    return read


def number_writer(dtype: np.dtype[Any]) -> Writer:
    """Return a writer of number arrays, from anything numpy accepts."""

    def write(out: list[Buffer], value: npt.ArrayLike) -> None:
        array = np.ascontiguousarray(value, dtype)
        if array.ndim != 1:
            raise ValueError(f"a column has one dimension, not {array.ndim}")
        if array.size:
            out.append(long_bytes(array.size))
            out.append(array.data)
        out.append(END)

    return write


def list_reader(item: Reader, count_max: int) -> Reader:
    """Return a reader of arrays of at most ``count_max`` items, as a tuple."""

    def read(buf: bytes, pos: int) -> tuple[tuple[Any, ...], int]:
        items: list[Any] = []
        while True:
            count, pos = read_block(buf, pos, 1)
            if not count:
                return tuple(items), pos
            if len(items) + count > count_max:
                raise DamageError(f"more than {count_max} items")
            for _ in range(count):
                value, pos = item(buf, pos)
                items.append(value)

    return read


def list_writer(item: Writer) -> Writer:
    """Return a writer of arrays."""

    def write(out: list[Buffer], values: Sequence[Any]) -> None:
        if len(values):
            out.append(long_bytes(len(values)))
            for value in values:
                item(out, value)
        out.append(END)

    return write


def map_reader(item: Reader) -> Reader:
    """Return a reader of maps, as a dict."""

    def read_entry(buf: bytes, pos: int) -> tuple[tuple[str, Any], int]:
        name, pos = read_text(buf, pos)
        value, pos = item(buf, pos)
        return (name, value), pos

    entries = list_reader(read_entry, ITEMS_MAX)

    def read(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
        pairs, pos = entries(buf, pos)
        return dict(pairs), pos

    return read


def map_writer(item: Writer) -> Writer:
    """Return a writer of maps."""

    def write(out: list[Buffer], values: Mapping[str, Any]) -> None:
        if values:
            out.append(long_bytes(len(values)))
            for name, value in values.items():
                write_text(out, name)
                item(out, value)
        out.append(END)

    return write


def write_long(out: list[Buffer], value: int) -> None:
    """Append a long."""
    out.append(long_bytes(value))


def write_int(out: list[Buffer], value: int) -> None:
    """Append an int; ``ValueError`` beyond 32 bits."""
    if not -_INT_MAX <= value < _INT_MAX:
        raise ValueError(f"{value} is not an int32")
    out.append(long_bytes(value))


def write_text(out: list[Buffer], value: str) -> None:
    """Append a string."""
    data = value.encode()
    out.append(long_bytes(len(data)))
    out.append(data)


def write_bytes(out: list[Buffer], value: Buffer | str) -> None:
    """Append bytes; a default in a schema is a text, with a code point for each byte."""
    data = value.encode("latin-1") if isinstance(value, str) else value
    out.append(long_bytes(len(data)))
    out.append(data)


def read_boolean(buf: bytes, pos: int) -> tuple[bool, int]:
    """Read a boolean: one byte, 0 or 1."""
    if buf[pos] > 1:
        raise DamageError(f"boolean {buf[pos]}")
    return buf[pos] == 1, pos + 1


def write_boolean(out: list[Buffer], value: bool) -> None:
    """Append a boolean."""
    out.append(b"\x01" if value else b"\x00")


def real(form: str) -> tuple[Reader, Writer]:
    """Return reader and writer of a float or double, ``form`` as in ``struct``."""
    packed = struct.Struct(form)

    def read(buf: bytes, pos: int) -> tuple[float, int]:
        if pos + packed.size > len(buf):
            raise DamageError("ends within a number")
        return packed.unpack_from(buf, pos)[0], pos + packed.size

    def write(out: list[Buffer], value: float) -> None:
        out.append(packed.pack(value))

    return read, write


def enumeration(symbols: int) -> tuple[Reader, Writer]:
    """Return reader and writer of an enum with that many symbols, as the symbol's number."""

    def read(buf: bytes, pos: int) -> tuple[int, int]:
        value, pos = read_long(buf, pos)
        if not 0 <= value < symbols:
            raise DamageError(f"symbol {value} of {symbols}")
        return value, pos

    def write(out: list[Buffer], value: int) -> None:
        if not 0 <= value < symbols:
            raise ValueError(f"symbol {value} of {symbols}")
        out.append(long_bytes(value))

    return read, write


def record(fields: list[tuple[Reader, Writer]]) -> tuple[Reader, Writer]:
    """Return reader and writer of a record, as a tuple of field values."""
    readers = [reader for reader, _ in fields]
    writers = [writer for _, writer in fields]

    def read(buf: bytes, pos: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for reader in readers:
            value, pos = reader(buf, pos)
            values.append(value)
        return tuple(values), pos

    def write(out: list[Buffer], values: Sequence[Any]) -> None:
        for writer, value in zip(writers, values, strict=True):
            writer(out, value)

    return read, write
