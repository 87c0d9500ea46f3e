"""Aggregates that bring figures of their own, each as one entry of the table of aggregates.

A product has one figure; a sketch of fixed size has one for each of its counters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

from slackwater.primitives.aggregates import AGGREGATES, Aggregate, AggregateColumns
from slackwater.primitives.exact import Rounding
from slackwater.primitives.figures import Figure

PRODUCT: Final = Aggregate(
    text="their product",
    others=(Figure("product", "aggregate({values}, 1D, (s, v) -> s * v)", 1.0, np.multiply),),
    finish=lambda figures: figures.others["product"],
    batch=lambda readings: math.prod(readings.values),
    audit="aggregate(collect_list({v}), 1D, (s, v) -> s * v)",
    rounding=Rounding(
        lambda eps, count, spread: 0.0,
        largest=lambda count, scale: math.prod([max(scale, 1.0)] * int(count)),
    ),
)

BINS: Final = [f"bin{i}" for i in range(4)]
"""Number of readings in [0, 10), [10, 20), [20, 30), [30, 40)."""


def _bin_of_median(figures: AggregateColumns) -> Any:
    below = np.cumsum([figures.others[name] for name in BINS], axis=0)
    return np.argmax(2 * below >= figures.count, axis=0) * 10.0 + 5.0


MEDIAN: Final = Aggregate(
    text="the middle of the bin with their median",
    others=tuple(
        Figure(
            name, f"cast(size(filter({{values}}, v -> floor(v / 10) = {i})) as double)", 0.0, np.add
        )
        for i, name in enumerate(BINS)
    ),
    finish=_bin_of_median,
    batch=lambda readings: sorted(readings.values)[(readings.count - 1) // 2] // 10 * 10 + 5,
    audit="floor(percentile_disc(0.5) within group (order by {v}) / 10) * 10D + 5D",
    rounding=Rounding(lambda eps, count, spread: 0.0, relative=0.0, is_selected=True),
)


def _in_bin(i: int, values: Sequence[float]) -> float:
    return float(sum(10 * i <= value < 10 * (i + 1) for value in values))


BY_HAND: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "product": math.prod,
    **{name: partial(_in_bin, i) for i, name in enumerate(BINS)},
}
"""The figures of some readings, by loops."""


@pytest.fixture
def own_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the two entries to the table."""
    monkeypatch.setitem(AGGREGATES, "product", PRODUCT)
    monkeypatch.setitem(AGGREGATES, "median", MEDIAN)
