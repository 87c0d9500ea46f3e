"""An aggregate that brings a figure of its own: the product of the readings, as one entry."""

from __future__ import annotations

import math

import numpy as np

from slackwater.primitives.aggregates import Aggregate
from slackwater.primitives.exact import Rounding
from slackwater.primitives.figures import Figure

PRODUCT = Aggregate(
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
