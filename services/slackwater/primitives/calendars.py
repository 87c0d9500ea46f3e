"""Windows that follow a calendar: days, shifts, weeks and months as the clocks of a zone show them.

A window begins at the first instant at which the clock shows its local start or a later time, and
ends where the next one begins. This definition needs no rule for each case:

* a day on which the clock is put forward has 23 hours, one on which it is put back has 25;
* a local start that occurs twice means the first occurrence;
* a local start that does not occur, as midnight on a day that begins at 1:00, means the instant at
  which the clock jumps over it;
* a day that does not exist (Apia, 30 December 2011) would be empty, and is no window.

The instants are strictly increasing, and every instant is in exactly one window.

They are computed for one year at a time and kept. The offset of a zone is sampled once a day, and a
change is found to the second by bisection; then all windows of the year are computed by a few
vector operations. Outside the years 1600 to 2799 the calendar repeats with its period of 400 years
(146,097 days, which are whole weeks), which ``datetime`` could not represent.

The zone's rules are those of the IANA database on this machine, and governments change them. Two
machines with other rules would compute other windows, so ``zone_digest`` identifies the rules: it
is recorded when a query is registered, and compared by each process.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.primitives.edges import I64

_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_YEARS: Final = range(1600, 2800)
"""Years that are computed; all others repeat one of these."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_OFFSET_DAYS_MAX: Final = 40
"""A window may begin this long after the year to which it is counted: 28 days, and some hours."""
_DIGEST_YEARS: Final = range(1970, 2100)

_Year = tuple[int, ...]
_Piece = tuple[int, int]
"""From an instant on (us), the clock shows the instant plus an offset (us)."""


class Calendar:
    """The starts of a query's windows; each is the end of the window before."""

    __slots__ = ("_near", "window")

    def __init__(self, window: WindowSpec) -> None:
        assert window.is_calendar
        self.window = window
        self._near = (0, 0)  # the last window found: neighbouring instants are asked in turn

    def at_or_before(self, e: int) -> int:
        """Return the start of the window that holds e."""
        low, high = self._near
        if not low <= e < high:
            self._near = low, _ = self._around(e)
        return low

    def after(self, e: int) -> int:
        """Return the end of the window that holds e."""
        low, high = self._near
        if not low <= e < high:
            self._near = _, high = self._around(e)
        return high

    def members(self, start: int, end: int) -> I64:
        """Return the starts in [start, end], ascending."""
        if start > end:
            return np.empty(0, np.int64)
        (first, low), (last, high) = self._place(start - 1), self._place(end)
        found: list[int] = []
        for year in range(first, last + 1):
            starts = _starts(self.window, year)
            stop = high + 1 if year == last else len(starts)
            found += starts[low + 1 if year == first else 0 : stop]
        return np.array(found, np.int64)

    def count(self, start: int, end: int) -> int:
        """Return the number of starts in [start, end)."""
        if start >= end:
            return 0
        (first, low), (last, high) = self._place(start - 1), self._place(end - 1)
        return high - low + sum(_length(self.window, year) for year in range(first, last))

    def later(self, start: int, windows: int) -> int:
        """Return the start of the window that is ``windows`` after the one at ``start``."""
        year, at = self._place(start)
        at += windows
        while at < 0:
            year -= 1
            at += _length(self.window, year)
        while at >= (length := _length(self.window, year)):
            at -= length
            year += 1
        return _starts(self.window, year)[at]

    def _around(self, e: int) -> tuple[int, int]:
        """Return the neighbours of e: the largest start <= e, and the next one."""
        year, at = self._place(e)
        starts = _starts(self.window, year)
        following = starts[at + 1] if at + 1 < len(starts) else _starts(self.window, year + 1)[0]
        return starts[at], following

    def _place(self, e: int) -> tuple[int, int]:
        """Return the year of the largest start <= e, and its index in this year."""
        year = _year_of(e)
        while e < _starts(self.window, year)[0]:
            year -= 1
        # Clocks may be ahead of UTC, so the next year may have begun.
        while e >= _starts(self.window, year + 1)[0]:
            year += 1
        return year, bisect_right(_starts(self.window, year), e) - 1


