"""Delta-CRDTs over columns: a child's partial aggregates per bucket, and their merge.

Fargo (section 3.5) sends window aggregates up its tree as delta-CRDTs. The join of a delta-CRDT may
be applied repeatedly, late, or in any order (Enes et al., summarised in Fargo's section 2.5.4). A
sum is not such a join: it is wrong when added twice, and Fargo's "take the larger" holds only for
values that never decrease. Therefore nothing is added on arrival. The lattice used here is a *map
of identified slices*: it maps (child, replica, bucket) to the pieces written for the bucket, each
with a version, and the join of two maps keeps the pieces of the greatest versions. Sums are
computed from the map afterwards, by a left fold in a fixed order (rule-21, trace-28). Two copies
thus compute the same bits, whereas the bits of sums added on arrival would depend on the order.
A root keeps the entries that it still needs, folded into panes (``panes.py``). This module defines
the values and their fold.

A ``Slice`` has six figures per key and field: count, sum, m2, min, max and low, and after them
those that the query's aggregates bring along (``slackwater.primitives.figures``).

Keys are interned once in a ``KeyTable``, and a slice refers to them by number, so a fold is numpy
arithmetic over columns without a loop over keys. It works element by element, without numpy's
reductions, so that neither the SIMD width nor the order of interning changes a bit of a result.
Negative zeros are replaced by zeros at construction, because which of two equal zeros ``fmin``
returns depends on the SIMD lane.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from slackwater.model.errors import SlackwaterError
from slackwater.model.records import BucketRecord, DeltaRecord
from slackwater.primitives.caches import evict
from slackwater.primitives.figures import (
    COUNT,
    FIGURES,
    LOW,
    M2,
    MAX,
    MIN,
    SUM,
    Figure,
    merge_into,
    nothing,
)

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)


class KeyTableFull(SlackwaterError):
    """Raised when the key table exceeds its bound, as with keys that never repeat."""


@dataclass(slots=True)
class _KeyList:
    """A list of keys, their numbers, and the approximate memory of both."""

    keys: Sequence[str]
    numbers: I64
    nbytes: int


class KeyTable:
    """Numbers the keys of one root or one orderer, from 0 on, in order of first occurrence.

    The numbers are valid within this table only; another copy may read keys in another order. Keys
    are never removed, so ``keys_max`` and ``keys_bytes_max`` bound the memory (about 100 bytes per
    key plus its text). ``lists_max`` and ``lists_bytes_max`` bound each of the two caches of key
    lists. The cache by hash evicts the least recently used list, and keeps one list of any length;
    the cache by identity is cleared when it is full.
    """

    def __init__(
        self,
        keys_max: int = 5_000_000,
        lists_max: int = 1_024,
        *,
        keys_bytes_max: int = 1 << 30,
        lists_bytes_max: int = 128 << 20,
    ) -> None:
        assert keys_max > 0
        assert lists_max > 0
        self._keys_max = keys_max
        self._keys_bytes_max = keys_bytes_max
        self._keys_bytes = 0
        self._lists_max = lists_max
        self._lists_bytes_max = lists_bytes_max
        self._lists_bytes = self._shared_bytes = 0
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        self._lists: OrderedDict[tuple[int, int], _KeyList] = OrderedDict()
        self._sorted: list[int] = []
        self._in_order: list[str] = []
        self._rank: I64 = np.zeros(0, np.int64)
        self._order_of: tuple[I64, I64 | None, list[str]] | None = None
        self._folded: list[I64] = []
        self._shared: dict[int, tuple[Sequence[str], I64]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def indices(self, keys: Sequence[str], keys_hash: int = 0) -> I64:
        """Return the numbers of ``keys``, which must be distinct; new keys are interned.

        For an equal list with its ``keys_hash`` the same array object is returned, by which a fold
        recognises an unchanged list. A hash of 0 means that it is unknown. Lists with one hash are
        compared: Spark's hash has no secret, so keys could be chosen to collide. For a decoder that
        returns the same object for equal lists the comparison costs nothing.

        Raises:
            KeyTableFull: the table would exceed its bounds.
            ValueError: a key occurs twice.
        """
        at = (keys_hash, len(keys))
        known = self._lists.get(at) if keys_hash else None
        if known is None:
            index = self._intern(keys)
        elif known.keys is keys or tuple(known.keys) == tuple(keys):
            self._lists.move_to_end(at)
            known.keys = keys
            return known.numbers
        else:
            return self._intern(keys)
        if keys_hash:
            size = index.nbytes + _text_bytes(keys)
            self._lists[at] = _KeyList(keys, index, size)
            self._lists_bytes += size
            self._lists_bytes = evict(
                self._lists,
                self._lists_bytes,
                lambda _, remembered: remembered.nbytes,
                entries_max=self._lists_max,
                bytes_max=self._lists_bytes_max,
            )
        return index

    def names(self, index: I64) -> list[str]:
        """Return the keys of these numbers."""
        names = self._names
        return [names[i] for i in index.tolist()]

    def in_key_order(self, index: I64) -> tuple[I64 | None, list[str]]:
        """Return the permutation that sorts ``index`` by key (None: sorted), and the sorted keys.

        The order is that of the UTF-8 bytes, which equals Python's order of strings. The last
        result is cached, because the keys seldom change from one window to the next.
        """
        if self._order_of is None or self._order_of[0] is not index:
            self._order_of = (index, *self._put_in_order(index))
        _, order, names = self._order_of
        return order, names

    def shared(self, index: I64) -> I64:
        """Return an equal array that an earlier call returned, or else ``index``.

        Folds of the same keys then have the same ``index`` object, by which later folds recognise
        an unchanged list. The last eight arrays are kept.
        """
        for known in self._folded:
            if np.array_equal(known, index):
                return known
        index.setflags(write=False)
        self._folded = [index, *self._folded[:7]]
        return index

    def ranks(self) -> tuple[I64, list[str]]:
        """Return the rank of each number in key order, and all keys in key order."""
        self._sort()
        return self._rank, self._in_order

    def numbers(self, keys: Sequence[str]) -> I64:
        """Return ``indices`` of a key list, cached by identity: codecs reuse the list object."""
        known = self._shared.get(id(keys))
        if known is not None and known[0] is keys:
            return known[1]
        numbers = self.indices(keys)
        size = numbers.nbytes + _text_bytes(keys)  # this may be the last reference to these strings
        full = self._shared_bytes + size > self._lists_bytes_max
        if full or len(self._shared) >= self._lists_max:
            self._shared.clear()
            self._shared_bytes = 0
        self._shared[id(keys)] = (keys, numbers)
        self._shared_bytes += size
        return numbers

    @property
    def remembered_bytes(self) -> int:
        """Approximate size of both caches of key lists (guarantee-5)."""
        return self._lists_bytes + self._shared_bytes

    @property
    def known(self) -> Sequence[str]:
        """All keys, indexed by number."""
        return self._names

    def _sort(self) -> None:
        if len(self._sorted) < len(self._names):
            # Nearly sorted already, which is fast with Python's sort.
            self._sorted.extend(range(len(self._sorted), len(self._names)))
            self._sorted.sort(key=self._names.__getitem__)
            self._rank = np.empty(len(self._sorted), np.int64)
            self._rank[self._sorted] = np.arange(len(self._sorted))
            self._in_order = [self._names[i] for i in self._sorted]

    def _put_in_order(self, index: I64) -> tuple[I64 | None, list[str]]:
        self._sort()
        ranks = self._rank[index]
        if bool((ranks[1:] > ranks[:-1]).all()):
            return None, self.names(index)
        order = np.argsort(ranks)
        return order, self.names(index[order])

    def _intern(self, keys: Sequence[str]) -> I64:
        number, names = self._number, self._names
        index = np.fromiter((number.get(key, -1) for key in keys), np.int64, len(keys))
        if index.size and int(index.min()) < 0:
            fresh = [key for key in keys if key not in number]
            self._keys_bytes += _text_bytes(fresh)
            if len(names) + len(fresh) > self._keys_max or self._keys_bytes > self._keys_bytes_max:
                raise KeyTableFull(
                    f"more than {self._keys_max} different keys, or {self._keys_bytes_max} bytes "
                    "of keys, in one part of a query: use more parts, or a key with fewer values"
                )
            for key in fresh:
                if number.setdefault(key, len(names)) == len(names):
                    names.append(key)
            index = np.fromiter((number[key] for key in keys), np.int64, len(keys))
        if len(set(index.tolist())) != len(index):
            raise ValueError("a key list contains a key twice")
        index.setflags(write=False)
        return index


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Figures for each key and field; an immutable value.

    ``index``, shape (n,), has the keys' numbers in a ``KeyTable``, distinct and in any order.
    ``figures``, shape (6 or more, fields, n), has count, sum, m2, min, max and low, then those that
    aggregates bring along. Both arrays are read-only. A key whose values are all missing has a row
    with min and max NaN, and the rest 0. Sum and low are NaN where a sum of several slices was
    beyond the range of doubles.
    """

    index: I64
    figures: F64

    def __post_init__(self) -> None:
        assert self.figures.shape[0] >= FIGURES
        assert self.figures.shape[2] == len(self.index)
        assert not self.index.flags.writeable
        assert not self.figures.flags.writeable

    @classmethod
    def empty(cls, fields: int, figures: int = FIGURES) -> Slice:
        """Return the slice without keys: the neutral element of a fold."""
        return cls(_NO_INDEX, _frozen(np.zeros((figures, fields, 0))))

    @classmethod
    def of(
        cls,
        record: DeltaRecord,
        table: KeyTable,
        fields: tuple[str, ...],
        others: Sequence[Figure] = (),
    ) -> Slice:
        """Return the slice of a record; interns its keys.

        ``fields`` are the query's, in order. Raises ``ValueError`` if the record has others.
        ``others`` are the query's figures beside the six; one that the record lacks has no value.
        """
        if not len(record.keys):
            return cls.empty(len(fields), FIGURES + len(others))
        if record.fields != fields:
            raise ValueError(f"fields {record.fields} where the query has {fields}")
        columns = [record.count, record.sum, record.m2, record.min, record.max]
        for figure in others:
            column = record.others.get(figure.name)
            columns.append(np.full_like(record.sum, figure.nothing) if column is None else column)
        return cls.build(table.indices(record.keys, record.keys_hash), columns)

    @classmethod
    def build(cls, index: I64, columns: Sequence[F64]) -> Slice:
        """Build a slice from count, sum, m2, min, max and others, each of shape (fields, n)."""
        figures = np.stack([*columns[:LOW], np.zeros_like(columns[SUM]), *columns[LOW:]])
        figures += 0.0  # removes negative zeros: see the module's docstring
        return cls(index, _frozen(figures))

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return self.figures.nbytes

    @property
    def count(self) -> F64:
        """Number of values, shape (fields, n)."""
        return self._column(COUNT)

    @property
    def sum(self) -> F64:
        """Sum of the values."""
        return self._column(SUM)

    @property
    def low(self) -> F64:
        """Exact sum of the values, less ``sum``; at most half a unit in the last place of it."""
        return self._column(LOW)

    @property
    def m2(self) -> F64:
        """Sum of squared deviations from the mean."""
        return self._column(M2)

    @property
    def min(self) -> F64:
        """Smallest value; NaN where there is none."""
        return self._column(MIN)

    @property
    def max(self) -> F64:
        """Largest value; NaN where there is none."""
        return self._column(MAX)

    def _column(self, figure: int) -> F64:
        column: F64 = self.figures[figure]
        return column

    def __len__(self) -> int:
        return len(self.index)

    def sorted(self, table: KeyTable) -> tuple[list[str], F64]:
        """Return the keys in key order and the figures in the same order: the rows of a window."""
        order, names = table.in_key_order(self.index)
        return names, self.figures if order is None else self.figures[:, :, order]

    def to_bytes(self, table: KeyTable) -> bytes:
        """Encode the slice; equal values give equal bytes, whatever the keys' numbers are."""
        names, figures = self.sorted(table)
        head = "\0".join(names).encode() + b"\0%d,%d\0" % figures.shape[1:]
        return head + np.where(np.isnan(figures), np.nan, figures).tobytes()


