"""Splits the bytes of a CSV file into whole lines and rows.

A line ends at LF, CRLF or CR. A row is a line, or several lines if a quoted cell spans them. Both
are bounded, so that memory is bounded by a piece and a malformed row does not hide later ones:

* A line beyond ``LINE_BYTES_MAX`` is malformed. Only its beginning is kept.
* A quote that is not closed within ``QUOTED_BYTES_MAX`` or before the end of the file is an error,
  such as an inch mark. Its line is malformed, and the lines after it are parsed one by one. No line
  is read more than twice.

The numbering of lines and rows depends on the file alone, not on the pieces in which it is read.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

from slackwater.formats.encodings import BOM, wide_encoding
from slackwater.formats.parquettext import is_parquet, open_parquet
from slackwater.model.errors import DeploymentError

LINE_BYTES_MAX: Final = 1024 * 1024
QUOTED_BYTES_MAX: Final = 131_072
LONG_LINE: Final = f"line longer than {LINE_BYTES_MAX} bytes"
OPEN_QUOTE: Final = "quote that is not closed"

_READ_BYTES: Final = 65_536


class CsvSource:
    """A file, plain, compressed or of Parquet, in blocks of whole lines."""

    def __init__(self, stream: str, path: Path) -> None:
        self._stream = stream
        self.path = path

    def error(self, what: str) -> DeploymentError:
        """Return an error that names this file."""
        return DeploymentError(f"stream {self._stream}: {self.path} {what}")

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """Yield the whole file in whole lines; errors as those of ``unaligned_blocks``."""
        return _complete_lines(self.unaligned_blocks(block_bytes))

    def unaligned_blocks(self, block_bytes: int) -> Iterator[bytes]:
        """Yield the whole file in blocks that end anywhere.

        Raises:
            DeploymentError: it cannot be read to its end; all that could be read is yielded before.
        """
        try:
            with self._open() as stream:
                yield from self._checked(stream, block_bytes)
        except OSError as error:
            if isinstance(error, gzip.BadGzipFile):
                raise self.error(f"is damaged: {error}; {self._remedy}") from error
            raise self.error(f"cannot be read: {error.strerror or error}") from error
        except (EOFError, zlib.error) as error:
            raise self.error(f"is damaged: {error}; {self._remedy}") from error

    @property
    def _remedy(self) -> str:
        return (
            f"copy it again, or use what can be unpacked: gzip -dc {self.path} > {self.path.stem}"
        )

    def _open(self) -> IO[bytes]:
        if self.path.exists() and not self.path.is_file():
            raise self.error("is not a regular file")
        if self.path.suffix == ".gz":
            return cast(IO[bytes], gzip.open(self.path, "rb"))
        if is_parquet(self.path):
            return open_parquet(self.path)
        return self.path.open("rb")

    def _checked(self, stream: IO[bytes], block_bytes: int) -> Iterator[bytes]:
        """Yield the blocks without a byte order mark; refuse UTF-16 and UTF-32."""
        read = _filled(stream, block_bytes)
        first = next(read, b"")
        if wide := wide_encoding(first[:4]) or "UTF-16" * (b"\0" in first[:2]):
            raise self.error(f"is {wide} text: convert it, `iconv -f {wide} -t UTF-8`")
        yield first.removeprefix(BOM)
        yield from read


def _filled(stream: IO[bytes], block_bytes: int) -> Iterator[bytes]:
    """Yield full blocks; of a damaged archive, all data before the damage."""
    block_bytes = max(block_bytes, len(BOM))
    block = b""
    try:
        while more := stream.read(min(_READ_BYTES, block_bytes - len(block))):
            block += more
            if len(block) == block_bytes:
                yield block
                block = b""
    except (OSError, EOFError, zlib.error):
        if block:
            yield block
        raise
    if block:
        yield block


def _complete_lines(read: Iterator[bytes]) -> Iterator[bytes]:
    kept = b""
    for more in read:
        data = kept + more
        # A CR at the very end may be half of a CRLF.
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        kept = data[cut:]
        if len(kept) > LINE_BYTES_MAX + 1:
            kept = kept[: LINE_BYTES_MAX + 1] + kept[-1:] * kept.endswith(b"\r")
        if cut:
            yield data[:cut]
    if kept:
        yield kept


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row; ``after`` is the number of the next line, ``fault`` the row's error if any."""

    line: int
    after: int
    cells: Sequence[str]
    fault: str = ""


