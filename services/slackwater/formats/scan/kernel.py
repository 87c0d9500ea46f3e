"""Reads JSON messages into columns, if it can parse them with certainty.

A message is read in one pass, name by name. If the wanted names have the same order as in the
previous message, each is found by one comparison. A message is accepted only if it has been
validated completely; if anything is unusual (an escape in a name, a repeated name, a number of more
than 19 digits, ...), it is left to the definition.
"""

from __future__ import annotations

import numpy as np

from slackwater.formats.json_text import (
    MESSAGE_BYTES_MAX,
    NESTING_DEPTH_MAX,
    REGISTRY_HEADER_BYTES,
)
from slackwater.formats.scan.arrays import FULL, begin_columns, end_columns, read_column
from slackwater.formats.scan.compiled import entry, inner
from slackwater.formats.scan.grammar import UNSURE, after_blanks, string_end, value_end
from slackwater.formats.scan.keys import NO_ROOM, code_of
from slackwater.formats.scan.leaves import (
    CODES,
    COUNTS,
    KEY_AT,
    KEY_SIZE,
    NOT_FINITE,
    STATUS,
    STRIDE,
    VALUES,
    read_leaf,
    skip_blanks,
)
from slackwater.formats.scan.memory import (
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
from slackwater.formats.scan.plan import (
    FIELDS,
    FIRST,
    HAS_KEY,
    INNER,
    LEAF,
    MASK,
    NAMES,
    NEEDED,
    PARENT,
    PATH_MAX,
    STACK,
    STARTS,
    TEXT,
)

READ, LEFT = 0, 1
"""The status of a message: its columns hold a reading, or it is left to the definition."""
_QUOTE = ord('"')
_COMMA, _COLON, _OPEN, _CLOSE = ord(","), ord(":"), ord("{"), ord("}")


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
def _to_value(at: int, end: int) -> int:
    """Return the place of a member's value, given that of its name's closing quote."""
    at = skip_blanks(at + 1, end)
    if at >= end or load_u8(at) != _COLON:
        return UNSURE
    at = skip_blanks(at + 1, end)
    return at if at < end else UNSURE


@inner
def _to_name(at: int, end: int) -> int:
    """Return the place after the opening quote of a name."""
    at = skip_blanks(at, end)
    return at + 1 if at < end and load_u8(at) == _QUOTE else UNSURE


@inner
def _read_message(
    at: int, end: int, row: int, plan: int, keys: int, output: int, columns: bool
) -> int:
    """Read a message into its row, or with ``columns`` into rows from that one on.

    Return 0, ``UNSURE`` if the message is left to the definition, or ``FULL``.
    """
    stack, seen = load_i64(plan + STACK), U64(0)
    node, depth, expected = -1, 0, 0
    if at < end and load_u8(at) == 0:
        at += REGISTRY_HEADER_BYTES
    at = after_blanks(at, end)
    if at >= end or load_u8(at) != _OPEN:
        return UNSURE
    at = _to_name(at + 1, end)
    while at >= 0:
        name, close = _find_name(plan, node, expected, at, end)
        if close < 0:
            return UNSURE
        at = _to_value(close, end)
        if at < 0:
            return UNSURE
        leaf = INNER
        if name >= 0:
            bit = U64(1) << U64(name)
            if seen & bit:
                return UNSURE  # twice: malformed
            seen |= bit
            expected = name + 1
            leaf = load_i64(load_i64(plan + LEAF) + 8 * name)
        if leaf != INNER:
            if columns:
                at = read_column(at, end, leaf, row, plan, keys, output)
            else:
                at = read_leaf(at, end, leaf, row, plan, output)
        elif name >= 0 and load_u8(at) == _OPEN:
            store_i64(stack + 8 * depth, node)
            depth += 1
            node = name
            at = skip_blanks(at + 1, end)
            if at >= end or load_u8(at) != _CLOSE:
                at = _to_name(at, end)
                continue
        else:
            at = value_end(at, end, NESTING_DEPTH_MAX - 1 - depth)
        if at < 0:
            return at
        # After a value: another member, or the ends of objects.
        while True:
            at = skip_blanks(at, end)
            if at >= end:
                return UNSURE
            byte = load_u8(at)
            at += 1
            if byte == _COMMA:
                at = _to_name(at, end)
                break
            if byte != _CLOSE:
                return UNSURE
            if depth == 0:
                needed = load_u64(plan + NEEDED)
                is_complete = seen & needed == needed and after_blanks(at, end) == end
                return 0 if is_complete else UNSURE
            depth -= 1
            node = load_i64(stack + 8 * depth)
    return UNSURE


@entry("int64(int64, int64, int64, int64, int64, int64, int64)")
def scan(starts: int, ends: int, first: int, count: int, plan: int, keys: int, output: int) -> int:
    """Read the messages [first, count), each into its row.

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
        not_finite = load_i64(output + NOT_FINITE)
        if _read_message(at, end, row, plan, keys, output, False) < 0:
            store_i64(output + NOT_FINITE, not_finite)  # the definition counts those of this one
            continue
        code = 0
        if has_key:
            code = code_of(load_i64(output + KEY_AT), load_i64(output + KEY_SIZE), end, keys)
            if code == NO_ROOM:
                store_i64(output + NOT_FINITE, not_finite)
                return row
        store_i32(codes + 4 * row, I32(code))
        store_u8(status + row, U8(READ))
    return count


@entry("UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64, int64, int64)")
def scan_columns(
    starts: int, ends: int, first: int, count: int, row: int, plan: int, keys: int, output: int
) -> tuple[int, int]:
    """Read the messages [first, count) of columns, the first one into rows from ``row`` on.

    Return ``count``, or the number of the message with a key that does not fit, and the next row.
    Keys of a message that is left in the end have codes, too.
    """
    status, counts = load_i64(output + STATUS), load_i64(output + COUNTS)
    for message in range(first, count):
        at, end = load_i64(starts + 8 * message), load_i64(ends + 8 * message)
        store_u8(status + message, U8(LEFT))
        store_i64(counts + 8 * message, 0)
        if end - at > MESSAGE_BYTES_MAX:
            continue
        begin_columns(row, plan, output)
        not_finite = load_i64(output + NOT_FINITE)
        found = _read_message(at, end, row, plan, keys, output, True)
        if found == FULL:
            store_i64(output + NOT_FINITE, not_finite)
            return message, row
        rows = end_columns(row, plan, output) if found == 0 else UNSURE
        if rows < 0:
            store_i64(output + NOT_FINITE, not_finite)
            continue
        row += rows
        store_i64(counts + 8 * message, rows)
        store_u8(status + message, U8(READ))
    return count, row


@entry("int64(int64, int64, int64, int64)")
def rows_at_most(starts: int, ends: int, count: int, rows_max: int) -> int:
    """Return how many rows ``scan_columns`` writes at most: one more per message than commas."""
    rows = 0
    for message in range(count):
        at, end = load_i64(starts + 8 * message), load_i64(ends + 8 * message)
        if end - at > MESSAGE_BYTES_MAX:
            continue  # it is left, and no row is written
        of_message = 1
        for place in range(at, end):
            of_message += load_u8(place) == _COMMA
        rows += min(of_message, rows_max)
    return rows


assert PATH_MAX + 1 < NESTING_DEPTH_MAX
