"""The grammar of JSON as accepted by Python's ``json``: finds the ends of values.

A function takes the address of a byte and that of the message's end, and returns the address after
the bytes that it has read, or ``UNSURE`` if the message is not JSON or is unusual, so that the
definition must decide. No function reads a byte at or beyond the end.
"""

from __future__ import annotations

from typing import Final

from slackwater.formats.columns import NUMBER_CHARS_MAX
from slackwater.formats.scan.compiled import inner, outlined
from slackwater.formats.scan.memory import (
    I64,
    U8,
    U64,
    load_u8,
    load_u64,
    trailing_zeros,
)

UNSURE: Final = -1
DIGITS_MAX: Final = 19
"""Maximum digits of a number's mantissa; this many fit into a word."""
_EXPONENT_DIGITS_MAX: Final = 6
_LOW_BITS: Final = 0x0101010101010101
_HIGH_BITS: Final = 0x8080808080808080
_QUOTE, _BACKSLASH, _BLANK = ord('"'), ord("\\"), ord(" ")
_COMMA, _COLON, _POINT, _MINUS, _PLUS = ord(","), ord(":"), ord("."), ord("-"), ord("+")
_OPEN_OBJECT, _CLOSE_OBJECT = ord("{"), ord("}")
_OPEN_ARRAY, _CLOSE_ARRAY = ord("["), ord("]")
_ZERO, _NINE, _SMALL_E, _CAPITAL_E = ord("0"), ord("9"), ord("e"), ord("E")


@inner
def after_blanks(at: int, end: int) -> int:
    """Return the place of the next byte that is not a blank, or the end."""
    while at < end:
        byte = load_u8(at)
        if byte > _BLANK or not (byte == _BLANK or byte == 10 or byte == 13 or byte == 9):
            break
        at += 1
    return at


@inner
def string_end(at: int, end: int) -> tuple[int, bool]:
    """Return the place of the closing quote of a string, and whether the string has escapes.

    ``at`` is the place after the opening quote.
    """
    while at < end:
        if at + 8 <= end:
            # Of eight bytes: which is a quote, a backslash, a control character, beyond ASCII?
            word = load_u64(at)
            quotes = word ^ U64(_QUOTE * _LOW_BITS)
            backslashes = word ^ U64(_BACKSLASH * _LOW_BITS)
            found = (quotes - U64(_LOW_BITS)) & ~quotes
            found |= (backslashes - U64(_LOW_BITS)) & ~backslashes
            found |= (word - U64(_BLANK * _LOW_BITS)) | word
            found &= U64(_HIGH_BITS)
            if found == U64(0):
                at += 8
                continue
            at += I64(trailing_zeros(found) >> U64(3))
        byte = load_u8(at)
        if byte == _QUOTE:
            return at, False
        if byte == _BACKSLASH:
            return _escaped_end(at, end), True
        at = _after_character(at, end)
        if at < 0:
            return UNSURE, False
    return UNSURE, False


@outlined
def _escaped_end(at: int, end: int) -> int:
    while at < end:
        byte = load_u8(at)
        if byte == _QUOTE:
            return at
        at = _after_escape(at, end) if byte == _BACKSLASH else _after_character(at, end)
        if at < 0:
            return UNSURE
    return UNSURE


@inner
def _after_escape(at: int, end: int) -> int:
    if at + 1 >= end:
        return UNSURE
    byte = load_u8(at + 1)
    if byte == ord("u"):
        if at + 5 >= end:
            return UNSURE
        for place in range(at + 2, at + 6):
            digit = load_u8(place)
            is_letter = ord("a") <= (digit | U8(0x20)) <= ord("f")
            if not (_ZERO <= digit <= _NINE or is_letter):
                return UNSURE
        return at + 6
    if byte == _QUOTE or byte == _BACKSLASH or byte == ord("/") or byte == ord("b"):
        return at + 2
    if byte == ord("f") or byte == ord("n") or byte == ord("r") or byte == ord("t"):
        return at + 2
    return UNSURE