@dataclass(slots=True)
class CsvRows:
    """Rows of a block: those with content, the count of blank ones, the incomplete remainder."""

    rows: list[CsvRow] = field(default_factory=list)
    blank: int = 0
    end: int = 0
    """Number of the line after the last row."""
    left: bytes = b""
    """Bytes from the beginning of a row with an open quote."""


def read_rows(
    data: bytes, first_line: int, delimiter: str, *, last: bool, rows_max: int | None = None
) -> CsvRows:
    """Parse whole lines with the standard library's reader; ``last`` marks the end of the file.

    After ``rows_max`` rows the others are left out.
    """
    csv.field_size_limit(LINE_BYTES_MAX + QUOTED_BYTES_MAX)
    found = CsvRows()
    lines = data.splitlines(keepends=True)
    feed = _Feed(lines)
    reader = csv.reader(feed, delimiter=delimiter)
    while feed.at < len(lines) and len(found.rows) != rows_max:
        start = feed.begin()
        fault = LONG_LINE if is_long(lines[start]) else ""
        cells: Sequence[str] = ()
        try:
            if not fault:
                cells = next(reader)
        except _OpenQuote:
            if feed.at == len(lines) and start >= feed.alone and not last:
                found.left = b"".join(lines[start:])
                found.end = first_line + start
                return found
            fault = OPEN_QUOTE
            feed.alone = max(feed.alone, feed.at)
        if fault:
            feed.at = start + 1
            reader = csv.reader(feed, delimiter=delimiter)
        if fault or any(cell.strip() for cell in cells):
            found.rows.append(CsvRow(first_line + start, first_line + feed.at, cells, fault))
        else:
            found.blank += 1
    found.end = first_line + feed.at
    return found


def rows_as_bytes(
    data: bytes, first_line: int, delimiter: str, *, last: bool
) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return first line and bytes of each row, blank ones included, and the remainder."""
    found = read_rows(data, first_line, delimiter, last=last)
    lines = data[: len(data) - len(found.left)].splitlines(keepends=True)
    several = {row.line: row.after for row in found.rows}
    rows, at = [], first_line
    while at < first_line + len(lines):
        behind = several.get(at, at + 1)
        rows.append((at, b"".join(lines[at - first_line : behind - first_line])))
        at = behind
    return rows, found.left


def is_long(line: bytes) -> bool:
    """Whether a line exceeds the maximum, its line end not counted."""
    return len(line) > LINE_BYTES_MAX and len(line.rstrip(b"\r\n")) > LINE_BYTES_MAX


def fitting(row: CsvRow, columns: int, delimiter: str) -> CsvRow:
    """Return the row; with a fault if it has more cells than the header has columns.

    One empty cell more is allowed: some writers end each row with a delimiter, but not the header.
    """
    cells = row.cells
    if row.fault or len(cells) <= columns or (len(cells) == columns + 1 and not cells[-1].strip()):
        return row
    why = (
        f"cell {columns + 1} of {len(cells)} belongs to no column: the header has {columns};"
        f" quote a cell that contains {delimiter!r}"
    )
    return CsvRow(row.line, row.after, (), why)


class _OpenQuote(Exception):
    """Raised when a row needs more lines than allowed."""


class _Feed:
    """Feeds lines to the reader and bounds the lines of one row."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._start = self._bytes = 0
        self.at = 0
        self.alone = 0
        """Lines before this one are parsed as single rows."""

    def begin(self) -> int:
        """Start a row."""
        self._start, self._bytes = self.at, 0
        return self.at

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        within = self.at > self._start
        if within and (self.at == len(self._lines) or self._start < self.alone):
            raise _OpenQuote
        line = self._lines[self.at]
        self._bytes += len(line)
        if within and self._bytes > QUOTED_BYTES_MAX:
            raise _OpenQuote
        self.at += 1
        return line.decode(errors="replace")
