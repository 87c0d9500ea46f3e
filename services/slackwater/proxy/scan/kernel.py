"""Reads JSON messages into columns, if it can parse them with certainty.

A message is read in one pass, name by name. If the wanted names have the same order as in the
previous message, each is found by one comparison. A message is accepted only if it has been
validated completely; if anything is unusual (an escape in a name, a repeated name, a number of more
than 19 digits, ...), it is left to the definition.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from slackwater.model.deployment import KEY_CHARS_MAX
from slackwater.proxy.json_text import MESSAGE_BYTES_MAX, NESTING_DEPTH_MAX
from slackwater.proxy.scan.compiled import entry, inner
from slackwater.proxy.scan.decimals import double_of
from slackwater.proxy.scan.grammar import (
    UNSURE,
    after_blanks,
    number_end,
    string_end,
    value_end,
    word_end,
)
from slackwater.proxy.scan.keys import NO_ROOM, code_of
from slackwater.proxy.scan.memory import (
    I32,
    U8,
    U64,
    load_i64,
    load_u8,
    load_u64,
    store_f64,
    store_i32,
    store_i64,
    store_u8,
)
from slackwater.proxy.scan.plan import (
    FIELD,
    FIELDS,
    FIRST,
    HAS_KEY,
    INNER,
    ISO,
    KEY,
    LEAF,
    MASK,
    NAMES,
    NEEDED,
    PARENT,
    PATH_MAX,
    POWERS,
    STACK,
    STARTS,
    TEXT,
    TIME,
    UNIT,
)
from slackwater.proxy.scan.times import iso_us, unix_us

READ, LEFT = 0, 1
"""The status of a message: its columns hold a reading, or it is left to the definition."""
# Of the output, in words of eight bytes: addresses of columns, rows between columns of values, and
# the place and size of the key of the message being read.
STATUS, TIMES, CODES, VALUES, STRIDE, KEY_AT, KEY_SIZE = range(0, 56, 8)
OUTPUT_WORDS: Final = 7
_QUOTE, _BLANK, _SMALL_N, _SMALL_E = ord('"'), ord(" "), ord("n"), ord("e")
_COMMA, _COLON, _OPEN, _CLOSE = ord(","), ord(":"), ord("{"), ord("}")


@inner
def _skip_blanks(at: int, end: int) -> int:
    """Return the place of the next byte that is not a blank; usually the first."""
    return after_blanks(at, end) if at < end and load_u8(at) <= _BLANK else at


@inner
def _is_name(plan: int, name: int, at: int, end: int) -> bool:
    """Return whether the wanted name and a quote are at ``at``."""
    start = load_i64(load_i64(plan + STARTS) + 8 * name)
    size = load_i64(load_i64(plan + STARTS) + 8 * name + 8) - start
    if at + 8 <= end:
        first = load_u64(load_i64(plan + FIRST) + 8 * name)
        if load_u64(at) & load_u64(load_i64(plan + MASK) + 8 * name) != first:
            return False
        if size < 8:
            return True
    if at + size >= end or load_u8(at + size) != _QUOTE:
        return False
    text = load_i64(plan + TEXT) + start
    for i in range(size):
        if load_u8(text + i) != load_u8(at + i):
            return False
    return True


@inner
def _find_name(plan: int, node: int, expected: int, at: int, end: int) -> tuple[int, int]:
    """Return the number of the wanted name at ``at``, -1 for another, and its closing quote.

    The place is ``UNSURE`` if the name is not valid or has escapes.
    """
    names, parents = load_i64(plan + NAMES), load_i64(plan + PARENT)
    starts = load_i64(plan + STARTS)
    if (
        expected < names
        and load_i64(parents + 8 * expected) == node
        and _is_name(plan, expected, at, end)
    ):
        return expected, at + load_i64(starts + 8 * expected + 8) - load_i64(starts + 8 * expected)
    close, has_escapes = string_end(at, end)
    if close < 0 or has_escapes:
        return -1, UNSURE
    for name in range(names):
        if load_i64(parents + 8 * name) == node and _is_name(plan, name, at, end):
            return name, close
    return -1, close


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
def _read_leaf(at: int, end: int, leaf: int, row: int, plan: int, output: int) -> int:
    if leaf == KEY:
        return _read_key(at, end, output)
    if leaf == TIME:
        return _read_time(at, end, load_i64(plan + UNIT), load_i64(output + TIMES) + 8 * row)
    column = (leaf - FIELD) * load_i64(output + STRIDE)
    target = load_i64(output + VALUES) + 8 * (column + row)
    return _read_value(at, end, load_i64(plan + POWERS), target)


@inner
def _to_value(at: int, end: int) -> int:
    """Return the place of a member's value, given that of its name's closing quote."""
    at = _skip_blanks(at + 1, end)
    if at >= end or load_u8(at) != _COLON:
        return UNSURE
    at = _skip_blanks(at + 1, end)
    return at if at < end else UNSURE


@inner
def _to_name(at: int, end: int) -> int:
    """Return the place after the opening quote of a name."""
    at = _skip_blanks(at, end)
    return at + 1 if at < end and load_u8(at) == _QUOTE else UNSURE


@inner
def _read_message(at: int, end: int, row: int, plan: int, output: int) -> bool:
    """Read a message into its row; return False if it is left to the definition."""
    stack, seen = load_i64(plan + STACK), U64(0)
    node, depth, expected = -1, 0, 0
    at = after_blanks(at, end)
    if at >= end or load_u8(at) != _OPEN:
        return False
    at = _to_name(at + 1, end)
    while at >= 0:
        name, close = _find_name(plan, node, expected, at, end)
        if close < 0:
            return False
        at = _to_value(close, end)
        if at < 0:
            return False
        leaf = INNER
        if name >= 0:
            bit = U64(1) << U64(name)
            if seen & bit:
                return False  # twice: the last one counts
            seen |= bit
            expected = name + 1
            leaf = load_i64(load_i64(plan + LEAF) + 8 * name)
        if leaf != INNER:
            at = _read_leaf(at, end, leaf, row, plan, output)
        elif name >= 0 and load_u8(at) == _OPEN:
            store_i64(stack + 8 * depth, node)
            depth += 1
            node = name
            at = _skip_blanks(at + 1, end)
            if at >= end or load_u8(at) != _CLOSE:
                at = _to_name(at, end)
                continue
        else:
            at = value_end(at, end, NESTING_DEPTH_MAX - 1 - depth)
        if at < 0:
            return False
        # After a value: another member, or the ends of objects.
        while True:
            at = _skip_blanks(at, end)
            if at >= end:
                return False
            byte = load_u8(at)
            at += 1
            if byte == _COMMA:
                at = _to_name(at, end)
                break
            if byte != _CLOSE:
                return False
            if depth == 0:
                needed = load_u64(plan + NEEDED)
                return seen & needed == needed and after_blanks(at, end) == end
            depth -= 1
            node = load_i64(stack + 8 * depth)
    return False


@entry("int64(int64, int64, int64, int64, int64, int64, int64)")
def scan(starts: int, ends: int, first: int, count: int, plan: int, keys: int, output: int) -> int:
    """Read the messages [first, count) into their rows.

    ``starts`` and ``ends`` are addresses of columns of addresses. Return ``count``, or the number
    of the message whose key does not fit.
    """
    fields, stride = load_i64(plan + FIELDS), load_i64(output + STRIDE)
    has_key = load_i64(plan + HAS_KEY) != 0
    values, codes = load_i64(output + VALUES), load_i64(output + CODES)
    status = load_i64(output + STATUS)
    for row in range(first, count):
        at, end = load_i64(starts + 8 * row), load_i64(ends + 8 * row)
        store_u8(status + row, U8(LEFT))
        if end - at > MESSAGE_BYTES_MAX:
            continue
        for field in range(fields):
            store_f64(values + 8 * (field * stride + row), np.nan)
        if not _read_message(at, end, row, plan, output):
            continue
        code = 0
        if has_key:
            code = code_of(load_i64(output + KEY_AT), load_i64(output + KEY_SIZE), end, keys)
            if code == NO_ROOM:
                return row
        store_i32(codes + 4 * row, I32(code))
        store_u8(status + row, U8(READ))
    return count


assert PATH_MAX < NESTING_DEPTH_MAX
