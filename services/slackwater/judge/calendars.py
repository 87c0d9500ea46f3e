"""Windows as the judge computes them: by arithmetic, or by walking along a calendar.

The judge must not repeat an error of the pipeline, so nothing is shared with
``slackwater.primitives.calendars``: each local start is converted by ``datetime`` and ``zoneinfo``,
one at a time. It is slower, and only the years of a rehearsal's readings are computed.

A window of a calendar begins at the first instant at which the clock of the zone shows its local
start or a later time. It ends where the next window begins; two local starts at one instant are one
window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from slackwater.model.deployment import WindowSpec

_US: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 -- local times have no zone
_AROUND: Final = 3
"""Local starts computed beyond the ones asked for: offsets of zones are at most a day."""


class JudgedWindows(Protocol):
    """The windows of a query, named by their starts (us)."""

    def first_holding(self, e: int) -> int:
        """Return the start of the first window that contains an instant."""
        ...

    def last_holding(self, e: int) -> int:
        """Return the start of the last window that contains an instant."""
        ...

    def end(self, start: int) -> int:
        """Return the end of the window that starts there."""
        ...

    def later(self, start: int, windows: int) -> int:
        """Return the start of the window that is ``windows`` after the one at ``start``."""
        ...

    def between(self, start: int, end: int) -> int:
        """Return the number of windows that start in [start, end); both are starts."""
        ...

    def ending_by(self, start: int, e: int) -> int:
        """Return the number of windows from ``start`` on that end at e or before, at least 0."""
        ...


@lru_cache(maxsize=64)
def judged_windows(window: WindowSpec) -> JudgedWindows:
    """Return the windows that a declaration means."""
    return LocalWindows(window) if window.is_calendar else FixedWindows(window)


class FixedWindows:
    """Windows [k * slide + offset, k * slide + offset + size)."""

    def __init__(self, window: WindowSpec) -> None:
        self._size, self._slide = window.size_us, window.slide_us
        self._offset = window.offset_us

    def first_holding(self, e: int) -> int:
        """Return the start of the first window that contains an instant."""
        return (e - self._offset - self._size) // self._slide * self._slide + (
            self._slide + self._offset
        )

    def last_holding(self, e: int) -> int:
        """Return the start of the last window that contains an instant."""
        return (e - self._offset) // self._slide * self._slide + self._offset

    def end(self, start: int) -> int:
        """Return the end of the window that starts there."""
        return start + self._size

    def later(self, start: int, windows: int) -> int:
        """Return the start of the window that is ``windows`` after the one at ``start``."""
        return start + windows * self._slide

    def between(self, start: int, end: int) -> int:
        """Return the number of windows that start in [start, end); both are starts."""
        return (end - start) // self._slide

    def ending_by(self, start: int, e: int) -> int:
        """Return the number of windows from ``start`` on that end at e or before, at least 0."""
        return max(0, (e - self._size - start) // self._slide + 1)


class LocalWindows:
    """The windows of one calendar; the starts found so far are kept, without a hole."""

    def __init__(self, window: WindowSpec) -> None:
        self._window = window
        self._zone: tzinfo = ZoneInfo(window.zone) if window.zone else UTC
        self._numbers = range(0)
        self._starts: list[int] = []

    def first_holding(self, e: int) -> int:
        """Return the start of the window that contains an instant."""
        self._cover(e)
        return self._starts[bisect_right(self._starts, e) - 1]

    def last_holding(self, e: int) -> int:
        """Return the start of the window that contains an instant."""
        return self.first_holding(e)

    def end(self, start: int) -> int:
        """Return the end of the window that starts there: the start of the next one."""
        return self.later(start, 1)

    def ending_by(self, start: int, e: int) -> int:
        """Return the number of windows from ``start`` on that end at e or before, at least 0."""
        return max(0, self.between(start, self.first_holding(e)))

    def later(self, start: int, windows: int) -> int:
        """Return the start of the window that is ``windows`` after the one at ``start``."""
        self._cover(start)
        place = bisect_left(self._starts, start) + windows
        while not 0 <= place < len(self._starts):
            before = len(self._starts)
            if place < 0:
                self._add(self._numbers.start + min(place, -_AROUND), self._numbers.stop)
                place += len(self._starts) - before
            else:
                more = max(place - before, 0) + _AROUND
                self._add(self._numbers.start, self._numbers.stop + more)
        return self._starts[place]

    def between(self, start: int, end: int) -> int:
        """Return the number of windows that start in [start, end), negative if end < start."""
        self._cover(start)
        self._cover(end)
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def _cover(self, e: int) -> None:
        """Compute the starts around an instant."""
        number, around = self._number_at(e), _AROUND
        while not (
            self._numbers.start <= number - around
            and number + around < self._numbers.stop
            and self._starts[0] <= e < self._starts[-1]
        ):
            known = self._numbers or range(number, number)
            # By more than is needed, so that the readings of a year do not add one day each.
            more = around + len(known) // 2
            low = known.start - more if number - around < known.start else known.start
            high = known.stop + more if number + around >= known.stop else known.stop
            self._add(min(low, number - around), max(high, number + around + 1))
            around += _AROUND

    def _add(self, low: int, high: int) -> None:
        """Compute the starts of the local numbers [low, high), which include the known ones."""
        known = self._numbers or range(low, low)
        earlier = [self._instant(self._local(n)) for n in range(low, known.start)]
        later = [self._instant(self._local(n)) for n in range(known.stop, high)]
        self._starts = sorted({*earlier, *self._starts, *later})
        self._numbers = range(low, high)

    def _number_at(self, e: int) -> int:
        local = (_EPOCH + e * _US).astimezone(self._zone).replace(tzinfo=None)
        local -= self._window.offset_us * _US
        if self._window.months:
            return ((local.year - 1970) * 12 + local.month - 1) // self._window.months
        return (local - _LOCAL_EPOCH) // (self._window.size_us * _US)

    def _local(self, number: int) -> datetime:
        """Return what the clock shows at the start of a window."""
        if self._window.months:
            years, months = divmod(number * self._window.months, 12)
            first = _LOCAL_EPOCH.replace(year=1970 + years, month=1 + months)
        else:
            first = _LOCAL_EPOCH + number * self._window.size_us * _US
        return first + self._window.offset_us * _US

    def _instant(self, local: datetime) -> int:
        """Return the first instant (us) at which the clock shows a local time or a later one."""
        usual = local.replace(tzinfo=self._zone).astimezone(UTC)
        if self._shown(usual) == local:
            return (usual - _EPOCH) // _US
        # The clock jumps over it, within a day and a half of it: find the second.
        low, high = usual - timedelta(days=2), usual + timedelta(days=2)
        seconds = range((high - low) // timedelta(seconds=1))
        jump = bisect_left(
            seconds, True, key=lambda s: self._shown(low + timedelta(seconds=s)) >= local
        )
        return (low + timedelta(seconds=jump) - _EPOCH) // _US

    def _shown(self, at: datetime) -> datetime:
        return at.astimezone(self._zone).replace(tzinfo=None, fold=0)
