"""What rounding must not do to an aggregate, for the judge of a rehearsal and the audit."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.primitives.aggregates import AGGREGATES


def outside(given: Mapping[str, float | None]) -> str | None:
    """Return that a number is not between the minimum and maximum beside it, as a phrase."""
    low, high = given.get("min"), given.get("max")
    for name, number in given.items():
        if number is None or name not in AGGREGATES or not AGGREGATES[name].is_between:
            continue
        if (low is not None and number < low) or (high is not None and number > high):
            return f"{name} is {number!r}, outside of {low!r} to {high!r}"
    return None
