"""Parses JSON messages into columns of readings, many messages at a time.

``reading_of``, one message at a time, is the definition. A scanner in machine code
(``proxy/scan``) reads usual messages with the same result, at ten times the rate of pyarrow. The
messages that the scanner leaves, or all messages without a scanner, are parsed by pyarrow.

The messages of a batch are joined by line ends and parsed by pyarrow's JSON reader with the types
of the first message, at about a million small messages a second; parsing one by one reaches a tenth
of that. pyarrow refuses a batch in which a message is not JSON or has another type. The batch is
then halved until the offending messages are alone, and these are parsed by the definition, with
exact decimal numbers and all rules for values.

A joined batch cannot hide a malformed message. The fast path requires that each message begins with
``{``, ends with ``}`` and contains no line end and no NUL (which pyarrow treats as the end of the
input). If a message left a value open, the next one would continue that value as ``}`` newline
``{``, which is invalid JSON everywhere. So each message is at least one complete value, and as many
rows as messages means one value each.

Any bytes are parsed as a reading, a boundary, or malformed with a reason. The bounds that ensure
this are in ``json_text`` and are checked before pyarrow parses a batch.

A message ``{"boundary": t}``, with t in the stream's unit, is a watermark: no reading below t
follows in its partition. It has no reading time, so the fast path refuses it.

Rejected: orjson over the batch as one array. It reached 0.6 times the speed, creates an object per
reading, and parses 1.1 as a double where a time must be truncated exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pjson

from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_f64, type_i64
from slackwater.proxy.columns import (
    NUMBER_CHARS_MAX,
    STIME_US_MAX,
    TIME_CHARS_MAX,
    UNIT_US,
    exact_times,
    exact_type,
    key_chars_max,
    keys_of,
    number_of,
    numbers,
    time_of,
    times,
)
from slackwater.proxy.json_text import (
    JsonNumber,
    Unreadable,
    are_objects,
    has_large_exponent,
    has_long_number,
    load,
)
from slackwater.proxy.messages import Bad, Messages, Parsed, joined, moved
from slackwater.proxy.scan import scanner_of

if TYPE_CHECKING:
    from slackwater.proxy.scan.scanner import Scanned

MESSAGES_SLOW_MAX: Final = 8
BOUNDARY: Final = "boundary"

_INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_TIME: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MessageReading:
    """One message, parsed by the definition."""

    stime: int
    key: str
    values: tuple[float, ...]


class JsonReader:
    """Parser of one stream's messages."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        names = spec.time.columns
        self._time = (spec.time.field or (names[0] if names else "")).split(".")
        key = spec.key.field or spec.key.column
        self._key = None if key is None else key.split(".")
        self._fields = [f.source.split(".") for f in spec.fields]
        self._constant_key = [spec.key.value or ""]
        self._scanner = scanner_of(spec)

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch; any bytes are accepted."""
        if self._scanner is None or not messages:
            return self.parse_without_scanner(list(messages))
        scanned = self._scanner.scan(Messages.of(messages))
        indices = np.arange(len(messages), dtype=np.int64)
        if not len(scanned.left):
            columns = tuple(scanned.values)
            return Parsed(indices, scanned.stimes, scanned.key_index, self._keys, columns)
        left = scanned.left.tolist()
        rest = moved(self.parse_without_scanner([messages[i] for i in left]), left)
        if len(left) == len(messages):
            return rest
        return self._merged(scanned, rest)

    @property
    def _keys(self) -> Sequence[str]:
        """The list to which the scanner's indices refer; batches share it."""
        if self._key is None or self._scanner is None:
            return self._constant_key
        return self._scanner.texts

    def _merged(self, scanned: Scanned, rest: Parsed) -> Parsed:
        """Return scanned and parsed readings in the order of the messages."""
        assert self._scanner is not None
        stimes, codes, values = scanned.stimes, scanned.key_index, scanned.values
        if self._key is not None:
            places = np.array([self._scanner.code(key) for key in rest.keys], np.int32)
            codes[rest.indices] = places[rest.key_index] if len(places) else 0
        else:
            codes[rest.indices] = 0
        stimes[rest.indices] = rest.stimes
        for column, of_rest in zip(values, rest.values, strict=True):
            column[rest.indices] = of_rest
        is_reading = np.ones(len(stimes), np.bool_)
        is_reading[scanned.left] = False
        is_reading[rest.indices] = True
        at = np.flatnonzero(is_reading)
        columns = tuple(column[at] for column in values)
        return Parsed(at, stimes[at], codes[at], self._keys, columns, rest.bad, rest.boundaries)

    def parse_without_scanner(self, messages: Sequence[bytes]) -> Parsed:
        """Parse a batch by pyarrow, and the messages that it refuses by the definition."""
        parts: list[Parsed] = []
        waiting = [(0, len(messages))]
        while waiting:
            start, end = waiting.pop()
            part = messages[start:end]
            quick = self._quick(part, start) if part else None
            if quick is not None:
                parts.append(quick)
            elif end - start <= MESSAGES_SLOW_MAX:
                parts.append(self._slow(part, start))
            else:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
        return parts[0] if len(parts) == 1 else joined(parts, len(self._fields))

    def texts(self, message: bytes) -> Callable[[int], str]:
        """Return the text of the message: it has no elements."""
        return lambda _index: message.decode(errors="replace")

    # The definition.

    def reading_of(self, message: bytes) -> MessageReading | int | Bad:
        """Return a reading, the watermark of a boundary message, or an error."""
        try:
            return self.reading_in(load(message))
        except Unreadable as why:
            return Bad(0, str(why), None)

    def reading_in(self, data: dict[str, Any]) -> MessageReading | int | Bad:
        """As ``reading_of``, for an object of ``json_text.load``."""
        if BOUNDARY in data and len(data) == 1:
            watermark = self._stime(data[BOUNDARY])
            return Bad(0, BOUNDARY, None) if watermark is None else watermark
        return self.reading_from(*(step_into(data, path) for path in self.paths))

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        """Paths of the key, the time and each field; the key's is empty if it is a constant."""
        return [self._key or (), self._time, *self._fields]

    def reading_from(self, key_value: Any, time_value: Any, *given: Any) -> MessageReading | Bad:
        """Return the reading of these values, one for each of ``paths``."""
        key = self.spec.key.value if self._key is None else _key(key_value)
        stime = self._stime(time_value)
        values = [_number(value) for value in given]
        wrong = [] if key else ["key"]
        wrong += [] if stime is not None else ["time"]
        wrong += [
            f"field {field.name}{' is an array' if isinstance(was, list) else ''}"
            for field, was, value in zip(self.spec.fields, given, values, strict=True)
            if value is None
        ]
        if wrong or stime is None or not key:
            return Bad(0, ", ".join(wrong), stime)
        return MessageReading(stime, key, tuple(v for v in values if v is not None))

    def _stime(self, value: Any) -> int | None:
        if isinstance(value, JsonNumber):
            if not _TIME.fullmatch(value):
                return None
            return time_of(f"{Decimal(value):f}", self.spec.time)
        return time_of(value.strip(), self.spec.time) if isinstance(value, str) else None

    def _slow(self, messages: Sequence[bytes], first: int) -> Parsed:
        return parsed_of(map(self.reading_of, messages), len(self._fields), first)

    # The fast path.

    def _quick(self, messages: Sequence[bytes], first: int) -> Parsed | None:
        text, n = b"\n".join(messages), len(messages)
        shape = self._shape_of(messages[0], text) if are_objects(text, n) else None
        table = None if shape is None else read_table(text, shape)
        return self._columns(table, first) if table is not None and len(table) == n else None

    def _shape_of(self, message: bytes, complete: bytes) -> Any | None:
        """Return the schema of the first message; the others must have the same types."""
        try:
            data = load(message)
        except Unreadable:
            return None
        tree: dict[str, Any] = {}
        key = self._key
        if key is not None and not grow(tree, key, key_type(step_into(data, key))):
            return None
        time = self.time_type(step_into(data, self._time))
        if time is None or (pa.types.is_decimal(time) and is_no_decimal(complete)):
            return None
        if not grow(tree, self._time, time):
            return None
        for path in self._fields:
            value = step_into(data, path)
            text = isinstance(value, str) and not isinstance(value, JsonNumber)
            if not grow(tree, path, pa.string() if text else pa.float64()):
                return None
        return pa.schema(fields_of(tree))

    def time_type(self, value: Any) -> Any | None:
        """Return the type of a column that begins with this time; None if it has none."""
        if isinstance(value, JsonNumber) and not _INTEGER.fullmatch(value):
            unit = self.spec.time.unit
            return None if unit in (None, "iso") else exact_type(unit)
        return key_type(value)

    def _columns(self, table: Any, first: int) -> Parsed | None:
        n = len(table)
        if self._key is None:
            key_index, keys = np.zeros(n, np.int32), self._constant_key
        else:
            column = column_of(table, self._key)
            if column.null_count:
                return None
            if not pa.types.is_string(column.type):
                column = pc.cast(column, pa.string())
            key_index, keys, empty, too_long = keys_of(column)
            if empty.any() or too_long.any():
                return None
        stimes = self.quick_times(column_of(table, self._time))
        if stimes is None:
            return None
        values = []
        for path in self._fields:
            value = quick_values(column_of(table, path))
            if value is None:
                return None
            values.append(value)
        indices = np.arange(first, first + n, dtype=np.int64)
        return Parsed(indices, stimes, key_index, keys, tuple(values))

    def quick_times(self, column: Any) -> type_i64 | None:
        """Convert a column of ``time_type``; None if the definition might refuse one of them."""
        if column.null_count:
            return None
        unit = self.spec.time.unit
        if pa.types.is_decimal(column.type):
            return exact_times(column)
        if pa.types.is_integer(column.type) and unit in UNIT_US:
            return _unix(column, UNIT_US[unit])
        texts = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
        stimes, bad = times(texts, self.spec.time)
        return None if bad.any() else stimes


