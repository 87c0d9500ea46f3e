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
those that the query's aggregates bring along (``slackwater.primitives.figures``). Their states
have a variable length and are merged beside them (``slackwater.primitives.states``).

Keys are interned once in a ``KeyTable``, and a slice refers to them by number, so a fold is numpy
arithmetic over columns without a loop over keys. It works element by element, without numpy's
reductions, so that neither the SIMD width nor the order of interning changes a bit of a result.
Negative zeros are replaced by zeros at construction, because which of two equal zeros ``fmin``
returns depends on the SIMD lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from slackwater.model.heads import PaneColumns
from slackwater.model.records import BucketRecord, DeltaRecord
from slackwater.primitives.digests import DIGEST_MASK, combined, digest_of
from slackwater.primitives.figures import (
    BASIC,
    COUNT,
    FIGURE_NAMES,
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
from slackwater.primitives.key_table import FOREVER, KeyTable
from slackwater.primitives.states import Cells, State, StateEntries, StateFold, joined

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)

PIECE_CELLS: Final = 1 << 17
"""Numbers in a stored piece of a slice: 1 MiB, which takes some milliseconds to write or read."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Figures for each key and field; an immutable value.

    ``index``, shape (n,), has the keys' numbers in a ``KeyTable``, distinct and in any order.
    ``figures``, shape (6 or more, fields, n), has count, sum, m2, min, max and low, then those that
    aggregates bring along. Both arrays are read-only. A key whose values are all missing has a row
    with min and max NaN, and the rest 0. Sum and low are NaN where a sum of several slices was
    beyond the range of doubles. ``states`` has the entries of each of the query's states.
    """

    index: I64
    figures: F64
    states: tuple[StateEntries, ...] = ()

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
        states: Sequence[State] = (),
        unneeded: Sequence[int] = (),
    ) -> Slice:
        """Return the slice of a record; interns its keys.

        ``fields`` are the query's, in order. Raises ``ValueError`` if the record has others.
        ``others`` are the query's figures beside the six; one that the record lacks has no value,
        and one of ``states`` no entries. Basic figures that are ``unneeded`` have no value either:
        they are there for another query.
        """
        if not len(record.keys):
            return cls.empty(len(fields), FIGURES + len(others))
        if record.fields != fields:
            raise ValueError(f"fields {record.fields} where the query has {fields}")
        columns = [record.count, record.sum, record.m2, record.min, record.max]
        for at in unneeded:
            columns[at] = np.full_like(record.sum, BASIC[at].nothing)
        for figure in others:
            column = record.others.get(figure.name)
            columns.append(np.full_like(record.sum, figure.nothing) if column is None else column)
        index = table.indices(record.keys, record.keys_hash, record.bucket_end)
        entries = [StateEntries.of(state, record.states.get(state.name), index) for state in states]
        return cls.build(index, columns, entries)

    @classmethod
    def build(
        cls, index: I64, columns: Sequence[F64], states: Sequence[StateEntries] = ()
    ) -> Slice:
        """Build a slice from count, sum, m2, min, max and others, each of shape (fields, n)."""
        figures = np.stack([*columns[:LOW], np.zeros_like(columns[SUM]), *columns[LOW:]])
        figures += 0.0  # removes negative zeros: see the module's docstring
        return cls(index, _frozen(figures), tuple(states))

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return self.figures.nbytes + sum(entries.nbytes for entries in self.states)

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

    def cells(self, table: KeyTable) -> list[Cells]:
        """Return the states in the order of ``sorted``."""
        if not self.states:
            return []
        order, _ = table.in_key_order(self.index)
        index = self.index if order is None else self.index[order]
        return [entries.by_row(index, self.figures.shape[1]) for entries in self.states]

    def to_bytes(self, table: KeyTable) -> bytes:
        """Encode the slice; equal values give equal bytes, whatever the keys' numbers are."""
        names, figures = self.sorted(table)
        head = "\0".join(names).encode() + b"\0%d,%d\0" % figures.shape[1:]
        states = b"".join(cells.to_bytes() for cells in self.cells(table))
        return head + np.where(np.isnan(figures), np.nan, figures).tobytes() + states


