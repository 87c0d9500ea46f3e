"""A writer's schema, compiled: a decoder of one message, and the plan to decode many at a time.

The decoder is the definition. It is total over bytes: a length is checked before any allocation or
loop, and bytes after the record are damage. Schemas are not trusted either. A schema is refused if
its records could take more time or stack than their size justifies: a recursive one, an array whose
items take no bytes or have many fields that take none, and one with very many fields after
expansion of its named types.

Values have the form that ``json_text.load`` returns, so that the rules of ``json`` apply to them:
numbers as text, null as None. Arrays, maps, bytes and fixed are decoded, but not as values of a
reading.

Rejected: fastavro as the decoder. It interprets a negative length as the rest of the message,
decodes arrays of null of any count, and recurses without a bound. It parses the schemas and serves
as the oracle of the tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from slackwater.codec.avro_types import (
    DamageError,
    Reader,
    read_block,
    read_boolean,
    read_int,
    read_long,
    real,
)
from slackwater.formats.json_text import JsonNumber
from slackwater.formats.repeated import places_of
from slackwater.model.deployment import TimeUnit

SCHEMA_BYTES_MAX: Final = 1024 * 1024
SCHEMA_NODES_MAX: Final = 10_000
"""Maximum types in a schema, after expansion of its named types."""
_DEPTH_MAX: Final = 64
_ITEM_IDLE_MAX: Final = 16
"""Maximum reads of an array's item that take no bytes, as for fields of type null."""
_MARK: Final = "__fastavro_parsed"
"""A schema with this name is regarded as parsed by fastavro."""
_UNITS: Final[Mapping[str, TimeUnit]] = {
    "timestamp-millis": "ms",
    "timestamp-micros": "us",
    "timestamp-nanos": "ns",
}
_LOCAL: Final = "local-"
"""Before the name of a timestamp without a zone."""
_NOT_A_VALUE: Final = (b"",)
"""Value of arrays, maps, bytes and fixed: no rule of ``json`` accepts it."""


class SchemaError(ValueError):
    """Raised for a schema that is refused, with the reason."""


@dataclass(frozen=True, slots=True)
class Type:
    """A compiled type.

    ``inner`` are the fields of a record by name, or the type of a nullable one; ``symbols`` those
    of an enum, ``size`` that of a fixed, ``unit`` that of a timestamp, which ``is_local`` if it has
    no zone. ``idle`` is the maximum number of reads that take no bytes.
    """

    kind: str
    read: Reader
    bytes_min: int
    nodes: int = 1
    inner: tuple[tuple[str, Type], ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    unit: TimeUnit | None = None
    is_local: bool = False
    null_first: bool = False
    idle: int = 0

    def at(self, path: Sequence[str | int]) -> Type | None:
        """Return the type at a path, through nullable types; None if there is none.

        An index leads nowhere: elements of arrays are no values.
        """
        found: Type | None = self
        for step in path:
            while found is not None and found.kind == "nullable":
                found = found.inner[0][1]
            found = None if found is None else dict(found.inner).get(str(step))
        while found is not None and found.kind == "nullable":
            found = found.inner[0][1]
        return found


def compile_schema(text: str, references: Sequence[str] = ()) -> Type:
    """Compile the schema of a record; ``references``: the schemas that it references, in order."""
    named: dict[str, Any] = {}
    try:
        for reference in references:
            _parse(reference, named)
        compiled = _Compiler(named).compile(_parse(text, named), 0)
    except SchemaError:
        raise
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
        raise SchemaError(f"is not an Avro schema: {error!r:.200}") from error
    except (RecursionError, AttributeError, OverflowError):
        raise SchemaError("is not an Avro schema") from None
    if compiled.kind != "record":
        raise SchemaError(f"is not the schema of a record but {compiled.kind}")
    return compiled


def decode(schema: Type, message: bytes, start: int) -> dict[str, Any]:
    """Decode a record that ends with the message; raises ``DamageError`` if it does not match."""
    try:
        value, end = schema.read(message, start)
    except IndexError:
        raise DamageError("ends within the record") from None
    if end != len(message):
        raise DamageError(f"{len(message) - end} bytes too many")
    decoded: dict[str, Any] = value
    return decoded


def _parse(text: str, named: dict[str, Any]) -> Any:
    if len(text) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"is longer than {SCHEMA_BYTES_MAX} bytes")
    return parse_schema(json.loads(text, object_hook=_unmarked), named_schemas=named)


def _unmarked(found: dict[str, Any]) -> dict[str, Any]:
    found.pop(_MARK, None)
    return found