class Fold:
    """A left fold of slices; its result is a ``Slice``.

    While all slices have the same key list (the same ``index`` object), their columns are merged
    directly, and a single slice is returned as it is. At the first slice with another list the
    fold changes to columns over the whole table, into which keys are gathered and scattered. Both
    ways apply the same arithmetic to each element, so they return the same bits.
    """

    __slots__ = (
        "_dense", "_figures", "_index", "_last", "_others", "_owned", "_seen", "_shape", "_table",
        "fields",
    )  # fmt: skip

    def __init__(self, table: KeyTable, fields: int, others: Sequence[Figure] = ()) -> None:
        self.fields = fields
        self._others = others
        self._shape = (FIGURES + len(others), fields)
        self._table = table
        self._index: I64 = _NO_INDEX
        self._figures: F64 | None = None
        self._owned = False
        self._dense: F64 | None = None
        self._seen: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._last: Slice | None = None

    def add(self, value: Slice) -> None:
        """Merge one more slice, to the right of all earlier ones."""
        if not len(value):
            return
        assert value.figures.shape[:2] == self._shape, "slices of different queries"
        self._last = None
        if self._dense is not None:
            self._scatter(value.index, value.figures)
        elif self._figures is None:
            self._index, self._figures, self._owned = value.index, value.figures, False
        elif value.index is self._index:
            if not self._owned:
                self._figures, self._owned = self._figures.copy(), True
            merge_into(self._figures, value.figures, self._others)
        else:
            self._spread()
            self._scatter(value.index, value.figures)

    def result(self) -> Slice:
        """Return the fold so far; later additions do not change the returned value."""
        if self._last is None:
            self._last = self._publish()
        return self._last

    def _publish(self) -> Slice:
        if self._dense is not None:
            index = self._table.shared(np.flatnonzero(self._seen))
            return Slice(index, _frozen(self._dense.take(index, axis=2)))
        if self._figures is None:
            return Slice.empty(self.fields, self._shape[0])
        self._owned = False
        return Slice(self._index, _frozen(self._figures))

    def _spread(self) -> None:
        assert self._figures is not None
        index, figures = self._index, self._figures
        self._dense = nothing(self._others, self.fields, len(self._table))
        self._seen = np.zeros(len(self._table), np.bool_)
        self._index, self._figures = _NO_INDEX, None
        self._dense[:, :, index] = figures
        self._seen[index] = True

    def _scatter(self, index: I64, figures: F64) -> None:
        assert self._dense is not None
        size = self._dense.shape[2]
        if size < len(self._table):
            room = max(len(self._table), size + size // 2) - size
            fresh = nothing(self._others, self.fields, room)
            self._dense = np.concatenate([self._dense, fresh], axis=2)
            self._seen = np.concatenate([self._seen, np.zeros(room, np.bool_)])
        merged = self._dense.take(index, axis=2)
        merge_into(merged, figures, self._others)
        # Row by row: numpy scatters twice as fast into one dimension as into the last of three.
        rows = self._dense.reshape(-1, self._dense.shape[2])
        for row, values in zip(rows, merged.reshape(-1, len(index)), strict=True):
            row[index] = values
        self._seen[index] = True


def fold(
    slices: Iterable[Slice], table: KeyTable, fields: int, others: Sequence[Figure] = ()
) -> Slice:
    """Return the left fold of the slices in their order."""
    accumulator = Fold(table, fields, others)
    for value in slices:
        accumulator.add(value)
    return accumulator.result()


class Aggregates:
    """The contents of a query with a window: one slice per delta.

    The children's shares are folded left, as panes are, so all copies add in the same order
    (rule-21, trace-28). ``others`` are the figures that the query's aggregates bring along.
    """

    def __init__(
        self, table: KeyTable, fields: tuple[str, ...], others: Sequence[Figure] = ()
    ) -> None:
        self._table = table
        self._fields = fields
        self._others = others

    @property
    def empty(self) -> Slice:
        """The slice without keys."""
        return Slice.empty(len(self._fields), FIGURES + len(self._others))

    def of(self, record: BucketRecord) -> Slice:
        """Return the slice of a delta."""
        assert isinstance(record, DeltaRecord), "a window is computed from deltas"
        return Slice.of(record, self._table, self._fields, self._others)

    def folding(self) -> Fold:
        """Return an empty fold."""
        return Fold(self._table, len(self._fields), self._others)

    def merge(self, shares: Iterable[Slice]) -> Slice:
        """Return the left fold of the children's shares."""
        return fold(shares, self._table, len(self._fields), self._others)


def _text_bytes(keys: Iterable[str]) -> int:
    return sum(map(getsizeof, keys))


def _frozen(array: npt.NDArray[_T]) -> npt.NDArray[_T]:
    array.setflags(write=False)
    return array


_NO_INDEX: Final = _frozen(np.zeros(0, np.int64))
