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
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.model.deployment import KEY_CHARS_MAX, TimeSpec
from slackwater.model.records import type_f64, type_i64

Mask = npt.NDArray[np.bool_]
Texts = Any
"""A pyarrow StringArray without nulls, cells trimmed."""

MISSING: Final = ("", "nan", "null")
UNIT_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_UNIT_DIGITS: Final = {"s": 6, "ms": 3, "us": 0}
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
_UNIX: Final = re.compile(r"([+-]?)(?=\.?[0-9])0*([0-9]{0,18})(?:\.([0-9]*))?", re.ASCII)
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


def number_of(text: str, decimal: str = ".") -> float | None:
    """Return a cell's number, NaN if missing, None if malformed."""
    if len(text) > NUMBER_CHARS_MAX:
        return None
    if text.lower() in MISSING:
        return math.nan
    if not _number_pattern(decimal).fullmatch(text):
        return None
    value = float(text.replace(decimal, "."))
    return value if math.isfinite(value) else None


def time_of(text: str, spec: TimeSpec) -> int | None:
    """Return microseconds since the epoch, truncated; None if malformed."""
    if len(text) > TIME_CHARS_MAX:
        return None
    try:
        if spec.format is not None:
            us = _since_epoch(datetime.strptime(text, spec.format))  # noqa: DTZ007
        elif spec.unit == "iso":
            us = _since_epoch(datetime.fromisoformat(text))
        elif unix := _UNIX.fullmatch(text):
            sign, complete, fraction = unix[1], unix[2], unix[3] or ""
            if len(complete) + len(fraction) > _UNIX_DIGITS_MAX:
                return None
            us = _unix_us(sign == "-", complete, fraction, spec.unit or "us")
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return us if abs(us) < STIME_US_MAX else None


def _unix_us(negative: bool, complete: str, fraction: str, unit: str) -> int:
    digits = _UNIT_DIGITS[unit]
    us = int("0" + complete + fraction[:digits].ljust(digits, "0"))
    return -us - bool(fraction[digits:].strip("0")) if negative else us


def _since_epoch(time: datetime) -> int:
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    delta = time - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


# Whole columns.


def numbers(texts: Texts, decimal: str = ".") -> tuple[type_f64, Mask]:
    """Convert a column to numbers, NaN where missing; the mask marks malformed cells."""
    return _convert(
        texts,
        lambda part: _quick_numbers(part, decimal),
        lambda cell: number_of(cell, decimal),
        np.float64,
    )


def times(texts: Texts, spec: TimeSpec) -> tuple[type_i64, Mask]:
    """Convert a column to times; the mask marks malformed cells."""
    if spec.format is not None:
        quick: Callable[[Texts], type_i64 | None] = fixed_width(spec.format)
        cache = lru_cache(maxsize=65_536)(lambda text: time_of(text, spec))
        return _convert(texts, quick, cache, np.int64)
    if spec.unit == "iso":
        quick = _quick_iso
    else:
        unit = spec.unit or "us"
        quick = partial(_quick_unix, unit=unit)
    return _convert(texts, quick, lambda text: time_of(text, spec), np.int64)


def trimmed(texts: Texts) -> Texts:
    """Trim the cells and combine the chunks into one array."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    return pc.utf8_trim_whitespace(texts)


def keys_of(texts: Texts) -> tuple[npt.NDArray[np.int32], list[str], Mask, Mask]:
    """Return the key index and keys of a column, and masks of empty and of too long keys."""
    encoded = pc.dictionary_encode(texts)
    keys: list[str] = encoded.dictionary.to_pylist()
    index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
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


def _quick_numbers(texts: Texts, decimal: str) -> type_f64 | None:
    if longest(texts) > NUMBER_CHARS_MAX:
        return None
    if decimal != ".":
        if _any_has(texts, "."):
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


def _quick_unix(texts: Texts, unit: str) -> type_i64 | None:
    if longest(texts) > _UNIX_DIGITS_MAX or _any_has(texts, "x"):
        return None
    factor = UNIT_US[unit]
    complete = _cast(texts, pa.int64())
    if complete is not None:
        values: type_i64 = complete.to_numpy(zero_copy_only=False)
        if len(values) and np.abs(values).max() >= STIME_US_MAX // factor:
            return None
        return values * factor
    if _any_has(texts, "e"):
        return None
    exact = _cast(texts, exact_type(unit))
    return None if exact is None else exact_times(exact)


def exact_type(unit: str) -> Any:
    """Return the decimal type whose last digit is a nanosecond."""
    return pa.decimal128(38, {"s": 9, "ms": 6, "us": 3}[unit])


def exact_times(exact: Any) -> type_i64 | None:
    """Convert decimals of ``exact_type``, without nulls; None beyond 64 bits (the year 2262)."""
    words = np.frombuffer(exact.buffers()[1], np.int64)
    words = words[2 * exact.offset : 2 * (exact.offset + len(exact))].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    if not np.array_equal(high, low >> 63):
        return None
    return low // 1000


def _quick_iso(texts: Texts) -> type_i64 | None:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        cast = _cast(texts, kind)
        if cast is not None:
            values: type_i64 = cast.cast(pa.int64()).to_numpy(zero_copy_only=False)
            is_inside = not len(values) or (
                values.min() >= _SECOND_DAY_US and values.max() < STIME_US_MAX
            )
            return values if is_inside else None
    return None


def _cast(texts: Texts, kind: Any) -> Any | None:
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None


def _any_has(texts: Texts, text: str) -> bool:
    return bool(pc.any(pc.match_substring(texts, text, ignore_case=True)).as_py())


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
