"""Figures: what a slice holds for each key and field, and the merge of two.

There are six: count, sum, m2 (sum of squared deviations from the slice's own mean), min, max and
low. m2 is merged by Chan's formula, because a sum of squares loses a small variance under a large
mean. min and max start from "no value" (NaN). Fargo's Algorithms 5 to 7 start from 0, which makes 0
the largest of negative readings. Every reading counts, also zeros, which Fargo's Algorithms 3 and 4
skip.

``low`` is what rounding took from the sum: a sum is the pair (sum, low), to which each merge adds
with an error of about 2^-104 of it (Knuth's two-sum, The Art of Computer Programming 2, section
4.2.2; pairs as in Dekker 1971). A plain sum over the 345,600 buckets of a day is wrong in the
eleventh digit. The average of readings that are all 0.1 then lies outside of minimum and maximum,
and the variance, which is merged from differences of averages, is 1e9 times the rounding of one
bucket. The order of additions stays fixed, as before (trace-28): pairs are more accurate, not
associative.

An aggregate may bring figures of its own (``primitives/aggregates.py``). They follow after ``low``,
and each is merged by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

COUNT: Final = 0
SUM: Final = 1
M2: Final = 2
MIN: Final = 3
MAX: Final = 4
LOW: Final = 5
FIGURES: Final = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a slice for each key and field, all that is known of it.

    ``of_values`` is an expression of Spark SQL: the figure of one key in an ordered record, over
    ``{values}``, its readings without the missing ones, and ``{total}``, their sum. Readings are
    combined from the left, in their order in the record (trace-28). ``nothing`` is the figure where
    there is no value; a merge with it changes nothing, bit for bit. ``merge`` is the merge of two
    slices, a function of two doubles that is applied to each element; None for those that
    ``merge_into`` merges together.
    """

    name: str
    of_values: str
    nothing: float = 0.0
    merge: np.ufunc | None = None


BASIC: Final = (
    Figure("count", "cast(size({values}) as double)"),
    Figure("sum", "{total}"),
    # A lambda over an array of one element is the only way to name a value in an expression.
    # Without values the mean is NULL and unused.
    Figure(
        "m2",
        "transform(array({total} / size({values})), m -> "
        "aggregate({values}, 0D, (s, v) -> s + (v - m) * (v - m)))[0]",
    ),
    Figure("min", "coalesce(array_min({values}), double('NaN'))", np.nan),
    Figure("max", "coalesce(array_max({values}), double('NaN'))", np.nan),
)
"""The figures of a delta record, in its order; the rest of a sum has a field of its own."""

FIGURE_NAMES: Final = tuple(figure.name for figure in BASIC)
ALWAYS: Final = ("count", "sum")
"""Figures that are always computed: a null is derived from the count, and missing values are
detected by the sum."""


def nothing(others: Sequence[Figure], fields: int, keys: int) -> F64:
    """Return the figures of keys without values; ``others`` are those after ``low``."""
    figures = np.zeros((FIGURES + len(others), fields, keys))
    for at, figure in (*enumerate(BASIC), *enumerate(others, FIGURES)):
        figures[at] = figure.nothing
    return figures


def merge_into(a: F64, b: F64, others: Sequence[Figure] = (), *, has_m2: bool = True) -> None:
    """Set a to the merge of a and b; ``others`` are the figures after ``low``.

    Sums are added as pairs (sum, low), by Knuth's two-sum and a renormalisation; m2 by Chan, Golub
    and LeVeque's update, if ``has_m2``. Where one side has no value, the result is the other side,
    exactly.
    """
    # Where a sum overflows, sum, low and m2 become infinite or NaN. The result reports it.
    with np.errstate(over="ignore", invalid="ignore"):
        more = _between(a, b) if has_m2 else None
        before = a[SUM].copy()
        a[: M2 + 1] += b[: M2 + 1]
        _renormalise(a, before, b)
        if more is not None:
            a[M2] += more
        if others:
            _merge_others(a, b, others)
    np.fmin(a[MIN], b[MIN], out=a[MIN])
    np.fmax(a[MAX], b[MAX], out=a[MAX])


def _between(a: F64, b: F64) -> F64:
    """Return the squared deviations that a and b have from their mean in addition to their own."""
    na, nb = a[COUNT], b[COUNT]
    difference = b[SUM] / np.maximum(nb, 1.0)
    difference -= a[SUM] / np.maximum(na, 1.0)
    weight: F64 = na * nb
    none = weight == 0.0
    weight /= np.maximum(na + nb, 1.0)
    # In this order: difference * difference may overflow where the whole product does not.
    weight *= difference
    weight *= difference
    np.copyto(weight, 0.0, where=none)
    return weight


def _merge_others(a: F64, b: F64, others: Sequence[Figure]) -> None:
    for at, figure in enumerate(others, FIGURES):
        assert figure.merge is not None
        figure.merge(a[at], b[at], out=a[at])


def _renormalise(a: F64, before: F64, b: F64) -> None:
    """Add b's low and the rounding error of ``a[SUM]``, which is ``before + b[SUM]`` rounded."""
    total, low = a[SUM], a[LOW]
    of_b = total - before
    error = total - of_b
    np.subtract(before, error, out=error)
    np.subtract(b[SUM], of_b, out=of_b)
    error += of_b
    low += b[LOW]
    error += low
    np.add(total, error, out=of_b)  # the sum to be
    np.subtract(of_b, total, out=low)
    np.subtract(error, low, out=low)
    total[...] = of_b