@outlined
def _after_character(at: int, end: int) -> int:
    """Return the place after one character of a string: valid UTF-8, not a control character."""
    first = load_u8(at)
    if first < 0x80:
        return at + 1 if first >= _BLANK else UNSURE
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    if first < 0xC2 or first > 0xF4 or at + more >= end:
        return UNSURE
    second = load_u8(at + 1)
    for place in range(at + 1, at + 1 + more):
        if load_u8(place) & U8(0xC0) != 0x80:
            return UNSURE
    # Overlong, a surrogate, or beyond the last character.
    if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
        return UNSURE
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return UNSURE
    return at + 1 + more


@inner
def digits_end(at: int, end: int, value: int) -> tuple[int, int]:
    """Return the place after a run of digits, and ``value`` with the digits appended."""
    while at + 8 <= end:
        word = load_u64(at)
        sixes = (word + U64(6 * _LOW_BITS)) & U64(0xF0F0F0F0F0F0F0F0)
        if (word & U64(0xF0F0F0F0F0F0F0F0)) | (sixes >> U64(4)) != U64(0x3333333333333333):
            break  # not eight digits
        word -= U64(_ZERO * _LOW_BITS)
        word = word * U64(10) + (word >> U64(8))
        low = (word & U64(0x000000FF000000FF)) * U64(0x000F424000000064)
        high = ((word >> U64(16)) & U64(0x000000FF000000FF)) * U64(0x0000271000000001)
        value = value * U64(100_000_000) + (((low + high) >> U64(32)) & U64(0xFFFFFFFF))
        at += 8
    while at < end:
        digit = load_u8(at) - U8(_ZERO)
        if digit > 9:
            break
        value = value * U64(10) + U64(digit)
        at += 1
    return at, value


@inner
def number_end(at: int, end: int) -> tuple[int, bool, int, int, bool, bool]:
    """Return the place after a number, and its parts.

    The parts are: whether it has a minus, its digits as a word, the exponent of 10 by which the
    digits must be multiplied, whether an exponent is written, whether the digits fit the word.
    """
    start = at
    negative = at < end and load_u8(at) == _MINUS
    at += negative
    first = at
    at, value = digits_end(at, end, U64(0))
    count, exponent, has_exponent = at - first, 0, False
    if count == 0 or (count > 1 and load_u8(first) == _ZERO):
        return UNSURE, negative, U64(0), 0, False, False
    if at < end and load_u8(at) == _POINT:
        at += 1
        first = at
        if count == 1 and value == U64(0):
            count = 0  # zeros before the first digit do not count
            while at < end and load_u8(at) == _ZERO:
                at += 1
        counted = at
        at, value = digits_end(at, end, value)
        if at == first:
            return UNSURE, negative, U64(0), 0, False, False
        count += at - counted
        exponent = first - at
    if at < end and load_u8(at) | U8(0x20) == _SMALL_E:
        has_exponent = True
        at, written = _exponent_end(at + 1, end)
        exponent += written
    if at < 0 or at - start > NUMBER_CHARS_MAX:
        return UNSURE, negative, U64(0), 0, False, False
    return at, negative, value, exponent, has_exponent, count <= DIGITS_MAX


@inner
def _exponent_end(at: int, end: int) -> tuple[int, int]:
    negative = False
    if at < end and (load_u8(at) == _PLUS or load_u8(at) == _MINUS):
        negative = load_u8(at) == _MINUS
        at += 1
    first = at
    at, value = digits_end(at, end, U64(0))
    if at == first or at - first > _EXPONENT_DIGITS_MAX:
        return UNSURE, 0
    written = I64(value)
    return at, -written if negative else written


