"""A columnar Avro engine: records of a few numbers and long arrays, at the speed of memory.

Avro writes an array as blocks (Apache Avro specification, "Arrays"): a count, the items, at the
end a zero. Of floats and doubles the items are plain little-endian numbers, so a whole column is
one ``frombuffer`` or one ``tobytes``, and still any Avro reader reads it; Spark's ``from_avro``
does. That is why columns are ``array<double>`` and never ``array<long>``, which are varints.

A schema is compiled once into one reader and one writer per field. fastavro was the alternative:
it makes one Python object for each value, 40 times the cost of the rest of the pipeline. It still
serves as the oracle of the tests, and for the fingerprint.

Nothing that a writer says is believed: a length is checked against the bytes that are left before
anything is allocated for it, and lists of objects (where one byte can ask for a hundred) have
limits of their own. Damage is a ``DamageError``; ``slackwater.codec.records`` adds the place.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from fastavro.schema import fingerprint as avro_fingerprint
from fastavro.schema import to_parsing_canonical_form

from slackwater.primitives.caches import evict

Buffer = bytes | memoryview
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[list[Buffer], Any], None]

items_max: Final = 65_536
"""Most entries of a list of records, of a map, or of columns: each costs an object."""
prefix_bytes: Final = 64
"""How much of a key list's bytes is compared to find it again."""
candidates_max: Final = 4
"""Key lists that begin with the same bytes and are remembered together."""

_SINGLE_OBJECT: Final = b"\xc3\x01"
_LONG_MAX: Final = 2**63
_INT_MAX: Final = 2**31
_U64: Final = 2**64 - 1
_SMALL: Final = tuple(bytes([n]) for n in range(128))
_END: Final = b"\x00"


class DamageError(ValueError):
    """The bytes are not what the schema says."""


