"""The states of aggregates: what they count, and the numbers computed from them.

*First and last* keep one entry of each cell, whose id is the event time. Of equal times the entry
that comes first (last) in the order of the orderer counts: by stream, then by id. Children are runs
of streams and are merged in index order, so it is the order over all streams.

*Bins* are those of a quantile: 64 of equal width in each octave from 2^-30 to 2^30, for each sign
(logarithmic bins with linear interpolation, Masson, Rim and Lee, "DDSketch", VLDB 2019, section
2.2). The number of a bin is the top of the bits of a double, so no logarithm is computed, whose
last bit might depend on the library. The middle of a bin is at most 1/128 (0.8 %) off its values.
Smaller magnitudes count as 0, an error of at most 1e-9; of larger ones the number is not known.

*Registers* are those of HyperLogLog (Flajolet et al., 2007) with 2^12 registers and hashes of 64
bits; only those that are not 0 are entries. The estimate is Ertl's (arXiv:1702.01284, algorithm 6),
which needs no table against bias; it uses additions, products and roots only, each rounded in one
way. Its standard error is 1.04 / 64, 1.6 %.

*Largest* has the N largest values, each with how often it occurs.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from slackwater.primitives.states import F64, I64, Cells, State

_SUB_BITS: Final = 6
_SHIFT: Final = 52 - _SUB_BITS
_OCTAVE_MAX: Final = 30
_FIRST: Final = (1023 - _OCTAVE_MAX) << _SUB_BITS
"""The top bits of 2^-30, the lower edge of bin 1."""
BINS: Final = 2 * _OCTAVE_MAX << _SUB_BITS
"""Bins of one sign."""
_REGISTER_BITS: Final = 12
REGISTERS: Final = 1 << _REGISTER_BITS
_RANK_MAX: Final = 64 - _REGISTER_BITS + 1


def _timed(values: F64, stimes: I64) -> tuple[F64, F64]:
    # Exact for times within 2^53 us (285 years) of 1970.
    return stimes.astype(np.float64), values


def _binned(values: F64, _stimes: I64) -> tuple[F64, F64]:
    bins = (np.abs(values).view(np.int64) >> _SHIFT) - (_FIRST - 1)
    return np.copysign(np.clip(bins, 0, BINS + 1), values) + 0.0, np.ones(len(values))


def _hashed(values: F64, _stimes: I64) -> tuple[F64, F64]:
    """Register and rank of each value, by the finaliser of SplitMix64."""
    bits = values.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    register = bits >> np.uint64(64 - _REGISTER_BITS)
    rest = bits & np.uint64((1 << 64 - _REGISTER_BITS) - 1)
    # Below 2^53, where a double is exact: its exponent is the number of bits.
    rank = _RANK_MAX - np.frexp(rest.astype(np.float64))[1]
    return register.astype(np.float64), rank.astype(np.float64)


def _valued(values: F64, _stimes: I64) -> tuple[F64, F64]:
    return values, np.ones(len(values))


FIRST: Final = State("first", _timed, "EARLIER", 1, keeps=-1)
LAST: Final = State("last", _timed, "LATER", 1, keeps=1)
QUANTILES: Final = State("bins", _binned, "ADD", 2 * (BINS + 1) + 1)
DISTINCT: Final = State("registers", _hashed, "MAX", REGISTERS)


@cache
def largest(count: int) -> State:
    """Return the state of the ``count`` largest values."""
    return State("largest", _valued, "ADD", count, keeps=count)


def quantile(cells: Cells, numerator: int, denominator: int) -> F64:
    """Return a quantile of each cell, shape (fields, rows): the middle of the bin that has it.

    It is the smallest value that has at least this share of the values at or below it. NaN without
    values, and where its magnitude is 2^30 or more.
    """
    ranks = -(-cells.totals() * numerator // denominator)
    ids = cells.at_rank(ranks)
    bins = np.abs(np.nan_to_num(ids)).astype(np.int64)
    low = ((bins + (_FIRST - 1)) << _SHIFT).view(np.float64)
    high = ((bins + _FIRST) << _SHIFT).view(np.float64)
    middle = np.where(bins == 0, 0.0, np.copysign((low + high) / 2.0, ids))
    unknown: F64 = np.where(np.isnan(ids) | (bins > BINS), np.nan, middle)
    return unknown


def nth_largest(cells: Cells, n: int) -> F64:
    """Return the n-th largest value of each cell, shape (fields, rows); NaN if there are fewer."""
    return cells.at_rank(cells.totals() - (n - 1))


def estimate(cells: Cells) -> F64:
    """Return the estimated number of distinct values of each cell, a whole number."""
    rows = np.repeat(np.arange(len(cells.lengths)), cells.lengths)
    counts = np.zeros((_RANK_MAX + 1, len(cells.lengths)))
    np.add.at(counts, (cells.weights.astype(np.int64), rows), 1.0)
    counts[0] = REGISTERS - cells.lengths
    # Without the term for registers at the largest rank, which needs 2^50 different values.
    z = 0.5 * counts[_RANK_MAX]
    for of_rank in counts[_RANK_MAX - 1 : 0 : -1]:
        z = 0.5 * (z + of_rank)
    with np.errstate(divide="ignore", over="ignore"):
        z += REGISTERS * _sigma(counts[0] / REGISTERS)
        found = np.rint(REGISTERS * (REGISTERS / (_TWO_LN_2 * z)))
    return cells.shaped(found)


_TWO_LN_2: Final = 1.3862943611198906


def _sigma(x: F64) -> F64:
    """Return the sum of x^(2^k) 2^(k-1) over k >= 0, plus x / 2; infinite for 1."""
    y, z = 1.0, x.copy()
    while True:
        x = x * x
        z = z + x * y
        y += y
        if y > REGISTERS * REGISTERS:
            # Then all powers of what is below 1 are below 2^-5000.
            infinite: F64 = np.where(x == 1.0, np.inf, z)
            return infinite
