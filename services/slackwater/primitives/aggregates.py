"""Aggregates: the numbers of a row. One table has all that is known of each.

A row's number is computed at a root from *figures* in columns, which the aggregator computes from
readings and the root merges. Codec, orderer, aggregator, root, the checks of a deployment file, the
judge and the audit take what they need from ``AGGREGATES``; nothing else names an aggregate.

An aggregate that a few figures cannot hold has a *state* (``primitives/states.py``). ``quantiles``
and ``top`` have a parameter in the deployment file: each of their numbers is an aggregate with a
name of its own (``p50``, ``top1``), which ``PARAMETERISED`` makes of the parameter and
``AGGREGATES`` of the name.

An average is the sum divided by the count, rounded once, so it lies between the smallest and the
largest value by itself. Only the aggregator's sum of one record is rounded at each addition; where
the query has the extremes, the average is kept within them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slackwater.model.records import type_f64
from slackwater.primitives import exact, sketches
from slackwater.primitives.figures import ALWAYS, FIGURE_NAMES, FIGURES, Figure
from slackwater.primitives.states import Cells, State


@dataclass(frozen=True, slots=True)
class AggregateColumns:
    """Figures of each field (first axis) and key (second axis); float64, as in a delta.

    ``low`` is what rounding took from the sum (None: nothing). ``others`` are the figures that
    aggregates bring along, and ``states`` theirs, by name.
    """

    count: type_f64
    sum: type_f64
    m2: type_f64
    min: type_f64
    max: type_f64
    low: type_f64 | None = None
    others: Mapping[str, type_f64] = field(default_factory=dict, kw_only=True)
    states: Mapping[str, Cells] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of(
        cls, figures: type_f64, aggregates: Iterable[str], states: Sequence[Cells] = ()
    ) -> AggregateColumns:
        """Return the columns of a slice whose query has these aggregates."""
        aggregates = tuple(aggregates)
        names = (figure.name for figure in others_of(aggregates))
        others = dict(zip(names, figures[FIGURES:], strict=True))
        kinds = (state.name for state in states_of(aggregates))
        of_states = dict(zip(kinds, states, strict=True))
        return cls(*figures[:FIGURES], others=others, states=of_states)

    def cut(self, start: int, stop: int) -> AggregateColumns:
        """Return the keys ``start`` to ``stop`` (exclusive)."""
        columns = [self.count, self.sum, self.m2, self.min, self.max]
        if self.low is not None:
            columns.append(self.low)
        cut = AggregateColumns(*(column[:, start:stop] for column in columns))
        if not self.others and not self.states:
            return cut
        others = {name: column[:, start:stop] for name, column in self.others.items()}
        states = {name: cells.cut(start, stop) for name, cells in self.states.items()}
        return replace(cut, others=others, states=states)


_Column = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One aggregate.

    ``text`` describes it in the page of the deployment file. ``figures`` are those of the basic
    figures that it needs beside count and sum; the aggregator computes only these. ``others`` are
    figures of its own, and ``state`` is its state. ``finish`` computes the number from the merged
    figures, whatever they are where there are fewer than ``count_min`` values; the number is null
    there, as it is where it is no finite double. ``is_between``: it lies between the smallest and
    the largest value.

    The rest is for those that check results, and must not use what ``finish`` uses: ``batch``
    computes the number from all readings of a window, ``audit`` is an aggregate of Spark SQL over
    the column ``{v}`` in the order ``order_``, and ``rounding`` is what may differ.
    """

    text: str
    figures: tuple[str, ...] = ()
    others: tuple[Figure, ...] = ()
    state: State | None = None
    finish: Callable[[AggregateColumns], _Column]
    count_min: int = 1
    is_between: bool = False
    batch: Callable[[exact.WindowReadings], float]
    audit: str
    rounding: exact.Rounding

    def __post_init__(self) -> None:
        assert set(self.figures) <= set(FIGURE_NAMES)
        for figure in self.others:
            assert figure.name not in FIGURE_NAMES, f"{figure.name} is a basic figure"
            assert figure.merge is not None, f"{figure.name} has no merge of its own"


_UPPER_BITS: Final = -(1 << 27)


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


class AggregateTable(dict[str, Aggregate]):
    """Aggregates by name; those with a parameter are made when they are first looked up."""

    def __missing__(self, name: str) -> Aggregate:
        for each in PARAMETERISED.values():
            if (found := each.of_name(name)) is not None:
                return found
        raise KeyError(name)


