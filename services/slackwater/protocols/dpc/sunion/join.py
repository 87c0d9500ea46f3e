"""SJoin: joins two streams' readings that are close in event time.

DPC section 2.1 has a Join over a window of time, section 3 makes it deterministic: SUnion puts the
input in one order, and SJoin processes it in that order. Here a bucket is that order, so the join
of a bucket is a function of its readings and of those up to ``within`` before it: a pair belongs to
the bucket that holds the *later* of its two times, and each pair to exactly one. The paper's SJoin
keeps the window as operator state; here it stays with the cursors, which keep readings until
they can join no more, so a fork or a restart copies no state (trace-26).

Nothing runs once per reading: one side is sorted by (key, time), the other asks it for a range by
binary search, and the ranges are spread into pairs. The order of the result (time, place in the
left stream, place in the right) is that of ids, whatever records the readings came in.

Rejected: a hash table of keys that is kept from bucket to bucket. It does less work when the window
is much longer than a bucket, and is state that must be forked, rebuilt and bounded by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from slackwater.model.errors import SlackwaterError
from slackwater.model.records import type_f64, type_i64

type_index = npt.NDArray[np.intp]

JOINED_ROWS_DEFAULT_MAX: Final = 2_000_000
"""Most pairs in one bucket: 16 MB a field."""


class JoinTooLargeError(SlackwaterError):
    """The join of one bucket has more pairs than a process can hold."""


class Table(NamedTuple):
    """Readings by column, in the order of their stream: times, key numbers, one array a field."""

    stimes: type_i64
    keys: npt.NDArray[np.int64]
    values: tuple[type_f64, ...]


@dataclass(frozen=True, slots=True)
class SJoin:
    """Join of readings with equal keys and times at most ``within_us`` apart.

    ``left_of[i]``: whether input i of the orderer belongs to the left stream.
    """

    within_us: int
    left_of: tuple[bool, ...]
    left_fields: tuple[str, ...]
    right_fields: tuple[str, ...]
    rows_max: int = JOINED_ROWS_DEFAULT_MAX

    def rows(self, left: Table, right: Table, start: int) -> Table:
        """The pairs whose later time is at or after ``start``, with the left fields first.

        Both sides hold what they have from ``start - within_us`` up to the bucket's end.
        """
        stimes, l_at, r_at = self._pairs(left, right, start)
        return Table(
            stimes,
            left.keys[l_at],
            (*(v[l_at] for v in left.values), *(v[r_at] for v in right.values)),
        )

    def _pairs(
        self, left: Table, right: Table, start: int
    ) -> tuple[type_i64, type_index, type_index]:
        base = start - self.within_us
        behind = max((int(t.stimes.max()) for t in (left, right) if len(t.stimes)), default=base)
        span = behind - base + 1
        # A reading of the left and those of the right up to its time; then the other way round,
        # without equal times, which are pairs already.
        l_new, r_old = self._ranges(left, right, base, start, span, side="right")
        r_new, l_old = self._ranges(right, left, base, start, span, side="left")
        rows = len(l_new) + len(r_new)
        if rows > self.rows_max:
            raise self._too_large(rows, start)
        l_at, r_at = np.concatenate((l_new, l_old)), np.concatenate((r_old, r_new))
        stimes = np.maximum(left.stimes[l_at], right.stimes[r_at])
        order = np.lexsort((r_at, l_at, stimes))
        return stimes[order], l_at[order], r_at[order]

    def _ranges(
        self, new: Table, old: Table, base: int, start: int, span: int, *, side: str
    ) -> tuple[type_index, type_index]:
        """Each reading of ``new`` from ``start`` on with those of ``old`` that it joins."""
        places = np.flatnonzero(new.stimes >= start)
        if not len(places) or not len(old.stimes):
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        # (key, time) as one number: a key's times fill a range of ``span``.
        keyed = old.keys * span + (old.stimes - base)
        order = np.argsort(keyed, kind="stable")
        keyed = keyed[order]
        key, time = new.keys[places] * span, new.stimes[places] - base
        low = np.searchsorted(keyed, key + np.maximum(time - self.within_us, 0), "left")
        high = np.searchsorted(keyed, key + time, "right" if side == "right" else "left")
        counts = np.maximum(high - low, 0)
        rows = int(counts.sum())
        if rows > self.rows_max:
            raise self._too_large(rows, start)
        first = np.cumsum(counts) - counts
        found = np.arange(rows) - np.repeat(first - low, counts)
        return np.repeat(places, counts), order[found]

    def _too_large(self, rows: int, start: int) -> JoinTooLargeError:
        return JoinTooLargeError(
            f"the join has {rows} rows in the bucket at {start}, more than {self.rows_max}: "
            "use a shorter within, or keys that fewer readings share"
        )
