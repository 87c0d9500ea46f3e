"""Converts callers' data to Arrow tables: columns, tables, data frames, single readings.

The buffer divides its readings into batches. A batch has one schema. Its content depends only on
its readings, not on the calls that added them, so a sender that repeats its readings after a
restart repeats the same bytes.

Data that a caller can change is copied: readings are queued after ``send`` has returned, and
callers reuse their arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.producer.columns import UNUSABLE, array_of, is_column, plain, repeated
from slackwater.producer.sink import ProducerError

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Half the maximum size of a request, since text is larger in a request than in memory."""
Readings = Any
"""A table, or a list of single readings."""


def pieces_of(readings: Any) -> Readings:
    """Return the readings of one call as a table or a list of mappings.

    Raises ``ProducerError`` if they have another form.
    """
    try:
        if isinstance(readings, Mapping):
            if not any(map(is_column, readings.values())):
                return [dict(readings)]
            return _table_of(readings)
        if isinstance(readings, pa.Table):
            return _plain(readings)
        if isinstance(readings, pa.RecordBatch):
            return _plain(pa.Table.from_batches([readings]))
        if type(readings).__module__.partition(".")[0] == "pandas" and hasattr(readings, "columns"):
            return _plain(_from_pandas(readings))
        if hasattr(readings, "__arrow_c_stream__"):
            return _plain(pa.RecordBatchReader.from_stream(readings).read_all())
        if isinstance(readings, Sequence) and all(isinstance(one, Mapping) for one in readings):
            return [dict(one) for one in readings]
    except UNUSABLE as error:
        raise ProducerError(f"the readings cannot be converted to columns: {error}") from error
    raise ProducerError(
        f"readings of type {type(readings).__name__}: pass a mapping of columns or of values, a "
        "list of such readings, an Arrow table or a data frame"
    )


def as_table(piece: Readings) -> Any:
    """Return single readings as a table; an absent value is null."""
    if not isinstance(piece, list):
        return piece
    names = dict.fromkeys(name for reading in piece for name in reading)
    try:
        columns = {name: array_of(name, [one.get(name) for one in piece]) for name in names}
        return pa.table(columns)
    except ProducerError as error:
        raise ProducerError(f"the readings of a batch differ in their types: {error}") from error
    except UNUSABLE as error:
        raise ProducerError(f"the readings cannot be converted to columns: {error}") from error


def encoded(table: Any) -> bytes:
    """Encode a table as an Arrow IPC stream of one record batch.

    The rows are copied first, because a slice shares the buffers of its table and would be written
    with some of the neighbouring rows.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.take(pa.array(np.arange(len(table)))).combine_chunks())
    content: bytes = sink.getvalue().to_pybytes()
    return content


def rows_per_part(table: Any, readings_max: int) -> int:
    """Return the number of rows of a table that fit one request."""
    size = max(1, int(table.nbytes))
    return max(1, min(readings_max, len(table) * BATCH_BYTES_MAX // size))


class Buffer:
    """A queue of readings, in order. Not thread-safe."""

    def __init__(self) -> None:
        self._pieces: deque[Readings] = deque()
        self.readings = 0

    def add(self, piece: Readings) -> None:
        """Add the readings of one call."""
        if not len(piece):
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(piece, list) and isinstance(last, list):
            last.extend(piece)
        else:
            self._pieces.append(piece)
        self.readings += len(piece)

    def has(self, readings: int) -> bool:
        """Return whether the first batch can have this many readings."""
        return self._mergeable() >= readings

    @property
    def is_cut(self) -> bool:
        """Whether the first batch is complete because readings of another schema follow it."""
        return self._mergeable() < self.readings

    def take(self, readings_max: int, *, exact: bool = False) -> Any:
        """Remove and return the first readings as a table, at most as many as fit a batch.

        ``exact``: exactly ``readings_max``, whatever their size.
        """
        first = self._pieces[0]
        if isinstance(first, list):
            table = as_table(first[:readings_max])
            if not exact:
                table = as_table(first[: rows_per_part(table, readings_max)])
            del first[: len(table)]
            if not first:
                self._pieces.popleft()
        else:
            n = readings_max if exact else rows_per_part(first, readings_max)
            table = self._take_tables(n)
        self.readings -= len(table)
        return table

    def _take_tables(self, readings: int) -> Any:
        taken: list[Any] = []
        schema, left = self._pieces[0].schema, readings
        while left and self._pieces and _has_schema(self._pieces[0], schema):
            table = self._pieces.popleft()
            taken.append(table.slice(0, left))
            if len(table) > left:
                self._pieces.appendleft(table.slice(left))
            left -= len(taken[-1])
        return pa.concat_tables(taken)

    def _mergeable(self) -> int:
        if not self._pieces:
            return 0
        first = self._pieces[0]
        if isinstance(first, list):
            return len(first)
        found = 0
        for piece in self._pieces:
            if not _has_schema(piece, first.schema):
                break
            found += len(piece)
        return found


def _has_schema(piece: Readings, schema: Any) -> bool:
    return not isinstance(piece, list) and bool(piece.schema.equals(schema))


def _table_of(columns: Mapping[str, Any]) -> Any:
    """Return columns as a table; a single value is repeated in all rows."""
    sizes = {name: len(value) for name, value in columns.items() if is_column(value)}
    if len(set(sizes.values())) != 1:
        each = ", ".join(f"{name!r} {size}" for name, size in sizes.items())
        raise ProducerError(f"columns of different lengths: {each}")
    n = next(iter(sizes.values()))
    arrays = {
        name: array_of(name, value) if is_column(value) else repeated(name, value, n)
        for name, value in columns.items()
    }
    return pa.table(arrays)


def _from_pandas(frame: Any) -> Any:
    """Return a data frame of pandas as a table; index levels with a name are columns."""
    has_names = any(name is not None for name in frame.index.names)
    try:
        table = pa.Table.from_pandas(frame.copy(), preserve_index=has_names)
    except UNUSABLE as error:
        for name in frame.columns:
            if not isinstance(frame[name], type(frame)):
                array_of(str(name), list(frame[name]))
        raise ProducerError(f"the data frame cannot be converted: {error}") from error
    # Levels without a name, or with that of a column, are called __index_level_0__ and so on.
    of_frame, names = len(frame.columns), table.column_names
    return table.select(
        [i for i, name in enumerate(names) if i < of_frame or not name.startswith("__index_level_")]
    )


def _plain(table: Any) -> Any:
    """Return the table without metadata and dictionaries; all-null columns become float64."""
    names = table.column_names
    if len(set(names)) < len(names):
        raise _repeated(names)
    return pa.table(list(map(plain, names, table.columns)), names=names)


def _repeated(names: Sequence[str]) -> ProducerError:
    """Return the error of a name that occurs several times: a message of JSON has each once."""
    name = next(name for name in names if names.count(name) > 1)
    numbers = [str(number) for number, one in enumerate(names, 1) if one == name]
    listed = " and ".join(numbers)
    return ProducerError(
        f"the readings have {len(numbers)} columns {name!r}, numbers {listed}: rename one, or leave"
        " it out"
    )
