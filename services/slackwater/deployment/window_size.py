"""The size of a window as text: a duration, weeks (``1w``) or months (``1mo``).

Weeks and months are sizes of windows alone. As durations they would be ambiguous: a month has no
fixed length, and a week begins on some day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from slackwater.model.durations import DURATION_US_MAX, UNITS_US, parse_duration_us

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEK_US: Final = 7 * UNITS_US["d"]
MONTH_US: Final = 30 * UNITS_US["d"]
"""The usual length of a month, for estimates."""
MONTHS_MAX: Final = 12
_COUNTED: Final = re.compile(r"([0-9]{1,6}) ?(w|mo)", re.ASCII)


@dataclass(frozen=True, slots=True)
class WindowSize:
    """A size: ``us`` is its length, that of an average month for ``months``."""

    text: str
    us: int
    weeks: int = 0
    months: int = 0


def window_size(text: Any) -> WindowSize:
    """Parse e.g. ``1m``, ``1w`` or ``3mo``; raises ``ValueError`` with a message for users."""
    if not isinstance(text, str):
        raise ValueError("must be a duration, like 1m, or 1w or 1mo")
    text = text.strip()
    counted = _COUNTED.fullmatch(text)
    if counted is None:
        us, weeks, months = parse_duration_us(text), 0, 0
    else:
        weeks, months = (int(counted[1]) if counted[2] == unit else 0 for unit in ("w", "mo"))
        us = weeks * WEEK_US + months * MONTH_US
    if us <= 0:
        raise ValueError("must be longer than 0")
    if us > DURATION_US_MAX:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return WindowSize(text, us, weeks, months)
