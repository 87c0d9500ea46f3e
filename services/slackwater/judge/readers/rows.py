"""Divides a file into rows: lines, quotes, archives, and the bounds of both.

From the page of the deployment file: a file is plain, gzip or Parquet; a plain one may begin with a
byte order mark; lines end with LF, CRLF or CR; a cell in quotes may contain delimiters and line
ends. A line above its bound is malformed alone, and so is the line of a quote that is not closed
within its bound.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from slackwater.judge.readers.parquet import PARQUET, ParquetLines
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import DeploymentError

LINE_BYTES_MAX: Final = 1024 * 1024
QUOTED_BYTES_MAX: Final = 131_072
BLOCK_BYTES: Final = 65_536


@contextmanager
def opened(spec: StreamSpec, path: Path) -> Iterator[IO[bytes]]:
    """Open the file; raise a one-sentence error if it cannot be read to its end."""
    if not path.is_file():
        raise DeploymentError(f"stream {spec.name}: there is no file {path}")
    remedy = f"copy it again, or use what can be unpacked: gzip -dc {path} > {path.stem}"
    opened: Any = partial(gzip.open if path.suffix == ".gz" else Path.open, path, "rb")
    if path.suffix == PARQUET:
        opened, remedy = partial(ParquetLines, path), "copy it again"
    try:
        with opened() as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise DeploymentError(
            f"stream {spec.name}: {path} is damaged: {error}; {remedy}"
        ) from error


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends (LF, CRLF or CR); only the beginning of a too long line."""
    kept = stream.read(3).removeprefix(b"\xef\xbb\xbf")
    while block := stream.read(BLOCK_BYTES):
        *lines, kept = (kept + block).splitlines(keepends=True)
        yield from lines
        if len(kept) > LINE_BYTES_MAX + 1:
            kept = kept[: LINE_BYTES_MAX + 1] + (b"\r" if kept.endswith(b"\r") else b"")
    yield from kept.splitlines(keepends=True)


def rows_of(
    stream: IO[bytes], delimiter: str, skip_lines: int = 0
) -> Iterator[tuple[int, list[str] | None]]:
    """Yield each row's first line number and its cells, after the lines to be skipped.

    None instead of cells for a line that is too long or has an unclosed quote. The lines searched
    for the end of such a quote are then parsed one by one.
    """
    lines = lines_of(stream)
    for _ in range(skip_lines):
        next(lines, b"")
    csv.field_size_limit(LINE_BYTES_MAX + QUOTED_BYTES_MAX)
    waiting: deque[bytes] = deque()
    alone = 0
    number = 1 + skip_lines
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        taken: list[bytes] = []
        cells = None
        if len(line.rstrip(b"\r\n")) <= LINE_BYTES_MAX:
            more = iter(()) if alone else _up_to(QUOTED_BYTES_MAX - len(line), waiting, lines)
            try:
                cells = next(csv.reader(_fed(line, more, taken), delimiter=delimiter))
            except _OpenQuoteError:
                waiting.extendleft(reversed(taken))
                alone = max(alone, len(taken) + 1)
                taken = []
        alone = max(0, alone - 1)
        yield number, cells
        number += 1 + len(taken)


class _OpenQuoteError(Exception):
    """Raised when a row is incomplete and no further line is allowed."""


def _fed(line: bytes, more: Iterator[bytes], taken: list[bytes]) -> Iterator[str]:
    """Yield a row's first line and further lines on demand."""
    yield line.decode(errors="replace")
    for another in more:
        taken.append(another)
        yield another.decode(errors="replace")
    raise _OpenQuoteError


def _up_to(size: int, waiting: deque[bytes], lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines up to a total size; the line that exceeds it is put back."""
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        size -= len(line)
        if size < 0:
            waiting.appendleft(line)
            return
        yield line
