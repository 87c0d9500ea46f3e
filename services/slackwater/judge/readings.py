"""Reads a file's readings line by line, as the reference for the pipeline's parsing.

This is the reading part of the batch computation for rehearsals (``batch``). It shares no code with
the pipeline: the standard library reads one row at a time, and the rules and bounds for lines,
rows, numbers and times are implemented a second time here.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections import deque
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import IO, Any, Final

from slackwater.model.deployment import StreamSpec, TimeSpec
from slackwater.model.errors import DeploymentError

MISSING: Final = frozenset({"", "nan", "null"})
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_10000_US: Final = 253_402_300_800_000_000
UNIT_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
KEY_CHARS_MAX: Final = 65_536
NUMBER_CHARS_MAX: Final = 1_000
TIME_CHARS_MAX: Final = 256
TIME_DIGITS_MAX: Final = 38
INTEGER_DIGITS_MAX: Final = 18
LINE_BYTES_MAX: Final = 1024 * 1024
QUOTED_BYTES_MAX: Final = 131_072
BLOCK_BYTES: Final = 65_536
EXACT: Final = Context(prec=2 * TIME_DIGITS_MAX)


@dataclass(frozen=True, slots=True)
class FileReading:
    """One valid line of a file, in time or late."""

    stime: int
    key: str
    values: tuple[float | None, ...]


@dataclass(slots=True)
class StreamInput:
    """Readings of one file, in order; ``late`` holds indices into ``readings``."""

    spec: StreamSpec
    readings: list[FileReading] = field(default_factory=list)
    late: set[int] = field(default_factory=set)
    malformed: int = 0
    blank: int = 0

    def until(self, limit: int) -> StreamInput:
        """Return what was sent when the replay ended at event time ``limit``.

        A reading is sent when the largest time up to it is reached, so the readings sent are a
        prefix of the file. (``malformed`` remains that of the whole file.)
        """
        n, largest = 0, None
        for reading in self.readings:
            largest = reading.stime if largest is None else max(largest, reading.stime)
            if largest > limit:
                break
            n += 1
        late = {i for i in self.late if i < n}
        return StreamInput(self.spec, self.readings[:n], late, self.malformed, self.blank)

    @property
    def accepted(self) -> Iterator[FileReading]:
        """Yield the readings that are not late."""
        return (r for i, r in enumerate(self.readings) if i not in self.late)


def read_stream(spec: StreamSpec, path: Path, without: Set[int] = frozenset()) -> StreamInput:
    """Read a CSV or CSV.gz file according to the stream's declaration.

    Rows that begin at the lines ``without`` are treated as absent.
    """
    result = StreamInput(spec)
    number = re.compile(
        rf"[+-]?(?:[0-9]+(?:{re.escape(spec.csv.decimal)}[0-9]*)?"
        rf"|{re.escape(spec.csv.decimal)}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    )
    largest: int | None = None
    with _opened(spec, path) as stream:
        rows = _rows(_lines(stream), spec.csv.delimiter)
        _, first = next(rows, (1, None))
        header = [cell.strip() for cell in first or []]
        places = _places(spec, header, path)
        for line, row in rows:
            if line in without:
                continue
            if row is not None and not any(cell.strip() for cell in row):
                result.blank += 1
                continue
            reading = None if row is None else _reading(spec, places, row, number)
            if reading is None:
                result.malformed += 1
                continue
            if largest is not None and reading.stime < largest - spec.disorder_us:
                result.late.add(len(result.readings))
            largest = reading.stime if largest is None else max(largest, reading.stime)
            result.readings.append(reading)
    return result


@dataclass(frozen=True, slots=True)
class _Places:
    """Column numbers of a row."""

    key: int | None
    time: tuple[int, ...]
    fields: tuple[int, ...]


@contextmanager
def _opened(spec: StreamSpec, path: Path) -> Iterator[IO[bytes]]:
    """Open the file; raise a one-sentence error if it cannot be read to its end."""
    if not path.is_file():
        raise DeploymentError(f"stream {spec.name}: there is no file {path}")
    opened: Any = gzip.open if path.suffix == ".gz" else Path.open
    try:
        with opened(path, "rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise DeploymentError(
            f"stream {spec.name}: {path} is damaged: {error}; copy it again, or use what can be"
            f" unpacked: gzip -dc {path} > {path.stem}"
        ) from error


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends (LF, CRLF or CR); only the beginning of a too long line."""
    kept = stream.read(3).removeprefix(b"\xef\xbb\xbf")
    while block := stream.read(BLOCK_BYTES):
        *lines, kept = (kept + block).splitlines(keepends=True)
        yield from lines
        if len(kept) > LINE_BYTES_MAX + 1:
            kept = kept[: LINE_BYTES_MAX + 1] + (b"\r" if kept.endswith(b"\r") else b"")
    yield from kept.splitlines(keepends=True)


