"""Reads one value that a stream wants, a key, a time or a number, into its column.

``output`` describes the columns. The value of a row of a column is at the column's address plus the
size of a value for each row.
"""

from __future__ import annotations

from typing import Final

from slackwater.model.deployment import KEY_CHARS_MAX
from slackwater.proxy.scan.compiled import inner
from slackwater.proxy.scan.decimals import double_of
from slackwater.proxy.scan.grammar import UNSURE, after_blanks, number_end, string_end, word_end
from slackwater.proxy.scan.memory import U64, load_i64, load_u8, store_f64, store_i64
from slackwater.proxy.scan.plan import FIELD, ISO, KEY, POWERS, TIME, UNIT
from slackwater.proxy.scan.times import iso_us, unix_us

# Of the output, in words of eight bytes: addresses of columns, rows between columns of values, and
# the place and size of the key that was read last.
STATUS, TIMES, CODES, VALUES, STRIDE, KEY_AT, KEY_SIZE = range(0, 56, 8)
# Of the output of messages of columns: the address of a word per leaf, the number of values of its
# array; the maximum of such numbers; and the address of the column of readings per message.
SIZES, SIZE_MAX, COUNTS = range(56, 80, 8)
OUTPUT_WORDS: Final = 10
_QUOTE, _BLANK, _SMALL_N = ord('"'), ord(" "), ord("n")


@inner
def skip_blanks(at: int, end: int) -> int:
    """Return the place of the next byte that is not a blank; usually the first."""
    return after_blanks(at, end) if at < end and load_u8(at) <= _BLANK else at


@inner
def _read_key(at: int, end: int, output: int) -> int:
    """Read a key, a string or a whole number; store its place and size."""
    if load_u8(at) == _QUOTE:
        first = at + 1
        close, has_escapes = string_end(first, end)
        if close < 0 or has_escapes or close == first or close - first > KEY_CHARS_MAX:
            return UNSURE
        after = close + 1
    else:
        first = at
        close, negative, digits, _, _, fits = number_end(at, end)
        if close < 0 or not fits or (negative and digits == U64(0)):
            return UNSURE
        # The key is the number's text, if it is whole: nothing but digits after the sign.
        for place in range(first + negative, close):
            if not ord("0") <= load_u8(place) <= ord("9"):
                return UNSURE
        after = close
    store_i64(output + KEY_AT, first)
    store_i64(output + KEY_SIZE, close - first)
    return after


@inner
def _read_time(at: int, end: int, unit: int, target: int) -> int:
    quoted = load_u8(at) == _QUOTE
    if unit == ISO:
        if not quoted:
            return UNSURE
        close, has_escapes = string_end(at + 1, end)
        if close < 0 or has_escapes:
            return UNSURE
        is_time, us = iso_us(at + 1, close)
    else:
        close, negative, digits, exponent, has_exponent, fits = number_end(at + quoted, end)
        if close < 0 or not fits or has_exponent:
            return UNSURE
        if quoted and (close >= end or load_u8(close) != _QUOTE):
            return UNSURE
        is_time, us = unix_us(negative, digits, exponent, unit)
    if not is_time:
        return UNSURE
    store_i64(target, us)
    return close + quoted


@inner
def _read_value(at: int, end: int, powers: int, target: int) -> int:
    """Read a number, also in quotes, or null, for which ``target`` already contains NaN."""
    if load_u8(at) == _SMALL_N:
        return word_end(at, end)
    quoted = load_u8(at) == _QUOTE
    close, negative, digits, exponent, _, fits = number_end(at + quoted, end)
    if close < 0 or not fits:
        return UNSURE
    if quoted and (close >= end or load_u8(close) != _QUOTE):
        return UNSURE
    value = 0.0
    if digits != U64(0):
        is_double, value = double_of(digits, exponent, powers)
        if not is_double:
            return UNSURE
    store_f64(target, -value if negative else value)
    return close + quoted


@inner
def read_leaf(at: int, end: int, leaf: int, row: int, plan: int, output: int) -> int:
    """Read a value; return the address after it, or ``UNSURE``. A key is not stored, only found."""
    if leaf == KEY:
        return _read_key(at, end, output)
    if leaf == TIME:
        return _read_time(at, end, load_i64(plan + UNIT), load_i64(output + TIMES) + 8 * row)
    column = (leaf - FIELD) * load_i64(output + STRIDE)
    target = load_i64(output + VALUES) + 8 * (column + row)
    return _read_value(at, end, load_i64(plan + POWERS), target)
