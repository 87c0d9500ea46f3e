"""Reader of ``avro``: framed messages of one reading each, with any writer's schemas.

Messages are parsed in groups of one schema. A schema is looked up in a ``SchemaBook`` when it first
occurs; the writer's schema may change while the stream runs. While a schema is unavailable, the
batch is not readable (``NotYetReadableError``), and none of its messages is refused.

A timestamp has the unit of its logical type if the schema has one, else the declared unit. A local
timestamp is a local time of the declared zone; any other is an instant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.codec.avro_types import DamageError
from slackwater.formats.avro.batch import DecodedColumn, decode_batch, is_plain
from slackwater.formats.avro.framing import Framed, Reference, Rows
from slackwater.formats.avro.schema import SchemaError, Type, compile_schema, decode
from slackwater.formats.columns import Mask, keys_of
from slackwater.formats.joined import joined_keys
from slackwater.formats.json_input import (
    JsonReader,
    MessageReading,
    parsed_of,
    step_into,
)
from slackwater.formats.json_tables import quick_values
from slackwater.formats.json_text import MESSAGE_BYTES_MAX
from slackwater.formats.messages import Bad, Parsed, joined, moved, nothing, with_refused
from slackwater.model.deployment import StreamSpec
from slackwater.model.meanings import Meanings
from slackwater.model.records import type_f64

UNFRAMED: Final = "neither of the two framings of Avro"
SCHEMAS_MAX: Final = 1_000
"""Maximum compiled schemas in the cache."""
_TIMES: Final = frozenset(("int", "long", "string"))
_KEYS: Final = frozenset(("int", "long", "string", "enum"))
_VALUES: Final = frozenset(("int", "long", "float", "double", "string", "null"))


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The text of a schema, and the schemas whose names it uses; or the reason for its absence."""

    text: str
    references: tuple[str, ...] = ()
    refused: str = ""


Schemas = Mapping[Reference, SchemaText]


class SchemaBook(Protocol):
    """A source of writers' schemas."""

    def find(self, references: Sequence[Reference]) -> Schemas:
        """Return the schemas; raises ``NotYetReadableError`` while one of them is unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch and the schemas of its messages."""

    messages: Sequence[bytes]
    framed: Framed
    groups: Mapping[Reference | None, Rows]
    schemas: Schemas


