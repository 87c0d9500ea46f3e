"""Reads a JSON message, as the page of the deployment file has it: one value at a time.

An object is a list of its members in their order, so a name that occurs twice is seen as such. A
number is its text until a field uses it. ``json`` parses; all rules for values are in ``cells``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from slackwater.judge.readers.cells import (
    NUMBER_CHARS_MAX,
    Unusable,
    key_in,
    key_of,
    text_in,
    time_in,
    value_in,
)
from slackwater.judge.readings import FileReading
from slackwater.model.deployment import StreamSpec

MESSAGE_BYTES_MAX: Final = 1_048_576
NESTING_DEPTH_MAX: Final = 64
ELEMENTS_MAX: Final = 65_536
VALUES_MAX: Final = 4_194_304
_TIME_PART_DIGITS_MAX: Final = 40
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*+"|[-+.\w]+', re.DOTALL | re.ASCII)
"""A string, or letters and digits that belong together."""
_NUMBER: Final = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE][+-]?([0-9]+))?")


@dataclass(frozen=True, slots=True)
class JsonText:
    """The text of a JSON number."""

    text: str


@dataclass(frozen=True, slots=True)
class JsonConstant:
    """``NaN``, ``-inf`` and the like: a missing value."""

    text: str


class Members(list[tuple[str, Any]]):
    """The members of a JSON object."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """A message that announces the end of times below ``stime``."""

    stime: int


@dataclass(frozen=True, slots=True)
class UnusableElement:
    """A malformed reading, with the reason."""

    reason: str


Outcome = FileReading | Watermark | UnusableElement


def read_message(spec: StreamSpec, form: str, message: bytes) -> list[Outcome]:
    """Return what each element of a message is; ``Unusable`` if it is refused as a unit.

    ``form``: ``json`` (one element), ``json-array``, ``json-columns`` or ``number``, whose key and
    time are elsewhere.
    """
    if form == "number":
        return [_number(spec, message)]
    value = parse(message, NESTING_DEPTH_MAX + (form == "json-array"))
    if form == "json-array":
        if not isinstance(value, list) or isinstance(value, Members):
            raise Unusable("not an array")
        if len(value) > _elements_max(spec):
            raise Unusable(f"{len(value)} readings")
        return [read_object(spec, element) for element in value]
    if not isinstance(value, Members):
        raise Unusable("not an object")
    if form == "json-columns" and not _is_watermark(value):
        return _rows(spec, value)
    return [read_object(spec, value)]


def _number(spec: StreamSpec, message: bytes) -> Outcome:
    """Return what a message that is a number alone is; its time is 0, and its key a constant."""
    try:
        text = message.decode().strip()
        if not text:
            raise Unusable("empty")
        is_constant = text.lower().removeprefix("-") in ("nan", "inf", "infinity")
        value = None if is_constant else value_in(text, spec=spec)
    except UnicodeDecodeError:
        return UnusableElement("not UTF-8")
    except Unusable as why:
        return UnusableElement(str(why))
    return FileReading(0, spec.key.value or "", (value,))


def read_object(spec: StreamSpec, value: Any) -> Outcome:
    """Return what one element is."""
    try:
        if not isinstance(value, Members):
            raise Unusable("not an object")
        if _is_watermark(value) and spec.time.from_ is None:
            return Watermark(_time(spec, [_at(value, ["boundary"])]))
        return _reading(spec, [_at(value, path) for path in paths_of(spec)])
    except Unusable as why:
        return UnusableElement(str(why))


def parse(message: bytes, depth_max: int = NESTING_DEPTH_MAX) -> Any:
    """Return a JSON value of ``Members``, ``JsonText``, lists and texts; raises ``Unusable``."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise Unusable("message of too many bytes")
    if message.startswith(b"\0"):  # the mark of a schema registry, before an id of four bytes
        message = message[1 + 4 :]
    try:
        value = json.loads(
            _TOKEN.sub(_plain_constant, message.decode()),
            parse_float=JsonText,
            parse_int=JsonText,
            parse_constant=JsonConstant,
            object_pairs_hook=Members,
        )
    except (ValueError, RecursionError):
        raise Unusable("not JSON") from None
    level, depth = [value], 0
    while level:
        inner = [one for one in level if isinstance(one, list)]
        depth += bool(inner)
        level = [
            part
            for one in inner
            for part in ((v for _, v in one) if isinstance(one, Members) else one)
        ]
    if depth > depth_max:
        raise Unusable("nested too deep")
    return value


def paths_of(spec: StreamSpec) -> list[Any]:
    """Return the paths of the parts of the key, of the time, and of fields: names and indexes."""
    paths = [path_in(part) for part in (*_key_parts(spec), *_time_parts(spec))]
    return paths + [path_in(field.source) for field in spec.fields]


def _key_parts(spec: StreamSpec) -> list[str]:
    one = spec.key.field or spec.key.column
    return [*spec.key.fields, *spec.key.columns] or ([] if one is None else [one])


def _time_parts(spec: StreamSpec) -> list[str]:
    several = [*spec.time.fields, *spec.time.columns]
    return several or ([] if spec.time.field is None else [spec.time.field])


def path_in(declared: str) -> list[str | int]:
    """Return the names and indexes of a declared path, which is read character by character."""
    steps: list[str | int] = []
    left = list(declared)
    while left:
        if left[0] == "[" and steps:
            digits = "".join(left[1 : left.index("]")])
            steps.append(int(digits))
            del left[: len(digits) + 2]
            continue
        if steps and left.pop(0) != ".":
            raise Unusable(f"{declared} is no path")
        steps.append(_quoted_name(left) if left[:1] == ['"'] else _bare_name(left))
    return steps