def _rows(lines: Iterator[bytes], delimiter: str) -> Iterator[tuple[int, list[str] | None]]:
    """Yield each row's first line number and its cells.

    None instead of cells for a line that is too long or has an unclosed quote. The lines searched
    for the end of such a quote are then parsed one by one.
    """
    csv.field_size_limit(LINE_BYTES_MAX + QUOTED_BYTES_MAX)
    waiting: deque[bytes] = deque()
    alone = 0
    number = 1
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


def _places(spec: StreamSpec, header: Sequence[str], path: Path) -> _Places:
    """Find the columns by name; a missing column is reported before anything is started."""

    def at(column: str) -> int:
        if column not in header:
            known = ", ".join(header) or "nothing"
            raise DeploymentError(
                f"stream {spec.name}: {path} has no column {column!r}; its header has: {known}"
            )
        return header.index(column)

    return _Places(
        None if spec.key.column is None else at(spec.key.column),
        tuple(at(column) for column in spec.time.columns),
        tuple(at(f.source) for f in spec.fields),
    )


def _reading(
    spec: StreamSpec, places: _Places, row: Sequence[str], number: re.Pattern[str]
) -> FileReading | None:
    """Return the row's reading, or None if it is malformed."""

    def cell(i: int) -> str:
        return row[i].strip() if i < len(row) else ""

    key = spec.key.value if places.key is None else cell(places.key)
    stime = parse_time(spec.time, " ".join(cell(i) for i in places.time))
    if not key or len(key) > KEY_CHARS_MAX or "\ufffd" in key or stime is None:
        return None
    values: list[float | None] = []
    for i in places.fields:
        text = cell(i)
        if len(text) > NUMBER_CHARS_MAX:
            return None
        if text.lower() in MISSING:
            values.append(None)
            continue
        if not number.fullmatch(text):
            return None
        value = float(text.replace(spec.csv.decimal, "."))
        if not math.isfinite(value):
            return None
        values.append(value)
    return FileReading(stime, key, tuple(values))


def parse_time(spec: TimeSpec, text: str) -> int | None:
    """Return the event time in us since the epoch, truncated; None if malformed."""
    if len(text) > TIME_CHARS_MAX:
        return None
    try:
        if spec.format is not None:
            us = _since_epoch(datetime.strptime(text, spec.format))  # noqa: DTZ007
        elif spec.unit == "iso":
            us = _since_epoch(datetime.fromisoformat(text))
        elif re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)", text, re.ASCII):
            complete, _, fraction = text.lstrip("+-").lstrip("0").partition(".")
            if (
                len(complete) > INTEGER_DIGITS_MAX
                or len(complete) + len(fraction) > TIME_DIGITS_MAX
            ):
                return None
            us = math.floor(EXACT.multiply(Decimal(text), UNIT_US[spec.unit or "us"]))
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return us if abs(us) < YEAR_10000_US else None


def _since_epoch(time: datetime) -> int:
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    delta = time - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
