"""Sets of instants that divide event time: arithmetic progressions, and calendars.

``Edges`` answers for each instant which members are its neighbours. Members are whole microseconds
since the Unix epoch. A set is a pure function of its declaration, without state, so replicas agree
without messages.

``Progressions`` is the union of a few arithmetic progressions. The neighbours of any instant are
found with one remainder for each progression: a jump of a month costs no more than a jump of a
bucket. Rejected: a list of edges that grows with time, which has to be pruned, and restored after a
restart. A calendar (``slackwater.primitives.calendars``) is no progression, since a day of a zone
may have 23 hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd, lcm
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Progression = tuple[int, int]
"""(period, offset) stands for all k * period + offset; 0 <= offset < period."""

CUTS_MAX: Final = 16_000_000
"""Maximum cut points in one array (128 MB). A caller must treat a longer jump in time as one run.
"""


class Edges(Protocol):
    """An unbounded, strictly increasing sequence of instants."""

    def at_or_before(self, e: int) -> int:
        """Return the largest member <= e."""
        ...

    def after(self, e: int) -> int:
        """Return the smallest member > e."""
        ...

    def members(self, start: int, end: int) -> I64:
        """Return the members in [start, end], ascending."""
        ...

    def count(self, start: int, end: int) -> int:
        """Return the number of members in [start, end)."""
        ...


class Progressions:
    """The union of arithmetic progressions, none of which is contained in another."""

    __slots__ = ("all",)

    def __init__(self, progressions: Iterable[Progression]) -> None:
        self.all = distinct(progressions)

    def at_or_before(self, e: int) -> int:
        """Return the largest member <= e."""
        if len(self.all) == 1:
            period, offset = self.all[0]
            return e - (e - offset) % period
        return max([e - (e - offset) % period for period, offset in self.all])

    def after(self, e: int) -> int:
        """Return the smallest member > e."""
        if len(self.all) == 1:
            period, offset = self.all[0]
            return e - (e - offset) % period + period
        return min([e - (e - offset) % period + period for period, offset in self.all])

    def members(self, start: int, end: int) -> I64:
        """Return the members in [start, end], ascending."""
        assert self.count(start, end) < CUTS_MAX, "too many cut points for one array"
        if start > end:
            return np.empty(0, np.int64)
        runs = [
            np.arange(start + (offset - start) % period, end + 1, period, dtype=np.int64)
            for period, offset in self.all
        ]
        return runs[0] if len(runs) == 1 else np.unique(np.concatenate(runs))

    def count(self, start: int, end: int) -> int:
        """Members in [start, end), by inclusion and exclusion over a few progressions."""
        if start >= end:
            return 0
        total, sign = 0, 1
        for size in range(1, len(self.all) + 1):
            for several in combinations(self.all, size):
                common = _common(several)
                if common is not None:
                    period, offset = common
                    members = (end - 1 - offset) // period - (start - 1 - offset) // period
                    total += sign * members
            sign = -sign
        return total

    def contains_seconds(self) -> bool:
        """Return whether every whole second is a member."""
        return any(offset == 0 and 1_000_000 % period == 0 for period, offset in self.all)


@dataclass(frozen=True, slots=True)
class Union:
    """The union of sets of edges; counting takes a time in proportion to the members."""

    sets: Sequence[Edges]

    def at_or_before(self, e: int) -> int:
        """Return the largest member <= e."""
        return max([edges.at_or_before(e) for edges in self.sets])

    def after(self, e: int) -> int:
        """Return the smallest member > e."""
        return min([edges.after(e) for edges in self.sets])

    def members(self, start: int, end: int) -> I64:
        """Return the members in [start, end], ascending."""
        return np.unique(np.concatenate([edges.members(start, end) for edges in self.sets]))

    def count(self, start: int, end: int) -> int:
        """Return the number of members in [start, end)."""
        return len(self.members(start, end - 1))


def distinct(progressions: Iterable[Progression]) -> tuple[Progression, ...]:
    """Drop progressions contained in another; usually w divides all, and one remains."""
    kept: list[Progression] = []
    # In the order of periods: a progression is contained only in one whose period is not longer.
    for period, offset in sorted(set(progressions)):
        if not any(period % p == 0 and offset % p == o for p, o in kept):
            kept.append((period, offset))
    return tuple(kept)


def _common(progressions: tuple[Progression, ...]) -> Progression | None:
    """Return the common members: by the Chinese remainder theorem a progression, or None."""
    period, offset = progressions[0]
    for p, o in progressions[1:]:
        divisor = gcd(period, p)
        steps, rest = divmod(o - offset, divisor)
        if rest:
            return None
        steps = steps * pow(period // divisor, -1, p // divisor) % (p // divisor)
        offset += steps * period
        period = lcm(period, p)
        offset %= period
    return period, offset
