"""Durations as text: an integer or decimal and a unit, ``50ms`` or ``1.5h``.

One parser for the deployment file, the command line and the faults of a rehearsal. The result is
an integer number of microseconds, computed in decimal: floats would sometimes be off by one.
Fractions of a microsecond are truncated, as for event times.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

UNITS_US: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
DURATION_US_MAX: Final = 36_525 * UNITS_US["d"]
"""A hundred years: a longer duration is a typing error, and sums of times must fit int64."""

_DURATION = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?(us|ms|s|m|h|d)", re.ASCII)


def parse_duration_us(text: str) -> int:
    """Parse e.g. ``250ms`` into microseconds; raises ``ValueError`` with a message for users."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a duration: write a number and one of us, ms, s, m, h, d, like 500ms"
        )
    us = int(Decimal(match[1]) * UNITS_US[match[2]])
    if us > DURATION_US_MAX:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return us


def format_duration_us(us: int) -> str:
    """Format a duration in the largest unit of which it is a multiple: 1500000 is ``1500ms``."""
    for unit, size in reversed(UNITS_US.items()):
        if us % size == 0 and us != 0:
            return f"{us // size}{unit}"
    return "0s"
