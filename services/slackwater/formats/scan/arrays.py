"""Reads the arrays of a message of columns, ``{"ts": [1, 2], "sensor": "a", "value": [1, null]}``.

The values of an array are stored in consecutive rows from the message's first row on. Whatever is
not an array is stored in the first row, and is copied to the others at the end of the message, when
their number is known.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from slackwater.formats.scan.compiled import inner
from slackwater.formats.scan.grammar import UNSURE
from slackwater.formats.scan.keys import NO_ROOM, code_of
from slackwater.formats.scan.leaves import (
    CODES,
    KEY_AT,
    KEY_SIZE,
    NOT_FINITE,
    SIZE_MAX,
    SIZES,
    STRIDE,
    TIMES,
    VALUES,
    read_leaf,
    skip_blanks,
)
from slackwater.formats.scan.memory import (
    I32,
    load_f64,
    load_i32,
    load_i64,
    load_u8,
    store_f64,
    store_i32,
    store_i64,
)
from slackwater.formats.scan.plan import FIELD, FIELDS, KEY, TIME

FULL: Final = -2
"""In place of an address: a key does not fit."""
SINGLE: Final = -1
"""In place of an array's size: the value is not an array."""
_COMMA, _OPEN, _CLOSE = ord(","), ord("["), ord("]")


@inner
def begin_columns(row: int, plan: int, output: int) -> None:
    """Prepare the first row of a message: no array, no values."""
    sizes, fields = load_i64(output + SIZES), load_i64(plan + FIELDS)
    for leaf in range(FIELD + fields):
        store_i64(sizes + 8 * leaf, SINGLE)
    for field in range(fields):
        store_f64(_value(field, row, output), np.nan)
    store_i32(load_i64(output + CODES) + 4 * row, I32(0))


@inner
def read_column(at: int, end: int, leaf: int, row: int, plan: int, keys: int, output: int) -> int:
    """Read the value of a wanted name: an array, or a value for all rows.

    Return the address after it, ``UNSURE`` or ``FULL``.
    """
    if load_u8(at) != _OPEN:
        not_finite = load_i64(output + NOT_FINITE)
        after = _read_one(at, end, leaf, row, plan, keys, output)
        # NaN of all rows counts once for each: the definition counts.
        return after if load_i64(output + NOT_FINITE) == not_finite else UNSURE
    size, size_max = 0, load_i64(output + SIZE_MAX)
    at = skip_blanks(at + 1, end)
    if at < end and load_u8(at) == _CLOSE:
        store_i64(load_i64(output + SIZES) + 8 * leaf, 0)
        return at + 1
    while at < end and size < size_max:
        if leaf >= FIELD:
            store_f64(_value(leaf - FIELD, row + size, output), np.nan)
        at = _read_one(at, end, leaf, row + size, plan, keys, output)
        if at < 0:
            return at
        size += 1
        at = skip_blanks(at, end)
        if at >= end:
            return UNSURE
        byte = load_u8(at)
        if byte == _CLOSE:
            store_i64(load_i64(output + SIZES) + 8 * leaf, size)
            return at + 1
        if byte != _COMMA:
            return UNSURE
        at = skip_blanks(at + 1, end)
    return UNSURE


@inner
def _read_one(at: int, end: int, leaf: int, row: int, plan: int, keys: int, output: int) -> int:
    at = read_leaf(at, end, leaf, row, plan, output)
    if leaf == KEY and at >= 0:
        code = code_of(load_i64(output + KEY_AT), load_i64(output + KEY_SIZE), end, keys)
        if code == NO_ROOM:
            return FULL
        store_i32(load_i64(output + CODES) + 4 * row, I32(code))
    return at


@inner
def end_columns(row: int, plan: int, output: int) -> int:
    """Copy single values to all rows; return the number of rows, -1 if arrays do not define it."""
    sizes, fields = load_i64(output + SIZES), load_i64(plan + FIELDS)
    rows = SINGLE
    for leaf in range(FIELD + fields):
        size = load_i64(sizes + 8 * leaf)
        if size != SINGLE:
            if rows != SINGLE and rows != size:
                return SINGLE
            rows = size
    codes, times = load_i64(output + CODES), load_i64(output + TIMES)
    if load_i64(sizes + 8 * KEY) == SINGLE:
        code = load_i32(codes + 4 * row)
        for more in range(row + 1, row + rows):
            store_i32(codes + 4 * more, code)
    if load_i64(sizes + 8 * TIME) == SINGLE:
        time = load_i64(times + 8 * row)
        for more in range(row + 1, row + rows):
            store_i64(times + 8 * more, time)
    for field in range(fields):
        if load_i64(sizes + 8 * (FIELD + field)) == SINGLE:
            value = load_f64(_value(field, row, output))
            for more in range(row + 1, row + rows):
                store_f64(_value(field, more, output), value)
    return rows


@inner
def _value(field: int, row: int, output: int) -> int:
    """Return the address of a number."""
    return load_i64(output + VALUES) + 8 * (field * load_i64(output + STRIDE) + row)
