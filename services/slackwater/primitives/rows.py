"""Rows: the answers of a query without a window, which are its readings in order.

DPC's Filter, Map and Union (section 4.2) forward tuples one by one, with the label of their input;
SUnion determines the order. So nothing is aggregated here. The pieces of a bucket are concatenated,
and the children's shares are merged by (stime, child). Each child's rows are in order already, so
this is the order that one SUnion over all streams would make. Without a window a bucket is answered
as one unit, so a *fold* never has more than one bucket's pieces (trace-21).

Data are columns. Keys are numbers in the root's key table. If a query has several parts, each part
keeps the rows whose keys belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackwater.model.records import BucketRecord, OrderedRecord
from slackwater.primitives.digests import digest_of
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.keyparts import XXHASH64, KeyHash, parts_of

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
        """Approximate size in memory."""
        return self.stimes.nbytes + self.index.nbytes + self.values.nbytes

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Rows:
        """Return some of the rows, or all in another order."""
        return Rows(self.stimes[which], self.index[which], self.values[:, which])


class RowContents:
    """The contents of one part of a query without a window."""

    def __init__(
        self,
        table: KeyTable,
        fields: tuple[str, ...],
        *,
        part: int = 0,
        parts: int = 1,
        key_hash: KeyHash = XXHASH64,
    ) -> None:
        assert 0 <= part < parts
        self._table = table
        self._fields = fields
        self._part = part
        self._parts = parts
        self._key_hash = key_hash

    @property
    def empty(self) -> Rows:
        """No rows."""
        nothing = np.zeros(0, np.int64)
        return Rows(nothing, nothing, np.zeros((len(self._fields), 0)))

    def of(self, record: BucketRecord) -> Rows:
        """Return the rows of a piece whose keys belong to this part."""
        assert isinstance(record, OrderedRecord), "rows are read from ordered logs"
        if not len(record.stimes):
            return self.empty
        if record.fields != self._fields:
            raise ValueError(f"fields {record.fields} where the query has {self._fields}")
        numbers = self._table.numbers(record.keys, record.bucket_end)
        rows = Rows(record.stimes, numbers[record.key_index], np.stack(record.values))
        if self._parts == 1:
            return rows
        mine = self._belongs(record.keys, numbers)[record.key_index]
        return rows if mine.all() else rows.take(mine)

    def folding(self) -> RowsFold:
        """Return an empty fold."""
        return RowsFold(self.empty)

    def kept(self, value: Rows) -> Rows:
        """Return all rows: ``having`` is for windows."""
        return value

    def digest(self, value: Rows) -> int:
        """Return the digest of the rows, in any order."""
        hashes = self._table.hashes(value.index)
        return digest_of(hashes, [value.stimes, *value.values])

    def merge(self, shares: Iterable[Rows]) -> Rows:
        """Return the children's rows, merged by (stime, child)."""
        rows = concatenated(list(shares), self.empty)
        if not np.any(rows.stimes[1:] < rows.stimes[:-1]):
            return rows
        return rows.take(np.argsort(rows.stimes, kind="stable"))

    def _belongs(self, keys: Sequence[str], numbers: I64) -> npt.NDArray[np.bool_]:
        """Return per key whether it belongs to this part; the table hashes each key once."""
        if self._key_hash == XXHASH64:
            parts = self._table.hashes(numbers).view(np.int64) % self._parts
        else:
            parts = parts_of(keys, self._parts, self._key_hash)
        mine: npt.NDArray[np.bool_] = parts == self._part
        return mine


class RowsFold:
    """Concatenates rows."""

    def __init__(self, empty: Rows) -> None:
        self._empty = empty
        self._values: list[Rows] = []

    def add(self, value: Rows) -> None:
        """Append rows."""
        self._values.append(value)

    def result(self) -> Rows:
        """Return all rows so far."""
        complete = concatenated(self._values, self._empty)
        self._values = [complete]
        return complete


def concatenated(values: Sequence[Rows], empty: Rows) -> Rows:
    """Concatenate in order; a single value is returned unchanged."""
    values = [value for value in values if len(value)]
    if len(values) < 2:
        return values[0] if values else empty
    return Rows(
        np.concatenate([value.stimes for value in values]),
        np.concatenate([value.index for value in values]),
        np.concatenate([value.values for value in values], axis=1),
    )
