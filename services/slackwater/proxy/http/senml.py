"""SenML, JSON form (RFC 8428): records with base values, resolved to readings.

A record is one measured value. Its full name is the base name followed by its own name, and ends
with the declared column of a field: ``urn:dev:ow:10e2073a0108006:temperature`` is field
``temperature`` of key ``urn:dev:ow:10e2073a0108006``. In a stream with a single field, a name may
also be only the key. Records with the same key and time form one reading. A name without a declared
field is ignored and counted, like an undeclared JSON field. A record of base values only sets them
for the records after it, and is no measurement.

A base value is added to the value. If a record lacks one of the two, that one is zero (section
4.5.4). Without both the record is malformed. Sums (``s``, ``bs``) are not used.

Times are exact: base time and time are added as decimals, in seconds, and truncated to a
microsecond. A sum below 2**28 is relative to the arrival of the request, ``now_us`` (section
4.5.3).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any, Final

import numpy as np

from slackwater.formats.columns import STIME_US_MAX, key_chars_max, number_of
from slackwater.formats.json_text import JsonNumber, Unreadable, load
from slackwater.formats.messages import Bad, Parsed
from slackwater.formats.repeated import RepeatedMember
from slackwater.model.deployment import StreamSpec
from slackwater.model.meanings import field_meanings
from slackwater.proxy.http.parts import Texts, by_column, check_number
from slackwater.proxy.requests import BodyContent, UnusableBody

MEDIA_TYPE: Final = "application/senml+json"
BYTES_MAX: Final = 1024 * 1024 - 64
"""Maximum size of a pack; smaller than for other bodies, since it is parsed record by record."""
VERSION_MAX: Final = 10
ABSOLUTE_S_MIN: Final = 2**28
_NAME_CHARS_MAX: Final = 64
"""Maximum characters of an unknown name in an error."""
_SEPARATORS: Final = "/:._-"
_DECIMAL: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_NAMED: Final = frozenset(
    ("bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut")
)


class _Malformed(Exception):
    """Raised for a malformed record, with the reason."""


class _MalformedBase(_Malformed):
    """Raised for a base value, which applies to all later records too."""


@dataclass(slots=True)
class _Reading:
    index: int
    key: str
    stime: int
    values: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Base:
    """The base values that apply to a record and all later ones."""

    name: str = ""
    time: Decimal = Decimal(0)
    value: str | None = None

    def take(self, record: dict[str, Any]) -> None:
        if "bver" in record and _decimal(record["bver"], "bver") > VERSION_MAX:
            raise _Malformed(f"bver: a version above {VERSION_MAX}")
        if "bn" in record:
            self.name = _text(record["bn"], "bn")
        if "bt" in record:
            self.time = _decimal(record["bt"], "bt")
        if "bv" in record:
            self.value = str(_decimal(record["bv"], "bv"))


def read_senml(spec: StreamSpec, now_us: int, body: bytes) -> BodyContent:
    """Parse a pack; indices are those of its records."""
    if len(spec.key.parts) > 1:
        reason = "this stream's key has several parts, and a name of SenML is one: send JSON"
        raise UnusableBody(reason, 415)
    spec = by_column(spec)
    records = _records(body)
    base, ignored = _Base(), 0
    readings: list[_Reading] = []
    places: dict[tuple[str, int], _Reading] = {}
    bad: list[Bad] = []
    lost = ""
    for index, record in enumerate(records):
        if lost:
            bad.append(Bad(index, lost, None))
            continue
        try:
            found = _resolved(spec, base, record, now_us)
        except _Malformed as why:
            bad.append(Bad(index, str(why), None))
            if isinstance(why, _MalformedBase):
                # With the base values before it, later records would be another device's.
                lost = f"the base values of record {index} are malformed: {why}"
            continue
        if found is None:
            ignored += _is_measurement(record)
            continue
        key, stime, name, value = found
        reading = places.get((key, stime))
        if reading is None or name in reading.values:
            reading = places[key, stime] = _Reading(index, key, stime)
            readings.append(reading)
        reading.values[name] = value
    if ignored and not readings and not bad:
        known = ", ".join(f.source for f in spec.fields)
        raise UnusableBody(f"no record has a name that ends with a declared field: {known}")
    texts = Texts([repr(record).encode(errors="replace") for record in records])
    return BodyContent(
        _parsed(spec, readings, bad), texts, range(len(records)), "index", ignored=ignored
    )


def _records(body: bytes) -> list[Any]:
    if len(body) > BYTES_MAX:
        raise UnusableBody(f"a SenML pack is larger than {BYTES_MAX} bytes: send several", 413)
    try:
        # The same bounds on depth and numbers as for a message.
        records = load(b'{"pack":' + body + b"}")["pack"]
    except Unreadable as why:
        raise UnusableBody(f"the body is {why}") from None
    if not isinstance(records, list):
        raise UnusableBody("the body is not a SenML pack, which is an array of records")
    check_number(len(records))
    return records


def _resolved(
    spec: StreamSpec, base: _Base, record: Any, now_us: int
) -> tuple[str, int, str, float] | None:
    """Return key, time, field and value; None if the record has no value of a declared field."""
    if not isinstance(record, dict):
        raise _Malformed("not an object")
    try:
        base.take(record)
    except _Malformed as why:
        raise _MalformedBase(str(why)) from None
    unknown = [name for name in record if name.endswith("_") and name not in _NAMED]
    if unknown:
        shown = unknown[0][:_NAME_CHARS_MAX]
        raise _Malformed(f"{shown} is not supported, and must not be ignored (RFC 8428, 4.4)")
    if not _is_measurement(record):
        return None
    found = _placed(spec, base.name, _text(record.get("n", ""), "n"))
    if found is None:
        return None
    key, name = found[0].strip(), found[1]
    if not 0 < len(key) <= key_chars_max:
        raise _Malformed("key")
    number = _number_in(spec, base, record, name)
    return key, _stime(base, record, now_us), name, number


def _number_in(spec: StreamSpec, base: _Base, record: dict[str, Any], name: str) -> float:
    """Return the value of a record of a declared field."""
    meanings = field_meanings(spec)[spec.field_names.index(name)]
    other = next((record[kind] for kind in ("vb", "vs", "vd") if kind in record), None)
    has_number = "v" in record or (other is None and base.value is not None)
    if not has_number or meanings.is_text:
        # A text or boolean has a meaning of its own, to which no base value is added.
        meaning = meanings.of_boolean(other) if isinstance(other, bool) else None
        if isinstance(other, str) and not isinstance(other, JsonNumber):
            text = other.strip()
            meaning = number_of(text, ".", meanings) if meanings.is_text else meanings.of_text(text)
        if meaning is None:
            raise _Malformed(f"field {name}: no numeric value")
        return meaning
    value = _value(base, record.get("v", JsonNumber("0")), name)
    return meanings.of_number(value)


def _is_measurement(record: dict[str, Any]) -> bool:
    """Return whether a record has more than base values, its version and unknown fields."""
    return any(name in record for name in ("n", "u", "v", "vs", "vb", "vd", "s", "t", "ut"))


def _placed(spec: StreamSpec, base: str, name: str) -> tuple[str, str] | None:
    """Return the key and the field of a name."""
    fixed = spec.key.value
    for declared in spec.fields:
        if name == declared.source:
            return fixed or base.rstrip(_SEPARATORS), declared.name
    complete = base + name
    for declared in spec.fields:
        for separator in ":/":
            if complete.endswith(separator + declared.source):
                return fixed or complete[: -len(declared.source) - 1], declared.name
    return (fixed or complete, spec.fields[0].name) if len(spec.fields) == 1 else None


def _stime(base: _Base, record: dict[str, Any], now_us: int) -> int:
    with localcontext(prec=120):
        seconds = base.time + _decimal(record.get("t", JsonNumber("0")), "time")
        us = math.floor(seconds * 1_000_000)
    if seconds < ABSOLUTE_S_MIN:
        us += now_us
    if abs(us) >= STIME_US_MAX:
        raise _Malformed("time")
    return us


def _value(base: _Base, value: Any, name: str) -> float:
    if not isinstance(value, JsonNumber):
        raise _Malformed(_where(f"field {name}", value))
    text = str(value)
    if base.value is not None:
        with localcontext(prec=120):
            text = str(Decimal(base.value) + _decimal(value, f"field {name}"))
    number = number_of(text)
    if number is None:
        raise _Malformed(f"field {name}")
    return number


def _decimal(value: Any, where: str) -> Decimal:
    if not isinstance(value, JsonNumber) or not _DECIMAL.fullmatch(value):
        raise _Malformed(_where(where, value))
    return Decimal(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or isinstance(value, JsonNumber) or not value.isascii():
        raise _Malformed(_where(where, value))
    return value


def _where(where: str, value: Any) -> str:
    return f"{where}: {value}" if isinstance(value, RepeatedMember) else where


def _parsed(spec: StreamSpec, readings: list[_Reading], bad: list[Bad]) -> Parsed:
    keys: dict[str, int] = {}
    index = [keys.setdefault(reading.key, len(keys)) for reading in readings]
    return Parsed(
        np.array([reading.index for reading in readings], np.int64),
        np.array([reading.stime for reading in readings], np.int64),
        np.array(index, np.int32),
        list(keys),
        tuple(
            np.array([r.values.get(f.name, math.nan) for r in readings], np.float64)
            for f in spec.fields
        ),
        tuple(bad),
    )
