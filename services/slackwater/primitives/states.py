"""States: figures of variable length, for aggregates that a few numbers cannot hold.

A state of one key and field is a sorted map from a number, the *id*, to a number, its *weight*. One
form serves all (`State`): counts by bin, registers by index, the largest values with how often each
occurs, the first or last value by its time. A child makes it from the readings of a bucket
(`lifted`), and a root merges those of buckets, panes and children. Both are numpy over all keys at
once; the aggregator only copies it from the ordered record to the delta, because real-time mode
knows no aggregation, and because one implementation of a bin or a hash needs no other to agree with
it bit for bit.

Merges are exact: they add integers, take a maximum, or select. So they are associative, and a fold
may merge whenever it has collected enough (`StateFold`) and gets the same bits. Where two entries
have one id, `EARLIER` keeps the left one and `LATER` the right one; the others do not depend on the
order either. `entries_max` bounds the entries of one key and field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from slackwater.model.records import Ragged

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Merge = Literal["ADD", "MAX", "EARLIER", "LATER"]
ENTRY_BYTES: Final = 16
"""Size of an entry in a record: id and weight."""
LENGTH_BYTES: Final = 8
"""Size of the number of entries of one key and field in a record."""
PENDING_MIN: Final = 1 << 15
"""StateEntries that a fold collects at least before it merges them."""


@dataclass(frozen=True, slots=True)
class State:
    """One kind of state, all that is known of it.

    ``of_readings`` makes id and weight of each reading from the values, without missing ones, and
    the event times, us; both of shape (n,). ``merge`` combines the weights of equal ids. ``keeps``
    is None if all entries are kept, else how many of the largest ids (negative: of the smallest).
    ``entries_max`` is the largest number of entries of one key and field.
    """

    name: str
    of_readings: Callable[[F64, I64], tuple[F64, F64]]
    merge: Merge
    entries_max: int
    keeps: int | None = None

    def wider(self, other: State | None) -> State:
        """Return this or the other of the same name, whichever keeps more entries."""
        return self if other is None or self.entries_max >= other.entries_max else other


@dataclass(frozen=True, slots=True, eq=False)
class StateEntries:
    """StateEntries of many cells, shape (n,) each, sorted by cell and id, which occur once.

    A cell is one key and field: the key's number in a ``KeyTable`` times the fields, plus the
    field. Read-only.
    """

    cells: I64
    ids: F64
    weights: F64

    def __post_init__(self) -> None:
        for array in (self.cells, self.ids, self.weights):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return self.cells.nbytes + self.ids.nbytes + self.weights.nbytes

    @classmethod
    def of(cls, state: State, ragged: Ragged | None, index: I64) -> StateEntries:
        """Return the entries of a record whose keys have these numbers; None: there are none."""
        if ragged is None:
            return NO_ENTRIES
        fields = len(ragged.lengths)
        cells = [
            np.repeat(index * fields + field, lengths.astype(np.int64))
            for field, lengths in enumerate(ragged.lengths)
        ]
        return merged(
            state, np.concatenate(cells), np.concatenate(ragged.ids), np.concatenate(ragged.weights)
        )

    def of_keys(self, index: I64, fields: int) -> StateEntries:
        """Return the entries of these keys alone."""
        keys = np.sort(index)
        starts = np.searchsorted(self.cells, keys * fields)
        counts = np.searchsorted(self.cells, (keys + 1) * fields) - starts
        before = np.cumsum(counts) - counts
        at = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
        return StateEntries(self.cells[at], self.ids[at], self.weights[at])

    def by_row(self, index: I64, fields: int) -> Cells:
        """Return the entries by rows; row i is the key with number ``index[i]``."""
        rows = np.zeros(1 + int(index.max(initial=-1)), np.int64)
        rows[index] = np.arange(len(index))
        cells = rows[self.cells // fields] * fields + self.cells % fields
        order = np.argsort(cells, kind="stable")
        counts = np.bincount(cells, minlength=len(index) * fields)
        starts = np.concatenate(([0], np.cumsum(counts)))
        return Cells(fields, starts, self.ids[order], self.weights[order])


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A state of the rows of a window.

    The entries of row r and field f are those from ``starts[r * fields + f]`` to the next start.
    """

    fields: int
    starts: I64
    ids: F64
    weights: F64

    def cut(self, start: int, stop: int) -> Cells:
        """Return the rows ``start`` to ``stop`` (exclusive)."""
        starts = self.starts[start * self.fields : stop * self.fields + 1]
        low, high = int(starts[0]), int(starts[-1])
        return Cells(self.fields, starts - low, self.ids[low:high], self.weights[low:high])

    def to_bytes(self) -> bytes:
        """Encode the cells; equal values give equal bytes."""
        return self.starts.tobytes() + self.ids.tobytes() + self.weights.tobytes()

    def ragged(self) -> Ragged:
        """Return the cells in the form of a record."""
        rows = (len(self.starts) - 1) // self.fields
        lengths = self.lengths.reshape(rows, self.fields)
        field_of = np.repeat(np.tile(np.arange(self.fields), rows), self.lengths)
        of_fields = [field_of == field for field in range(self.fields)]
        return Ragged(
            tuple(column.astype(np.float64) for column in lengths.T),
            tuple(self.ids[mine] for mine in of_fields),
            tuple(self.weights[mine] for mine in of_fields),
        )

    @property
    def lengths(self) -> I64:
        """Number of entries of each cell, shape (rows * fields,)."""
        return np.diff(self.starts)

    def shaped(self, of_cells: npt.NDArray[np.generic]) -> F64:
        """Return one number of each cell, shape (rows * fields,), as (fields, rows)."""
        return of_cells.reshape(-1, self.fields).T  # type: ignore[return-value]

    def weight(self) -> F64:
        """Return the weight of the only entry of each cell, shape (fields, rows); NaN without."""
        found = np.full(len(self.starts) - 1, np.nan)
        there = self.lengths > 0
        found[there] = self.weights[self.starts[:-1][there]]
        return self.shaped(found)

    def totals(self) -> I64:
        """Return the sum of the weights, integers, of each cell, shape (rows * fields,)."""
        return self._before()[self.starts[1:]] - self._before()[self.starts[:-1]]

    def at_rank(self, ranks: I64) -> F64:
        """Return the id at a rank of each cell, shape (fields, rows); NaN beyond the last one.

        ``ranks``, shape (rows * fields,), count from 1; each id occurs as often as its weight.
        """
        before = self._before()
        low, high = before[self.starts[:-1]], before[self.starts[1:]]
        inside = (ranks >= 1) & (ranks <= high - low)
        found = np.full(len(ranks), np.nan)
        at = np.searchsorted(before[1:], (low + ranks)[inside])
        found[inside] = self.ids[at]
        return self.shaped(found)

    def _before(self) -> I64:
        return np.concatenate(([0], np.cumsum(self.weights.astype(np.int64))))


