"""Reads one value that a stream wants, a key, a time or a number, into its column.

``output`` describes the columns. The value of a row of a column is at the column's address plus the
size of a value for each row.
"""

from __future__ import annotations

from typing import Final

from slackwater.formats.scan.compiled import inner, outlined
from slackwater.formats.scan.decimals import double_of
from slackwater.formats.scan.grammar import (
    UNSURE,
    after_blanks,
    constant_end,
    number_end,
    string_end,
    word_end,
)
from slackwater.formats.scan.memory import (
    U8,
    U64,
    load_f64,
    load_i64,
    load_u8,
    store_f64,
    store_i64,
)
from slackwater.formats.scan.plan import (
    BOOLEANS,
    FALSE_IS,
    FIELD,
    ISO,
    KEY,
    POWERS,
    TIME,
    TRUE_IS,
    UNIT,
)
from slackwater.formats.scan.times import iso_us, unix_us
from slackwater.model.limits import KEY_CHARS_MAX

# Of the output, in words of eight bytes: addresses of columns, rows between columns of values, and
# the place and size of the key that was read last.
STATUS, TIMES, CODES, VALUES, STRIDE, KEY_AT, KEY_SIZE = range(0, 56, 8)
# Of the output of messages of columns: the address of a word per leaf, the number of values of its
# array; the maximum of such numbers; and the address of the column of readings per message.
SIZES, SIZE_MAX, COUNTS = range(56, 80, 8)
# Of both: the number of values of NaN or Infinity.
NOT_FINITE: Final = 80
OUTPUT_WORDS: Final = 11
_QUOTE, _BLANK, _SMALL_N = ord('"'), ord(" "), ord("n")


@inner
def skip_blanks(at: int, end: int) -> int:
    """Return the place of the next byte that is not a blank; usually the first."""
    return after_blanks(at, end) if at < end and load_u8(at) <= _BLANK else at


@inner
def _has_blanks(first: int, close: int) -> bool:
    """Return whether a key of valid UTF-8 begins or ends with a blank, which is cut off."""
    # Bytes from 0x21 to 0x7F are no blanks; most keys begin and end with them.
    a, b = load_u8(first) - U8(0x21), load_u8(close - 1) - U8(0x21)
    return (a > 0x5E or b > 0x5E) and _has_odd_blanks(first, close)


@outlined
def _has_odd_blanks(first: int, close: int) -> bool:
    if load_u8(first) <= _BLANK or load_u8(close - 1) <= _BLANK:
        return True
    return _is_wide_blank(first) or _ends_with_wide_blank(first, close)


@outlined
def _ends_with_wide_blank(first: int, close: int) -> bool:
    """Return whether the last character, of two or three bytes, is a blank."""
    if close - 2 >= first and load_u8(close - 2) >= 0xC0:
        return _is_wide_blank(close - 2)
    return close - 3 >= first and _is_wide_blank(close - 3)


@outlined
def _is_wide_blank(at: int) -> bool:
    """Return whether a blank beyond ASCII begins at a byte: those of ``str.isspace``."""
    byte = load_u8(at)
    if byte == 0xC2:  # next line, no-break space
        return load_u8(at + 1) == 0x85 or load_u8(at + 1) == 0xA0
    if byte == 0xE1:  # Ogham space
        return load_u8(at + 1) == 0x9A and load_u8(at + 2) == 0x80
    if byte == 0xE2 and load_u8(at + 1) == 0x80:  # quads to hair space, separators, narrow space
        last = load_u8(at + 2)
        return last <= 0x8A or last == 0xA8 or last == 0xA9 or last == 0xAF
    if byte == 0xE2:  # mathematical space
        return load_u8(at + 1) == 0x81 and load_u8(at + 2) == 0x9F
    return byte == 0xE3 and load_u8(at + 1) == 0x80 and load_u8(at + 2) == 0x80  # ideographic


@inner
def _read_key(at: int, end: int, output: int) -> int:
    """Read a key, a string or a whole number; store its place and size."""
    if load_u8(at) == _QUOTE:
        first = at + 1
        close, has_escapes = string_end(first, end)
        if close < 0 or has_escapes or close == first or close - first > KEY_CHARS_MAX:
            return UNSURE
        if _has_blanks(first, close):
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


@outlined
def _read_boolean(at: int, end: int, plan: int, target: int) -> int:
    """Read ``true`` or ``false`` as the number that is declared for it."""
    close = word_end(at, end)
    is_true = load_u8(at) == ord("t")
    declared = load_i64(plan + BOOLEANS) & (1 if is_true else 2)
    if close < 0 or declared == 0:
        return UNSURE
    store_f64(target, load_f64(plan + (TRUE_IS if is_true else FALSE_IS)))
    return close


@inner
def _read_value(at: int, end: int, plan: int, target: int, not_finite: int) -> int:
    """Read a number, also in quotes, or null, for which ``target`` already contains NaN.

    NaN and Infinity are missing too, and are counted at the address ``not_finite``. Booleans are
    numbers if the stream declares so.
    """
    if load_u8(at) == _SMALL_N:
        close = word_end(at, end)
        if close >= 0:
            return close
    quoted = load_u8(at) == _QUOTE
    close, negative, digits, exponent, _, fits = number_end(at + quoted, end)
    if close < 0 and not quoted:
        close = constant_end(at, end)
        if close >= 0:
            store_i64(not_finite, load_i64(not_finite) + 1)
            return close
        return _read_boolean(at, end, plan, target)
    if close < 0 or not fits:
        return UNSURE
    if quoted and (close >= end or load_u8(close) != _QUOTE):
        return UNSURE
    value = 0.0
    if digits != U64(0):
        is_double, value = double_of(digits, exponent, load_i64(plan + POWERS))
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
    return _read_value(at, end, plan, target, output + NOT_FINITE)