def zone_digest(zone: str) -> str:
    """Return the identity of a zone's rules from 1970 to 2099: 16 hexadecimal digits.

    Two versions of the database that agree on the zone have one digest, whatever else they differ
    in.
    """
    rules = hashlib.sha256()
    before: int | None = None
    for year in _DIGEST_YEARS:
        for at, offset in _pieces(zone, year):
            if offset != before:
                rules.update(b"%d %d\n" % (at if before is not None else 0, offset))
            before = offset
    return rules.hexdigest()[:16]


def _year_of(e: int) -> int:
    cycles, days = divmod(e // _DAY_US + _EPOCH_ORDINAL - 1, _CYCLE_DAYS)
    return date.fromordinal(days + 1).year + cycles * _CYCLE_YEARS


def _computed_year(year: int) -> int:
    """Return the year of ``_YEARS`` that a year equals."""
    if year < _YEARS.start:
        return _YEARS.start + year % _CYCLE_YEARS
    if year >= _YEARS.stop:
        return _YEARS.stop - _CYCLE_YEARS + year % _CYCLE_YEARS
    return year


@lru_cache(maxsize=64)
def _starts(window: WindowSpec, year: int) -> _Year:
    """Return the starts of the windows counted to a year of the zone's clock, ascending."""
    computed = _computed_year(year)
    shift = (year - computed) // _CYCLE_YEARS * _CYCLE_DAYS * _DAY_US
    if shift:
        return tuple(start + shift for start in _starts(window, computed))
    # With the first start of the next year, so that no instant is counted to two years.
    local = np.append(_local_starts(window, year), _local_starts(window, year + 1)[0])
    instants = _instants(local, _pieces(window.zone, year))
    return tuple(instants[:-1][instants[:-1] < instants[1:]].tolist())


@lru_cache(maxsize=4096)
def _length(window: WindowSpec, year: int) -> int:
    computed = _computed_year(year)
    return len(_starts(window, year)) if computed == year else _length(window, computed)


def _local_starts(window: WindowSpec, year: int) -> I64:
    """Return what the clock shows at the starts of a year's windows, as us since 1970."""
    if window.months:
        first = [_local(year, month) for month in range(1, 13, window.months)]
        return np.array(first, np.int64) + window.offset_us
    begins, size, offset = _local(year), window.size_us, window.offset_us
    begins += (offset - begins) % size
    return np.arange(begins, _local(year + 1), size, dtype=np.int64)


def _local(year: int, month: int = 1) -> int:
    return (date(year, month, 1).toordinal() - _EPOCH_ORDINAL) * _DAY_US


def _instants(local: I64, pieces: tuple[_Piece, ...]) -> I64:
    """Return for each local time the first instant at which the clock shows it or a later one."""
    instants = np.empty_like(local)
    end = np.iinfo(np.int64).max
    # Later pieces first: an earlier instant replaces a later one.
    for begin, offset in reversed(pieces):
        found = np.maximum(local - offset, begin)
        instants = np.where(found < end, found, instants)
        end = begin
    return instants


@lru_cache(maxsize=256)
def _pieces(zone: str, year: int) -> tuple[_Piece, ...]:
    """Return the offsets of the clock around a year, from two days before it."""
    clock = _clock(zone)
    if clock is None:
        return ((_local(year) - 2 * _DAY_US, 0),)

    def offset_at(second: int) -> int:
        at = datetime.fromtimestamp(second, clock).utcoffset()
        assert at is not None
        return at // timedelta(microseconds=1)

    first, last = _local(year) - 2 * _DAY_US, _local(year + 1) + _OFFSET_DAYS_MAX * _DAY_US
    pieces = [(first, offset_at(first // _SECOND_US))]
    for day in range(first // _SECOND_US, last // _SECOND_US, _DAY_US // _SECOND_US):
        following = day + _DAY_US // _SECOND_US
        before, now = pieces[-1][1], offset_at(following)
        if now != before:
            seconds = range(day, following + 1)
            changed = bisect_left(seconds, True, key=lambda s: offset_at(s) != before)
            pieces.append((seconds[changed] * _SECOND_US, now))
    return tuple(pieces)


@cache
def _clock(zone: str) -> ZoneInfo | None:
    """Return the zone's rules, None for UTC; ``EnvironmentProblem`` if this machine lacks them."""
    if zone in ("", "UTC"):
        return None
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        reason = f"this machine has no time zone {zone}: install the package tzdata ({error})"
        raise EnvironmentProblem(reason) from error
