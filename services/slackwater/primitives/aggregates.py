"""Aggregates: the numbers of a row, computed from figures in columns.

An average is the sum divided by the count, rounded once, so it lies between the smallest and the
largest value by itself. Only the aggregator's sum of one record is rounded at each addition; where
the query has the extremes, the average is kept within them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slackwater.model.records import type_f64
from slackwater.primitives.figures import FIGURE_NAMES


@dataclass(frozen=True, slots=True)
class AggregateColumns:
    """Figures of each field (first axis) and key (second axis); float64, as in a delta.

    ``low`` is what rounding took from the sum (None: nothing).
    """

    count: type_f64
    sum: type_f64
    m2: type_f64
    min: type_f64
    max: type_f64
    low: type_f64 | None = None

    def cut(self, start: int, stop: int) -> AggregateColumns:
        """Return the keys ``start`` to ``stop`` (exclusive)."""
        columns = [self.count, self.sum, self.m2, self.min, self.max]
        if self.low is not None:
            columns.append(self.low)
        return AggregateColumns(*(column[:, start:stop] for column in columns))


_UPPER_BITS: Final = -(1 << 27)

_Column = np.ndarray[Any, Any]
_Aggregate = Callable[[AggregateColumns], _Column]


def _null_below(count_min: int, aggregate: _Aggregate) -> _Aggregate:
    return lambda figures: np.where(figures.count >= count_min, aggregate(figures), np.nan)


def _average(figures: AggregateColumns) -> type_f64:
    """Return the quotient of the exact sum, rounded once.

    ``part`` has the upper 26 bits of the quotient, so that its product with a count below 2^26 is
    exact, as is that of the rest (Dekker 1971, section 5). Without the remainder the average of
    equal values is often not that value.
    """
    n, low = figures.count, 0.0 if figures.low is None else figures.low
    average: type_f64 = figures.sum / n
    part = (average.view(np.int64) & _UPPER_BITS).view(np.float64)
    rest = figures.sum - part * n
    rest -= (average - part) * n
    rest += low
    return average + rest / n


def _variance(figures: AggregateColumns) -> type_f64:
    # With a sum that has overflowed, m2 has means that are not finite, or lacks them by chance.
    variance: type_f64 = np.where(
        np.isfinite(figures.sum), figures.m2 / (figures.count - 1), np.nan
    )
    return variance


AGGREGATES: Final[Mapping[str, _Aggregate]] = {
    "count": lambda figures: figures.count.astype(np.int64),
    "sum": _null_below(1, lambda figures: figures.sum),
    "avg": _null_below(1, _average),
    "min": _null_below(1, lambda figures: figures.min),
    "max": _null_below(1, lambda figures: figures.max),
    "range": _null_below(1, lambda figures: figures.max - figures.min),
    "var": _null_below(2, _variance),
    "stddev": _null_below(2, lambda figures: np.sqrt(_variance(figures))),
}
"""Aggregates computed from the figures; ``var`` and ``stddev`` are the sample's (n - 1)."""

_COUNT_MIN: Final[Mapping[str, int]] = {"var": 2, "stddev": 2}
"""The fewest values that an aggregate needs, where one does not suffice."""

_MADE_OF: Final[Mapping[str, frozenset[str]]] = {
    "count": frozenset(),
    "sum": frozenset(),
    "avg": frozenset(),
    "min": frozenset({"min"}),
    "max": frozenset({"max"}),
    "range": frozenset({"min", "max"}),
    "var": frozenset({"m2"}),
    "stddev": frozenset({"m2"}),
}
"""The figures that each aggregate needs in addition to count and sum."""


def columns_of(figures: AggregateColumns, aggregates: Sequence[str]) -> list[_Column]:
    """Return the column of each aggregate, shape (fields, keys); null is NaN or infinite.

    An average is kept within those extremes that ``aggregates`` need. Others may be in the figures,
    since queries share deltas, but only of some records.
    """
    needed = figures_of(aggregates)
    columns = []
    for name in aggregates:
        column = AGGREGATES[name](figures)
        if name == "avg":
            # Both keep NaN, which an average is where the sum has overflowed.
            if "min" in needed:
                column = np.maximum(column, figures.min)
            if "max" in needed:
                column = np.minimum(column, figures.max)
        columns.append(column)
    return columns


def overflowed(
    count: type_f64, aggregates: Sequence[str], columns: Sequence[_Column]
) -> npt.NDArray[np.bool_]:
    """Return whether one of the columns is null although there are values, shape (fields, keys)."""
    found = np.zeros(count.shape, np.bool_)
    for name, column in zip(aggregates, columns, strict=True):
        found |= (count >= _COUNT_MIN.get(name, 1)) & ~np.isfinite(column)
    return found


def figures_of(aggregates: Iterable[str]) -> tuple[str, ...]:
    """Return the figures that these aggregates are computed from, in order.

    Count and sum are always included: a null is derived from the count, and missing values are
    detected by the sum.
    """
    needed = {"count", "sum"}.union(*(_MADE_OF[aggregate] for aggregate in aggregates))
    return tuple(figure for figure in FIGURE_NAMES if figure in needed)
