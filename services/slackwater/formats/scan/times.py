"""Times as microseconds since the epoch, truncated towards the past, from numbers and ISO texts."""

from __future__ import annotations

from typing import Final

import numpy as np

from slackwater.formats.columns import STIME_US_MAX
from slackwater.formats.scan.compiled import inner, outlined
from slackwater.formats.scan.memory import (
    I64,
    U8,
    U64,
    load_u8,
)

_POWERS: Final = np.array([10**i for i in range(19)], np.int64)
_DIGITS_MAX: Final = 18
"""Digits of a time that the definition accepts, leading zeros not counted."""
_LIMIT: Final = STIME_US_MAX
_MINUTES_A_DAY: Final = 1_440


@inner
def unix_us(negative: bool, digits: int, exponent: int, unit: int) -> tuple[bool, int]:
    """Return whether the number is a time, and the time.

    ``unit`` is the power of ten of a unit in microseconds: 6 for s, 3 for ms, 0 for us, -3 for ns.
    """
    power = exponent + unit
    limit = U64(10**_DIGITS_MAX) if unit >= 0 else U64(2**63)
    if digits >= limit or not -_DIGITS_MAX <= power <= _DIGITS_MAX:
        return False, 0
    us = I64(digits)
    if power >= 0:
        if us > _LIMIT // _POWERS[power]:
            return False, 0
        us *= _POWERS[power]
        us = -us if negative else us
    else:
        part = _POWERS[-power]
        us = -((us - 1) // part + 1) if negative else us // part
    return -_LIMIT < us < _LIMIT, us


@inner
def _two_digits(at: int) -> int:
    """Return the number of two digits; -1 if the bytes are not digits."""
    tens, ones = load_u8(at) - U8(ord("0")), load_u8(at + 1) - U8(ord("0"))
    if tens > 9 or ones > 9:
        return -1
    return I64(tens) * 10 + I64(ones)


@inner
def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970 in the Gregorian calendar; -2**62 if the day does not exist."""
    longest = 31
    if month == 4 or month == 6 or month == 9 or month == 11:
        longest = 30
    elif month == 2:
        longest = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if year < 1 or month < 1 or month > 12 or day < 1 or day > longest:
        return -(2**62)
    # The year begins in March, so that the leap day is its last.
    if month <= 2:
        year -= 1
        month += 12
    century = year // 100
    leap_days = year // 4 - century + century // 4
    return 365 * year + leap_days + (153 * (month - 3) + 2) // 5 + day - 719_469


@outlined
def iso_us(at: int, end: int) -> tuple[bool, int]:
    """Read ``YYYY-MM-DD[T ]HH:MM[:SS[.f]][Z|+HH:MM|-HH:MM]``; no zone is UTC.

    Return whether the text has this form, and the time. Other forms are left to the definition.
    """
    if end - at < 16:
        return False, 0
    century, year = _two_digits(at), _two_digits(at + 2)
    month, day = _two_digits(at + 5), _two_digits(at + 8)
    hour, minute = _two_digits(at + 11), _two_digits(at + 14)
    separator = load_u8(at + 10)
    if century < 0 or year < 0 or not 0 <= hour <= 23 or not 0 <= minute <= 59:
        return False, 0
    if load_u8(at + 4) != ord("-") or load_u8(at + 7) != ord("-") or load_u8(at + 13) != ord(":"):
        return False, 0
    if separator != ord("T") and separator != ord(" "):
        return False, 0
    days = _days(century * 100 + year, month, day)
    at, seconds_us = _seconds(at + 16, end)
    at, offset = _offset(at, end)
    if days == -(2**62) or at != end:
        return False, 0
    minutes = days * _MINUTES_A_DAY + hour * 60 + minute - offset
    us = minutes * 60_000_000 + seconds_us
    return -_LIMIT < us < _LIMIT, us


@inner
def _seconds(at: int, end: int) -> tuple[int, int]:
    """Return the place after ``:SS[.f]``, and its microseconds; -1 if the form is another."""
    if at >= end or load_u8(at) != ord(":"):
        return at, 0
    if end - at < 3:
        return -1, 0
    second = _two_digits(at + 1)
    if not 0 <= second <= 59:
        return -1, 0
    us = I64(0)
    at += 3
    if at < end and load_u8(at) == ord("."):
        at += 1
        first = at
        part = 100_000
        while at < end:
            digit = load_u8(at) - U8(ord("0"))
            if digit > 9:
                break
            us += I64(digit) * part
            part //= 10
            at += 1
        if at == first:
            return -1, 0
    return at, second * 1_000_000 + us


@inner
def _offset(at: int, end: int) -> tuple[int, int]:
    """Return the place after a zone, and its minutes; -1 if the form is another."""
    if at < 0 or at == end:
        return at, 0
    sign = load_u8(at)
    if sign == ord("Z"):
        return at + 1, 0
    if end - at != 6 or (sign != ord("+") and sign != ord("-")) or load_u8(at + 3) != ord(":"):
        return -1, 0
    hours, minutes = _two_digits(at + 1), _two_digits(at + 4)
    if not 0 <= hours <= 23 or not 0 <= minutes <= 59:
        return -1, 0
    offset = hours * 60 + minutes
    return end, -offset if sign == ord("-") else offset
