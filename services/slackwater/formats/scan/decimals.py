"""The double nearest to a decimal: Clinger's fast path, then Eisel and Lemire's.

A decimal is ``digits * 10**exponent`` with at most 19 digits. Clinger: if the digits and the power
are exact doubles, one multiplication or division rounds once and is correct. Otherwise the digits
are multiplied by the power's leading 128 bits (D. Lemire, "Number parsing at a gigabyte per
second", 2021; N. Mushtak and D. Lemire, "Fast number parsing without fallback", 2023). Subnormal
and infinite results are left to the caller.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from slackwater.formats.scan.compiled import inner
from slackwater.formats.scan.memory import (
    I64,
    U64,
    double_of_bits,
    high_product,
    leading_zeros,
    load_u64,
)

EXPONENT_MIN: Final = -300
"""With a smaller exponent, a decimal of 19 digits may be subnormal."""
EXPONENT_MAX: Final = 308
_EXACT_MAX: Final = 2**53
_CLINGER_MAX: Final = 22
_POWERS: Final = np.array([float(10**i) for i in range(_CLINGER_MAX + 1)])
_HIDDEN_BIT: Final = 1 << 52


def _leading_bits(exponent: int) -> int:
    """Return the 128 leading bits of 5**exponent: truncated, rounded up for negative ones."""
    if exponent >= 0:
        power: int = 5**exponent
        over = power.bit_length() - 128
        return power >> over if over > 0 else power << -over
    power = 5**-exponent
    bits = (power - 1).bit_length()
    inverse: int = (1 << (bits + 127 if exponent >= -27 else 2 * bits + 128)) // power + 1
    return inverse >> max(0, inverse.bit_length() - 128)


def _table() -> Any:
    rows = [divmod(_leading_bits(q), 2**64) for q in range(EXPONENT_MIN, EXPONENT_MAX + 1)]
    return np.array(rows, np.uint64)


POWERS_OF_FIVE: Final = _table()
"""A row of two words, high and low, for each exponent from ``EXPONENT_MIN`` on."""


@inner
def double_of(digits: int, exponent: int, powers: int) -> tuple[bool, float]:
    """Return whether the double was found, and the double; ``powers``: the table's address."""
    if exponent == 0:
        return True, np.float64(digits)
    if digits <= U64(_EXACT_MAX):
        if 0 < exponent <= _CLINGER_MAX:
            return True, np.float64(digits) * _POWERS[exponent]
        if -_CLINGER_MAX <= exponent < 0:
            return True, np.float64(digits) / _POWERS[-exponent]
    if exponent < EXPONENT_MIN or exponent > EXPONENT_MAX:
        return False, 0.0
    return _rounded_product(digits, exponent, powers + 16 * (exponent - EXPONENT_MIN))


@inner
def _rounded_product(digits: int, exponent: int, power: int) -> tuple[bool, float]:
    zeros = leading_zeros(digits)
    word = digits << zeros
    upper = load_u64(power)
    high, low = high_product(word, upper), word * upper
    if (high & U64(0x1FF)) == U64(0x1FF):  # the lower half of the power may carry into the result
        carry = high_product(word, load_u64(power + 8))
        low += carry
        if carry > low:
            high += U64(1)
    top = high >> U64(63)
    shift = top + U64(9)
    mantissa = high >> shift
    # 217706 / 2**16 is the binary logarithm of 10.
    binary = ((217706 * exponent) >> 16) + 63 + I64(top) - I64(zeros) + 1023
    if binary <= 0:
        return False, 0.0
    is_half = low <= U64(1) and (mantissa & U64(3)) == U64(1) and (mantissa << shift) == high
    if is_half and -4 <= exponent <= 23:  # exactly between two doubles: to the even one
        mantissa &= ~U64(1)
    mantissa = (mantissa + (mantissa & U64(1))) >> U64(1)
    if mantissa >= U64(2 * _HIDDEN_BIT):
        mantissa = U64(_HIDDEN_BIT)
        binary += 1
    if binary >= 2047:
        return False, 0.0
    bits = (mantissa & ~U64(_HIDDEN_BIT)) | (U64(binary) << U64(52))
    return True, double_of_bits(bits)
