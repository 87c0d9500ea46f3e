"""Reads one text as a key, a number or a time, by the sentences of the deployment file's page.

A text that is none of them raises ``Unusable``: its reading is malformed. Times are counted in
exact decimals, and rounded down to a whole microsecond.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final
from zoneinfo import ZoneInfo

from slackwater.model.deployment import StreamSpec, TimeSpec
from slackwater.model.text_codes import text_code

KEY_CHARS_MAX: Final = 65_536
NUMBER_CHARS_MAX: Final = 1_000
TIME_CHARS_MAX: Final = 256
TIME_DIGITS_MAX: Final = 38
DIGITS_BEFORE_POINT_MAX: Final = 18
DIGITS_BEFORE_POINT_NS_MAX: Final = 21

_MISSING: Final = ("", "nan", "null")
_PARTS_OF_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_EXACT: Final = Context(prec=200)
_YEAR_10000_US: Final = 253_402_300_800_000_000


class Unusable(Exception):
    """Why a reading is malformed."""


def key_in(text: str) -> str:
    """Return a key: the text without the blanks round it, not empty and not too long."""
    key = text.strip()
    if not key:
        raise Unusable("empty key")
    if len(key) > KEY_CHARS_MAX:
        raise Unusable("long key")
    return key


def key_of(parts: Sequence[str], join: str) -> str:
    """Return the key of several parts, of which none contains what stands between them."""
    if len(parts) > 1 and any(part.find(join) >= 0 for part in parts):
        raise Unusable(f"a part of the key contains {join}")
    return key_in(join.join(parts))


def value_in(text: str, decimal: str = ".", spec: StreamSpec | None = None) -> float | None:
    """Return a number, None if the text stands for a missing value.

    The stream may declare texts that are missing values or numbers.
    """
    text = text.strip()
    if len(text) > NUMBER_CHARS_MAX:
        raise Unusable("number of too many characters")
    if text.lower() in _MISSING:
        return None
    for declared, number in () if spec is None else spec.values:
        if _is_same_text(declared, text):
            return None if math.isnan(number) else number
    missing = () if spec is None else spec.missing
    if any(_is_same_text(declared, text) for declared in missing):
        return None
    value = float(_plain_number(text, decimal))
    if not math.isfinite(value):
        raise Unusable("number beyond the range of doubles")
    return None if any(_is_same_number(declared, value) for declared in missing) else value


def text_in(text: str, spec: StreamSpec) -> float | None:
    """Return the code of a text, None if it stands for a missing value."""
    text = text.strip()
    if len(text) > NUMBER_CHARS_MAX:
        raise Unusable("text of too many characters")
    is_missing = any(_is_same_text(declared, text) for declared in spec.missing)
    return None if is_missing or text.lower() in _MISSING else text_code(text)


def _is_same_text(declared: str, text: str) -> bool:
    """Compare without regard to the case of ASCII letters."""
    one, other = (re.sub("[A-Z]+", lambda found: found[0].lower(), t) for t in (declared, text))
    return one == other


def _is_same_number(declared: str, value: float) -> bool:
    try:
        return float(_plain_number(declared, ".")) == value
    except Unusable:
        return False


def _plain_number(text: str, decimal: str) -> str:
    """Return a number written with a point; digits, at most one point, an exponent."""
    mantissa, _, exponent = text.lower().partition("e")
    sign = mantissa[:1] if mantissa[:1] in ("+", "-") else ""
    integer, point, fraction = mantissa.removeprefix(sign).partition(decimal)
    digits = integer + fraction
    if not _are_digits(digits):
        raise Unusable(f"{text[:40]!r} is not a number")
    if "e" in text.lower() and not _are_digits(exponent[1:] if exponent[:1] in "+-" else exponent):
        raise Unusable(f"{text[:40]!r} is not a number")
    return f"{sign}{integer}{'.' if point else ''}{fraction}" + (f"e{exponent}" if exponent else "")


def _are_digits(text: str) -> bool:
    return text != "" and set(text) <= set("0123456789")


def time_in(spec: TimeSpec, text: str) -> int:
    """Return the event time of a text in us since the epoch, fractions of one cut off."""
    text = text.strip()
    if len(text) > TIME_CHARS_MAX:
        raise Unusable("time of too many characters")
    if spec.format is not None or spec.unit == "iso":
        us = _on_the_calendar(spec, text)
    else:
        us = _since_epoch(spec, text)
    if abs(us) >= _YEAR_10000_US:
        raise Unusable("time after the year 9999")
    return us


def _on_the_calendar(spec: TimeSpec, text: str) -> int:
    try:
        if spec.format is None:
            found = datetime.fromisoformat(text)
        else:
            found = datetime.strptime(text, spec.format)  # noqa: DTZ007 - see below
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC) if spec.zone is None else _in_zone(found, spec)
        # The difference of two times is exact; timestamp() is a double.
        return (found - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        raise Unusable(f"{text[:40]!r} is not a time") from None


def _in_zone(local: datetime, spec: TimeSpec) -> datetime:
    """Return the instant at which the zone's clocks show a time; ``Unusable`` without one.

    An instant is one of those meant if its local time is the given one: none is for a time that
    does not exist, two are for one that occurs twice.
    """
    zone = ZoneInfo(spec.zone or "UTC")
    possible = {local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    meant = sorted(t for t in possible if t.astimezone(zone).replace(tzinfo=None, fold=0) == local)
    if not meant:
        raise Unusable(f"no clock of {spec.zone} shows {local}")
    if len(meant) == 2 and spec.fold == "refuse":
        raise Unusable(f"clocks of {spec.zone} show {local} twice: declare fold")
    return meant[-1 if spec.fold == "second" else 0]


def _since_epoch(spec: TimeSpec, text: str) -> int:
    sign = text[:1] if text[:1] in ("+", "-") else ""
    integer, _, fraction = text.removeprefix(sign).partition(".")
    if not _are_digits(integer + fraction):
        raise Unusable(f"{text[:40]!r} is not a time")
    digits = integer.lstrip("0")
    longest = DIGITS_BEFORE_POINT_NS_MAX if spec.unit == "ns" else DIGITS_BEFORE_POINT_MAX
    if len(digits) > longest or len(digits) + len(fraction) > TIME_DIGITS_MAX:
        raise Unusable("time of too many digits")
    in_seconds = _EXACT.divide(Decimal(text), _PARTS_OF_SECOND[spec.unit or "us"])
    return int(_EXACT.multiply(in_seconds, 1_000_000).to_integral_value(ROUND_FLOOR))
