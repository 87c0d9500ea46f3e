"""Parses JSON messages into columns of readings, many messages at a time.

The messages of a batch are joined by line ends and parsed by pyarrow's JSON reader with the types
of the first message, at about a million small messages a second; parsing one by one reaches a tenth
of that. pyarrow refuses a batch in which a message is not JSON or has another type. The batch is
then halved until the offending messages are alone, and these are parsed by the definition:
``reading_of``, one message at a time, with exact decimal numbers and all rules for values.

A joined batch cannot hide a malformed message. The fast path requires that each message begins with
``{``, ends with ``}`` and contains no line end and no NUL (which pyarrow treats as the end of the
input). If a message left a value open, the next one would continue that value as ``}`` newline
``{``, which is invalid JSON everywhere. So each message is at least one complete value, and as many
rows as messages means one value each.

Any bytes are parsed as a reading, a boundary, or malformed with a reason. The bounds that ensure
this are in ``json_text`` and are checked before pyarrow parses a batch.

A message ``{"boundary": t}``, with t in the stream's unit, is a promise: no reading below t follows
in its partition. It has no reading time, so the fast path refuses it.

Rejected: orjson over the batch as one array. It reached 0.6 times the speed, creates an object per
reading, and parses 1.1 as a double where a time must be truncated exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pjson

from slackwater.model.deployment import StreamSpec
from slackwater.model.records import type_f64, type_i64
from slackwater.protocols.dpc.source.core import Reason
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
from slackwater.proxy.dead_letters import DeadLetters
from slackwater.proxy.isolated import tried
from slackwater.proxy.json_text import (
    JsonNumber,
    Unreadable,
    are_objects,
    has_large_exponent,
    has_long_number,
    load,
)

MESSAGES_SLOW_MAX: Final = 8
BOUNDARY: Final = "boundary"
CRASH: Final = "it ends its reader"

_INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_TIME: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bad:
    """A message that is not a valid reading."""

    index: int
    detail: str
    stime: int | None
    reason: Reason = "malformed"


@dataclass(frozen=True, slots=True)
class Parsed:
    """Readings of a batch; ``indices`` are the indices of their messages.

    ``boundaries`` are (index, promise) of explicit boundary messages.
    """

    indices: type_i64
    stimes: type_i64
    key_index: Any
    keys: Sequence[str]
    values: tuple[type_f64, ...]
    bad: tuple[Bad, ...] = ()
    boundaries: tuple[tuple[int, int], ...] = ()


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

    def parse(self, messages: Sequence[bytes]) -> Parsed:
        """Parse all messages of a batch; any bytes are accepted."""
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
        return parts[0] if len(parts) == 1 else _join(parts, len(self._fields))

    # The definition.

    def reading_of(self, message: bytes) -> MessageReading | int | Bad:
        """Return a reading, the promise of a boundary message, or an error."""
        try:
            data = load(message)
        except Unreadable as why:
            return Bad(0, str(why), None)
        if BOUNDARY in data and len(data) == 1:
            watermark = self._stime(data[BOUNDARY])
            return Bad(0, BOUNDARY, None) if watermark is None else watermark
        key = self.spec.key.value if self._key is None else _key(_step(data, self._key))
        stime = self._stime(_step(data, self._time))
        values = [_number(_step(data, path)) for path in self._fields]
        wrong = [] if key else ["key"]
        wrong += [] if stime is not None else ["time"]
        wrong += [
            f"field {field.name}{_is_array(data, path)}"
            for field, path, value in zip(self.spec.fields, self._fields, values, strict=True)
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
        readings: list[tuple[int, MessageReading]] = []
        bad: list[Bad] = []
        boundaries: list[tuple[int, int]] = []
        for i, message in enumerate(messages, first):
            match self.reading_of(message):
                case MessageReading() as reading:
                    readings.append((i, reading))
                case Bad(_, detail, stime, _):
                    bad.append(Bad(i, detail, stime))
                case int() as watermark:
                    boundaries.append((i, watermark))
        places: dict[str, int] = {}
        index = [places.setdefault(r.key, len(places)) for _, r in readings]
        columns = [[r.values[f] for _, r in readings] for f in range(len(self._fields))]
        return Parsed(
            np.array([i for i, _ in readings], np.int64),
            np.array([r.stime for _, r in readings], np.int64),
            np.array(index, np.int32),
            list(places),
            tuple(np.array(column, np.float64) for column in columns),
            tuple(bad),
            tuple(boundaries),
        )

    # The fast path.

    def _quick(self, messages: Sequence[bytes], first: int) -> Parsed | None:
        n = len(messages)
        joined = b"\n".join(messages)
        shape = self._shape_of(messages[0], joined) if are_objects(joined, n) else None
        if shape is None:
            return None
        try:
            table = pjson.read_json(
                pa.BufferReader(joined),
                pjson.ReadOptions(use_threads=False, block_size=len(joined) + 1),
                pjson.ParseOptions(explicit_schema=shape, unexpected_field_behavior="ignore"),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        return self._columns(table, first) if len(table) == n else None

    def _shape_of(self, message: bytes, joined: bytes) -> Any | None:
        """Return the schema of the first message; the others must have the same types."""
        try:
            data = load(message)
        except Unreadable:
            return None
        tree: dict[str, Any] = {}
        if self._key is not None and not _grow(tree, self._key, _key_type(_step(data, self._key))):
            return None
        time = self._time_type(_step(data, self._time))
        if time is None or (pa.types.is_decimal(time) and _is_no_decimal(joined)):
            return None
        if not _grow(tree, self._time, time):
            return None
        for path in self._fields:
            value = _step(data, path)
            text = isinstance(value, str) and not isinstance(value, JsonNumber)
            if not _grow(tree, path, pa.string() if text else pa.float64()):
                return None
        return pa.schema(_fields_of(tree))

    def _time_type(self, value: Any) -> Any | None:
        if isinstance(value, JsonNumber) and not _INTEGER.fullmatch(value):
            unit = self.spec.time.unit
            return None if unit in (None, "iso") else exact_type(unit)
        return _key_type(value)

    def _columns(self, table: Any, first: int) -> Parsed | None:
        n = len(table)
        if self._key is None:
            key_index, keys = np.zeros(n, np.int32), [self.spec.key.value or ""]
        else:
            column = _column(table, self._key)
            if column.null_count:
                return None
            if not pa.types.is_string(column.type):
                column = pc.cast(column, pa.string())
            key_index, keys, empty, too_long = keys_of(column)
            if empty.any() or too_long.any():
                return None
        stimes = self._quick_times(_column(table, self._time))
        if stimes is None:
            return None
        values = []
        for path in self._fields:
            value = _quick_values(_column(table, path))
            if value is None:
                return None
            values.append(value)
        indices = np.arange(first, first + n, dtype=np.int64)
        return Parsed(indices, stimes, key_index, keys, tuple(values))

    def _quick_times(self, column: Any) -> type_i64 | None:
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


class GuardedReader:
    """A ``JsonReader`` that omits messages that crash the parser, identified by offset."""

    def __init__(self, spec: StreamSpec, dead_letters: DeadLetters | None) -> None:
        self._reader = JsonReader(spec)
        self._dead_letters = dead_letters

    def parse(self, where: str, offsets: type_i64, messages: Sequence[bytes]) -> Parsed:
        """Parse a non-empty batch of any bytes, isolated if parsing crashes."""
        dead_letters = self._dead_letters
        if dead_letters is None:
            return self._reader.parse(messages)
        first, last = int(offsets[0]), int(offsets[-1])
        parsed = dead_letters.attempt(where, first, last, lambda: self._reader.parse(messages))
        return (
            self._read_isolated(dead_letters, where, offsets, messages)
            if parsed is None
            else parsed
        )

    def _read_isolated(
        self, dead_letters: DeadLetters, where: str, offsets: type_i64, messages: Sequence[bytes]
    ) -> Parsed:
        known = dead_letters.positions(where)
        rest = [i for i, offset in enumerate(offsets.tolist()) if offset not in known]
        outcome = tried(_parse, self._reader.spec, [messages[i] for i in rest])
        for at, how in outcome.lost:
            dead_letters.add(where, int(offsets[rest[at]]), how)
        read = {i for start, end, _ in outcome.read for i in rest[start:end]}
        parts = [_moved(parsed, rest[start:end]) for start, end, parsed in outcome.read]
        complete = _join(parts, len(self._reader.spec.fields)) if parts else self._reader.parse(())
        lost = [Bad(i, CRASH, None, "crash") for i in range(len(messages)) if i not in read]
        bad = sorted((*complete.bad, *lost), key=lambda one: one.index)
        return replace(complete, bad=tuple(bad))


def _parse(spec: StreamSpec, messages: Sequence[bytes]) -> Parsed:
    return JsonReader(spec).parse(messages)


def _moved(parsed: Parsed, to: Sequence[int]) -> Parsed:
    """Return ``parsed`` with the indices of the whole batch."""
    return replace(
        parsed,
        indices=np.array(to, np.int64)[parsed.indices],
        bad=tuple(replace(bad, index=to[bad.index]) for bad in parsed.bad),
        boundaries=tuple((to[at], watermark) for at, watermark in parsed.boundaries),
    )


def _is_no_decimal(joined: bytes) -> bool:
    """Whether pyarrow might parse a decimal that the definition refuses; string values count too.

    For example, pyarrow reads a string of three hundred zeros as 0; the definition refuses it.
    """
    return has_large_exponent(joined) or has_long_number(joined, TIME_CHARS_MAX)


def _unix(column: Any, factor: int) -> type_i64 | None:
    values: type_i64 = column.to_numpy(zero_copy_only=False)
    limit = STIME_US_MAX // factor
    if len(values) and (values.max() >= limit or values.min() <= -limit):
        return None
    return values * factor


def _quick_values(column: Any) -> type_f64 | None:
    if pa.types.is_string(column.type):
        texts = pc.utf8_trim_whitespace(pc.fill_null(column, ""))
        values, bad = numbers(texts)
        return None if bad.any() else values
    numbers_: type_f64 = column.to_numpy(zero_copy_only=False)
    finite = int(np.count_nonzero(np.isfinite(numbers_)))
    return numbers_ if finite == len(numbers_) - column.null_count else None


def _column(table: Any, path: Sequence[str]) -> Any:
    column = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _grow(tree: dict[str, Any], path: Sequence[str], kind: Any) -> bool:
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


def _fields_of(tree: dict[str, Any]) -> list[Any]:
    return [
        pa.field(name, pa.struct(_fields_of(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


def _key_type(value: Any) -> Any | None:
    if isinstance(value, JsonNumber):
        return pa.int64() if _INTEGER.fullmatch(value) else None
    return pa.string() if isinstance(value, str) else None


def _step(data: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def _is_array(data: Any, path: Sequence[str]) -> str:
    return " is an array" if isinstance(_step(data, path), list) else ""


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


def _join(parts: Sequence[Parsed], fields: int) -> Parsed:
    """Concatenate the parts of a batch in order, over one list of keys."""
    places: dict[str, int] = {}
    indices = []
    for part in parts:
        to = np.array([places.setdefault(k, len(places)) for k in part.keys], np.int32)
        indices.append(to[part.key_index] if len(to) else part.key_index)
    return Parsed(
        np.concatenate([p.indices for p in parts]),
        np.concatenate([p.stimes for p in parts]),
        np.concatenate(indices),
        list(places),
        tuple(np.concatenate([p.values[f] for p in parts]) for f in range(fields)),
        tuple(bad for p in parts for bad in p.bad),
        tuple(b for p in parts for b in p.boundaries),
    )