def lifted(
    states: Sequence[State], offsets: F64, columns: Sequence[F64], stimes: I64
) -> dict[str, Ragged]:
    """Return the states of readings grouped by key, as in an ordered record.

    ``columns[f][offsets[i]:offsets[i + 1]]`` are those of key i in field f, in their order, and
    ``stimes`` their times. Missing values are left out.
    """
    keys = len(offsets) - 1
    owners = np.repeat(np.arange(keys), np.diff(offsets).astype(np.int64))
    found: dict[str, list[tuple[F64, F64, F64]]] = {state.name: [] for state in states}
    for column in columns:
        there = ~np.isnan(column)
        values, times, cells = column[there] + 0.0, stimes[there], owners[there]
        for state in states:
            entries = merged(state, cells, *state.of_readings(values, times))
            lengths = np.bincount(entries.cells, minlength=keys).astype(np.float64)
            found[state.name].append((lengths, entries.ids, entries.weights))
    return {name: Ragged(*zip(*of_fields, strict=True)) for name, of_fields in found.items()}


def merged(state: State, cells: I64, ids: F64, weights: F64) -> StateEntries:
    """Merge entries, given in the order of a fold, to at most ``entries_max`` of each cell."""
    if not len(cells):
        return NO_ENTRIES
    order = np.lexsort((ids, cells))
    cells, ids, weights = cells[order], ids[order], weights[order]
    first = _changes(cells, ids)
    if first.all():
        pass
    elif state.merge == "LATER":
        last = np.concatenate((first[1:], [True]))
        cells, ids, weights = cells[last], ids[last], weights[last]
    else:
        starts = np.flatnonzero(first)
        if state.merge == "ADD":
            weights = np.add.reduceat(weights, starts)
        elif state.merge == "MAX":
            weights = np.maximum.reduceat(weights, starts)
        else:
            weights = weights[starts]
        cells, ids = cells[starts], ids[starts]
    if state.keeps is not None:
        kept = _kept(cells, state.keeps)
        cells, ids, weights = cells[kept], ids[kept], weights[kept]
    return StateEntries(cells, ids, weights)


