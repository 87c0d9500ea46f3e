"""What rounding may do to a figure, for the judge of a rehearsal and the audit.

Sums in doubles depend on their order of additions where a partial sum is beyond the range of
doubles. The order of the pipeline is not known to either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping


def may_overflow(name: str, count: float, scale: float) -> bool:
    """Whether a term or a partial sum of the figure can have been beyond the range of doubles.

    ``count`` is the number of values, and ``scale`` their largest magnitude. The figure may then be
    null.
    """
    if name in ("sum", "avg"):
        return not math.isfinite(2.0 * count * scale)
    return name in ("var", "stddev") and not math.isfinite(4.0 * count * scale * scale)


def average_outside(given: Mapping[str, float | None]) -> str | None:
    """Return that an average is not between the minimum and maximum beside it, as a phrase."""
    average = given.get("avg")
    if average is None:
        return None
    low, high = given.get("min"), given.get("max")
    if (low is not None and average < low) or (high is not None and average > high):
        return f"is {average!r}, outside of {low!r} to {high!r}"
    return None