class AvroReader:
    """Parser of one stream's messages."""

    def __init__(self, spec: StreamSpec, book: SchemaBook) -> None:
        self.spec = spec
        self._book = book
        self._plan = lru_cache(maxsize=SCHEMAS_MAX)(lambda schema: _Plan.of(spec, schema))

    def prepare(self, messages: Sequence[bytes]) -> Prepared:
        """Look up a batch's schemas; raises ``NotYetReadableError`` while one is unavailable."""
        framed = Framed.of(messages)
        groups = framed.by_schema()
        schemas = self._book.find([reference for reference in groups if reference is not None])
        return Prepared(messages, framed, groups, schemas)

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch; any bytes are accepted."""
        return self.parse_prepared(self.prepare(messages))

    def parse_prepared(self, batch: Prepared) -> Parsed:
        """Parse a batch whose schemas have been looked up."""
        messages, framed, schemas = batch.messages, batch.framed, batch.schemas
        fields = len(self.spec.fields)
        parts = []
        for reference, rows in batch.groups.items():
            if reference is None:
                parts.append(_refused(rows, UNFRAMED, fields))
                continue
            plan = self._plan(schemas[reference])
            if isinstance(plan, str):
                parts.append(_refused(rows, f"{reference} {plan}", fields))
                continue
            parsed = plan.parse(messages, framed, rows, reference.header_bytes)
            parts.append(_named(parsed, reference))
        return parts[0] if len(parts) == 1 else _in_order(joined(parts, fields))

    def texts(self, message: bytes) -> Callable[[int], str]:
        """Return the message as text: it has no elements."""
        return lambda _index: message.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class _Plan:
    """Converts messages of one schema to readings of one stream."""

    schema: Type
    rows: JsonReader
    is_quick: bool

    @classmethod
    def of(cls, spec: StreamSpec, found: SchemaText) -> _Plan | str:
        """Return the plan, or the reason to refuse messages of this schema."""
        if found.refused:
            return found.refused
        try:
            schema = compile_schema(found.text, found.references)
        except SchemaError as why:
            return str(why)
        rows = JsonReader(spec)
        of_key, of_time, values = rows.divided([schema.at(path) for path in rows.paths])
        time = of_time[0] if len(of_time) == 1 else None
        unit = None if time is None else time.unit
        if unit:
            known = replace(spec.time, unit=unit, format=None)
            if time is not None and not time.is_local:
                known = replace(known, zone=None)
            rows = JsonReader(replace(spec, time=known))
        is_quick = is_plain(schema) and all(_has_kind(part, _TIMES) for part in of_time)
        is_quick = is_quick and all(_has_kind(part, _KEYS) for part in of_key)
        is_quick = is_quick and all(v is None or _has_kind(v, _VALUES) for v in values)
        return cls(schema, rows, is_quick)

    def parse(self, messages: Sequence[bytes], framed: Framed, rows: Rows, header: int) -> Parsed:
        """Parse some messages, whose records start at offset ``header``."""
        fields = len(self.rows.spec.fields)
        quick = self._quick(framed, rows, header) if self.is_quick else None
        left = rows if quick is None else np.setdiff1d(rows, quick.indices)
        if quick is not None and not len(left):
            return quick
        numbers = left.tolist()
        outcomes = (self._outcome(messages[i], header) for i in numbers)
        rest = moved(parsed_of(outcomes, fields), numbers)
        return rest if quick is None else _in_order(joined([quick, rest], fields))

    # The definition.

    def _outcome(self, message: bytes, header: int) -> MessageReading | Bad:
        if len(message) > MESSAGE_BYTES_MAX:
            return Bad(0, f"longer than {MESSAGE_BYTES_MAX} bytes", None)
        try:
            data = decode(self.schema, message, header)
        except DamageError as why:
            return Bad(0, str(why), None)
        return self.rows.reading_from(*(step_into(data, path) for path in self.rows.paths))

    # The fast path.

    def _quick(self, framed: Framed, rows: Rows, header: int) -> Parsed | None:
        """Return the readings that the fast path can parse; None if it cannot parse the batch."""
        paths = [tuple(path) for path in self.rows.paths]
        batch = decode_batch(self.schema, framed, rows, header, set(paths))
        of_key, of_time, fields = self.rows.divided([batch.columns.get(path) for path in paths])
        meant = zip(fields, self.rows.field_meanings, strict=True)
        values = [_numbers(field, len(rows), meanings) for field, meanings in meant]
        usable = batch.fits & (batch.sizes <= MESSAGE_BYTES_MAX)
        for value in values:
            if value is None:
                return None
            usable &= ~np.isinf(value)
        for column in (*of_key, *of_time):
            if column is None:
                return None
            _keep(usable, column)
        keys = self._keys(of_key, usable)
        if keys is None:
            return None
        times = [_texts_or_numbers(column, usable) for column in of_time]
        readings = int(np.count_nonzero(usable))
        stimes = None if any(t is None for t in times) else self.rows.quick_times(times, readings)
        if stimes is None:
            return None
        chosen = tuple(value[usable] for value in values if value is not None)
        return Parsed(rows[usable], stimes, *keys, chosen)

    def _keys(self, columns: Sequence[DecodedColumn], usable: Mask) -> tuple[Any, list[str]] | None:
        """Return the keys of usable messages; a message without a key becomes unusable."""
        if not columns:
            return np.zeros(np.count_nonzero(usable), np.int32), [self.rows.spec.key.value or ""]
        parts = []
        for path, column in zip(self.rows.key_paths, columns, strict=True):
            kind = self.schema.at(path)
            texts = _texts_or_numbers(column, usable)
            if texts is None or kind is None:
                return None
            if kind.symbols:
                texts = pa.array(kind.symbols).take(texts)
            parts.append(pc.cast(texts, pa.string()))
        joined_parts, unclear = joined_keys(parts, self.rows.spec.key.join)
        index, keys, empty, too_long = keys_of(joined_parts)
        wrong = empty | too_long | unclear
        usable[np.flatnonzero(usable)[wrong]] = False
        return index[~wrong], keys


def _refused(rows: Rows, detail: str, fields: int) -> Parsed:
    return with_refused(nothing(fields), [Bad(i, detail, None) for i in rows.tolist()])


def _named(parsed: Parsed, reference: Reference) -> Parsed:
    """Return ``parsed`` with the schema's name in its errors."""
    bad = (replace(one, detail=f"{one.detail} ({reference})") for one in parsed.bad)
    return replace(parsed, bad=tuple(bad))


def _in_order(parsed: Parsed) -> Parsed:
    """Return ``parsed`` in the order of its messages."""
    order = np.argsort(parsed.indices, kind="stable")
    return replace(
        parsed,
        indices=parsed.indices[order],
        stimes=parsed.stimes[order],
        key_index=parsed.key_index[order],
        values=tuple(column[order] for column in parsed.values),
        bad=tuple(sorted(parsed.bad, key=lambda one: one.index)),
    )


def _has_kind(found: Type | None, kinds: frozenset[str]) -> bool:
    return found is not None and found.kind in kinds


def _keep(usable: Mask, column: DecodedColumn | None) -> None:
    """Keep usable only messages that have a value in the column."""
    if column is not None and len(column.rows) < len(usable):
        present = np.zeros(len(usable), np.bool_)
        present[column.rows] = True
        usable &= present


def _texts_or_numbers(column: DecodedColumn, usable: Mask) -> Any | None:
    """Return the values of the usable messages; None if one of them is text but not UTF-8."""
    chosen = usable[column.rows]
    if not isinstance(column.values, pa.Array):
        return pa.array(column.values[chosen])
    return _as_text(column.values.filter(pa.array(chosen)))


def _as_text(texts: Any) -> Any | None:
    try:
        return pc.cast(texts, pa.string())
    except pa.ArrowInvalid:
        return None


def _numbers(column: DecodedColumn | None, n: int, meanings: Meanings) -> type_f64 | None:
    """Return the values of a field, NaN where missing; None if the definition must decide."""
    values = np.full(n, np.nan)
    if column is None:
        return values
    given = column.values
    if isinstance(given, pa.Array):
        texts = _as_text(given)
        given = None if texts is None else quick_values(texts, meanings)
    elif meanings.is_text:
        given = None
    if given is None:
        return None
    values[column.rows] = given
    return meanings.of_column(values)
