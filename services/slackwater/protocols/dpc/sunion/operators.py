"""Operators between SUnion and SOutput: Join, Filter, Map and the packing of a bucket.

Operators are deterministic functions of their input order (DPC, section 2.1). A bucket's readings
are put in the order (stime, stream, id), or joined (``join.py``), then filtered and mapped as
columns, and packed. A query with a window packs them by key, in key order, since they will be
aggregated; a query without one packs them as rows in their order (trace-21). A bucket too large for
one record is cut into pieces by one fixed rule, between keys or between rows (trace-32). The result
is a pure function of the bucket's readings and of those that a join looks back to, whatever records
they came in, so all replicas write the same bytes.

The work is done by column: a record's keys become ints when its key list is first read, and sorting
by key is numpy's radix sort of the keys' ranks. A key's number is needed for one bucket only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from slackwater.model.records import Ragged, SourceColumns, type_f64, type_i32, type_i64
from slackwater.primitives.figures import BASIC
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.states import ENTRY_BYTES, LENGTH_BYTES, State, bytes_of, lifted
from slackwater.protocols.dpc.sunion.join import SJoin, Table
from slackwater.protocols.dpc.sunion.shared_buckets import SharedBuckets

if TYPE_CHECKING:
    from slackwater.primitives.expressions import Predicate, Projection


KEY_BYTES: Final = 40
"""Minimum size of a key in a record, with its offset."""
KEY_TEXT_BYTES: Final = 24
"""Length of key text included in ``KEY_BYTES``."""
FIGURE_BYTES: Final = 8
"""Size of a figure of one key and field in a delta."""


@dataclass(frozen=True, slots=True)
class BucketPiece:
    """The part of a bucket that is one record.

    Readings by key: ``keys`` are in key order, and ``values[f][offsets[i]:offsets[i + 1]]`` are
    those of key i in field f. Rows: each has a time in ``stimes`` and the index of its key in
    ``key_index``, and ``offsets`` is [0]. ``states`` are those of its keys, by name.
    """

    keys: Sequence[str]
    offsets: type_f64
    fields: tuple[str, ...]
    values: tuple[type_f64, ...]
    stimes: type_i64 = field(default_factory=lambda: np.zeros(0, np.int64))
    key_index: type_i32 = field(default_factory=lambda: np.zeros(0, np.int32))
    states: Mapping[str, Ragged] = field(default_factory=dict)


class Operators:
    """The operators of one query, with the key table of one orderer.

    Args:
        fields: names of the input fields, in order; for a join those of the joined rows. A stream
            without one of the fields has NaN there.
        where: keeps a reading only if it is TRUE; None: all.
        select: the fields of the result; None: all input fields.
        keys: the numbers of keys.
        join: the join of two streams; None: their union.
        piece_bytes_max: the largest size of a piece.
        delta_bytes_max: the largest size of the delta that the aggregator makes of a piece.
        others: the number of figures in the delta beside the basic ones.
        states: the states that a record has beside its readings.
        rows: pack the readings as rows in their order, not grouped by key.
        shared: cache of the buckets of other orderers with the same operators; None: no cache.
    """

    def __init__(
        self,
        fields: tuple[str, ...],
        where: Predicate | None,
        select: Projection | None,
        keys: KeyTable,
        *,
        join: SJoin | None = None,
        piece_bytes_max: int = 8 << 20,
        delta_bytes_max: int = 12 << 20,
        others: int = 0,
        states: Sequence[State] = (),
        rows: bool = False,
        shared: SharedBuckets[list[BucketPiece]] | None = None,
    ) -> None:
        self._input_fields = fields
        self._where = where
        self._select = select
        self._keys = keys
        self._made_buckets = 0
        self._join = join
        self._shared = shared
        self._piece_bytes_max = piece_bytes_max
        self._delta_bytes_max = delta_bytes_max
        self._figures_bytes = FIGURE_BYTES * (len(BASIC) + others)
        self._states = tuple(states)
        self._reading_bytes = 8 + ENTRY_BYTES * len(self._states)
        self._pack = self._in_rows if rows else self._by_key

    @property
    def lookback_us(self) -> int:
        """How far below a bucket's start its content depends on readings (trace-26)."""
        return 0 if self._join is None else self._join.within_us

    def bucket(
        self,
        streams: Sequence[Iterable[tuple[SourceColumns, int]]],
        start: int,
        end: int,
    ) -> list[BucketPiece]:
        """The pieces of the bucket [start, end); none if it is empty.

        ``streams`` has, for each log in id order, columns with their previous watermark. Readings
        outside [start - lookback, end), or below their previous watermark (trace-23), are left out.

        Raises:
            JoinTooLargeError: the join has too many pairs.
        """
        if self._shared is None:
            return self._made(streams, start, end)
        given = [list(of_stream) for of_stream in streams]
        return self._shared.content(start, end, given, lambda: self._made(given, start, end))

    def _made(
        self, streams: Sequence[Iterable[tuple[SourceColumns, int]]], start: int, end: int
    ) -> list[BucketPiece]:
        self._keys.forget_before(self._made_buckets)
        self._made_buckets += 1  # in the place of an event time: lines are at different ones
        if self._join is None:
            rows = _in_order(self._table(streams, self._input_fields, start, end))
        else:
            rows = self._joined(self._join, streams, start, end)
        stimes, index, columns = self._apply(rows)
        return self._pack(stimes, index, columns) if len(index) else []

    def _joined(
        self,
        join: SJoin,
        streams: Sequence[Iterable[tuple[SourceColumns, int]]],
        start: int,
        end: int,
    ) -> Table:
        low = start - join.within_us
        left = [s for s, is_left in zip(streams, join.left_of, strict=True) if is_left]
        right = [s for s, is_left in zip(streams, join.left_of, strict=True) if not is_left]
        return join.rows(
            self._table(left, join.left_fields, low, end),
            self._table(right, join.right_fields, low, end),
            start,
        )

    def _table(
        self,
        streams: Iterable[Iterable[tuple[SourceColumns, int]]],
        fields: tuple[str, ...],
        low: int,
        high: int,
    ) -> Table:
        """The readings in [low, high), stream by stream in id order."""
        return _concatenated(
            [
                part
                for columns_of_stream in streams
                for columns, prev_watermark in columns_of_stream
                if (part := self._slice(columns, fields, max(low, prev_watermark), high))
                is not None
            ],
            len(fields),
        )

    def _slice(
        self, columns: SourceColumns, fields: tuple[str, ...], low: int, high: int
    ) -> Table | None:
        stimes = columns.stimes
        if len(stimes) == 0:
            return None
        inside = np.flatnonzero((stimes >= low) & (stimes < high))
        if len(inside) == 0:
            return None
        pick = slice(None) if len(inside) == len(stimes) else inside
        # Only those of the bucket: a record may have 10,000 readings, each in another bucket.
        numbers = self._keys.numbers(columns.keys, self._made_buckets)
        index = numbers[columns.key_index[pick]]
        by_name = dict(zip(columns.fields, columns.values, strict=True))
        stimes = stimes[pick]
        values = tuple(
            by_name[name][pick] if name in by_name else np.full(len(stimes), np.nan)
            for name in fields
        )
        return Table(stimes, index, values)

    def _apply(self, rows: Table) -> tuple[type_i64, np.ndarray, dict[str, type_f64]]:
        stimes, index = rows.stimes, rows.keys
        columns = dict(zip(self._input_fields, rows.values, strict=True))
        if self._where is not None and len(index):
            keep = self._where.mask(columns, index, self._keys.known)
            if not keep.all():
                stimes, index = stimes[keep], index[keep]
                columns = {name: column[keep] for name, column in columns.items()}
        if self._select is not None and len(index):
            columns = self._select.apply(columns, index, self._keys.known)
        return stimes, index, columns

    def _by_key(
        self, stimes: type_i64, index: np.ndarray, columns: dict[str, type_f64]
    ) -> list[BucketPiece]:
        ranks, by_rank = self._keys.ranked(index)
        small = np.uint16 if len(by_rank) <= 1 << 16 else np.int64  # numpy's radix sort
        rank = ranks.astype(small)
        order = np.argsort(rank, kind="stable")
        counts = np.bincount(rank, minlength=len(by_rank))
        present = np.flatnonzero(counts)
        offsets = np.concatenate(([0], np.cumsum(counts[present])))
        fields = tuple(columns)
        values = tuple(columns[name][order] for name in fields)
        names = by_rank if len(present) == len(by_rank) else [by_rank[i] for i in present.tolist()]
        pieces = []
        for begin, end in pairwise(self._cuts(offsets, len(fields), names)):
            low = int(np.searchsorted(offsets, begin, "right")) - 1
            high = int(np.searchsorted(offsets, end))
            of_keys = (np.clip(offsets[low : high + 1], begin, end) - begin).astype(np.float64)
            of_fields = tuple(column[begin:end] for column in values)
            piece = BucketPiece(
                names if high - low == len(names) else names[low:high],
                of_keys,
                fields,
                of_fields,
                states=lifted(self._states, of_keys, of_fields, stimes[order[begin:end]])
                if self._states
                else {},
            )
            pieces.append(piece)
        return pieces

    def _in_rows(
        self, stimes: type_i64, index: np.ndarray, columns: dict[str, type_f64]
    ) -> list[BucketPiece]:
        ranks, by_rank = self._keys.ranked(index)
        fields = tuple(columns)
        of_key = KEY_BYTES + _longer(by_rank[i] for i in np.unique(ranks).tolist()).max()
        rows_max = max(1, self._piece_bytes_max // (8 * len(fields) + 12 + int(of_key)))
        pieces = []
        for low in range(0, len(index), rows_max):
            cut = slice(low, low + rows_max)
            present, key_index = np.unique(ranks[cut], return_inverse=True)
            complete = len(present) == len(by_rank)
            names = by_rank if complete else [by_rank[i] for i in present.tolist()]
            values = tuple(columns[name][cut] for name in fields)
            places = key_index.astype(np.int32)
            pieces.append(BucketPiece(names, np.zeros(1), fields, values, stimes[cut], places))
        return pieces

    def _cuts(self, offsets: np.ndarray, fields: int, names: Sequence[str]) -> list[int]:
        """The indices among the readings at which pieces begin, and the number of readings.

        A piece ends before the key that would make it, or its delta, too large. The delta is the
        larger of the two if each key has one reading: a field has five figures or more. Both have
        the states, whose size in the delta is bounded for each key. A
        key that is too large for a piece by itself is cut too, wherever a piece is full; the root
        merges the aggregates of its pieces, as it merges those of buckets.
        """
        counts = np.diff(offsets)
        of_reading = self._reading_bytes * fields
        key_bytes = KEY_BYTES + LENGTH_BYTES * len(self._states) * fields
        sizes = counts * of_reading + key_bytes
        figured = self._figures_bytes * fields + KEY_BYTES + fields * bytes_of(self._states, counts)
        room = min(
            self._piece_bytes_max - int(sizes.sum()), self._delta_bytes_max - int(figured.sum())
        )
        # The length of the joined text is a fast check that suffices for nearly all buckets.
        if room >= 0 and len("".join(names).encode()) <= room:
            return [0, int(offsets[-1])]
        longer = _longer(names)
        sizes, figured = sizes + longer, figured + longer
        rows_max = max(1, self._piece_bytes_max // of_reading)
        cuts = [0]
        held = made = 0
        begins = offsets.tolist()
        for i, (size, figures) in enumerate(zip(sizes.tolist(), figured.tolist(), strict=True)):
            if held and (
                held + size > self._piece_bytes_max or made + figures > self._delta_bytes_max
            ):
                cuts.append(begins[i])
                held = made = 0
            held += size
            made += figures
            if size > self._piece_bytes_max:
                within = range(begins[i] + rows_max, begins[i + 1], rows_max)
                cuts.extend(within)
                held -= len(within) * rows_max * of_reading
        return [*cuts, begins[-1]]


def _longer(names: Iterable[str]) -> np.ndarray:
    """Per key, the bytes of its text beyond ``KEY_TEXT_BYTES``."""
    lengths = np.array([len(name.encode()) for name in names], np.int64)
    return np.maximum(lengths - KEY_TEXT_BYTES, 0)


def _in_order(table: Table) -> Table:
    """By time; readings of one time stay in the order (stream, id)."""
    stimes = table.stimes
    if not np.any(stimes[1:] < stimes[:-1]):
        return table
    order = np.argsort(stimes, kind="stable")
    return Table(stimes[order], table.keys[order], tuple(v[order] for v in table.values))


def _concatenated(parts: Sequence[Table], fields: int) -> Table:
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Table(nothing, nothing, (np.zeros(0),) * fields)
    if len(parts) == 1:
        return parts[0]
    return Table(
        np.concatenate([p.stimes for p in parts]),
        np.concatenate([p.keys for p in parts]),
        tuple(np.concatenate([p.values[f] for p in parts]) for f in range(fields)),
    )