class _Compiler:
    """Compiles the types of one schema; remembers its named types."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._compiled: dict[str, Type | None] = {}

    def compile(self, schema: Any, depth: int) -> Type:
        if depth > _DEPTH_MAX:
            raise SchemaError(f"is nested deeper than {_DEPTH_MAX}")
        if isinstance(schema, list):
            made = self._union([self.compile(branch, depth + 1) for branch in schema])
        elif isinstance(schema, str):
            made = _PRIMITIVES.get(schema) or self._of_name(schema, depth)
        elif isinstance(schema["type"], list | dict):
            made = self.compile(schema["type"], depth + 1)
        else:
            made = self._complex(schema, depth)
        if made.nodes > SCHEMA_NODES_MAX:
            raise SchemaError(f"has more than {SCHEMA_NODES_MAX} types")
        return made

    def _of_name(self, name: str, depth: int) -> Type:
        if name not in self._compiled:
            if name not in self._named:
                raise SchemaError(f"names an unknown type {name}")
            return self.compile(self._named[name], depth + 1)
        known = self._compiled[name]
        if known is None:
            raise SchemaError(f"is recursive in {name}")
        return known

    def _complex(self, schema: Mapping[str, Any], depth: int) -> Type:
        match schema["type"]:
            case "record" | "error":
                self._compiled[schema["name"]] = None
                fields = [(f["name"], self.compile(f["type"], depth + 1)) for f in schema["fields"]]
                for name, numbers in places_of(name for name, _ in fields).items():
                    if len(numbers) > 1:
                        listed = " and ".join(map(str, numbers))
                        raise SchemaError(f"has {len(numbers)} fields {name!r}, numbers {listed}")
                made = _record(fields)
            case "enum":
                made = _enum(tuple(schema["symbols"]))
            case "fixed":
                made = _fixed(int(schema["size"]))
            case "array":
                return _array(self.compile(schema["items"], depth + 1))
            case "map":
                values = self.compile(schema["values"], depth + 1)
                return _array(_record([("", _PRIMITIVES["string"]), ("", values)]))
            case kind:
                plain = self.compile(kind, depth + 1)
                logical = str(schema.get("logicalType")) if kind == "long" else ""
                unit = _UNITS.get(logical.removeprefix(_LOCAL))
                is_local = logical.startswith(_LOCAL)
                return replace(plain, unit=unit, is_local=is_local) if unit else plain
        self._compiled[schema["name"]] = made
        return made

    def _union(self, branches: Sequence[Type]) -> Type:
        nodes = 1 + sum(branch.nodes for branch in branches)
        readers = [branch.read for branch in branches]

        def read(buf: bytes, pos: int) -> tuple[Any, int]:
            which, pos = read_long(buf, pos)
            if not 0 <= which < len(readers):
                raise DamageError(f"branch {which} of a union of {len(readers)}")
            return readers[which](buf, pos)

        # The number of the branch takes a byte, so a null takes one too.
        idle = max(0, max((branch.idle for branch in branches), default=0) - 1)
        nulls = [branch.kind == "null" for branch in branches]
        if len(branches) == 2 and any(nulls):
            inner = branches[nulls[0]]
            return Type("nullable", read, 1, nodes, (("", inner),), null_first=nulls[0], idle=idle)
        return Type("union", read, 1, nodes, idle=idle)


def _record(fields: Sequence[tuple[str, Type]]) -> Type:
    readers = [(name, field.read) for name, field in fields]

    def read(buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, reader in readers:
            values[name], pos = reader(buf, pos)
        return values, pos

    bytes_min = sum(field.bytes_min for _, field in fields)
    nodes = 1 + sum(field.nodes for _, field in fields)
    idle = max(0, 1 + sum(field.idle for _, field in fields) - bytes_min)
    return Type("record", read, bytes_min, nodes, tuple(fields), idle=idle)


def _enum(symbols: tuple[str, ...]) -> Type:
    def read(buf: bytes, pos: int) -> tuple[str, int]:
        number, pos = read_int(buf, pos)
        if not 0 <= number < len(symbols):
            raise DamageError(f"symbol {number} of {len(symbols)}")
        return symbols[number], pos

    return Type("enum", read, 1, symbols=symbols)


def _fixed(size: int) -> Type:
    if not 0 <= size <= SCHEMA_BYTES_MAX:
        raise SchemaError(f"has a fixed of {size} bytes")

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        if size > len(buf) - pos:
            raise DamageError(f"{size} bytes where {len(buf) - pos} are left")
        return _NOT_A_VALUE, pos + size

    return Type("fixed", read, size, size=size, idle=0 if size else 1)


def _array(item: Type) -> Type:
    if not item.bytes_min:
        raise SchemaError("has an array whose items take no bytes")
    if item.idle > _ITEM_IDLE_MAX:
        raise SchemaError("has an array whose items have many fields that take no bytes")

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        while True:
            count, pos = read_block(buf, pos, item.bytes_min)
            if not count:
                return [], pos
            for _ in range(count):
                _, pos = item.read(buf, pos)

    return Type("array", read, 1, 1 + item.nodes)


def _as_number(read: Reader) -> Reader:
    def number(buf: bytes, pos: int) -> tuple[JsonNumber | None, int]:
        value, pos = read(buf, pos)
        return (JsonNumber(value) if value == value else None), pos  # noqa: PLR0124 - NaN

    return number


def _read_null(_buf: bytes, pos: int) -> tuple[None, int]:
    return None, pos


def _read_string(buf: bytes, pos: int) -> tuple[str, int]:
    """Read a string. Bytes that are not UTF-8 are an error only if the string is used."""
    size, pos = _read_size(buf, pos)
    return str(buf[pos : pos + size], "utf-8", "surrogateescape"), pos + size


def _read_bytes(buf: bytes, pos: int) -> tuple[Any, int]:
    size, pos = _read_size(buf, pos)
    return _NOT_A_VALUE, pos + size


def _read_size(buf: bytes, pos: int) -> tuple[int, int]:
    size, pos = read_long(buf, pos)
    if not 0 <= size <= len(buf) - pos:
        raise DamageError(f"{size} bytes where {len(buf) - pos} are left")
    return size, pos


_PRIMITIVES: Final[Mapping[str, Type]] = {
    "null": Type("null", _read_null, 0, idle=1),
    "boolean": Type("boolean", read_boolean, 1),
    "int": Type("int", _as_number(read_int), 1),
    "long": Type("long", _as_number(read_long), 1),
    "float": Type("float", _as_number(real("<f")[0]), 4),
    "double": Type("double", _as_number(real("<d")[0]), 8),
    "bytes": Type("bytes", _read_bytes, 1),
    "string": Type("string", _read_string, 1),
}
