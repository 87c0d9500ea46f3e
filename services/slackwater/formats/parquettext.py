"""The text of a Parquet file: its table as CSV, which is then read like any other file.

One reader has the rules of keys, times, values and quarantine. Positions are line numbers, so a
restarted reader continues in the same row: the header is line 1, and row n (from 0) is line n + 2.
Cells are written as the deployment file's page has them: numbers with a point and as many digits as
they need, times as ISO 8601 in UTC if they have a zone, nothing for null. Columns of structures and
lists have no text, and are left out.

Rejected: columns without the text between. A reading is then read in two ways, and each rule of a
declaration (texts that are missing values, texts for `where`, zones) is needed twice.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

PARQUET: Final = ".parquet"
ROWS_MAX: Final = 65_536
"""Rows that are decoded at once; memory is bounded by them, and by the file's row groups."""


def is_parquet(path: Path) -> bool:
    """Whether a file is read as Parquet, by its name."""
    return path.suffix == PARQUET


def parquet_rows(path: Path) -> int:
    """Return the number of rows, which the end of the file tells."""
    return int(pq.ParquetFile(path).metadata.num_rows)


def open_parquet(path: Path) -> io.BufferedReader:
    """Open a Parquet file as CSV text with commas. ``OSError`` if it is damaged."""
    try:
        return io.BufferedReader(_Text(pq.ParquetFile(path)))
    except pa.ArrowInvalid as error:
        raise OSError(f"no Parquet file: {error}") from error


class _Text(io.RawIOBase):
    """A stream of the pieces of text."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self._pieces = _pieces(file)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while not self._left:
                self._left = memoryview(next(self._pieces, None) or b"")
                if not self._left:
                    return 0
        except pa.ArrowException as error:
            raise OSError(str(error)) from error
        taken = min(len(buffer), len(self._left))
        buffer[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken

    def close(self) -> None:
        self._file.close()
        super().close()


def _pieces(file: pq.ParquetFile) -> Iterator[bytes]:
    schema = file.schema_arrow
    names = [field.name for field in schema if not pa.types.is_nested(field.type)]
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(names)
    yield header.getvalue().encode()
    for batch in file.iter_batches(ROWS_MAX, columns=names, use_threads=False):
        if batch.num_rows:
            yield _text_of(pa.table({n: _plain(batch.column(n)) for n in names}))


def _plain(column: Any) -> Any:
    """Return a column whose text has the value exactly."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    return column


def _text_of(table: pa.Table) -> bytes:
    """Return rows as text; quotes, which are read row by row, only where a cell needs them."""
    sink = io.BytesIO()
    options = pcsv.WriteOptions(include_header=False, quoting_style="none")
    try:
        pcsv.write_csv(table, sink, options)
    except pa.ArrowInvalid:
        sink = io.BytesIO()
        pcsv.write_csv(table, sink, pcsv.WriteOptions(include_header=False))
    return sink.getvalue()