def parsed_of(
    outcomes: Iterable[MessageReading | int | Bad], fields: int, first: int = 0
) -> Parsed:
    """Convert results of the definition to columns; the messages are numbered from ``first``."""
    readings: list[tuple[int, MessageReading]] = []
    bad: list[Bad] = []
    boundaries: list[tuple[int, int]] = []
    for i, outcome in enumerate(outcomes, first):
        match outcome:
            case MessageReading() as reading:
                readings.append((i, reading))
            case Bad(_, detail, stime, _):
                bad.append(Bad(i, detail, stime))
            case int() as watermark:
                boundaries.append((i, watermark))
    places: dict[str, int] = {}
    index = [places.setdefault(r.key, len(places)) for _, r in readings]
    columns = [[r.values[f] for _, r in readings] for f in range(fields)]
    return Parsed(
        np.array([i for i, _ in readings], np.int64),
        np.array([r.stime for _, r in readings], np.int64),
        np.array(index, np.int32),
        list(places),
        tuple(np.array(column, np.float64) for column in columns),
        tuple(bad),
        tuple(boundaries),
    )


def read_table(text: bytes, schema: Any) -> Any | None:
    """Return pyarrow's table of objects that are separated by line ends; None if it refuses."""
    try:
        return pjson.read_json(
            pa.BufferReader(text),
            pjson.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pjson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def is_no_decimal(text: bytes) -> bool:
    """Whether pyarrow might parse a decimal that the definition refuses; string values count too.

    For example, pyarrow reads a string of three hundred zeros as 0; the definition refuses it.
    """
    return has_large_exponent(text) or has_long_number(text, TIME_CHARS_MAX)


def _unix(column: Any, factor: int) -> type_i64 | None:
    values: type_i64 = column.to_numpy(zero_copy_only=False)
    limit = STIME_US_MAX // factor
    if len(values) and (values.max() >= limit or values.min() <= -limit):
        return None
    return values * factor


def quick_values(column: Any) -> type_f64 | None:
    """Convert a column of numbers or texts; None if the definition might refuse one of them."""
    if pa.types.is_string(column.type):
        texts = pc.utf8_trim_whitespace(pc.fill_null(column, ""))
        values, bad = numbers(texts)
        return None if bad.any() else values
    numbers_: type_f64 = column.to_numpy(zero_copy_only=False)
    finite = int(np.count_nonzero(np.isfinite(numbers_)))
    return numbers_ if finite == len(numbers_) - column.null_count else None


def column_of(table: Any, path: Sequence[str]) -> Any:
    """Return the column at a path of names, in one array."""
    column = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def grow(tree: dict[str, Any], path: Sequence[str], kind: Any) -> bool:
    """Insert a type at a path; False if another type is there or the value has none."""
    if kind is None:
        return False
    *outer, name = path
    for step in outer:
        inner: Any = tree.setdefault(step, {})
        if not isinstance(inner, dict):
            return False
        tree = inner
    return bool(tree.setdefault(name, kind) == kind)


def fields_of(tree: dict[str, Any]) -> list[Any]:
    """Return the fields of a tree that ``grow`` made."""
    return [
        pa.field(name, pa.struct(fields_of(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


def key_type(value: Any) -> Any | None:
    """Return the type of a column that begins with this key; None if it has none."""
    if isinstance(value, JsonNumber):
        return pa.int64() if _INTEGER.fullmatch(value) else None
    return pa.string() if isinstance(value, str) else None


def step_into(data: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of names; None if there is none."""
    for name in path:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def _key(value: Any) -> str | None:
    if isinstance(value, JsonNumber):
        short = len(value) <= NUMBER_CHARS_MAX and _INTEGER.fullmatch(value)
        return str(int(value)) if short else None
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None  # JSON escapes can encode a lone surrogate
    return value if len(value) <= key_chars_max else None


def _number(value: Any) -> float | None:
    """Return the number, NaN if missing, None if malformed."""
    if value is None:
        return math.nan
    return number_of(value.strip()) if isinstance(value, str) else None
