"""Expressions over columns: the tree that ``expressions`` builds, and its evaluation.

A tree is evaluated over a whole batch of readings, with one numpy operation per node and without
``eval`` or a loop over readings. There are two kinds of nodes:

- A ``Number`` has float64 values. NULL is NaN, as in the columns, so SQL's rule that arithmetic
  with NULL is NULL needs no code. A result that is undefined or exceeds a double becomes NaN at
  once; an infinity could otherwise become a number again through 1/x or a comparison.
- A ``Truth`` has two masks: where it is TRUE, and where it is FALSE. Elsewhere it is NULL. With two
  masks SQL's three-valued logic is Boolean algebra: NOT swaps them, AND is & of the first and | of
  the second. One array with three values would need truth tables.

A value may be one scalar for all readings. Keys are dictionary-encoded and mostly few, so a
condition on the key is evaluated once per key and then looked up by index.

Where SQL leaves a choice, the meaning is Spark's: % has the sign of the dividend, round is half
away from zero, least and greatest ignore NULLs, strings compare by code points.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Values = F64 | np.float64
Mask = npt.NDArray[np.bool_] | np.bool_
NULL: Final = np.float64(np.nan)


class ColumnBatch(NamedTuple):
    """A batch of readings; a field that is not in ``columns`` is NULL in all of them."""

    columns: Mapping[str, F64]
    key_index: npt.NDArray[np.integer]
    keys: Sequence[str]
    memo: dict[int, Values]
    """Values of the ``Once`` nodes, by ``id`` of the node."""


class Masks(NamedTuple):
    """Two disjoint masks: where the condition is TRUE, and where it is FALSE; elsewhere NULL."""

    true: Mask
    false: Mask


@runtime_checkable
class Number(Protocol):
    """A node that has a number for each reading."""

    def values(self, batch: ColumnBatch) -> Values:
        """Evaluate the node; values are finite, or NaN for NULL."""
        ...


@runtime_checkable
class Truth(Protocol):
    """A node that has TRUE, FALSE or NULL for each reading."""

    def masks(self, batch: ColumnBatch) -> Masks:
        """Evaluate the node."""
        ...


def _defined(values: Values) -> Values:
    """Replace infinities by NaN."""
    infinite = np.isinf(values)
    return np.where(infinite, NULL, values) if np.any(infinite) else values


def _equal(left: Values, right: Values) -> Masks:
    # Comparisons with NaN are false, so neither mask holds where a side is NULL.
    return Masks(np.equal(left, right), np.less(left, right) | np.greater(left, right))


def _not_equal(left: Values, right: Values) -> Masks:
    true, false = _equal(left, right)
    return Masks(false, true)


def _less(left: Values, right: Values) -> Masks:
    return Masks(np.less(left, right), np.greater_equal(left, right))


def _less_equal(left: Values, right: Values) -> Masks:
    return Masks(np.less_equal(left, right), np.greater(left, right))


COMPARISONS: Final[dict[str, Callable[[Values, Values], Masks]]] = {
    "=": _equal,
    "<>": _not_equal,
    "<": _less,
    "<=": _less_equal,
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _less_equal(right, left),
}

KEY_COMPARISONS: Final[dict[str, Callable[[str, str], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _power(base: Values, exponent: Values) -> Values:
    # numpy follows C, where power(NaN, 0) and power(1, NaN) are 1; in SQL both are NULL.
    return np.where(np.isnan(base) | np.isnan(exponent), NULL, np.power(base, exponent))


ARITHMETIC: Final[dict[str, Callable[[Values, Values], Values]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "power": _power,
}


def round_half_away(values: Values, digits: int) -> Values:
    """Round to ``digits`` decimals, half away from zero, as if applied to the decimal text.

    The double 2.675 is below the decimal 2.675, but rounds to 2.68. The midpoint divided by
    10^digits, one correctly rounded division, equals the double that the midpoint's text parses
    to, so a comparison with it decides as the decimals would. Adding 0.5 and truncating would not.
    This holds for midpoints of at most 15 digits; with more, neighbouring doubles share one.
    """
    scale = np.float64(10.0**digits)
    size = np.abs(values)
    scaled = size * scale
    below = np.floor(scaled)
    up = np.where(scaled < 1e14, size >= (below + 0.5) / scale, scaled - below >= 0.5)
    # From 2^52 on a double has no fraction; scaling would only add errors.
    return np.copysign(np.where(scaled < 2.0**52, (below + up) / scale, size), values)


FUNCTIONS: Final[dict[str, Callable[[Values], Values]]] = {
    "-": np.negative,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "ln": np.log,
    "exp": np.exp,
}

EXTREMES: Final[dict[str, Callable[[Values, Values], Values]]] = {
    "least": np.fmin,
    "greatest": np.fmax,
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal number, or NULL."""

    value: np.float64

    def values(self, batch: ColumnBatch) -> Values:
        """Return one scalar for all readings."""
        del batch
        return self.value


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the readings."""

    name: str

    def values(self, batch: ColumnBatch) -> Values:
        """Return the column itself, not a copy."""
        return batch.columns.get(self.name, NULL)


@dataclass(frozen=True, slots=True, eq=False)
class Once:
    """A node that occurs several times in a tree and is evaluated once.

    Without it nested CASEs would cost 2^depth.
    """

    operand: Number

    def values(self, batch: ColumnBatch) -> Values:
        """Return the operand's values, evaluated at the first call for a batch."""
        known = batch.memo.get(id(self))
        if known is None:
            known = batch.memo[id(self)] = self.operand.values(batch)
        return known


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left op right``, op one of ``ARITHMETIC``."""

    op: str
    left: Number
    right: Number

    def values(self, batch: ColumnBatch) -> Values:
        """Return the result; NULL where it is undefined or exceeds a double."""
        return _defined(ARITHMETIC[self.op](self.left.values(batch), self.right.values(batch)))


@dataclass(frozen=True, slots=True)
class Call:
    """A function of one number, one of ``FUNCTIONS``."""

    function: str
    operand: Number

    def values(self, batch: ColumnBatch) -> Values:
        """Return the result; NULL where it is undefined or exceeds a double."""
        return _defined(FUNCTIONS[self.function](self.operand.values(batch)))


@dataclass(frozen=True, slots=True)
class Round:
    """``round(operand, digits)``."""

    operand: Number
    digits: int

    def values(self, batch: ColumnBatch) -> Values:
        """Return the rounded values; NULL where the result exceeds a double."""
        return _defined(round_half_away(self.operand.values(batch), self.digits))


@dataclass(frozen=True, slots=True)
class Extreme:
    """``least`` or ``greatest`` of the operands that are not NULL."""

    function: str
    operands: tuple[Number, ...]

    def values(self, batch: ColumnBatch) -> Values:
        """Return the extreme values; NULL only where all operands are NULL."""
        return reduce(EXTREMES[self.function], [n.values(batch) for n in self.operands])


@dataclass(frozen=True, slots=True)
class NumberCase:
    """``CASE WHEN ... THEN number ... END``: the first branch that is TRUE."""

    branches: tuple[tuple[Truth, Number], ...]
    otherwise: Number

    def values(self, batch: ColumnBatch) -> Values:
        """Evaluate all branches and select; none can fail, since undefined results are NULL."""
        chosen = self.otherwise.values(batch)
        for condition, result in reversed(self.branches):
            chosen = np.where(condition.masks(batch).true, result.values(batch), chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class Known:
    """A literal TRUE, FALSE or NULL (None)."""

    value: bool | None

    def masks(self, batch: ColumnBatch) -> Masks:
        """Return one pair of scalars for all readings."""
        del batch
        return Masks(np.bool_(self.value is True), np.bool_(self.value is False))


@dataclass(frozen=True, slots=True)
class Compare:
    """``left op right`` of numbers, op one of ``COMPARISONS``."""

    op: str
    left: Number
    right: Number

    def masks(self, batch: ColumnBatch) -> Masks:
        """Compare; NULL where a side is NULL."""
        return COMPARISONS[self.op](self.left.values(batch), self.right.values(batch))


@dataclass(frozen=True, slots=True)
class KeyCompare:
    """``key op literal``, op one of ``KEY_COMPARISONS``. A key is never NULL."""

    op: str
    literal: str

    def masks(self, batch: ColumnBatch) -> Masks:
        """Compare once per key."""
        compare = KEY_COMPARISONS[self.op]
        return _of_keys(lambda key: compare(key, self.literal), batch)


@dataclass(frozen=True, slots=True)
class KeyIn:
    """``key IN (literals)``; NULL where the key is none of them and the list has a NULL."""

    literals: frozenset[str]
    or_null: bool

    def masks(self, batch: ColumnBatch) -> Masks:
        """Compare once per key."""
        true, false = _of_keys(self.literals.__contains__, batch)
        return Masks(true, false & np.bool_(not self.or_null))


def _of_keys(answer: Callable[[str], bool], batch: ColumnBatch) -> Masks:
    keys, index = batch.keys, batch.key_index
    if len(keys) > len(index):  # a table may have millions
        distinct, index = np.unique(index, return_inverse=True)
        keys = [keys[i] for i in distinct.tolist()]
    true = np.array([answer(key) for key in keys], dtype=np.bool_)[index]
    return Masks(true, ~true)


@dataclass(frozen=True, slots=True)
class In:
    """``operand IN (choices)``: TRUE if equal to one, FALSE if different from all."""

    operand: Number
    choices: tuple[Number, ...]

    def masks(self, batch: ColumnBatch) -> Masks:
        """Compare; NULL if the operand equals no choice and it or a choice is NULL."""
        operand = self.operand.values(batch)
        each = [_equal(operand, choice.values(batch)) for choice in self.choices]
        return _any(each)


@dataclass(frozen=True, slots=True)
class And:
    """TRUE if all terms are TRUE, FALSE if one is FALSE, else NULL."""

    terms: tuple[Truth, ...]

    def masks(self, batch: ColumnBatch) -> Masks:
        """Evaluate by De Morgan's law, with the code of ``Or``."""
        true, false = _any([_negated(term.masks(batch)) for term in self.terms])
        return Masks(false, true)


