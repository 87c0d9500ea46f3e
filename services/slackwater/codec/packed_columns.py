"""Columns of doubles in few bits, without loss: for records that pass over a thin link.

Sensors send numbers of few decimal digits. As doubles these have 52 bits that look random, so a
general compressor finds little: gzip leaves 21 bytes of the average, minimum and maximum of a key.
Here a column is written as integers of equal width, in one of three forms, the smallest that gives
each double back bit for bit:

* *decimal*: the double nearest to k / 10**d, for one d of the column; and how many doubles further
  it is, since a sum of decimals is not always the nearest one to its value;
* *binary*: n * 2**e, for one e of the column: counts, and what rounding took from a sum, which has
  few bits;
* *raw*: eight bytes.

NaN is a bit of its own. The integers are differences from the least one, so an equal column takes
no bits. (Gorilla's XOR and FPC expect that neighbours are alike; the values here are of many
devices at one time.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slackwater.codec.avro_types import DamageError

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
RAW, DECIMAL, BINARY = range(3)
DIGITS_MAX: Final = 9
NUMBERS_MAX: Final = 2**22
"""Of all columns; a piece of a pane has fewer (``primitives.deltas.PIECE_CELLS``)."""
INTEGER_MAX: Final = 2**53
"""Up to here each integer is a double."""
_NAN: Final = int(np.array([np.nan]).view(np.int64)[0])
_SHAPE: Final = struct.Struct("<HI")
"""How many columns, of how many values."""
_HEAD: Final = struct.Struct("<BBh")
"""Form, whether some values are NaN, and d or e."""
_INTEGERS: Final = struct.Struct("<qB")
"""Of some integers the least one, and the width of the others' differences from it, in bits."""


def pack(columns: F64) -> bytes:
    """Return the columns, an array of shape (columns, values), packed."""
    shape = _SHAPE.pack(*columns.shape)
    return shape + b"".join(map(_pack_column, np.ascontiguousarray(columns, np.float64)))


def unpack(data: bytes) -> F64:
    """Return the columns, an array of shape (columns, values).

    Raises:
        DamageError: ``data`` is not what ``pack`` returns.
    """
    reader = _Reader(data)
    columns, values = reader.shape
    # A column of equal values takes no bits, so the data does not bound what is allocated.
    if columns * values > NUMBERS_MAX or columns * _HEAD.size > len(data):
        raise DamageError(f"{len(data)} bytes for {columns} columns of {values} values")
    found = [reader.column() for _ in range(columns)]
    if reader.at != len(data):
        raise DamageError(f"{len(data) - reader.at} bytes behind the columns")
    return np.array(found, np.float64).reshape(columns, values)


@dataclass(frozen=True, slots=True)
class _Form:
    """A column in a form: its exponent, its integers, and the form's size in bits a value."""

    form: int
    exponent: int
    integers: tuple[I64, ...]
    bits: int


def _pack_column(column: F64) -> bytes:
    is_nan = np.isnan(column)
    has_nan = bool(is_nan.any())
    numbers = column[~is_nan] if has_nan else column
    best = None
    if not has_nan or (column[is_nan].view(np.int64) == _NAN).all():
        best = _best(numbers)
    if best is None:
        return _HEAD.pack(RAW, 0, 0) + column.astype("<f8").tobytes()
    parts = [_HEAD.pack(best.form, has_nan, best.exponent)]
    if has_nan:
        parts.append(np.packbits(is_nan).tobytes())
    parts += [_pack_integers(of) for of in best.integers]
    return b"".join(parts)


def _best(numbers: F64) -> _Form | None:
    """Return the smallest form of some numbers that are not NaN; None if that is raw."""
    if not len(numbers):
        return _Form(BINARY, 0, (np.zeros(0, np.int64),), 0)
    if not np.isfinite(numbers).all():
        return None
    with np.errstate(over="ignore"):  # where a form has no room for a number it is not used
        made = [_binary(numbers), *(_decimal(numbers, of) for of in range(DIGITS_MAX + 1))]
    forms = [of for of in made if of is not None]
    smallest = min(forms, key=lambda of: of.bits, default=None)
    return smallest if smallest is not None and smallest.bits < 64 else None


