"""Rows: the answers of a query without a window, which are its readings in order.

DPC's Filter, Map and Union (section 4.2) pass tuples on one by one, each labelled by the input it
was made from; only the order is made, by SUnion. So there is nothing to merge here: the pieces of a
bucket are put behind each other, and the children's shares are merged by (stime, child), which is
what one SUnion over all streams would have done, since each child's rows are in order already.

Without a window a bucket is answered as one (trace-21), so a *fold* never has more than one
bucket's pieces. All of it is columns; the keys are numbers in the table that the root has for its
figures too, and a part of several keeps the rows whose key belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from slackwater.model.records import BucketRecord, OrderedRecord
from slackwater.primitives.deltas import KeyTable

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Readings in their order: ``stimes`` and ``index`` (n,), ``values`` (fields, n).

    ``index`` numbers the keys in a ``KeyTable``. NaN is a missing value.
    """

    stimes: I64
    index: I64
    values: F64

    def __len__(self) -> int:
        return len(self.stimes)

    @property
    def nbytes(self) -> int:
        """About its size in memory."""
        return self.stimes.nbytes + self.index.nbytes + self.values.nbytes

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Rows:
        """Some of the rows, or all in another order."""
        return Rows(self.stimes[which], self.index[which], self.values[:, which])


def part_of(key: str, parts: int) -> int:
    """The part that a key belongs to: the same in every process and at every time."""
    return crc32(key.encode()) % parts


class RowContents:
    """The contents of one part of a query without a window."""

    def __init__(
        self, table: KeyTable, fields: tuple[str, ...], *, part: int = 0, parts: int = 1
    ) -> None:
        assert 0 <= part < parts
        self._table = table
        self._fields = fields
        self._part = part
        self._parts = parts
        self._mine: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    @property
    def empty(self) -> Rows:
        """No rows."""
        nothing = np.zeros(0, np.int64)
        return Rows(nothing, nothing, np.zeros((len(self._fields), 0)))

    def of(self, record: BucketRecord) -> Rows:
        """The rows of a piece whose keys belong to this part."""
        assert isinstance(record, OrderedRecord), "rows come as the orderer wrote them"
        if not len(record.stimes):
            return self.empty
        if record.fields != self._fields:
            raise ValueError(f"fields {record.fields} where the query has {self._fields}")
        index = self._table.numbers(record.keys)[record.key_index]
        rows = Rows(record.stimes, index, np.stack(record.values))
        if self._parts == 1:
            return rows
        mine = self._belongs()[index]
        return rows if mine.all() else rows.take(mine)

    def folding(self) -> RowsFold:
        """An empty fold."""
        return RowsFold(self.empty)

    def merge(self, shares: Iterable[Rows]) -> Rows:
        """The children's rows, merged by (stime, child)."""
        rows = concatenated(list(shares), self.empty)
        if not np.any(rows.stimes[1:] < rows.stimes[:-1]):
            return rows
        return rows.take(np.argsort(rows.stimes, kind="stable"))

    def _belongs(self) -> npt.NDArray[np.bool_]:
        """By key number, whether the key is of this part; hashed once for each key."""
        known = len(self._mine)
        fresh = self._table.known[known:]
        if len(fresh):
            mine = [part_of(key, self._parts) == self._part for key in fresh]
            self._mine = np.concatenate([self._mine, np.array(mine, np.bool_)])
        return self._mine


class RowsFold:
    """Rows put behind each other."""

    def __init__(self, empty: Rows) -> None:
        self._empty = empty
        self._values: list[Rows] = []

    def add(self, value: Rows) -> None:
        """Some more, behind all before."""
        self._values.append(value)

    def result(self) -> Rows:
        """All of them."""
        complete = concatenated(self._values, self._empty)
        self._values = [complete]
        return complete


def concatenated(values: Sequence[Rows], empty: Rows) -> Rows:
    """One after the other; a single one as it is."""
    values = [value for value in values if len(value)]
    if len(values) < 2:
        return values[0] if values else empty
    return Rows(
        np.concatenate([value.stimes for value in values]),
        np.concatenate([value.index for value in values]),
        np.concatenate([value.values for value in values], axis=1),
    )