def _quoted_name(left: list[str]) -> str:
    """Remove a name in quotes from the beginning, and return it; a backslash keeps the next one."""
    del left[0]
    name = ""
    while (character := left.pop(0)) != '"':
        name += left.pop(0) if character == "\\" else character
    return name


def _bare_name(left: list[str]) -> str:
    name = ""
    while left and left[0] not in ".[":
        name += left.pop(0)
    return name


def _plain_constant(token: re.Match[str]) -> str:
    """Return a token; each spelling of what is no finite number as the one that ``json`` reads."""
    word = token[0].lower().removeprefix("-")
    return "NaN" if word in ("nan", "inf", "infinity") else token[0]


def _elements_max(spec: StreamSpec) -> int:
    return min(ELEMENTS_MAX, VALUES_MAX // max(1, len(spec.fields)))


def _is_watermark(members: Members) -> bool:
    return {name for name, _ in members} == {"boundary"}


def _at(value: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path, None if there is none; ``Unusable`` if there are two."""
    for step in path:
        if isinstance(step, int):
            is_array = isinstance(value, list) and not isinstance(value, Members)
            value = value[step] if is_array and step < len(value) else None
            continue
        if not isinstance(value, Members):
            return None
        found = [inner for known, inner in value if known == step]
        if len(found) > 1:
            raise Unusable(f"{len(found)} members {step!r}")
        value = found[0] if found else None
    return value


def _rows(spec: StreamSpec, members: Members) -> list[Outcome]:
    columns = [_at(members, path) for path in paths_of(spec)]
    lengths = {len(c) for c in columns if isinstance(c, list) and not isinstance(c, Members)}
    if len(lengths) != 1:
        raise Unusable(f"columns of {len(lengths)} lengths")
    (n,) = lengths
    if n > _elements_max(spec):
        raise Unusable(f"{n} readings")
    found: list[Outcome] = []
    for i in range(n):
        row = [c[i] if isinstance(c, list) and not isinstance(c, Members) else c for c in columns]
        try:
            found.append(_reading(spec, row))
        except Unusable as why:
            found.append(UnusableElement(str(why)))
    return found


def _reading(spec: StreamSpec, row: Sequence[Any]) -> FileReading:
    """Return the reading of the values at ``paths_of``."""
    keys, times = len(_key_parts(spec)), len(_time_parts(spec))
    key = spec.key.value or ""
    if keys:
        key = key_of([_key(part) for part in row[:keys]], spec.key.join)
    time = _time(spec, row[keys : keys + times])
    return FileReading(time, key, _values(spec, row[keys + times :]))


def _key(value: Any) -> str:
    """Return a key: a text, or a number that is written without a fraction or an exponent."""
    if isinstance(value, JsonText):
        if len(value.text) > NUMBER_CHARS_MAX or not value.text.removeprefix("-").isdigit():
            raise Unusable("key is not a whole number")
        return str(int(value.text))
    if not isinstance(value, str):
        raise Unusable("key is neither a text nor a number")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise Unusable("key has half a character")
    return key_in(value)


def _time(spec: StreamSpec, parts: Sequence[Any]) -> int:
    """Return the time of its parts; 0 if the message has none, but what carries it."""
    if not parts:
        return 0
    if len(parts) > 1:
        return time_in(spec.time, spec.time.join.join(_part(part) for part in parts))
    (value,) = parts
    if isinstance(value, str):
        return time_in(spec.time, value)
    if not isinstance(value, JsonText):
        raise Unusable("time is neither a text nor a number")
    number = _NUMBER.fullmatch(value.text)
    assert number is not None, "a number of JSON"
    mantissa, exponent = [part or "" for part in number.groups()[:2]], number[3] or ""
    if max(map(len, mantissa)) > _TIME_PART_DIGITS_MAX or len(exponent) > 2:
        raise Unusable("time of too many digits")
    return time_in(spec.time, format(Decimal(value.text), "f"))


def _part(value: Any) -> str:
    """Return a part of a time: a text, which may be empty, or a whole number."""
    is_empty = isinstance(value, str) and not value.strip()
    return "" if is_empty else _key(value)


def _values(spec: StreamSpec, values: Sequence[Any]) -> tuple[float | None, ...]:
    return tuple(
        _text(spec, value) if field.is_text else _value(spec, value)
        for field, value in zip(spec.fields, values, strict=True)
    )


def _text(spec: StreamSpec, value: Any) -> float | None:
    """Return the code of a text; a number is the text that was sent, a boolean its word."""
    if value is None or isinstance(value, JsonConstant):
        return None
    if isinstance(value, JsonText):
        return text_in(value.text, spec)
    if isinstance(value, bool):
        return text_in("true" if value else "false", spec)
    if isinstance(value, str):
        return text_in(value, spec)
    raise Unusable("a field is no text")


def _value(spec: StreamSpec, value: Any) -> float | None:
    if value is None or isinstance(value, JsonConstant):
        return None
    if isinstance(value, JsonText):
        return value_in(value.text, spec=spec)
    if isinstance(value, bool):
        return value_in(str(value), spec=spec)  # a boolean is the text true or false
    if isinstance(value, str):
        return value_in(value, spec=spec)
    raise Unusable("a field is neither a number nor a text")