class Fold:
    """A left fold of slices; its result is a ``Slice``.

    While all slices have the same key list (the same ``index`` object), their columns are merged
    directly, and a single slice is returned as it is. At the first slice with another list the
    fold changes to columns over the whole table, into which keys are gathered and scattered. Both
    ways apply the same arithmetic to each element, so they return the same bits.
    """

    __slots__ = (
        "_dense", "_figures", "_has_m2", "_index", "_last", "_others", "_owned", "_seen", "_shape",
        "_states", "_table", "fields",
    )  # fmt: skip

    def __init__(
        self,
        table: KeyTable,
        fields: int,
        others: Sequence[Figure] = (),
        states: Sequence[State] = (),
        *,
        has_m2: bool = True,
    ) -> None:
        self.fields = fields
        self._has_m2 = has_m2
        self._states = tuple(map(StateFold, states))
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
        if self._states:
            for state, entries in zip(self._states, value.states, strict=True):
                state.add(entries)
        if self._dense is not None:
            self._scatter(value.index, value.figures)
        elif self._figures is None:
            self._index, self._figures, self._owned = value.index, value.figures, False
        elif value.index is self._index:
            if not self._owned:
                self._figures, self._owned = self._figures.copy(), True
            merge_into(self._figures, value.figures, self._others, has_m2=self._has_m2)
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
            return Slice(index, _frozen(self._dense.take(index, axis=2)), self._entries())
        if self._figures is None:
            return Slice.empty(self.fields, self._shape[0])
        self._owned = False
        return Slice(self._index, _frozen(self._figures), self._entries())

    def _entries(self) -> tuple[StateEntries, ...]:
        return tuple(state.result() for state in self._states)

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
        merge_into(merged, figures, self._others, has_m2=self._has_m2)
        # Row by row: numpy scatters twice as fast into one dimension as into the last of three.
        rows = self._dense.reshape(-1, self._dense.shape[2])
        for row, values in zip(rows, merged.reshape(-1, len(index)), strict=True):
            row[index] = values
        self._seen[index] = True


def fold(
    slices: Iterable[Slice],
    table: KeyTable,
    fields: int,
    others: Sequence[Figure] = (),
    states: Sequence[State] = (),
) -> Slice:
    """Return the left fold of the slices in their order."""
    accumulator = Fold(table, fields, others, states)
    for value in slices:
        accumulator.add(value)
    return accumulator.result()


