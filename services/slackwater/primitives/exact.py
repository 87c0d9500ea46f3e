"""Aggregates of a list of readings, for the judge: what the pipeline's results must equal.

These formulas share nothing with those of the pipeline. They have all readings of a window at once
and no figures, know no slices and no merge, and use no numpy: sums are ``math.fsum``, which is
exact, and squares are taken from the exact mean. An import rule keeps it so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction


class WindowReadings:
    """The readings of one field in one window for one key, without the missing ones; not empty.

    They are in the order of their times; those of one time by stream, then as they came.

    ``total`` is their exact sum, rounded once, and infinite if it is beyond the range of doubles.
    ``variance`` is that of the sample: NaN of one reading, and where the sum is not finite.
    """

    __slots__ = ("average", "count", "high", "low", "total", "values", "variance")

    def __init__(self, values: Sequence[float]) -> None:
        assert values
        self.values = values
        self.count = len(values)
        self.low, self.high = min(values), max(values)
        self.total = self.average = _sum(values)
        self.variance = math.nan
        if math.isfinite(self.total):
            # Rounding does not take an average beyond the extremes.
            mean = self.average = min(max(self.total / self.count, self.low), self.high)
            if self.count > 1:
                self.variance = _sum([(v - mean) * (v - mean) for v in values]) / (self.count - 1)

    @property
    def deviation(self) -> float:
        """Standard deviation of the sample, the root of ``variance``."""
        return math.sqrt(self.variance)


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:  # a partial sum is beyond the range, or a value is infinite
        if not all(map(math.isfinite, values)):
            return math.inf
    exact = sum(map(Fraction, values))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


ROUNDED = 1e-12
"""What rounding of a few operations makes of a double, relative to its magnitude."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What rounding may do to an aggregate in doubles, whose order of operations is not known.

    ``slack`` is the difference that it can cause: a function of the rounding of one value, of the
    number of values and of their standard deviation. ``relative`` is a difference that is allowed
    beside it, as a share of the number. ``largest`` is the largest magnitude of a term or a partial
    result, a function of the number of values and of their largest magnitude: where it is beyond
    the range of doubles, the aggregate may be null. ``is_selected``: of exact readings the number
    is exact, one of them or a difference of two.
    """

    slack: Callable[[float, float, float], float]
    relative: float = 1e-9
    largest: Callable[[float, float], float] = lambda count, scale: 0.0
    is_selected: bool = False

    def error(self, number: float, count: float, scale: float, spread: float) -> float:
        """The largest difference that rounding, or an estimate, may make of a number.

        ``count``, ``scale`` and ``spread`` are those of the values: how many, their largest
        magnitude, their standard deviation.
        """
        return self.slack(ROUNDED * scale, count, spread) + self.relative * abs(number)

    @property
    def is_estimate(self) -> bool:
        """Whether the number is an estimate: more than rounding may differ."""
        return self.relative > 1e-6

    def may_overflow(self, count: float, scale: float) -> bool:
        """Whether a term or a partial result can have been beyond the range of doubles."""
        return not math.isfinite(self.largest(count, scale))


COUNTED = Rounding(lambda eps, count, spread: 0.0, relative=0.0, is_selected=True)
SELECTED = Rounding(lambda eps, count, spread: eps, is_selected=True)
SUMMED = Rounding(
    lambda eps, count, spread: eps * count, largest=lambda count, scale: 2.0 * count * scale
)
AVERAGED = Rounding(
    lambda eps, count, spread: eps, largest=lambda count, scale: 2.0 * count * scale
)
# m2 is merged from deviations, each with the rounding error of its mean.
SQUARED = Rounding(
    lambda eps, count, spread: eps * spread + eps * eps,
    largest=lambda count, scale: 4.0 * count * scale * scale,
)
ROOTED = Rounding(
    lambda eps, count, spread: eps, largest=lambda count, scale: 4.0 * count * scale * scale
)

QUANTILE_END = 2**30
"""Magnitude from which on a quantile is not known."""


def quantile(readings: WindowReadings, numerator: int, denominator: int) -> float:
    """Return the smallest value that has this share of the values at or below it."""
    share = Fraction(numerator, denominator)
    value = sorted(readings.values)[math.ceil(readings.count * share) - 1]
    return value if abs(value) < QUANTILE_END else math.inf


# Within 1 %, and 1e-9 around 0.
BINNED = Rounding(lambda eps, count, spread: 1e-9 + eps, relative=0.01)
# Five standard errors of HyperLogLog with 4,096 registers, and two for small numbers.
ESTIMATED = Rounding(lambda eps, count, spread: 2.0, relative=5 * 1.04 / 64)