@outlined
def word_end(at: int, end: int) -> int:
    """Return the place after ``true``, ``false`` or ``null``."""
    if end - at < 4:
        return UNSURE
    a, b, c, d = load_u8(at), load_u8(at + 1), load_u8(at + 2), load_u8(at + 3)
    if a == ord("t") and b == ord("r") and c == ord("u") and d == ord("e"):
        return at + 4
    if a == ord("n") and b == ord("u") and c == ord("l") and d == ord("l"):
        return at + 4
    if a == ord("f") and b == ord("a") and c == ord("l") and d == ord("s") and end - at > 4:
        return at + 5 if load_u8(at + 4) == ord("e") else UNSURE
    return UNSURE


@outlined
def constant_end(at: int, end: int) -> int:
    """Return the place after ``nan``, ``inf`` or ``infinity``, in letters of any case.

    A minus may be before it. The next byte is the caller's to check.
    """
    if at < end and load_u8(at) == _MINUS:
        at += 1
    if end - at < 3:
        return UNSURE
    a, b, c = _small(at), _small(at + 1), _small(at + 2)
    if a == ord("n") and b == ord("a") and c == ord("n"):
        return at + 3
    if a != ord("i") or b != ord("n") or c != ord("f"):
        return UNSURE
    at += 3
    if end - at < 5:
        return at
    d, e, f = _small(at), _small(at + 1), _small(at + 2)
    is_long = d == ord("i") and e == ord("n") and f == ord("i")
    is_long = is_long and _small(at + 3) == ord("t") and _small(at + 4) == ord("y")
    return at + 5 if is_long else at


@inner
def _small(at: int) -> int:
    """Return the byte as a small letter, if it is a letter."""
    return load_u8(at) | U8(0x20)


@inner
def _after_name(at: int, end: int) -> int:
    """Return the place after a member's name and its colon."""
    if at >= end or load_u8(at) != _QUOTE:
        return UNSURE
    at, _ = string_end(at + 1, end)
    if at < 0:
        return UNSURE
    at = after_blanks(at + 1, end)
    return at + 1 if at < end and load_u8(at) == _COLON else UNSURE


@inner
def _scalar_end(at: int, end: int) -> int:
    byte = load_u8(at)
    if byte == _QUOTE:
        at, _ = string_end(at + 1, end)
        return at + 1 if at >= 0 else UNSURE
    if byte == _MINUS or _ZERO <= byte <= _NINE:
        after = number_end(at, end)[0]
    else:
        after = word_end(at, end)
    return after if after >= 0 else constant_end(at, end)


@outlined
def value_end(at: int, end: int, depth_max: int) -> int:
    """Return the place after any value nested at most ``depth_max`` deep; a scalar has depth 0."""
    depth = 0
    kinds = U64(0)  # a bit for each level, the innermost last: 1 is an object
    while True:
        at = after_blanks(at, end)
        if at >= end:
            return UNSURE
        byte = load_u8(at)
        if byte == _OPEN_OBJECT or byte == _OPEN_ARRAY:
            if depth >= depth_max:
                return UNSURE
            is_object = byte == _OPEN_OBJECT
            depth += 1
            kinds = (kinds << U64(1)) | U64(is_object)
            at = after_blanks(at + 1, end)
            if at >= end or load_u8(at) != (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY):
                if is_object:
                    at = _after_name(at, end)
                    if at < 0:
                        return UNSURE
                continue  # to the first value in it
        else:
            at = _scalar_end(at, end)
            if at < 0:
                return UNSURE
        at, depth, kinds = _after_value(at, end, depth, kinds)
        if at < 0 or depth == 0:
            return at


@inner
def _after_value(at: int, end: int, depth: int, kinds: int) -> tuple[int, int, int]:
    """Close the levels that end here; return the place of the next value, or after all values."""
    while depth:
        at = after_blanks(at, end)
        if at >= end:
            return UNSURE, 0, kinds
        byte = load_u8(at)
        is_object = kinds & U64(1) == U64(1)
        at += 1
        if byte == _COMMA:
            if is_object:
                at = _after_name(after_blanks(at, end), end)
            return at, depth, kinds
        if byte != (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY):
            return UNSURE, 0, kinds
        depth -= 1
        kinds >>= U64(1)
    return at, 0, kinds
