"""A columnar Avro codec: encodes records of a few numbers and long arrays at memory speed.

Avro encodes an array as blocks (Apache Avro specification, "Arrays"): a count, the items, and a
final zero. Items of floats and doubles are plain little-endian numbers, so a whole column is one
``frombuffer`` or one ``tobytes``, and any Avro reader can read it, such as Spark's ``from_avro``.
For this reason columns are ``array<double>`` and never ``array<long>``, whose items are varints.

A schema is compiled once into one reader and one writer per field. The alternative, fastavro,
creates a Python object per value, 40 times the cost of the rest of the pipeline. Tests compare with
it, and it computes the fingerprint.

Damage raises ``DamageError``; ``slackwater.codec.record_fields`` adds the record's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from fastavro.schema import fingerprint as avro_fingerprint
from fastavro.schema import to_parsing_canonical_form

from slackwater.codec.avro_types import (
    ITEMS_MAX,
    Buffer,
    DamageError,
    Reader,
    Writer,
    enumeration,
    list_reader,
    list_writer,
    map_reader,
    map_writer,
    number_reader,
    number_writer,
    read_boolean,
    read_bytes,
    read_int,
    read_long,
    read_text,
    real,
    record,
    write_boolean,
    write_bytes,
    write_int,
    write_long,
    write_text,
)
from slackwater.codec.key_lists import KeyLists

_SINGLE_OBJECT: Final = b"\xc3\x01"


class _Compiler:
    """Compiles a schema into readers and writers; remembers its named types."""

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
            return map_reader(reader), map_writer(writer)
        if kind == "enum":
            made = enumeration(len(schema["symbols"]))
        elif kind == "record":
            made = record([self.compile(field["type"]) for field in schema["fields"]])
        else:
            return self.compile(kind)
        self._named[schema["name"]] = made
        return made

    def _array(self, items: Any) -> tuple[Reader, Writer]:
        if isinstance(items, str) and items in _COLUMNS:
            dtype = _COLUMNS[items]
            return number_reader(dtype), number_writer(dtype)
        reader, writer = self.compile(items)
        return list_reader(reader, ITEMS_MAX), list_writer(writer)


_COLUMNS: Final[dict[str, np.dtype[Any]]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}
_PRIMITIVES: Final[dict[str, tuple[Reader, Writer]]] = {
    "int": (read_int, write_int),
    "long": (read_long, write_long),
    "float": real("<f"),
    "double": real("<d"),
    "string": (read_text, write_text),
    "bytes": (read_bytes, write_bytes),
    "boolean": (read_boolean, write_boolean),
}


class RecordCodec:
    """A compiled schema: converts bytes with the single-object header to lists of values and back.

    ``key_fields`` names the ``array<string>`` fields that use ``KeyLists``. ``older`` has the
    previous versions of the schema: new fields are always last and have defaults, so a record of an
    older version is upgraded by appending the bytes of these defaults.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        key_fields: Sequence[str] = (),
        older: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.name: str = schema["name"]
        self.fingerprint = fingerprint_of(schema)
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
            _SINGLE_OBJECT + fingerprint_of(version): self._defaults(schema, len(version["fields"]))
            for version in older
        }
        """Header of each older version -> the bytes to append to its records."""

    def encode(self, *values: Any) -> bytes:
        """Encode a record; ``values`` are in the order of the schema's fields.

        Raises:
            ValueError: a value does not fit its field.
        """
        out: list[Buffer] = [self.header]
        for writer, value in zip(self._writers, values, strict=True):
            writer(out, value)
        return b"".join(out)

    def of_today(self, buf: bytes) -> bytes:
        """Upgrade a record to this version; other bytes are returned unchanged."""
        if buf.startswith(self.header) or not self.older:
            return buf
        size = len(self.header)
        lacking = self.older.get(buf[:size])
        return buf if lacking is None else b"".join((self.header, buf[size:], lacking))

    def check_header(self, buf: bytes) -> int:
        """Return the position of the first field; raises ``DamageError`` for another header."""
        if not buf.startswith(self.header):
            raise DamageError(f"not a record of schema {self.name}: begins with {buf[:10].hex()}")
        return len(self.header)

    def read_fields(self, buf: bytes, pos: int, first: int, end: int) -> tuple[list[Any], int]:
        """Read the fields numbered ``first`` to ``end`` (exclusive), from ``pos``.

        Returns their values and the position after them. Raises ``DamageError``.
        """
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
        """Decode all values; raises ``DamageError``, also for trailing bytes."""
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


def fingerprint_of(schema: Mapping[str, Any]) -> bytes:
    """Return the CRC-64-AVRO, low byte first, as in the specification's single-object encoding."""
    canonical = to_parsing_canonical_form(dict(schema))
    return bytes.fromhex(avro_fingerprint(canonical, "CRC-64-AVRO"))