_PLAIN: Final[dict[str, Aggregate]] = {
    "count": Aggregate(
        text="number of readings that have a value",
        finish=lambda figures: figures.count.astype(np.int64),
        count_min=0,
        batch=lambda readings: readings.count,
        audit="cast(count({v}) as double)",
        rounding=exact.COUNTED,
    ),
    "sum": Aggregate(
        text="their sum",
        finish=lambda figures: figures.sum,
        batch=lambda readings: readings.total,
        audit="sum({v})",
        rounding=exact.SUMMED,
    ),
    "avg": Aggregate(
        text="their average",
        finish=_average,
        is_between=True,
        batch=lambda readings: readings.average,
        audit="avg({v})",
        rounding=exact.AVERAGED,
    ),
    "min": Aggregate(
        text="the smallest",
        figures=("min",),
        finish=lambda figures: figures.min,
        batch=lambda readings: readings.low,
        audit="min({v})",
        rounding=exact.SELECTED,
    ),
    "max": Aggregate(
        text="the largest",
        figures=("max",),
        finish=lambda figures: figures.max,
        batch=lambda readings: readings.high,
        audit="max({v})",
        rounding=exact.SELECTED,
    ),
    "range": Aggregate(
        text="the largest less the smallest",
        figures=("min", "max"),
        finish=lambda figures: figures.max - figures.min,
        batch=lambda readings: readings.high - readings.low,
        audit="max({v}) - min({v})",
        rounding=exact.SELECTED,
    ),
    "var": Aggregate(
        text="variance of the sample (n - 1)",
        figures=("m2",),
        finish=_variance,
        count_min=2,
        batch=lambda readings: readings.variance,
        audit="var_samp({v})",
        rounding=exact.SQUARED,
    ),
    "stddev": Aggregate(
        text="standard deviation of the sample, the root of `var`",
        figures=("m2",),
        finish=lambda figures: np.sqrt(_variance(figures)),
        count_min=2,
        batch=lambda readings: readings.deviation,
        audit="stddev_samp({v})",
        rounding=exact.ROOTED,
    ),
    "first": Aggregate(
        text="the value of the earliest reading that has one",
        state=sketches.FIRST,
        finish=lambda figures: figures.states["first"].weight(),
        batch=lambda readings: readings.values[0],
        audit="min_by({v}, order_) filter (where {v} is not null)",
        rounding=exact.SELECTED,
    ),
    "last": Aggregate(
        text="the value of the latest reading that has one",
        state=sketches.LAST,
        finish=lambda figures: figures.states["last"].weight(),
        batch=lambda readings: readings.values[-1],
        audit="max_by({v}, order_) filter (where {v} is not null)",
        rounding=exact.SELECTED,
    ),
    "distinct": Aggregate(
        text="estimated number of different values",
        state=sketches.DISTINCT,
        finish=lambda figures: sketches.estimate(figures.states["registers"]).astype(np.int64),
        count_min=0,
        batch=lambda readings: len(set(readings.values)),
        audit="cast(size(collect_set({v} + 0D)) as double)",
        rounding=exact.ESTIMATED,
    ),
}
AGGREGATES: Final[dict[str, Aggregate]] = AggregateTable(_PLAIN)
"""All aggregates, by their names in deployment files and results."""


@dataclass(frozen=True, slots=True)
class Parameterised:
    """Aggregates with a parameter, as it is ``written`` in the deployment file.

    ``names`` returns the names for a parameter; it raises ``ValueError`` with what is wrong.
    ``of_name`` returns the aggregate of such a name, None for other names.
    """

    written: str
    text: str
    names: Callable[[Any], tuple[str, ...]]
    of_name: Callable[[str], Aggregate | None]


QUANTILES_MAX: Final = 20
"""Quantiles of a query."""
QUANTILE_DIGITS_MAX: Final = 6
TOP_MAX: Final = 100


