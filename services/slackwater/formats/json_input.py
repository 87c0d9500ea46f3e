"""Parses JSON messages into columns of readings, many messages at a time.

``reading_of``, one message at a time, is the definition. A scanner in machine code
(``formats/scan``) reads usual messages with the same result, at ten times the rate of pyarrow. The
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

from slackwater.formats.columns import (
    KEY,
    NUMBER_CHARS_MAX,
    TIME,
    UNIT_DIGITS,
    exact_times,
    exact_type,
    key_chars_max,
    keys_of,
    microseconds,
    number_of,
    quick_instants,
    time_or_fault,
    times,
)
from slackwater.formats.joined import joined_keys, joined_texts, key_of_parts
from slackwater.formats.json_tables import (
    INTEGER,
    column_of,
    fields_of,
    grow,
    is_no_decimal,
    key_type,
    quick_values,
    read_table,
    texts_of,
)
from slackwater.formats.json_text import (
    JsonNumber,
    NotFinite,
    Unreadable,
    are_objects,
    load,
)
from slackwater.formats.messages import Bad, Messages, Parsed, joined, moved
from slackwater.formats.repeated import RepeatedMember
from slackwater.formats.scan import scanner_of
from slackwater.model.deployment import StreamSpec
from slackwater.model.meanings import Meanings, field_meanings, meanings_of
from slackwater.model.message_paths import Step, steps_of
from slackwater.model.records import type_i64

if TYPE_CHECKING:
    from slackwater.formats.scan.scanner import Scanned

MESSAGES_SLOW_MAX: Final = 8
BOUNDARY: Final = "boundary"

_TIME: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MessageReading:
    """One message, parsed by the definition."""

    stime: int
    key: str
    values: tuple[float, ...]
    not_finite: int = 0
    """Number of values that were NaN or Infinity, and are missing."""


class JsonReader:
    """Parser of one stream's messages."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self.key_paths = [steps_of(part) for part in spec.key.parts]
        """Where a message has the parts of the key; empty if it is elsewhere."""
        self.time_paths = [steps_of(part) for part in spec.time.parts]
        """The same of the time. A time that is elsewhere is 0 in the readings."""
        self._fields = [steps_of(f.source) for f in spec.fields]
        self._has_indexes = any(isinstance(step, int) for path in self.paths for step in path)
        self.meanings = meanings_of(spec)
        self.field_meanings = field_meanings(spec)
        self._constant_key = [spec.key.value or ""]
        self._scanner = scanner_of(spec)

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch; any bytes are accepted."""
        if self._scanner is None or not messages:
            return self.parse_without_scanner(list(messages))
        scanned = self._scanner.scan(Messages.of(messages))
        indices = np.arange(len(messages), dtype=np.int64)
        if not len(scanned.left):
            columns = tuple(map(self.meanings.of_column, scanned.values))
            stimes, codes = scanned.stimes, scanned.key_index
            not_finite = scanned.not_finite
            return Parsed(indices, stimes, codes, self._keys, columns, not_finite=not_finite)
        left = scanned.left.tolist()
        rest = moved(self.parse_without_scanner([messages[i] for i in left]), left)
        if len(left) == len(messages):
            return rest
        return self._merged(scanned, rest)

    @property
    def _keys(self) -> Sequence[str]:
        """The list to which the scanner's indices refer; batches share it."""
        if not self.key_paths or self._scanner is None:
            return self._constant_key
        return self._scanner.texts

    def _merged(self, scanned: Scanned, rest: Parsed) -> Parsed:
        """Return scanned and parsed readings in the order of the messages."""
        assert self._scanner is not None
        stimes, codes, values = scanned.stimes, scanned.key_index, scanned.values
        if self.key_paths:
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
        columns = tuple(self.meanings.of_column(column[at]) for column in values)
        return Parsed(
            at,
            stimes[at],
            codes[at],
            self._keys,
            columns,
            rest.bad,
            rest.boundaries,
            not_finite=scanned.not_finite + rest.not_finite,
        )

    def parse_without_scanner(self, messages: Sequence[bytes]) -> Parsed:
        """Parse a batch by pyarrow, and the messages that it refuses by the definition.

        pyarrow has no column for an element of an array: such paths are for the definition.
        """
        if self._has_indexes:
            return self._slow(messages, 0)
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
        if is_boundary(data, self.spec):
            watermark = self._stime([data[BOUNDARY]])
            return watermark if isinstance(watermark, int) else Bad(0, BOUNDARY, None)
        return self.reading_from(*(step_into(data, path) for path in self.paths))

    @property
    def paths(self) -> Sequence[Sequence[Step]]:
        """Paths of the parts of the key, of the time, and of each field."""
        return [*self.key_paths, *self.time_paths, *self._fields]

    def divided(self, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Divide what belongs to ``paths`` into that of the key, the time and the fields."""
        after_key = len(self.key_paths)
        after_time = after_key + len(self.time_paths)
        return values[:after_key], values[after_key:after_time], values[after_time:]

    def reading_from(self, *values_of_paths: Any) -> MessageReading | Bad:
        """Return the reading of these values, one for each of ``paths``."""
        of_key, of_time, given = self.divided(values_of_paths)
        key, fault = self.spec.key.value, KEY
        if of_key:
            key, fault = key_of_parts([_key(value) for value in of_key], self.spec.key.join)
        stime = self._stime(of_time)
        meant = zip(given, self.field_meanings, strict=True)
        values = [_number(value, meanings) for value, meanings in meant]
        wrong = [] if key else [f"{fault}{_hint(of_key)}"]
        wrong += [f"{stime}{_hint(of_time)}"] if isinstance(stime, str) else []
        wrong += [
            f"field {field.name}{_hint([was])}"
            for field, was, value in zip(self.spec.fields, given, values, strict=True)
            if value is None
        ]
        if wrong or isinstance(stime, str) or not key:
            return Bad(0, ", ".join(wrong), stime if isinstance(stime, int) else None)
        not_finite = sum(isinstance(value, NotFinite) for value in given)
        return MessageReading(stime, key, tuple(v for v in values if v is not None), not_finite)

    def _stime(self, parts: Sequence[Any]) -> int | str:
        """Return the time of its parts, or the detail of a malformed one."""
        if len(parts) != 1:
            texts = [_key(part) for part in parts]  # text or a whole number, as in a key
            known = [text for text in texts if text is not None]
            if not parts:
                return 0
            if len(known) < len(texts):
                return TIME
            return time_or_fault(self.spec.time.join.join(known), self.spec.time)
        (value,) = parts
        if isinstance(value, JsonNumber):
            if not _TIME.fullmatch(value):
                return TIME
            return time_or_fault(f"{Decimal(value):f}", self.spec.time)
        return time_or_fault(value.strip(), self.spec.time) if isinstance(value, str) else TIME

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
        for path in self.key_paths:
            if not grow(tree, path, key_type(step_into(data, path))):
                return None
        for path in self.time_paths:
            time = self.time_type(step_into(data, path))
            if time is None or (pa.types.is_decimal(time) and is_no_decimal(complete)):
                return None
            if not grow(tree, path, time):
                return None
        for path in self._fields:
            value = step_into(data, path)
            text = isinstance(value, str) and not isinstance(value, JsonNumber)
            if not grow(tree, path, pa.string() if text else pa.float64()):
                return None
        return pa.schema(fields_of(tree))

    def time_type(self, value: Any) -> Any | None:
        """Return the type of a column that begins with this time; None if it has none."""
        if isinstance(value, JsonNumber) and not INTEGER.fullmatch(value):
            unit = self.spec.time.unit
            return None if unit in (None, "iso") else exact_type(unit)
        return key_type(value)

    def _columns(self, table: Any, first: int) -> Parsed | None:
        n = len(table)
        of_key, of_time, _ = self.divided([column_of(table, path) for path in self.paths])
        found = self.quick_keys(of_key, n)
        stimes = None if found is None else self.quick_times(of_time, n)
        if found is None or stimes is None:
            return None
        key_index, keys = found
        values = []
        for path, meanings in zip(self._fields, self.field_meanings, strict=True):
            value = quick_values(column_of(table, path), meanings)
            if value is None:
                return None
            values.append(value)
        indices = np.arange(first, first + n, dtype=np.int64)
        return Parsed(indices, stimes, key_index, keys, tuple(values))

    def quick_keys(self, parts: Sequence[Any], n: int) -> tuple[Any, Sequence[str]] | None:
        """Convert columns of ``key_type``, of n rows; None if the definition might refuse one."""
        if not parts:
            return np.zeros(n, np.int32), self._constant_key
        texts = texts_of(parts)
        if texts is None:
            return None
        joined_parts, unclear = joined_keys(texts, self.spec.key.join)
        key_index, keys, empty, too_long = keys_of(joined_parts)
        return None if (empty | too_long | unclear).any() else (key_index, keys)

    def quick_times(self, parts: Sequence[Any], n: int) -> type_i64 | None:
        """Convert columns of ``time_type``, of n rows; None if the definition might refuse one."""
        if not parts:
            return np.zeros(n, np.int64)
        column = parts[0]
        if len(parts) > 1:
            texts = texts_of(parts)
            if texts is None:
                return None
            column = joined_texts(texts, self.spec.time.join)
        if column.null_count:
            return None
        unit = self.spec.time.unit
        if pa.types.is_decimal(column.type):
            return quick_instants(exact_times(column), self.spec.time)
        if pa.types.is_integer(column.type) and unit in UNIT_DIGITS:
            us, excess = microseconds(column.to_numpy(zero_copy_only=False), unit)
            return quick_instants(None if excess.any() else us, self.spec.time)
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
        not_finite=sum(r.not_finite for _, r in readings),
    )


def is_boundary(data: dict[str, Any], spec: StreamSpec) -> bool:
    """Whether an object is the watermark of a partition. Without times in messages none is."""
    return BOUNDARY in data and len(data) == 1 and spec.time.from_ is None


def step_into(data: Any, path: Sequence[Step]) -> Any:
    """Return the value at a path; None if there is none.

    It is a ``RepeatedMember`` if one of the names is repeated in its object.
    """
    for step in path:
        if isinstance(data, RepeatedMember):
            return data
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, dict) else None
        else:
            data = data[step] if isinstance(data, list) and step < len(data) else None
    return data


def _hint(parts: Sequence[Any]) -> str:
    """Return what is unusual about unusable values, to be appended to their name."""
    repeated = next((part for part in parts if isinstance(part, RepeatedMember)), None)
    if repeated is not None:
        return f": {repeated}"
    return " is an array" if any(isinstance(part, list) for part in parts) else ""


def _key(value: Any) -> str | None:
    if isinstance(value, JsonNumber):
        short = len(value) <= NUMBER_CHARS_MAX and INTEGER.fullmatch(value)
        return str(int(value)) if short else None
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None  # JSON escapes can encode a lone surrogate
    key = value.strip()
    return key if len(key) <= key_chars_max else None


def _number(value: Any, meanings: Meanings) -> float | None:
    """Return the number, NaN if missing, None if malformed."""
    if value is None or isinstance(value, NotFinite):
        return math.nan
    if isinstance(value, bool):
        return meanings.of_boolean(value)
    return number_of(value.strip(), ".", meanings) if isinstance(value, str) else None
