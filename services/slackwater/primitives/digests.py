"""Digests of panes: a number that two copies compare in place of the panes themselves.

Two copies of a part that have read the same deltas hold the same panes, bit for bit (rule-21). The
numbers of their keys differ, and with them the order of rows. So each row is mixed to 64 bits with
the hash of its key's text, and the rows are added up modulo 2**64. Equal panes have equal digests;
unequal ones have different digests but for one case in 2**64, if nobody chooses the values. The
digest finds faults of memory and of programs, not attacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
Column = npt.NDArray[np.float64] | npt.NDArray[np.int64]

NO_DIGEST: Final = 0
"""In a state record: of nothing, or of panes that copies may hold in different versions."""
DIGEST_MASK: Final = (1 << 64) - 1
_MULTIPLIER_1, _MULTIPLIER_2, _STEP = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15
"""The constants of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
2014)."""


def digest_of(key_hashes: U64, columns: Sequence[Column]) -> int:
    """Return the digest of rows, from 0 to 2**64 - 1; 0 without rows.

    ``key_hashes``, shape (n,), has the hash of each row's key, and each column a number for each
    row. All NaN are one value, and both zeros are.
    """
    found = key_hashes.copy()
    weight = _STEP
    for column in columns:
        # An odd weight maps no two values of a column to one.
        found += _mixed(_bits(column)) * np.uint64(weight | 1)
        weight = (weight * _MULTIPLIER_1) & DIGEST_MASK
    return int(_mixed(found).sum(dtype=np.uint64))


def combined(place: int, digest: int) -> int:
    """Return the digest of contents at a place, such as a pane's start, for a sum of several."""
    mixed = (digest + place * _STEP) & DIGEST_MASK
    mixed = ((mixed ^ (mixed >> 30)) * _MULTIPLIER_1) & DIGEST_MASK
    mixed = ((mixed ^ (mixed >> 27)) * _MULTIPLIER_2) & DIGEST_MASK
    return mixed ^ (mixed >> 31)


def recorded(total: int) -> int:
    """Return a sum of digests as it is in a state record: signed, of 64 bits, not ``NO_DIGEST``."""
    found = total & DIGEST_MASK or 1
    return found - (1 << 64) if found >> 63 else found


def _bits(column: Column) -> U64:
    if column.dtype == np.int64:
        return column.view(np.uint64)
    plain: npt.NDArray[np.float64] = np.where(np.isnan(column), np.nan, column) + 0.0
    return plain.view(np.uint64)


def _mixed(values: U64) -> U64:
    """Return SplitMix64 of each value."""
    mixed = values + np.uint64(_STEP)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MULTIPLIER_1)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MULTIPLIER_2)
    return mixed ^ (mixed >> np.uint64(31))