class Aggregates:
    """The contents of a query with a window: one slice per delta.

    The children's shares are folded left, as panes are, so all copies add in the same order
    (rule-21, trace-28). ``others`` are the figures that the query's aggregates bring along,
    ``states`` their states, and ``having`` drops keys from a merged window. ``figures`` are the
    basic figures that the query needs; others, which its deltas may have for another query, keep
    their neutral value.
    """

    def __init__(
        self,
        table: KeyTable,
        fields: tuple[str, ...],
        others: Sequence[Figure] = (),
        states: Sequence[State] = (),
        having: Callable[[Slice, KeyTable], Slice] | None = None,
        figures: Sequence[str] = FIGURE_NAMES,
    ) -> None:
        self._unneeded = [at for at, name in enumerate(FIGURE_NAMES) if name not in figures]
        self._table = table
        self._fields = fields
        self._others = others
        self._states = states
        self._having = having

    @property
    def empty(self) -> Slice:
        """The slice without keys."""
        return Slice.empty(len(self._fields), FIGURES + len(self._others))

    def of(self, record: BucketRecord) -> Slice:
        """Return the slice of a delta."""
        assert isinstance(record, DeltaRecord), "a window is computed from deltas"
        table, fields, unneeded = self._table, self._fields, self._unneeded
        return Slice.of(record, table, fields, self._others, self._states, unneeded)

    def folding(self) -> Fold:
        """Return an empty fold."""
        fields, has_m2 = len(self._fields), M2 not in self._unneeded
        return Fold(self._table, fields, self._others, self._states, has_m2=has_m2)

    def kept(self, value: Slice) -> Slice:
        """Return the keys of a window that have a row in its answer."""
        return value if self._having is None else self._having(value, self._table)

    def digest(self, value: Slice) -> int:
        """Return the digest of the figures and states, whatever the keys' numbers are."""
        hashes, fields = self._table.hashes, len(self._fields)
        columns = [column for figure in value.figures for column in figure]
        found = digest_of(hashes(value.index), columns)
        for number, entries in enumerate(value.states, 1):
            of_entries = (entries.cells % fields, entries.ids, entries.weights)
            digest = digest_of(hashes(entries.cells // fields), of_entries)
            found += combined(number, digest)
        return found

    def cells(self, value: Slice) -> int:
        """Return how many numbers a slice has."""
        return value.nbytes // 8

    def digest_of_piece(self, value: Slice, piece: int) -> tuple[int, ...]:
        """Return what a piece adds to the digest of a slice (``total_digest``)."""
        rows = self._rows(piece)
        index, fields = value.index[rows], len(self._fields)
        hashes = self._table.hashes
        columns = [column[rows] for figure in value.figures for column in figure]
        found = [digest_of(hashes(index), columns)]
        for entries in value.states:
            mine = entries.of_keys(index, fields)
            of_entries = (mine.cells % fields, mine.ids, mine.weights)
            found.append(digest_of(hashes(mine.cells // fields), of_entries))
        return tuple(found)

    @staticmethod
    def total_digest(of_pieces: Iterable[tuple[int, ...]]) -> int:
        """Return ``digest`` of the slice that has these pieces, all of them."""
        figures, *states = map(sum, zip(*of_pieces, strict=True))
        masked = (combined(at, found & DIGEST_MASK) for at, found in enumerate(states, 1))
        return (figures & DIGEST_MASK) + sum(masked)

    # State movement (Flux, section 3.3.1: ``getState`` and ``installState``).

    def pieces(self, value: Slice) -> int:
        """Return in how many pieces a slice is stored, each of about ``PIECE_CELLS`` numbers."""
        return -(-len(value) // self._rows_of_piece)

    def extract(self, value: Slice, piece: int) -> PaneColumns:
        """Return a piece with the text of its keys.

        Keys are divided in key order, so that a piece is the same whoever wrote it: the numbers of
        keys are local to a process, and a reader may take pieces of two writers (rule-36).
        """
        rows, fields = self._rows(piece), len(self._fields)
        order, names = self._table.in_key_order(value.index)
        at = rows if order is None else order[rows]
        index = value.index[at]
        states = {
            state.name: entries.of_keys(index, fields).by_row(index, fields).ragged()
            for state, entries in zip(self._states, value.states, strict=True)
        }
        return PaneColumns(tuple(names[rows]), value.figures[:, :, at], states)

    def install(self, pieces: Sequence[PaneColumns], needed_to: int = FOREVER) -> Slice:
        """Return the slice of these pieces, also if keys have other numbers than where it was.

        Its keys are needed up to the event time ``needed_to``.

        Raises ``ValueError`` if the pieces are those of another query.
        """
        shape = (FIGURES + len(self._others), len(self._fields))
        if any(piece.figures.shape[:2] != shape for piece in pieces):
            raise ValueError(f"figures of another shape than {shape}")
        indices = [self._table.numbers(piece.keys, needed_to) for piece in pieces]
        index, figures = indices[0], pieces[0].figures
        if len(pieces) > 1:
            index = self._table.shared(np.concatenate(indices))
            figures = np.concatenate([piece.figures for piece in pieces], axis=2)
        states = []
        for state in self._states:
            of_pieces = [
                StateEntries.of(state, piece.states.get(state.name), numbers)
                for piece, numbers in zip(pieces, indices, strict=True)
            ]
            states.append(joined(state, of_pieces))
        return Slice(index, _frozen(figures), tuple(states))

    def _rows(self, piece: int) -> slice:
        return slice(piece * self._rows_of_piece, (piece + 1) * self._rows_of_piece)

    @property
    def _rows_of_piece(self) -> int:
        cells = (FIGURES + len(self._others)) * max(len(self._fields), 1)
        cells += sum(2 * state.entries_max for state in self._states)
        return max(PIECE_CELLS // cells, 1)

    def merge(self, shares: Iterable[Slice]) -> Slice:
        """Return the left fold of the children's shares."""
        return fold(shares, self._table, len(self._fields), self._others, self._states)


def _frozen(array: npt.NDArray[_T]) -> npt.NDArray[_T]:
    array.setflags(write=False)
    return array


_NO_INDEX: Final = _frozen(np.zeros(0, np.int64))
