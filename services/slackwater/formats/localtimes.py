"""Local times of a zone to instants: microseconds since the epoch in UTC.

When clocks are set back an hour of local times occurs twice, and when they are set forward an hour
does not exist. A time of the first kind means the earlier or the later instant as declared by
``fold``; by default it is refused, as one of the second kind always is, since any choice would move
readings by an hour in silence.

``instant_of`` is the definition, for one time. For columns the offset of a zone is looked up once
for each hour of local time. An hour in which the offset changes, or that has times of both kinds,
is left to the definition; such hours are two in a year.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from slackwater.model.deployment import Fold
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import type_i64

HOURS_KEPT_MAX: Final = 65_536
"""Maximum hours of a zone whose offsets are kept: seven years."""
_HOUR_US: Final = 3_600_000_000
_CHANGES: Final = 1
"""In place of an offset: the hour is left to the definition. Offsets are multiples of a second."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 -- local times have no zone
_US: Final = timedelta(microseconds=1)
_FIRST_US: Final = (datetime.min - _EPOCH) // _US  # noqa: DTZ901


class LocalTimeError(ValueError):
    """Raised for a local time that is no instant, or two; the message names it and the zone."""


class LocalTimes:
    """Converts the local times of one zone."""

    def __init__(self, zone: str, fold: Fold) -> None:
        """Look up the zone; ``EnvironmentProblem`` if this machine lacks it."""
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, OSError, ValueError) as error:
            reason = f"this machine has no time zone {zone}: install the package tzdata ({error})"
            raise EnvironmentProblem(reason) from error
        self._name, self._fold = zone, fold
        self._offset_of_hour = lru_cache(maxsize=HOURS_KEPT_MAX)(self._offset_in)

    # The definition.

    def instant_of(self, local_us: int) -> int:
        """Return the instant of a local time, given as if it were UTC; ``LocalTimeError``."""
        first, second = self._offsets(local_us)
        if local_us - first < _FIRST_US:
            raise LocalTimeError(f"{_shown(local_us)} in {self._name} is before the year 1")
        if first == second:
            return local_us - first
        # PEP 495: the offset before the change comes first, so it is smaller before a missing hour.
        if first < second:
            raise LocalTimeError(f"{_shown(local_us)} does not exist in {self._name}")
        if self._fold == "refuse":
            raise LocalTimeError(
                f"{_shown(local_us)} occurs twice in {self._name}: declare fold: first or second"
            )
        return local_us - (first if self._fold == "first" else second)

    def _offsets(self, local_us: int) -> tuple[int, int]:
        """Return the offsets from UTC in us, for both folds."""
        local = _EPOCH + timedelta(microseconds=local_us)
        first, second = (
            local.replace(tzinfo=self._zone, fold=fold).utcoffset() or timedelta()
            for fold in (0, 1)
        )
        return first // _US, second // _US

    # Whole columns.

    def instants_of(self, local_us: type_i64) -> tuple[type_i64, npt.NDArray[np.bool_]]:
        """Return the instants of a column, and a mask of the times that are refused."""
        hours, places = np.unique(local_us // _HOUR_US, return_inverse=True)
        offsets = np.array([self._offset_of_hour(hour) for hour in hours.tolist()], np.int64)
        instants: type_i64 = local_us - offsets[places]
        refused = instants < _FIRST_US
        for i in np.flatnonzero((offsets == _CHANGES)[places]).tolist():
            try:
                instants[i] = self.instant_of(int(local_us[i]))
            except (LocalTimeError, OverflowError):
                refused[i] = True
        return instants, refused

    def _offset_in(self, hour: int) -> int:
        """Return the offset of an hour of local time, or ``_CHANGES``."""
        try:
            start, end = (self._offsets(each * _HOUR_US) for each in (hour, hour + 1))
        except OverflowError:  # at the ends of the calendar
            return _CHANGES
        return start[0] if start[0] == start[1] == end[0] == end[1] else _CHANGES


@lru_cache(maxsize=1_024)
def local_times(zone: str, fold: Fold) -> LocalTimes:
    """Return the conversion of a zone, whose offsets are kept for later batches."""
    return LocalTimes(zone, fold)


def _shown(local_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=local_us)).isoformat(" ")
