"""Conversion of text columns to columns of numbers and times.

``number_of`` and ``time_of`` define, from a cell's text alone, whether the cell is a value, missing
or malformed. A million readings a second are too many for a call per cell, so a column is first
converted as a unit by pyarrow or numpy, which accept or refuse all of it. A refused column is
halved until the refused parts are a few cells, and these are converted by the definition. One bad
cell in a million costs twenty more conversions, not a million.

The fast paths are stricter than the definition, or are guarded against inputs that only they would
accept (hexadecimal numbers, exponents in times, infinities), so both always agree. A property test
checks this.

Rejected: conversion by pyarrow's CSV reader. It parses times by its own rules, rounds where this
module truncates, and one bad cell ends the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formats.localtimes import LocalTimeError, local_times
from slackwater.model.deployment import TimeSpec
from slackwater.model.limits import KEY_CHARS_MAX
from slackwater.model.meanings import NO_MEANINGS, Meanings
from slackwater.model.records import type_f64, type_i64

Mask = npt.NDArray[np.bool_]
Texts = Any
"""A pyarrow StringArray without nulls, cells trimmed."""

MISSING: Final = ("", "nan", "null")
UNIT_DIGITS: Final = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""By unit of numeric times, the power of ten that converts to microseconds."""
CELLS_SLOW_MAX: Final = 24
key_chars_max: Final = KEY_CHARS_MAX
"""Maximum key length. A longer key is an error, such as an unclosed quote. With a key of 1 MiB the
aggregator would refuse the whole record each time it is sent."""
NUMBER_CHARS_MAX: Final = 1_000
"""Maximum length of a number; no instrument writes longer ones."""
TIME_CHARS_MAX: Final = 256
STIME_US_MAX: Final = 253_402_300_800_000_000
"""The year 10000. A later time is an error; below it, sums of times fit into int64."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_DAY_US: Final = -62_135_510_400_000_000
"""0001-01-02. Earlier times take the definition, which refuses year 0: pyarrow accepts it. The day
is a margin for time zones."""
_US: Final = timedelta(microseconds=1)
KEY: Final = "key"
TIME: Final = "time"
"""Detail of a reading with a malformed time."""
_UNIX: Final = re.compile(r"([+-]?)(?=\.?[0-9])0*([0-9]{0,21})(?:\.([0-9]*))?", re.ASCII)
_COMPLETE_DIGITS_MAX: Final = 18
"""Digits of a time before the point, leading zeros not counted; three more for nanoseconds."""
_UNIX_DIGITS_MAX: Final = 38
"""Digits of a pyarrow decimal, leading zeros not counted."""
_T = TypeVar("_T", bound=np.generic)


# The definition.


@lru_cache(maxsize=8)
def _number_pattern(decimal: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    return re.compile(
        rf"[+-]?(?:[0-9]+(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII
    )


def number_of(text: str, decimal: str = ".", meanings: Meanings = NO_MEANINGS) -> float | None:
    """Return a cell's number, NaN if missing, None if malformed."""
    if len(text) > NUMBER_CHARS_MAX:
        return None
    if text.lower() in MISSING:
        return math.nan
    meaning = meanings.of_text(text)
    if meaning is not None:
        return meaning
    if not _number_pattern(decimal).fullmatch(text):
        return None
    value = float(text.replace(decimal, "."))
    return meanings.of_number(value) if math.isfinite(value) else None


def time_of(text: str, spec: TimeSpec) -> int | None:
    """Return microseconds since the epoch, truncated; None if malformed."""
    found = time_or_fault(text, spec)
    return found if isinstance(found, int) else None


def time_or_fault(text: str, spec: TimeSpec) -> int | str:
    """Return microseconds since the epoch, truncated; if malformed, the detail for quarantine.

    Beside a zone, a number is microseconds of local time: Avro has such timestamps.
    """
    if len(text) > TIME_CHARS_MAX:
        return TIME
    try:
        if spec.format is not None:
            us = _since_epoch(datetime.strptime(text, spec.format), spec)  # noqa: DTZ007
        elif spec.unit == "iso":
            us = _since_epoch(datetime.fromisoformat(text), spec)
        elif unix := _UNIX.fullmatch(text):
            sign, complete, fraction = unix[1], unix[2], unix[3] or ""
            unit = spec.unit or "us"
            digits_max = _COMPLETE_DIGITS_MAX + max(0, -UNIT_DIGITS[unit])
            if len(complete) > digits_max or len(complete) + len(fraction) > _UNIX_DIGITS_MAX:
                return TIME
            us = _instant_of(_unix_us(sign == "-", complete, fraction, unit), spec)
        else:
            return TIME
    except LocalTimeError as why:
        return f"{TIME}: {why}"
    except (ValueError, OverflowError):
        return TIME
    return us if abs(us) < STIME_US_MAX else TIME