def joined(state: State, parts: Sequence[StateEntries]) -> StateEntries:
    """Return the entries of several sets of keys."""
    if len(parts) == 1:
        return parts[0]
    cells, ids, weights = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("cells", "ids", "weights")
    )
    return merged(state, cells, ids, weights)


def _changes(cells: I64, ids: F64) -> Bools:
    """Whether an entry has another cell or id than the one before it."""
    first = np.ones(len(cells), np.bool_)
    first[1:] = (cells[1:] != cells[:-1]) | (ids[1:] != ids[:-1])
    return first


def _kept(cells: I64, keeps: int) -> Bools:
    """Whether an entry is one of the last ``keeps`` of its cell (negative: of the first)."""
    count = abs(keeps)
    kept = np.ones(len(cells), np.bool_)
    if len(cells) > count:
        same = cells[count:] == cells[:-count]
        if keeps > 0:
            kept[:-count] = ~same
        else:
            kept[count:] = ~same
    return kept


NO_ENTRIES: Final = StateEntries(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


class StateFold:
    """A left fold of the entries of one state.

    StateEntries are collected, and merged when there are more of them than twice those of the last
    merge, so an entry is sorted a few times, not once for each bucket of its pane.
    """

    __slots__ = ("_collected", "_limit", "_pending", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._pending: list[StateEntries] = []
        self._collected = 0
        self._limit = PENDING_MIN

    def add(self, entries: StateEntries) -> None:
        """Merge one more, to the right of all earlier ones."""
        if len(entries):
            self._pending.append(entries)
            self._collected += len(entries)
            if self._collected > self._limit:
                self._limit = max(PENDING_MIN, 2 * len(self.result()))

    def result(self) -> StateEntries:
        """Return the fold so far."""
        pending = self._pending
        if len(pending) > 1:
            cells, ids, weights = (
                np.concatenate([getattr(entries, name) for entries in pending])
                for name in ("cells", "ids", "weights")
            )
            self._pending = [merged(self._state, cells, ids, weights)]
            self._collected = len(self._pending[0])
        return self._pending[0] if self._pending else NO_ENTRIES


def bytes_max(states: Sequence[State]) -> int:
    """Return the largest size of these states of one key and field in a record, bytes."""
    return sum(LENGTH_BYTES + ENTRY_BYTES * state.entries_max for state in states)


def bytes_of(states: Sequence[State], counts: I64) -> I64:
    """Return an upper bound of the size in a record of one field of keys with ``counts`` readings.

    A reading makes at most one entry in each state.
    """
    size = np.zeros(len(counts), np.int64)
    for state in states:
        size += LENGTH_BYTES + ENTRY_BYTES * np.minimum(counts, state.entries_max)
    return size
