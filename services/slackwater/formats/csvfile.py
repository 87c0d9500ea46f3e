"""Reads a CSV file as columns of readings, in pieces of bounded size, with line numbers.

The bytes of a piece are scanned once with numpy for line ends, delimiters per line, and lines that
contain only delimiters and blanks. Lines of the header's width are parsed together by pyarrow. The
rest (short or long lines, quotes, bytes that are not UTF-8) is parsed by the standard library's
reader, by line or by piece. A clean file is read at the speed of pyarrow, and each malformed line
is reported by number. ``csvtext`` defines lines and rows.

Cells missing from a short row are empty. A row with more cells than the header is malformed, unless
the one cell too many is empty: its cells may belong to other columns than those above them. The
position in a file is the number of the next line to read; the header's is 1.

Rejected: pyarrow's reader alone. It drops blank lines silently, which shifts line numbers, and
calls back into Python for each invalid row.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pcsv

from slackwater.formats.columns import TIME, keys_of, numbers, time_fault, times, trimmed
from slackwater.formats.csvtext import (
    LINE_BYTES_MAX,
    LONG_LINE,
    CsvRow,
    CsvSource,
    fitting,
    read_rows,
    rows_as_bytes,
)
from slackwater.formats.dead_letters import DeadLetters
from slackwater.formats.encodings import BOM
from slackwater.formats.isolated import CRASH, tried
from slackwater.formats.joined import ambiguous, joined_keys, joined_texts
from slackwater.formats.parquettext import is_parquet
from slackwater.formats.pieces import PIECE_BYTES_DEFAULT, FilePiece, Guard, Malformed
from slackwater.formats.repeated import repeated_column
from slackwater.model.deployment import CsvSpec, StreamSpec
from slackwater.model.meanings import field_meanings
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.arrived import Arrived

_NEWLINE: Final = ord("\n")
REPLACED: Final = "\ufffd"
"""Replacement for bytes that are not UTF-8; with it two different keys could become equal."""
CONVERT: Final = "convert it, such as `iconv -f LATIN1 -t UTF-8`"
_END_OF_LINE: Final = re.compile(rb"\r\n|\r|\n")


class Lines:
    """The lines of a piece by number."""

    def __init__(self, data: bytes, first: int) -> None:
        self._data = data
        self._first = first
        self._split: list[bytes] | None = None

    def text(self, line: int) -> str:
        """Return one line; the piece is split on the first call."""
        if self._split is None:
            self._split = _END_OF_LINE.split(self._data)
        return self._split[line - self._first].decode(errors="replace")


class CsvFile:
    """A CSV file, opened according to a stream's declaration."""

    def __init__(
        self,
        spec: StreamSpec,
        path: Path | None = None,
        piece_bytes: int = PIECE_BYTES_DEFAULT,
        guard: Guard | None = None,
        *,
        source: CsvSource | None = None,
        may_lack_fields: bool = False,
    ) -> None:
        """``source`` replaces the file at ``path``.

        ``may_lack_fields``: a field without a column is missing in all rows, instead of an error.
        """
        assert (path is None) != (source is None)
        self._guard = guard
        if path is not None and is_parquet(path):
            spec = replace(spec, csv=CsvSpec())  # its text has no dialect
        self.spec = spec
        self._source = source or CsvSource(spec.name, path or Path())
        self.path = self._source.path
        self._piece_bytes = piece_bytes
        self._delimiter = spec.csv.delimiter.encode()
        self._header, self._header_lines = self._read_header()
        self._needed = self._find_columns(may_lack_fields)

    def _read_header(self) -> tuple[list[str], int]:
        """Return the header's cells, and the number of lines up to its end."""
        skipped = self.spec.csv.skip_lines
        first = self._below(skipped)
        line = first.splitlines(keepends=True)[:1]
        if line and b'"' not in line[0]:
            first = line[0]
        rows = read_rows(first, 1, self.spec.csv.delimiter, last=True, rows_max=1)
        if not rows.rows or rows.rows[0].line > 1:
            return [], skipped + 1
        header = rows.rows[0]
        if header.fault:
            place = f"line {skipped + 1}" if skipped else "its first line"
            raise self._source.error(f"has no header: {place} is a {header.fault}")
        return [cell.strip() for cell in header.cells], skipped + header.after - 1

    def _below(self, skipped: int) -> bytes:
        """Return the beginning of the file, without this many lines."""
        left = skipped
        for block in self._source.blocks(LINE_BYTES_MAX + 2):
            lines = block.splitlines(keepends=True)
            if len(lines) > left:
                return b"".join(lines[left:])
            left -= len(lines)
        if skipped:
            what = f"has no header: it has {skipped - left} lines, and csv.skip_lines is {skipped}"
            raise self._source.error(what)
        return b""

    def _find_columns(self, may_lack_fields: bool) -> list[int]:
        """Return the column numbers of the parts of the key and the time, and of fields.

        The number of a field without a column, if it may be absent, is that after the last one: in
        each row it is empty, as the cells that a short row lacks.
        """
        spec = self.spec
        found = list(map(self._find, [*spec.key.parts, *spec.time.parts]))
        for field in spec.fields:
            absent = may_lack_fields and field.source not in self._header
            found.append(len(self._header) if absent else self._find(field.source))
        if min(found) == len(self._header):
            raise self._source.error("has no column that the stream declares")
        return found

    def _find(self, column: str) -> int:
        numbers = [number for number, name in enumerate(self._header, 1) if name == column]
        if len(numbers) > 1:
            raise self._source.error(repeated_column(column, numbers))
        if numbers:
            return numbers[0] - 1
        known = ", ".join(name for name in self._header if name) or "nothing"
        hint = ""
        if REPLACED in known:
            hint = f"; it is not UTF-8: {CONVERT}"
        if known.startswith(("{", "[")):
            hint = "; it is JSON, which is read from topics, HTTP and MQTT: files are CSV"
        raise self._source.error(f"has no column {column!r}; its header has: {known}{hint}")

    def verify(self) -> None:
        """Read a compressed file to its end; ``DeploymentError`` if the archive is damaged."""
        if self.path.suffix == ".gz":
            for _ in self._source.blocks(self._piece_bytes):
                pass

    # Pieces.

    def pieces(self) -> Iterator[FilePiece]:
        """Yield the whole file in pieces of bounded size."""
        line, left, skip = 1, b"", self._header_lines
        for block in self._source.blocks(self._piece_bytes):
            data = left + block
            if skip:  # the header may be longer than a piece
                lines = data.splitlines(keepends=True)
                data, gone = b"".join(lines[skip:]), min(skip, len(lines))
                line, skip = line + gone, skip - gone
            if not data:
                continue
            pieces, left = self._read(data, line, last=False)
            line = pieces[-1].arrived.position
            yield from pieces
        if left:
            yield from self._read(left, line, last=True)[0]

    def complete(self, data: bytes) -> FilePiece:
        """Return all of ``data``, the content of the source with its header, as one piece."""
        data = data.removeprefix(BOM)
        lines = data.splitlines(keepends=True)
        below = b"".join(lines[self._header_lines :])
        return self._parse(below, 1 + self._header_lines, last=True)[0]

    def _read(self, data: bytes, line: int, *, last: bool) -> tuple[list[FilePiece], bytes]:
        """Return the lines as one piece; as several if parsing them has crashed a process."""
        if self._guard is not None:
            dead_letters, where = self._guard
            newlines = np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
            end = line + max(int(newlines), data.count(b"\r"))
            done = dead_letters.attempt(
                where, line, end, lambda: self._parse(data, line, last=last)
            )
            if done is None:
                return self._read_isolated(dead_letters, where, data, line, last=last)
        else:
            done = self._parse(data, line, last=last)
        return [done[0]], done[1]

    def _read_isolated(
        self, dead_letters: DeadLetters, where: str, data: bytes, line: int, *, last: bool
    ) -> tuple[list[FilePiece], bytes]:
        rows, left = rows_as_bytes(data, line, self.spec.csv.delimiter, last=last)
        known = dead_letters.positions(where)
        rest = [row for row in rows if row[0] not in known]
        plain = copy.copy(self)
        plain._guard = None
        outcome = tried(_parse_rows, plain, rest)
        for at, how in outcome.lost:
            dead_letters.add(where, rest[at][0], how)
        pieces = [piece for _, _, some in outcome.read for piece in some]
        lost = dead_letters.positions(where)
        pieces += [self._lost(number, row) for number, row in rows if number in lost]
        pieces.sort(key=lambda piece: piece.arrived.position)
        return pieces or [self._parse_plain(b"", line)], left

    def _lost(self, line: int, data: bytes) -> FilePiece:
        none, raw = np.empty(0, np.int64), Lines(data, line)
        end = line + len(data.splitlines())
        piece = self._assemble(None, none, [], 0, end, raw)
        return replace(piece, malformed=(Malformed(line, raw.text(line), CRASH, None, "crash"),))

    def _parse(self, data: bytes, first_line: int, *, last: bool) -> tuple[FilePiece, bytes]:
        """Parse whole lines; return the piece and the bytes of a trailing incomplete row."""
        if b'"' in data:
            found = read_rows(data, first_line, self.spec.csv.delimiter, last=last)
            data = data[: len(data) - len(found.left)]
            none = np.empty(0, np.int64)
            raw = Lines(data, first_line)
            return self._assemble(None, none, found.rows, found.blank, found.end, raw), found.left
        return self._parse_plain(data, first_line), b""

    def _parse_plain(self, data: bytes, first_line: int) -> FilePiece:
        """Parse lines without quotes: each line is a row."""
        raw = Lines(data, first_line)
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        starts, ends, delimiters, content = self._survey(data)
        numbers_of_lines = np.arange(first_line, first_line + len(starts), dtype=np.int64)
        long = ends - starts > LINE_BYTES_MAX
        usual = content & (delimiters == len(self._header) - 1) & ~long
        texts = self._read_usual(data, starts, ends, usual)
        odd = (content if texts is None else content & ~usual) | long
        rows = []
        blank = len(starts) - int(np.count_nonzero(content | long))
        for n, start, end in zip(
            numbers_of_lines[odd].tolist(), starts[odd], ends[odd], strict=True
        ):
            row = self._row(n, data[start:end])
            if row is None:
                blank += 1
            else:
                rows.append(row)
        usual_lines = numbers_of_lines[usual] if texts is not None else np.empty(0, np.int64)
        return self._assemble(texts, usual_lines, rows, blank, first_line + len(starts), raw)

    def _row(self, n: int, line: bytes) -> CsvRow | None:
        if len(line) > LINE_BYTES_MAX + line.endswith(b"\r"):
            return CsvRow(n, n + 1, (), LONG_LINE)
        cells = line.decode(errors="replace").split(self.spec.csv.delimiter)
        return CsvRow(n, n + 1, cells) if any(map(str.strip, cells)) else None

    def _survey(self, data: bytes) -> tuple[type_i64, type_i64, type_i64, npt.NDArray[np.bool_]]:
        """Return line starts, line ends, delimiters per line, and which lines have content."""
        raw = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(raw == _NEWLINE)
        if not data.endswith(b"\n"):
            ends = np.append(ends, len(data))
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
        is_delimiter = raw == self._delimiter[0]
        places = np.flatnonzero(is_delimiter)
        width = len(self._header) - 1
        if _are_usual(raw, starts, ends, places, width):
            delimiters = np.full(len(starts), width)
            return starts, ends, delimiters, np.ones(len(starts), np.bool_)
        delimiters = np.searchsorted(places, ends) - np.searchsorted(places, starts)
        empty = is_delimiter | (raw == ord(" ")) | ((raw >= 9) & (raw <= 13))
        empty |= (raw >= 28) & (raw <= 31)
        content = _any_in(~empty, starts, ends)
        # A line may hold only non-ASCII blanks: without an ASCII letter it takes the slow path.
        plain = content if data.isascii() else _any_in(~empty & (raw < 128), starts, ends)
        return starts, ends, np.where(plain, delimiters, -1), content

    def _read_usual(
        self, data: bytes, starts: type_i64, ends: type_i64, usual: npt.NDArray[np.bool_]
    ) -> dict[int, Any] | None:
        """Parse lines of the header's width with pyarrow; None if pyarrow refuses them."""
        absent = len(self._header)
        wanted = sorted(set(self._needed) - {absent})
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
        texts = {i: trimmed(table.column(names[i])) for i in wanted}
        texts[absent] = pa.repeat("", len(table))
        return texts

    # Readings.

    def _assemble(
        self,
        texts: dict[int, Any] | None,
        usual_lines: type_i64,
        rows: Sequence[CsvRow],
        blank: int,
        end: int,
        raw: Lines,
    ) -> FilePiece:
        rows = [fitting(row, len(self._header), self.spec.csv.delimiter) for row in rows]
        faults = [row for row in rows if row.fault]
        if faults:
            rows = [row for row in rows if not row.fault]
        columns = [self._column(i, texts, rows) for i in self._needed]
        lines = np.concatenate((usual_lines, np.array([r.line for r in rows], np.int64)))
        after = np.concatenate((usual_lines + 1, np.array([r.after for r in rows], np.int64)))
        if rows and len(usual_lines):
            order = np.argsort(lines, kind="stable")
            lines, after = lines[order], after[order]
            columns = [column.take(pa.array(order)) for column in columns]
        piece = self._convert(columns, lines, after, blank, end, raw)
        if not faults:
            return piece
        wrong = [Malformed(row.line, raw.text(row.line), row.fault, None) for row in faults]
        merged = sorted((*piece.malformed, *wrong), key=lambda one: one.line)
        return replace(piece, malformed=tuple(merged))

    def _column(self, i: int, texts: dict[int, Any] | None, rows: Sequence[CsvRow]) -> Any:
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
    ) -> FilePiece:
        spec, n = self.spec, len(lines)
        after_key = len(spec.key.parts)
        after_time = after_key + len(spec.time.parts)
        reasons: dict[str, npt.NDArray[np.bool_]] = {}
        if not after_key:
            key_index, keys = np.zeros(n, np.int32), [spec.key.value or ""]
        else:
            join = spec.key.join
            parts, reasons[ambiguous(join)] = joined_keys(columns[:after_key], join)
            key_index, keys, reasons["empty key"], reasons["long key"] = keys_of(parts)
            damaged = [i for i, key in enumerate(keys) if REPLACED in key]
            if damaged:
                reasons["key is not UTF-8"] = np.isin(key_index, damaged)
        stimes, no_time = np.zeros(n, np.int64), np.zeros(n, np.bool_)
        texts: Any = None
        if after_time > after_key:
            texts = joined_texts(columns[after_key:after_time], spec.time.join)
            stimes, no_time = times(texts, spec.time)
        reasons[TIME] = no_time
        values = []
        meant = field_meanings(spec)
        for field, meanings, column in zip(spec.fields, meant, columns[after_time:], strict=True):
            value, reasons[f"field {field.name}"] = numbers(column, spec.csv.decimal, meanings)
            values.append(value)
        bad = np.logical_or.reduce(list(reasons.values()))
        malformed = tuple(
            Malformed(
                line=int(lines[i]),
                text=raw.text(int(lines[i])),
                detail=", ".join(
                    time_fault(texts[i].as_py(), spec.time) if name == TIME else name
                    for name, mask in reasons.items()
                    if mask[i]
                ),
                stime=None if no_time[i] else int(stimes[i]),
            )
            for i in np.flatnonzero(bad).tolist()
        )
        arrived = Arrived(stimes, key_index, keys, tuple(values), after, end)
        if malformed:
            arrived, lines = arrived.take(~bad), lines[~bad]
        return FilePiece(arrived, lines, malformed, blank, raw)