def time_fault(text: str, spec: TimeSpec) -> str:
    """Return the detail for quarantine of a malformed time."""
    found = time_or_fault(text, spec)
    return found if isinstance(found, str) else TIME


def _unix_us(negative: bool, complete: str, fraction: str, unit: str) -> int:
    power = UNIT_DIGITS[unit]
    if power < 0:
        kept, rest = complete[:power], complete[power:] + fraction
    else:
        kept, rest = complete + fraction[:power].ljust(power, "0"), fraction[power:]
    us = int("0" + kept)
    return -us - bool(rest.strip("0")) if negative else us


def _since_epoch(time: datetime, spec: TimeSpec) -> int:
    if time.tzinfo is None:
        return _instant_of((time.replace(tzinfo=UTC) - _EPOCH) // _US, spec)
    return (time - _EPOCH) // _US


def _instant_of(us: int, spec: TimeSpec) -> int:
    """Return the instant of a time without an offset: local in the zone, else UTC."""
    return us if spec.zone is None else local_times(spec.zone, spec.fold).instant_of(us)


# Whole columns.


def numbers(
    texts: Texts, decimal: str = ".", meanings: Meanings = NO_MEANINGS
) -> tuple[type_f64, Mask]:
    """Convert a column to numbers, NaN where missing; the mask marks malformed cells."""
    if meanings.is_text:
        return _codes(texts, meanings)
    values, bad = _convert(
        texts,
        lambda part: _quick_numbers(part, decimal, meanings),
        lambda cell: number_of(cell, decimal, meanings),
        np.float64,
    )
    return meanings.of_column(values), bad


def _codes(texts: Texts, meanings: Meanings) -> tuple[type_f64, Mask]:
    """Convert a column of a field that is a text; each different text once."""
    encoded = pc.dictionary_encode(texts)
    found = [number_of(text, ".", meanings) for text in encoded.dictionary.to_pylist()]
    codes = np.array([math.nan if code is None else code for code in found], np.float64)
    bad = np.array([code is None for code in found], np.bool_)
    index = encoded.indices.to_numpy(zero_copy_only=False)
    return codes[index], bad[index]


def times(texts: Texts, spec: TimeSpec) -> tuple[type_i64, Mask]:
    """Convert a column to times; the mask marks malformed cells."""
    if spec.format is not None:
        parse = fixed_width(spec.format)
        cache = lru_cache(maxsize=65_536)(lambda text: time_of(text, spec))
        return _convert(texts, lambda part: quick_instants(parse(part), spec), cache, np.int64)
    if spec.unit == "iso":
        quick: Callable[[Texts], type_i64 | None] = partial(_quick_iso, spec=spec)
    else:
        unit = spec.unit or "us"
        quick = partial(_quick_unix, unit=unit)
    return _convert(texts, quick, lambda text: time_of(text, spec), np.int64)


def quick_instants(us: type_i64 | None, spec: TimeSpec) -> type_i64 | None:
    """Return the instants of times without an offset; None if the definition must decide."""
    if us is None or spec.zone is None:
        return us
    instants, refused = local_times(spec.zone, spec.fold).instants_of(us)
    return None if refused.any() else instants


def trimmed(texts: Texts) -> Texts:
    """Trim the cells and combine the chunks into one array."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    return pc.utf8_trim_whitespace(texts)


def keys_of(texts: Any) -> tuple[npt.NDArray[np.int32], list[str], Mask, Mask]:
    """Return the key index and keys of a column, and masks of empty and of too long keys.

    Blanks round keys are cut off, in every format: a device that pads its name in a file, and does
    not in its messages, is one device.
    """
    encoded = pc.dictionary_encode(texts)
    sent: list[str] = encoded.dictionary.to_pylist()
    index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    keys = [key.strip() for key in sent]
    if keys != sent:
        places: dict[str, int] = {}
        to = np.array([places.setdefault(key, len(places)) for key in keys], np.int32)
        index, keys = to[index], list(places)
    empty = np.zeros(len(index), np.bool_)
    if "" in keys:
        empty = index == keys.index("")
    too_long = [i for i, key in enumerate(keys) if len(key) > key_chars_max]
    return index, keys, empty, np.isin(index, too_long)


def _convert(
    texts: Texts,
    quick: Callable[[Texts], npt.NDArray[_T] | None],
    slow: Callable[[str], Any],
    dtype: type[_T],
) -> tuple[npt.NDArray[_T], Mask]:
    values, bad = np.zeros(len(texts), dtype), np.zeros(len(texts), np.bool_)
    parts = [(0, len(texts))]
    while parts:
        start, end = parts.pop()
        part = texts.slice(start, end - start)
        done = quick(part) if end > start else None
        if done is not None:
            values[start:end] = done
        elif end - start <= CELLS_SLOW_MAX:
            for i, cell in enumerate(part.to_pylist(), start):
                value = slow(cell)
                bad[i] = value is None
                values[i] = 0 if value is None else value
        else:
            middle = (start + end) // 2
            parts += [(middle, end), (start, middle)]
    return values, bad


def longest(texts: Texts) -> int:
    """Return the size of the longest cell in bytes."""
    return int(pc.max(pc.binary_length(texts)).as_py() or 0)


def _quick_numbers(texts: Texts, decimal: str, meanings: Meanings) -> type_f64 | None:
    if longest(texts) > NUMBER_CHARS_MAX:
        return None
    if meanings.texts:
        return _quick_with_texts(texts, decimal, meanings)
    if decimal != ".":
        if _any_has(texts, b"."):
            return None
        texts = pc.replace_substring(texts, decimal, ".")
    cast = _cast(texts, pa.float64())
    if cast is None:
        missing = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(MISSING))
        if not pc.any(missing).as_py():
            return None
        cast = _cast(pc.if_else(missing, pa.scalar(None, pa.string()), texts), pa.float64())
        if cast is None:
            return None
    values: type_f64 = cast.to_numpy(zero_copy_only=False)
    finite = int(np.count_nonzero(np.isfinite(values)))
    return values if finite == len(values) - cast.null_count else None


def _quick_with_texts(texts: Texts, decimal: str, meanings: Meanings) -> type_f64 | None:
    """Convert the declared texts by a look-up, and the others as numbers."""
    places = pc.index_in(pc.ascii_lower(texts), value_set=pa.array(list(meanings.texts)))
    known = pc.is_valid(places)
    if places.null_count == len(texts):
        return _quick_numbers(texts, decimal, NO_MEANINGS)
    others = pc.if_else(known, pa.scalar("", pa.string()), texts)
    values = _quick_numbers(others, decimal, NO_MEANINGS)
    if values is None:
        return None
    chosen = known.to_numpy(zero_copy_only=False)
    looked_up = np.array(list(meanings.texts.values()), np.float64)
    at = pc.fill_null(places, 0).to_numpy(zero_copy_only=False)
    found: type_f64 = np.where(chosen, looked_up[at], values)
    return found


def _quick_unix(texts: Texts, unit: str) -> type_i64 | None:
    if longest(texts) > _UNIX_DIGITS_MAX or _any_has(texts, b"x"):
        return None
    complete = _cast(texts, pa.int64())
    if complete is not None:
        us, excess = microseconds(complete.to_numpy(zero_copy_only=False), unit)
        return None if excess.any() else us
    if _any_has(texts, b"e"):
        return None
    exact = _cast(texts, exact_type(unit))
    return None if exact is None else exact_times(exact)


def microseconds(counts: type_i64, unit: str) -> tuple[type_i64, Mask]:
    """Convert counts of a unit to microseconds; the mask marks those outside the calendar.

    Nanoseconds are truncated towards the past.
    """
    power = UNIT_DIGITS[unit]
    if power < 0:
        return counts // 10**-power, np.zeros(len(counts), np.bool_)
    limit = (STIME_US_MAX - 1) // 10**power
    excess = (counts > limit) | (counts < -limit)
    return np.where(excess, 0, counts) * 10**power, excess


def exact_type(unit: str) -> Any:
    """Return the decimal type whose last digit is a nanosecond."""
    return pa.decimal128(38, 3 + UNIT_DIGITS[unit])


def exact_times(exact: Any) -> type_i64 | None:
    """Convert decimals of ``exact_type``, without nulls; None beyond 64 bits (the year 2262)."""
    words = np.frombuffer(exact.buffers()[1], np.int64)
    words = words[2 * exact.offset : 2 * (exact.offset + len(exact))].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    if not np.array_equal(high, low >> 63):
        return None
    return low // 1000


def _quick_iso(texts: Texts, spec: TimeSpec) -> type_i64 | None:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        cast = _cast(texts, kind)
        if cast is not None:
            values: type_i64 = cast.cast(pa.int64()).to_numpy(zero_copy_only=False)
            is_inside = not len(values) or (
                values.min() >= _SECOND_DAY_US and values.max() < STIME_US_MAX
            )
            if not is_inside:
                return None
            return quick_instants(values, spec) if kind.tz is None else values
    return None


def _cast(texts: Texts, kind: Any) -> Any | None:
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None


def _any_has(texts: Texts, letter: bytes) -> bool:
    """Return whether a cell has this character, or its capital; of an array, not of chunks."""
    _, offsets, data = texts.buffers()
    if data is None:
        return False
    places = np.frombuffer(offsets, np.int32)
    first, end = int(places[texts.offset]), int(places[texts.offset + len(texts)])
    content = memoryview(data)[first:end].tobytes()
    return letter in content or letter.upper() in content


_WIDTHS: Final = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "f": 0}


@lru_cache(maxsize=64)
def fixed_width(form: str) -> Callable[[Texts], type_i64 | None]:
    """Return a vectorised strptime for cells of equal length with zero-padded numbers.

    Only numeric directives are supported; the result is None for anything else.
    """
    parts = re.findall(r"%.|[^%]", form)
    names = [part[1] for part in parts if len(part) == 2]
    known = all(name in _WIDTHS for name in names) and len(set(names)) == len(names)
    plain = form.isascii() and known and "Y" in names

    def parse(texts: Texts) -> type_i64 | None:
        return _parse_fixed(texts, parts) if plain and len(texts) else None

    return parse


def _parse_fixed(texts: Texts, parts: list[str]) -> type_i64 | None:
    cells = _matrix(texts)
    if cells is None:
        return None
    widths = [_WIDTHS[part[1]] if len(part) == 2 else 1 for part in parts]
    fraction = cells.shape[1] - sum(widths)
    if not (1 <= fraction <= 6 if "%f" in parts else fraction == 0):
        return None
    found: dict[str, type_i64] = {}
    at = 0
    for part, fixed in zip(parts, widths, strict=True):
        width = fixed or fraction
        piece = cells[:, at : at + width]
        at += width
        if len(part) == 1:
            if (piece != ord(part)).any():
                return None
            continue
        digits = piece.astype(np.int64) - ord("0")
        if digits.min() < 0 or digits.max() > 9:
            return None
        scale = 10 ** np.arange(width - 1, -1, -1)
        found[part[1]] = digits @ (scale * 10 ** (6 - width) if part == "%f" else scale)
    return _instant(found)


def _matrix(texts: Texts) -> npt.NDArray[np.uint8] | None:
    """Return the bytes of cells of equal length, one row per cell; None if lengths differ."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[
        texts.offset : texts.offset + len(texts) + 1
    ]
    lengths = np.diff(offsets)
    if not len(lengths) or lengths[0] == 0 or (lengths != lengths[0]).any():
        return None
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return data.reshape(-1, int(lengths[0]))


def _instant(found: dict[str, type_i64]) -> type_i64 | None:
    zero, one = np.int64(0), np.int64(1)
    month, day = found.get("m", one), found.get("d", one)
    hour, minute = found.get("H", zero), found.get("M", zero)
    second = found.get("S", zero)
    year = found["Y"]
    inside = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    inside &= (hour < 24) & (minute < 60) & (second < 60)
    if not np.all(inside):
        return None
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    if np.any(day > after - first):
        return None
    seconds = (first + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second
    us: type_i64 = seconds * 1_000_000 + found.get("f", zero)
    return us