@dataclass(frozen=True, slots=True)
class Or:
    """TRUE if one term is TRUE, FALSE if all are FALSE, else NULL."""

    terms: tuple[Truth, ...]

    def masks(self, batch: ColumnBatch) -> Masks:
        """Evaluate and combine the terms."""
        return _any([term.masks(batch) for term in self.terms])


@dataclass(frozen=True, slots=True)
class Not:
    """Swaps TRUE and FALSE."""

    term: Truth

    def masks(self, batch: ColumnBatch) -> Masks:
        """Swap the masks; NULL stays NULL."""
        return _negated(self.term.masks(batch))


def _any(each: list[Masks]) -> Masks:
    true, false = each[0]
    for more in each[1:]:
        true, false = true | more.true, false & more.false
    return Masks(true, false)


def _negated(masks: Masks) -> Masks:
    return Masks(masks.false, masks.true)


@dataclass(frozen=True, slots=True)
class NumberIsNull:
    """``number IS NULL``; never NULL itself."""

    operand: Number

    def masks(self, batch: ColumnBatch) -> Masks:
        """Return the masks of the condition."""
        null = np.isnan(self.operand.values(batch))
        return Masks(null, ~null)


@dataclass(frozen=True, slots=True)
class TruthIsNull:
    """``condition IS NULL``; never NULL itself."""

    operand: Truth

    def masks(self, batch: ColumnBatch) -> Masks:
        """Return the masks of the condition."""
        true, false = self.operand.masks(batch)
        known = true | false
        return Masks(~known, known)


@dataclass(frozen=True, slots=True)
class TruthCase:
    """``CASE WHEN ... THEN condition ... END``."""

    branches: tuple[tuple[Truth, Truth], ...]
    otherwise: Truth

    def masks(self, batch: ColumnBatch) -> Masks:
        """Return the masks of the first branch whose condition is TRUE."""
        true, false = self.otherwise.masks(batch)
        for condition, result in reversed(self.branches):
            chosen, given = condition.masks(batch).true, result.masks(batch)
            true = np.where(chosen, given.true, true)
            false = np.where(chosen, given.false, false)
        return Masks(true, false)
