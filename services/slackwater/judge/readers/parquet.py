"""The rows of a Parquet file as lines of text, by the page of the deployment file.

Independent of the proxy's reader: values come out as Python's, and Python writes them. Only the
decoding of the file is pyarrow's, as there: no other library has it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

BATCH_ROWS: Final = 1_000
PARQUET: Final = ".parquet"
"""The end of a file's name by which it is read as Parquet."""
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class ParquetLines(io.RawIOBase):
    """A stream of the text; ``read`` returns at least one whole row, whatever the size.

    A damaged file raises ``OSError``.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise OSError(str(error)) from error
        self._texts = self._rows()

    def read(self, _size: int = -1) -> bytes:
        """Return the header, then the rows of one batch after the other; nothing at the end."""
        try:
            return next(self._texts, b"")
        except pa.ArrowException as error:
            raise OSError(str(error)) from error

    def _rows(self) -> Iterator[bytes]:
        yield self._line(self._names)
        for batch in self._file.iter_batches(BATCH_ROWS, columns=self._names):
            columns = [_texts(batch.column(name)) for name in self._names]
            yield b"".join(map(self._line, zip(*columns, strict=True)))

    @property
    def _names(self) -> list[str]:
        schema = self._file.schema_arrow
        return [field.name for field in schema if not pa.types.is_nested(field.type)]

    @staticmethod
    def _line(cells: Any) -> bytes:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        return line.getvalue().encode()


def _texts(column: Any) -> list[str]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        ticks = column.cast(pa.int64()).to_pylist()
        end = "" if kind.tz is None else "+00:00"
        return ["" if at is None else _time(at, _DIGITS[kind.unit]) + end for at in ticks]
    return [_text(value) for value in column.to_pylist()]


def _time(ticks: int, digits: int) -> str:
    seconds, part = divmod(ticks, 10**digits)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + (f".{part:0{digits}d}" if digits else "")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
