"""The windows of a query as a value: lengths, and the calendar that they follow."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

_CALENDAR: Final = frozenset({"offset_us", "months", "zone"})


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows [start, start + size) since the Unix epoch; 0 < slide <= size.

    A start is k * slide + ``offset_us``, with 0 <= offset < slide. With a ``zone`` or ``months``
    the windows follow a calendar and do not overlap: a start is what the clock of the zone (empty:
    UTC) shows, ``size_us`` is a divisor of a day, a day or a week, and a window may be an hour
    longer or shorter. ``months`` is a divisor of 12, counted from January, each window beginning
    ``offset_us`` after the first day of its month; ``size_us`` is then the usual length.
    """

    size_us: int
    slide_us: int
    offset_us: int = 0
    months: int = 0
    zone: str = ""

    @property
    def is_calendar(self) -> bool:
        """Whether the windows follow a calendar, and may differ in length."""
        return bool(self.months or self.zone)

    @property
    def ahead_us(self) -> int:
        """How much later a window ends than the next one starts."""
        return self.size_us - self.slide_us

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; what windows without a calendar do not have is omitted."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if v or k not in _CALENDAR}