def _quantile_names(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= QUANTILES_MAX:
        raise ValueError(f"quantiles: must be a list of 1 to {QUANTILES_MAX} numbers")
    return tuple(map(_quantile_name, given))


def _quantile_name(given: Any) -> str:
    # The text, because the rank is computed from the decimals, not from the nearest double.
    found = re.fullmatch(r"0?\.([0-9]+)", str(given))
    digits = found.group(1).rstrip("0") if found else ""
    if not digits:
        raise ValueError(f"quantiles: must be between 0 and 1, as 0.99, not {given!r}")
    if len(digits) > QUANTILE_DIGITS_MAX:
        raise ValueError(f"quantiles: at most {QUANTILE_DIGITS_MAX} decimals, not {given!r}")
    return f"p{digits:0<2}"


@cache
def _quantile_of(name: str) -> Aggregate | None:
    digits = name[1:]
    if not name.startswith("p") or not re.fullmatch(r"[0-9]{2,6}", digits) or not int(digits):
        return None
    numerator, denominator = int(digits), 10 ** len(digits)
    rank = f"cast(ceil(count({{v}}) * 0.{digits}BD) as int)"
    value = f"get(sort_array(collect_list({{v}})), {rank} - 1)"
    return Aggregate(
        text=f"the {numerator}/{denominator} quantile",
        figures=("min", "max"),
        state=sketches.QUANTILES,
        finish=lambda figures: sketches.quantile(figures.states["bins"], numerator, denominator),
        is_between=True,
        batch=lambda readings: exact.quantile(readings, numerator, denominator),
        audit=f"if(abs({value}) >= {exact.QUANTILE_END}D, double('Infinity'), {value})",
        rounding=exact.BINNED,
    )


def _top_names(given: Any) -> tuple[str, ...]:
    if not re.fullmatch(r"[1-9][0-9]{0,2}", str(given)) or int(given) > TOP_MAX:
        raise ValueError(f"top: must be a whole number from 1 to {TOP_MAX}, not {given!r}")
    return tuple(f"top{n}" for n in range(1, int(given) + 1))


@cache
def _top_of(name: str) -> Aggregate | None:
    if not re.fullmatch(r"top[1-9][0-9]{0,2}", name) or int(name[3:]) > TOP_MAX:
        return None
    n = int(name[3:])
    return Aggregate(
        text=f"number {n} of the largest values",
        state=sketches.largest(n),
        finish=lambda figures: sketches.nth_largest(figures.states["largest"], n),
        count_min=n,
        batch=lambda readings: sorted(readings.values)[-n],
        audit=f"get(sort_array(collect_list({{v}}), false), {n - 1})",
        rounding=exact.SELECTED,
    )


PARAMETERISED: Final = {
    "quantiles": Parameterised(
        "quantiles: [0.5, 0.99]",
        "`p50` and `p99`: the smallest value with that share of the values at or below it",
        _quantile_names,
        _quantile_of,
    ),
    "top": Parameterised(
        "top: 3", "`top1`, `top2` and `top3`: the largest values", _top_names, _top_of
    ),
}
"""Aggregates with a parameter, by their words in deployment files."""


def columns_of(figures: AggregateColumns, aggregates: Sequence[str]) -> list[_Column]:
    """Return the column of each aggregate, shape (fields, keys); null is NaN or infinite.

    A number between the extremes is kept within those that ``aggregates`` need. Others may be in
    the figures, since queries share deltas, but only of some records.
    """
    needed = figures_of(aggregates)
    columns = []
    for aggregate in map(AGGREGATES.__getitem__, aggregates):
        column = aggregate.finish(figures)
        if aggregate.count_min:
            column = np.where(figures.count >= aggregate.count_min, column, np.nan)
        if aggregate.is_between:
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
    """Return whether one of the columns is null although there are values; of the shape of each."""
    found = np.zeros(count.shape, np.bool_)
    for name, column in zip(aggregates, columns, strict=True):
        found |= (count >= AGGREGATES[name].count_min) & ~np.isfinite(column)
    return found


def figures_of(aggregates: Iterable[str]) -> tuple[str, ...]:
    """Return the basic figures that these aggregates are computed from, in order."""
    needed = set(ALWAYS).union(*(AGGREGATES[aggregate].figures for aggregate in aggregates))
    return tuple(figure for figure in FIGURE_NAMES if figure in needed)


def others_of(aggregates: Iterable[str]) -> tuple[Figure, ...]:
    """Return the figures that these aggregates bring along, in order of their names."""
    others = {each.name: each for name in aggregates for each in AGGREGATES[name].others}
    return tuple(others[name] for name in sorted(others))


def states_of(aggregates: Iterable[str]) -> tuple[State, ...]:
    """Return the states of these aggregates, in order of their names."""
    states: dict[str, State] = {}
    for name in aggregates:
        if (state := AGGREGATES[name].state) is not None:
            states[state.name] = state.wider(states.get(state.name))
    return tuple(states[name] for name in sorted(states))
