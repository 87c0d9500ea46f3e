"""A CSV file as columns of readings, a bounded piece at a time, with the number of every line.

The bytes of a piece are looked at once with numpy: where lines end, how many delimiters each has,
which hold nothing but delimiters and blanks. Lines of the header's width go to pyarrow together.
What is left over (short or long lines, quotes, bytes that are no UTF-8) takes the slow way through
the standard library's reader, a line or a piece at a time. So a clean file is read at the speed of
pyarrow, and of a dirty one we know which line was wrong.

Cells that a short line lacks are empty; cells beyond the header's are ignored. A file has one
position: the number of the next line to read, the header's being 1.

Rejected: pyarrow's reader alone. It drops blank lines without saying so, so that line numbers
shift, and calls back into Python for each invalid row.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import DeploymentError
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source import Arrived
from slackwater.proxy.columns import keys_of, numbers, times, trimmed

piece_bytes_default: Final = 4 * 1024 * 1024
piece_bytes_max: Final = 256 * 1024 * 1024
"""A line (or a quoted cell over many lines) longer than that ends the command."""

_BOM: Final = b"\xef\xbb\xbf"
_NEWLINE: Final = ord("\n")
_END_OF_LINE: Final = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Malformed:
    """One line that is no reading."""

    line: int
    text: str
    detail: str
    stime: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """What a piece of the file held: readings (in the file's order) and the rest.

    ``lines`` are the readings' own lines; ``arrived.positions`` the lines after them.
    """

    arrived: Arrived
    lines: type_i64
    malformed: tuple[Malformed, ...]
    blank: int
    raw: Lines

    def text(self, line: int) -> str:
        """The line as it stands in the file, for the quarantine."""
        return self.raw.text(line)


class Lines:
    """The lines of a piece by number."""

    def __init__(self, data: bytes, first: int) -> None:
        self._data = data
        self._first = first
        self._split: list[bytes] | None = None

    def text(self, line: int) -> str:
        """One line; splits the piece when the first one is asked for."""
        if self._split is None:
            self._split = _END_OF_LINE.split(self._data)
        return self._split[line - self._first].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class _Row:
    """One row that took the slow way."""

    line: int
    after: int
    cells: list[str]


class CsvFile:
    """A file opened as a stream's declaration says."""

    def __init__(
        self, spec: StreamSpec, path: Path, piece_bytes: int = piece_bytes_default
    ) -> None:
        self.spec = spec
        self.path = path
        self._piece_bytes = piece_bytes
        self._delimiter = spec.csv.delimiter.encode()
        with self._open() as stream:
            self._header, self._header_lines, _ = self._read_header(stream)
        self._needed = self._find_columns()

    def _open(self) -> IO[bytes]:
        try:
            if self.path.suffix == ".gz":
                return cast(IO[bytes], gzip.open(self.path, "rb"))
            return self.path.open("rb")
        except OSError as error:
            raise DeploymentError(
                f"stream {self.spec.name}: {self.path} cannot be read: {error.strerror or error}"
            ) from error

    def _read_header(self, stream: IO[bytes]) -> tuple[list[str], int, bytes]:
        """The header's cells, its number of lines, and what was read beyond it."""
        line = stream.readline(piece_bytes_max)
        while line.count(b'"') % 2 and (more := stream.readline(piece_bytes_max)):
            line += more
        text = line.removeprefix(_BOM).decode(errors="replace")
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self.spec.csv.delimiter))
        return [cell.strip() for cell in (rows or [[]])[0]], line.count(b"\n") or 1, line

    def _find_columns(self) -> list[int]:
        """Key (or -1), times, fields."""
        key = self.spec.key.column
        wanted = [*self.spec.time.columns, *(f.source for f in self.spec.fields)]
        return [-1 if key is None else self._find(key), *map(self._find, wanted)]

    def _find(self, column: str) -> int:
        if column in self._header:
            return self._header.index(column)
        known = ", ".join(name for name in self._header if name) or "nothing"
        raise DeploymentError(
            f"stream {self.spec.name}: {self.path} has no column {column!r};"
            f" its header has: {known}"
        )

    # Pieces.

    def pieces(self) -> Iterator[Piece]:
        """The whole file, in pieces of bounded size."""
        try:
            with self._open() as stream:
                self._read_header(stream)
                line = self._header_lines + 1
                for data in self._blocks(stream):
                    piece = self._parse(data, line)
                    line = piece.arrived.position
                    yield piece
        except (OSError, EOFError, zlib.error) as error:
            raise DeploymentError(
                f"stream {self.spec.name}: {self.path} is damaged: {error}"
            ) from error

    def _blocks(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Runs of whole rows: a quoted cell may hold ends of lines."""
        kept = b""
        while data := stream.read(self._piece_bytes):
            data = kept + data
            cut = data.rfind(b"\n") + 1
            while cut and data.count(b'"', 0, cut) % 2:
                cut = data.rfind(b"\n", 0, cut - 1) + 1
            if len(data) - cut > piece_bytes_max:
                raise DeploymentError(
                    f"stream {self.spec.name}: {self.path} has a line of more than"
                    f" {piece_bytes_max} bytes"
                )
            kept = data[cut:]
            if cut:
                yield data[:cut]
        if kept:
            yield kept

    def _parse(self, data: bytes, first_line: int) -> Piece:
        lines = Lines(data, first_line)
        if b'"' in data or data.count(b"\r") != data.count(b"\r\n"):
            rows, blank, end = self._slow_rows(data, first_line)
            return self._assemble(None, np.empty(0, np.int64), rows, blank, end, lines)
        starts, ends, delimiters, content = self._survey(data)
        numbers_of_lines = np.arange(first_line, first_line + len(starts), dtype=np.int64)
        usual = content & (delimiters == len(self._header) - 1)
        texts = self._read_usual(data, starts, ends, usual)
        odd = content if texts is None else content & ~usual
        blank = len(content) - int(np.count_nonzero(content))
        cells_of = [
            (int(line), data[start:end].decode(errors="replace").split(self.spec.csv.delimiter))
            for line, start, end in zip(numbers_of_lines[odd], starts[odd], ends[odd], strict=True)
        ]
        rows = [_Row(n, n + 1, cells) for n, cells in cells_of if any(map(str.strip, cells))]
        blank += len(cells_of) - len(rows)
        usual_lines = numbers_of_lines[usual] if texts is not None else np.empty(0, np.int64)
        end = first_line + len(starts)
        return self._assemble(texts, usual_lines, rows, blank, end, lines)

    def _survey(self, data: bytes) -> tuple[type_i64, type_i64, type_i64, npt.NDArray[np.bool_]]:
        """Where each line is, how many delimiters it has, and whether it holds anything else."""
        raw = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(raw == _NEWLINE)
        if not data.endswith(b"\n"):
            ends = np.append(ends, len(data))
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
        is_delimiter = raw == self._delimiter[0]
        places = np.flatnonzero(is_delimiter)
        delimiters = np.searchsorted(places, ends) - np.searchsorted(places, starts)
        empty = is_delimiter | (raw == ord(" ")) | ((raw >= 9) & (raw <= 13))
        content = _any_in(~empty, starts, ends)
        # A line may consist of blanks beyond ASCII: without one ASCII letter it goes the slow way.
        plain = content if data.isascii() else _any_in(~empty & (raw < 128), starts, ends)
        return starts, ends, np.where(plain, delimiters, -1), content

    def _read_usual(
        self, data: bytes, starts: type_i64, ends: type_i64, usual: npt.NDArray[np.bool_]
    ) -> dict[int, Any] | None:
        """Lines of the usual width, by pyarrow; None if it does not want them."""
        wanted = sorted(set(self._needed) - {-1})
        if not usual.any() or len(self._header) == 1:
            return None
        if not usual.all():
            data = b"\n".join(data[s:e] for s, e in zip(starts[usual], ends[usual], strict=True))
        names = [str(i) for i in range(len(self._header))]
        try:
            table = pcsv.read_csv(
                pa.BufferReader(data),
                pcsv.ReadOptions(
                    use_threads=False, column_names=names, block_size=max(len(data), 64) + 1
                ),
                pcsv.ParseOptions(delimiter=self.spec.csv.delimiter, quote_char=False),
                pcsv.ConvertOptions(
                    include_columns=[names[i] for i in wanted],
                    column_types={names[i]: pa.string() for i in wanted},
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if len(table) != int(np.count_nonzero(usual)):
            return None
        return {i: trimmed(table.column(names[i])) for i in wanted}

    def _slow_rows(self, data: bytes, first_line: int) -> tuple[list[_Row], int, int]:
        text = io.StringIO(data.decode(errors="replace"), newline="")
        reader = csv.reader(text, delimiter=self.spec.csv.delimiter)
        rows, blank, line = [], 0, first_line
        for cells in reader:
            after = first_line + reader.line_num
            if any(cell.strip() for cell in cells):
                rows.append(_Row(line, after, cells))
            else:
                blank += 1
            line = after
        return rows, blank, first_line + reader.line_num

    # Readings.

    def _assemble(
        self,
        texts: dict[int, Any] | None,
        usual_lines: type_i64,
        rows: Sequence[_Row],
        blank: int,
        end: int,
        raw: Lines,
    ) -> Piece:
        columns = [self._column(i, texts, rows) for i in self._needed]
        lines = np.concatenate((usual_lines, np.array([r.line for r in rows], np.int64)))
        after = np.concatenate((usual_lines + 1, np.array([r.after for r in rows], np.int64)))
        if rows and len(usual_lines):
            order = np.argsort(lines, kind="stable")
            lines, after = lines[order], after[order]
            columns = [None if c is None else c.take(pa.array(order)) for c in columns]
        return self._convert(columns, lines, after, blank, end, raw)

    def _column(self, i: int, texts: dict[int, Any] | None, rows: Sequence[_Row]) -> Any:
        if i < 0:
            return None
        odd = pa.array(
            [row.cells[i].strip() if i < len(row.cells) else "" for row in rows], pa.string()
        )
        if texts is None:
            return odd
        return pa.concat_arrays([texts[i], odd]) if len(odd) else texts[i]

    def _convert(
        self,
        columns: Sequence[Any],
        lines: type_i64,
        after: type_i64,
        blank: int,
        end: int,
        raw: Lines,
    ) -> Piece:
        spec, n = self.spec, len(lines)
        n_times = len(spec.time.columns)
        reasons: dict[str, npt.NDArray[np.bool_]] = {}
        if columns[0] is None:
            key_index, keys = np.zeros(n, np.int32), [spec.key.value or ""]
        else:
            key_index, keys, reasons["empty key"], reasons["long key"] = keys_of(columns[0])
        texts = columns[1]
        if n_times > 1:
            texts = pc.binary_join_element_wise(*columns[1 : 1 + n_times], " ")
        stimes, no_time = times(texts, spec.time)
        reasons["time"] = no_time
        values = []
        for field, column in zip(spec.fields, columns[1 + n_times :], strict=True):
            value, reasons[f"field {field.name}"] = numbers(column, spec.csv.decimal)
            values.append(value)
        bad = np.logical_or.reduce(list(reasons.values()))
        malformed = tuple(
            Malformed(
                line=int(lines[i]),
                text=raw.text(int(lines[i])),
                detail=", ".join(name for name, mask in reasons.items() if mask[i]),
                stime=None if no_time[i] else int(stimes[i]),
            )
            for i in np.flatnonzero(bad).tolist()
        )
        arrived = Arrived(stimes, key_index, keys, tuple(values), after, end)
        if malformed:
            arrived, lines = arrived.take(~bad), lines[~bad]
        return Piece(arrived, lines, malformed, blank, raw)


def _any_in(mask: npt.NDArray[np.bool_], starts: type_i64, ends: type_i64) -> npt.NDArray[np.bool_]:
    """Per line [start, end): is the mask set anywhere in it?"""
    places = np.concatenate((np.flatnonzero(mask), [len(mask) + 1]))
    return places[np.searchsorted(places, starts)] < ends


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay of a whole file will see: for the anchor and the end of a rehearsal."""

    readings: int
    stime_min: int | None
    stime_max: int | None
    malformed: int
    blank: int


def summarise(spec: StreamSpec, path: Path, until_us: int | None = None) -> Summary:
    """Read a file once; with ``until_us``, only what a replay that ends there would send."""
    readings = malformed = blank = 0
    low: int | None = None
    high: int | None = None
    for piece in CsvFile(spec, path).pieces():
        stimes = piece.arrived.stimes
        malformed += len(piece.malformed)
        blank += piece.blank
        if not len(stimes):
            continue
        if until_us is not None:
            beyond = np.flatnonzero(stimes > until_us)
            stimes = stimes[: beyond[0]] if len(beyond) else stimes
        if len(stimes):
            readings += len(stimes)
            low = min(int(stimes.min()), stimes[0] if low is None else low)
            high = max(int(stimes.max()), stimes[0] if high is None else high)
        if len(stimes) < len(piece.arrived):
            break
    return Summary(
        readings,
        None if low is None else int(low),
        None if high is None else int(high),
        malformed,
        blank,
    )