def _decimal(numbers: F64, digits: int) -> _Form | None:
    scale = 10.0**digits
    if float(np.abs(numbers).max()) * scale >= INTEGER_MAX:
        return None
    scaled = np.rint(numbers * scale).astype(np.int64)
    further = numbers.view(np.int64) - (scaled / scale).view(np.int64)
    return _Form(DECIMAL, digits, (scaled, further), _width(scaled) + _width(further))


def _binary(numbers: F64) -> _Form | None:
    fractions, exponents = np.frexp(numbers)
    mantissas = np.ldexp(fractions, 53).astype(np.int64)
    lowest = np.frexp((mantissas & -mantissas).astype(np.float64))[1] - 1
    used = numbers != 0
    exponent = int((exponents - 53 + lowest)[used].min()) if used.any() else 0
    scaled = np.ldexp(numbers, -exponent)
    if not (np.abs(scaled) < INTEGER_MAX).all():
        return None
    integers = scaled.astype(np.int64)
    again = np.ldexp(integers.astype(np.float64), exponent)
    if (again.view(np.int64) != numbers.view(np.int64)).any():
        return None  # a negative zero
    return _Form(BINARY, exponent, (integers,), _width(integers))


def _width(integers: I64) -> int:
    return (int(integers.max()) - int(integers.min())).bit_length()


def _pack_integers(integers: I64) -> bytes:
    low = int(integers.min()) if len(integers) else 0
    width = _width(integers) if len(integers) else 0
    bits = np.unpackbits((integers - low).astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
    return _INTEGERS.pack(low, width) + np.packbits(bits[:, 64 - width :]).tobytes()


class _Reader:
    """Reads columns from bytes, which may be damaged."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0
        self.shape = self._fields(_SHAPE)
        self._values: int = self.shape[1]

    def column(self) -> F64:
        """Return the next column."""
        form, has_nan, exponent = self._fields(_HEAD)
        if form == RAW:
            return np.frombuffer(self._take(8 * self._values), "<f8").astype(np.float64)
        if form not in (DECIMAL, BINARY) or has_nan not in (0, 1):
            raise DamageError(f"a column of form {form}")
        is_nan, count = None, self._values
        if has_nan:
            is_nan = self._bits(count).astype(bool)
            count -= int(is_nan.sum())
        numbers = (
            self._decimal(count, exponent) if form == DECIMAL else self._binary(count, exponent)
        )
        if is_nan is None:
            return numbers
        column = np.full(self._values, np.nan)
        column[~is_nan] = numbers
        return column

    def _decimal(self, count: int, digits: int) -> F64:
        if not 0 <= digits <= DIGITS_MAX:
            raise DamageError(f"a column of {digits} digits")
        nearest = (self._integers(count) / 10.0**digits).view(np.int64)
        with np.errstate(over="ignore"):
            found: F64 = (nearest + self._integers(count)).view(np.float64)
        return found

    def _binary(self, count: int, exponent: int) -> F64:
        with np.errstate(over="ignore"):
            return np.ldexp(self._integers(count).astype(np.float64), exponent)

    def _integers(self, count: int) -> I64:
        low, width = self._fields(_INTEGERS)
        if width > 64:
            raise DamageError(f"integers of {width} bits")
        bits = np.zeros((count, 64), np.uint8)
        bits[:, 64 - width :] = self._bits(count * width).reshape(count, width)
        with np.errstate(over="ignore"):
            found: I64 = np.packbits(bits, axis=1).view(">u8").ravel().astype(np.int64) + low
        return found

    def _bits(self, count: int) -> npt.NDArray[np.uint8]:
        return np.unpackbits(np.frombuffer(self._take(-(-count // 8)), np.uint8), count=count)

    def _fields(self, of: struct.Struct) -> tuple[Any, ...]:
        return of.unpack(self._take(of.size))

    def _take(self, size: int) -> bytes:
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise DamageError(f"{len(found)} bytes of columns, not {size}")
        self.at += size
        return found