def read_long(buf: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes; a longer or larger one is damage."""
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


def long_bytes(value: int) -> bytes:
    """The zigzag varint of an int64."""
    if not -_LONG_MAX <= value < _LONG_MAX:
        raise ValueError(f"{value} is not an int64")
    left = (value << 1) ^ (value >> 63)
    if left < 128:
        return _SMALL[left]
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def read_int(buf: bytes, pos: int) -> tuple[int, int]:
    """A long that fits 32 bits."""
    value, pos = read_long(buf, pos)
    if not -_INT_MAX <= value < _INT_MAX:
        raise DamageError(f"int {value} has more than 32 bits")
    return value, pos


def read_text(buf: bytes, pos: int) -> tuple[str, int]:
    """A string: its length in bytes, then UTF-8."""
    size, pos = read_long(buf, pos)
    end = pos + size
    if size < 0 or end > len(buf):
        raise DamageError(f"a string of {size} bytes where {len(buf) - pos} are left")
    return str(buf[pos:end], "utf-8"), end


def _read_block(buf: bytes, pos: int, item_bytes_min: int) -> tuple[int, int]:
    """Count of the next block. A negative count is followed by the block's size in bytes."""
    count, pos = read_long(buf, pos)
    if count < 0:
        count = -count
        size, pos = read_long(buf, pos)
        if not 0 <= size <= len(buf) - pos:
            raise DamageError(f"a block of {size} bytes where {len(buf) - pos} are left")
    if count * item_bytes_min > len(buf) - pos:
        raise DamageError(f"{count} items where {len(buf) - pos} bytes are left")
    return count, pos


def _number_reader(dtype: np.dtype[Any]) -> Reader:
    width = dtype.itemsize

    def read(buf: bytes, pos: int) -> tuple[npt.NDArray[Any], int]:
        count, pos = _read_block(buf, pos, width)
        if not count:
            return np.empty(0, dtype), pos
        first = np.frombuffer(buf, dtype, count, pos)
        pos += count * width
        if buf[pos] == 0:
            # Copied to where numbers are aligned: numpy picks from unaligned ones six times slower.
            return first.copy(), pos + 1
        blocks = [first]
        while True:
            count, pos = _read_block(buf, pos, width)
            if not count:
                return np.concatenate(blocks), pos
            blocks.append(np.frombuffer(buf, dtype, count, pos))
            pos += count * width
            if len(blocks) > items_max:
                raise DamageError(f"a column of more than {items_max} blocks")

    return read


def _number_writer(dtype: np.dtype[Any]) -> Writer:
    def write(out: list[Buffer], value: npt.ArrayLike) -> None:
        array = np.ascontiguousarray(value, dtype)
        if array.ndim != 1:
            raise ValueError(f"a column has one dimension, not {array.ndim}")
        if array.size:
            out.append(long_bytes(array.size))
            out.append(array.data)
        out.append(_END)

    return write


def _list_reader(item: Reader, count_max: int) -> Reader:
    def read(buf: bytes, pos: int) -> tuple[tuple[Any, ...], int]:
        items: list[Any] = []
        while True:
            count, pos = _read_block(buf, pos, 1)
            if not count:
                return tuple(items), pos
            if len(items) + count > count_max:
                raise DamageError(f"more than {count_max} items")
            for _ in range(count):
                value, pos = item(buf, pos)
                items.append(value)

    return read


def _list_writer(item: Writer) -> Writer:
    def write(out: list[Buffer], values: Sequence[Any]) -> None:
        if len(values):
            out.append(long_bytes(len(values)))
            for value in values:
                item(out, value)
        out.append(_END)

    return write


def _map_reader(item: Reader) -> Reader:
    def read_entry(buf: bytes, pos: int) -> tuple[tuple[str, Any], int]:
        name, pos = read_text(buf, pos)
        value, pos = item(buf, pos)
        return (name, value), pos

    entries = _list_reader(read_entry, items_max)

    def read(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
        pairs, pos = entries(buf, pos)
        return dict(pairs), pos

    return read


def _map_writer(item: Writer) -> Writer:
    def write(out: list[Buffer], values: Mapping[str, Any]) -> None:
        if values:
            out.append(long_bytes(len(values)))
            for name, value in values.items():
                _write_text(out, name)
                item(out, value)
        out.append(_END)

    return write


def _write_long(out: list[Buffer], value: int) -> None:
    out.append(long_bytes(value))


def _write_int(out: list[Buffer], value: int) -> None:
    if not -_INT_MAX <= value < _INT_MAX:
        raise ValueError(f"{value} is not an int32")
    out.append(long_bytes(value))


def _write_text(out: list[Buffer], value: str) -> None:
    data = value.encode()
    out.append(long_bytes(len(data)))
    out.append(data)


def _read_boolean(buf: bytes, pos: int) -> tuple[bool, int]:
    if buf[pos] > 1:
        raise DamageError(f"boolean {buf[pos]}")
    return buf[pos] == 1, pos + 1


def _write_boolean(out: list[Buffer], value: bool) -> None:
    out.append(b"\x01" if value else b"\x00")


def _real(form: str) -> tuple[Reader, Writer]:
    packed = struct.Struct(form)

    def read(buf: bytes, pos: int) -> tuple[float, int]:
        if pos + packed.size > len(buf):
            raise DamageError("ends within a number")
        return packed.unpack_from(buf, pos)[0], pos + packed.size

    def write(out: list[Buffer], value: float) -> None:
        out.append(packed.pack(value))

    return read, write


def _enumeration(symbols: int) -> tuple[Reader, Writer]:
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


def _record(fields: list[tuple[Reader, Writer]]) -> tuple[Reader, Writer]:
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


class KeyLists:
    """Reads and writes lists of strings, and remembers the last ones both ways.

    A stream's records carry the same keys again and again. An unchanged list is written from a
    cache, and recognised by comparing bytes before any string is made of them. ``key_lists_max``
    lists, and ``bytes_max`` of memory, are kept each way; the least recently used goes first, and
    one is kept however long it is.
    """

    def __init__(self, key_lists_max: int = 256, bytes_max: int = 128 << 20) -> None:
        assert key_lists_max > 0
        self._max = key_lists_max
        self._bytes_max = bytes_max
        self._written_bytes = self._read_bytes = 0
        self._last: tuple[Sequence[str], bytes] = ((), _END)
        self._written: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._read: OrderedDict[bytes, list[tuple[bytes, tuple[str, ...]]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._written) + sum(map(len, self._read.values()))

    @property
    def nbytes(self) -> int:
        """About what the lists take in memory, both ways together."""
        return self._written_bytes + self._read_bytes

    def clear(self) -> None:
        """Forget all lists."""
        self._last = ((), _END)
        self._written_bytes = self._read_bytes = 0
        self._written.clear()
        self._read.clear()

    def write(self, out: list[Buffer], keys: Sequence[str]) -> None:
        """Append the list; only a tuple is known again by its identity, a list may have changed."""
        last, data = self._last
        if keys is not last:
            frozen = tuple(keys)
            cached = self._written.get(frozen)
            if cached is None:
                cached = _keys_bytes(frozen)
                self._written[frozen] = cached
                self._written_bytes += _kept_bytes(cached, frozen)
                self._written_bytes = evict(
                    self._written,
                    self._written_bytes,
                    lambda keys, data: _kept_bytes(data, keys),
                    entries_max=self._max,
                    bytes_max=self._bytes_max,
                )
            else:
                self._written.move_to_end(frozen)
            data = cached
            self._last = (frozen, data)
        out.append(data)

    def read(self, buf: bytes, pos: int) -> tuple[tuple[str, ...], int]:
        """The list at ``pos``: the same tuple as before where the bytes are the same."""
        prefix = buf[pos : pos + prefix_bytes]
        candidates = self._read.get(prefix)
        if candidates is not None:
            for data, keys in candidates:
                if buf.startswith(data, pos):
                    self._read.move_to_end(prefix)
                    return keys, pos + len(data)
        keys, end = _read_keys(buf, pos)
        if end - pos >= prefix_bytes:
            self._remember(prefix, buf[pos:end], keys)
        return keys, end

    def _remember(self, prefix: bytes, data: bytes, keys: tuple[str, ...]) -> None:
        candidates = self._read.setdefault(prefix, [])
        candidates.insert(0, (data, keys))
        self._read_bytes += _kept_bytes(data, keys)
        self._read.move_to_end(prefix)
        if len(candidates) > candidates_max:
            self._forget_one(prefix)
        while (kept := sum(map(len, self._read.values()))) > 1 and (
            kept > self._max or self._read_bytes > self._bytes_max
        ):
            self._forget_one(next(iter(self._read)))

    def _forget_one(self, prefix: bytes) -> None:
        """The oldest list that begins like this."""
        self._read_bytes -= _kept_bytes(*self._read[prefix].pop())
        if not self._read[prefix]:
            del self._read[prefix]


def _kept_bytes(data: bytes, keys: tuple[str, ...]) -> int:
    """About what a list takes: its bytes, and its strings with what Python adds to each."""
    return 2 * len(data) + 57 * len(keys)


def _keys_bytes(keys: tuple[str, ...]) -> bytes:
    if not keys:
        return _END
    out: list[Buffer] = [long_bytes(len(keys))]
    for key in keys:
        data = key.encode()
        size = len(data)
        out.append(_SMALL[size << 1] if size < 64 else long_bytes(size))
        out.append(data)
    out.append(_END)
    return b"".join(out)


def _read_keys(buf: bytes, pos: int) -> tuple[tuple[str, ...], int]:
    keys: list[str] = []
    end_of_buffer = len(buf)
    while True:
        count, pos = _read_block(buf, pos, 1)
        if not count:
            return tuple(keys), pos
        for _ in range(count):
            size = buf[pos]
            pos += 1
            if size < 128 and not size & 1:
                size >>= 1
            else:
                size, pos = read_long(buf, pos - 1)
            end = pos + size
            if size < 0 or end > end_of_buffer:
                raise DamageError(f"a key of {size} bytes where {end_of_buffer - pos} are left")
            keys.append(str(buf[pos:end], "utf-8"))
            pos = end


class _Compiler:
    """Turns a schema into readers and writers, remembering the types it has named."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Reader, Writer]] = {}

    def compile(self, schema: Any) -> tuple[Reader, Writer]:
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._named[schema]
        kind = schema["type"]
        if kind == "array":
            return self._array(schema["items"])
        if kind == "map":
            reader, writer = self.compile(schema["values"])
            return _map_reader(reader), _map_writer(writer)
        if kind == "enum":
            made = _enumeration(len(schema["symbols"]))
        elif kind == "record":
            made = _record([self.compile(field["type"]) for field in schema["fields"]])
        else:
            return self.compile(kind)
        self._named[schema["name"]] = made
        return made

    def _array(self, items: Any) -> tuple[Reader, Writer]:
        if isinstance(items, str) and items in _COLUMNS:
            dtype = _COLUMNS[items]
            return _number_reader(dtype), _number_writer(dtype)
        reader, writer = self.compile(items)
        return _list_reader(reader, items_max), _list_writer(writer)


_COLUMNS: Final[dict[str, np.dtype[Any]]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}
_PRIMITIVES: Final[dict[str, tuple[Reader, Writer]]] = {
    "int": (read_int, _write_int),
    "long": (read_long, _write_long),
    "float": _real("<f"),
    "double": _real("<d"),
    "string": (read_text, _write_text),
    "boolean": (_read_boolean, _write_boolean),
}


class RecordCodec:
    """One schema, compiled: bytes with the single-object header to a list of values and back.

    ``key_fields`` names the ``array<string>`` fields that go through ``KeyLists``. ``older`` are
    the versions before: since new fields only come at the end and have defaults, a record of an
    older version becomes one of today by the bytes of those defaults behind it.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        key_fields: Sequence[str] = (),
        older: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.name: str = schema["name"]
        self.fingerprint = _fingerprint(schema)
        self.header = _SINGLE_OBJECT + self.fingerprint
        self.fields: tuple[str, ...] = tuple(field["name"] for field in schema["fields"])
        self.key_lists = KeyLists()
        compiler = _Compiler()
        pairs = [compiler.compile(field["type"]) for field in schema["fields"]]
        for name in key_fields:
            pairs[self.fields.index(name)] = (self.key_lists.read, self.key_lists.write)
        self._readers = tuple(reader for reader, _ in pairs)
        self._writers = tuple(writer for _, writer in pairs)
        self.older = {
            _SINGLE_OBJECT + _fingerprint(version): self._defaults(schema, len(version["fields"]))
            for version in older
        }
        """Header of each older version -> what its records lack at the end."""

    def encode(self, *values: Any) -> bytes:
        """The record's bytes; ``values`` in the order of the schema's fields."""
        out: list[Buffer] = [self.header]
        for writer, value in zip(self._writers, values, strict=True):
            writer(out, value)
        return b"".join(out)

    def of_today(self, buf: bytes) -> bytes:
        """The same record in this version; what is no older version is given back as it is."""
        if buf.startswith(self.header) or not self.older:
            return buf
        size = len(self.header)
        lacking = self.older.get(buf[:size])
        return buf if lacking is None else b"".join((self.header, buf[size:], lacking))

    def check_header(self, buf: bytes) -> int:
        """Where the first field begins."""
        if not buf.startswith(self.header):
            raise DamageError(f"not a record of schema {self.name}: begins with {buf[:10].hex()}")
        return len(self.header)

    def read_fields(self, buf: bytes, pos: int, first: int, end: int) -> tuple[list[Any], int]:
        """Values of the fields numbered ``first`` to ``end`` (exclusive), from ``pos``."""
        values = []
        try:
            for reader in self._readers[first:end]:
                value, pos = reader(buf, pos)
                values.append(value)
        except (DamageError, UnicodeDecodeError) as error:
            field = self.fields[first + len(values)]
            raise DamageError(f"field {field} at byte {pos}: {error}") from error
        except IndexError as error:
            field = self.fields[first + len(values)]
            raise DamageError(f"ends within field {field}") from error
        return values, pos

    def decode(self, buf: bytes) -> list[Any]:
        """All values; bytes behind the last one are damage."""
        buf = self.of_today(buf)
        values, pos = self.read_fields(buf, self.check_header(buf), 0, len(self.fields))
        if pos != len(buf):
            raise DamageError(f"{len(buf) - pos} bytes too many")
        return values

    def _defaults(self, schema: Mapping[str, Any], first: int) -> bytes:
        out: list[Buffer] = []
        for writer, field in zip(self._writers[first:], schema["fields"][first:], strict=True):
            writer(out, field["default"])
        return b"".join(out)


def _fingerprint(schema: Mapping[str, Any]) -> bytes:
    """CRC-64-AVRO, low byte first, as the specification's single-object encoding wants it."""
    canonical = to_parsing_canonical_form(dict(schema))
    return bytes.fromhex(avro_fingerprint(canonical, "CRC-64-AVRO"))