def _parse_rows(file: CsvFile, rows: Sequence[tuple[int, bytes]]) -> list[FilePiece]:
    """Parse rows into pieces, one for each run of consecutive lines."""
    pieces: list[FilePiece] = []
    run: list[bytes] = []
    first = behind = 0
    for number, data in rows:
        if run and number != behind:
            pieces.append(file._parse(b"".join(run), first, last=True)[0])
            run = []
        if not run:
            first = number
        run.append(data)
        behind = number + len(data.splitlines())
    if run:
        pieces.append(file._parse(b"".join(run), first, last=True)[0])
    return pieces


def _are_usual(
    raw: npt.NDArray[np.uint8], starts: type_i64, ends: type_i64, places: type_i64, width: int
) -> bool:
    """Whether each line begins with a visible ASCII character and has ``width`` delimiters.

    ``places`` are those of all delimiters.
    """
    if not len(raw) or len(places) != width * len(starts):
        return False
    if width:
        of_line = places.reshape(-1, width)
        if not ((of_line[:, 0] >= starts) & (of_line[:, -1] < ends)).all():
            return False
    first = raw[starts]
    is_visible = (first > ord(" ")) & (first < 127)
    if width:
        is_visible &= places[::width] != starts
    return bool(is_visible.all())


def _any_in(mask: npt.NDArray[np.bool_], starts: type_i64, ends: type_i64) -> npt.NDArray[np.bool_]:
    """Return for each line [start, end) whether the mask is set anywhere in it."""
    places = np.concatenate((np.flatnonzero(mask), [len(mask) + 1]))
    return places[np.searchsorted(places, starts)] < ends
