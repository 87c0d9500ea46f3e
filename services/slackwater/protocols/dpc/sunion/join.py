"""SJoin: joins two streams' readings that are close in event time.

DPC section 2.1 has a Join over a window of time, section 3 makes it deterministic: SUnion puts the
input in one order, and SJoin processes it in that order. Here the order of a bucket serves for
this. The join of a bucket is a function of its readings and of those up to ``within`` before it. A
pair belongs to the bucket that holds the *later* of its two times, so to exactly one. The paper's
SJoin keeps the window as operator state. Here the cursors keep readings for as long as a later
reading may join them, so a fork or a restart copies no state (trace-26).

The join is vectorised: one side is sorted by (key, time), a binary search finds the range that each
reading of the other side joins, and the ranges are expanded to pairs. The result is ordered by
(time, place in the left input, place in the right input). Places are those of ids, whatever records
the readings came in.

Rejected: a hash table of keys that is kept from bucket to bucket. It does less work when the window
is much longer than a bucket, but it is state that must be forked, rebuilt and bounded.
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
"""Most pairs in one bucket; they take 16 MB for each field."""


class JoinTooLargeError(SlackwaterError):
    """The join of one bucket has more pairs than a process can hold."""


class Table(NamedTuple):
    """Readings or joined rows, as columns of one length.

    ``keys`` are the numbers of a ``KeyTable``; ``values`` has one array for each field. The input
    of a join is in the order of ids, stream by stream.
    """

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

        Both sides hold all their readings from ``start - within_us`` up to the bucket's end.

        Raises:
            JoinTooLargeError: the bucket has more than ``rows_max`` pairs.
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
        # First each left reading with the right readings up to its time, then each right reading
        # with the left readings before its time: pairs of equal times are in the first set.
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
        """Pairs, as indices: each reading of ``new`` from ``start`` on, and one of ``old``.

        ``side`` "right" includes readings of ``old`` with the same time, "left" does not.
        """
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
