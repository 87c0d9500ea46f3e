"""Assembles result lines into batches of readings, the input of a chained query (trace-20).

A result topic has one record for each row, and after a window's rows its boundary. A root writes
them in fenced transactions that never split a window, so a reader of committed records reads rows,
boundary, rows, boundary, whatever the batches of its client. The assembler makes one
``ResultBatch`` of each window. On arrival it examines only kinds and boundaries. The rows of a
window are parsed together, when their columns are needed, and never if they lie below a line's
position.

Some offsets hold transaction markers or aborted records, so the assembler does not count offsets.

Retention deletes whole segments, so the first window read may lack rows at its beginning. It is
ignored, and its time is not covered.

A result is never sent again, so a record that does not decode is lost, as in a source log. A lost
row is counted in its window's ``lost``; the time of a window whose boundary is lost is not covered.
If only the kind of a row can be read, the damage is found when the rows are parsed: ``load`` omits
the row, and returns fewer rows than the batch counts. A record that no root has written has no seq
of the window, or one that another row has: it is omitted, and nothing is lost (decision 27).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from slackwater.codec.results import parse_result, parse_time
from slackwater.model.errors import MalformedRecordError
from slackwater.model.limits import FOREVER, NEVER
from slackwater.model.records import Kind, ResultBatch, SourceColumns, type_f64
from slackwater.model.row_fields import OfFields, columns_of_results, shown_of
from slackwater.primitives.calendars import Calendar

_log = logging.getLogger(__name__)
_KIND: Final = b'"kind":"'
_ROWS: Final = (b"stable", b"tentative")
_DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError)
"""Errors that parsing a malformed row may raise."""
_COUNT_MAX: Final = 2**53
"""Upper bound of counts and seqs."""
_ROW_BYTES: Final = 64
"""Approximate memory of a row in addition to its text."""


@dataclass(frozen=True, slots=True)
class ResultStream:
    """One part of a query as an input stream of another query: ``<query>/<part>``.

    ``slide_us`` is None for a query without a window, whose rows have event times of their own.
    ``calendar`` is that of windows that follow one, and ``of_fields`` are the aggregates of each
    field, if they differ. ``generation`` is that of the query that has these columns. In rows of
    earlier generations a column may be absent, and is a missing value (rule-29).
    """

    query: str
    part: int
    fields: tuple[str, ...]
    aggregate: tuple[str, ...]
    slide_us: int | None
    generation: int = 0
    calendar: Calendar | None = None
    of_fields: OfFields = ()

    @property
    def shown(self) -> OfFields:
        """The fields of a row with the aggregates of each."""
        return shown_of(self.fields, self.aggregate, self.of_fields)

    @property
    def name(self) -> str:
        """The name in logs and state records."""
        return f"{self.query}/{self.part}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column names: one for each field and aggregate, such as ``temperature_avg``."""
        if self.slide_us is None:
            return self.fields
        return columns_of_results(self.shown)


class Assembler:
    """Assembles the records of one result partition, read in offset order.

    ``skipped`` is called for each record that is ignored, with its offset and the reason.
    """

    def __init__(
        self,
        stream: ResultStream,
        where: str = "",
        skipped: Callable[[int, str], None] = lambda _offset, _found: None,
    ) -> None:
        self._stream = stream
        self._where = where
        self._skipped = skipped
        self._rows: list[bytes] = []
        self._first: int | None = None
        self._from = self._next = 0
        self._damaged = False
        """True if a record since the last boundary did not decode."""
        self._last_seq = -1
        """Seq of the last boundary."""
        self._is_first = True
        """True if no boundary has been read yet: earlier rows may have been deleted."""

    def take(self, offset: int, value: bytes) -> ResultBatch | None:
        """Accept a record; return the batch at the boundary of a complete window."""
        if self._first is None:
            self._first = offset
        self._next = offset + 1
        if _kind_of(value) in _ROWS:
            self._rows.append(value)
            return None
        where = f"{self._where}:{offset}"
        try:
            line = parse_result(value, where)
            window = self._window(line, where)
        except MalformedRecordError as error:
            self._skipped(offset, error.reason)
            self._damaged = True
            return None
        if self._damaged or len(self._rows) != line["keys"]:
            self._keep_rows_of(line, offset)
        is_cut = self._is_first and len(self._rows) < line["keys"]
        batch = None if is_cut else self._batch(line, window, offset)
        self._rows, self._first, self._from = [], None, offset + 1
        self._last_seq, self._damaged, self._is_first = line["seq"], False, False
        return batch

    def _window(self, line: Mapping[str, Any], where: str) -> tuple[int, int]:
        """Return the window's start and end.

        Raises:
            MalformedRecordError: no root can have written this boundary.
        """
        if line["kind"] != "boundary":
            raise MalformedRecordError(where, f"a {line['kind']} in a topic of rows")
        window = _time_of(line, "window_start", where), _time_of(line, "window_end", where)
        lost = line.get("lost", {})
        is_possible = (
            (line["query"], line["part"]) == (self._stream.query, self._stream.part)
            and line["label"] in ("stable", "tentative")
            and 0 <= line["keys"] <= line["seq"] < _COUNT_MAX
            and self._last_seq < line["seq"] - line["keys"]
            and 0 < line["windows"] < _COUNT_MAX
            and NEVER < window[0] < window[1] < FOREVER
            and all(isinstance(name, str) for name in line["missing"])
            and isinstance(lost, dict)
            and all(isinstance(n, int) and 0 <= n < _COUNT_MAX for n in lost.values())
        )
        if not is_possible:
            raise MalformedRecordError(where, "a boundary that no root can have written")
        return window

    def _keep_rows_of(self, line: Mapping[str, Any], offset: int) -> None:
        """Omit rows of another window, whose boundary is lost, and rows not written by a root.

        Each seq of the window counts once; the first row with it is kept.
        """
        kept: dict[int, bytes] = {}
        for row in self._rows:
            seq = _seq_of(row, line)
            if seq is not None:
                kept.setdefault(seq, row)
        if len(kept) < len(self._rows):
            self._skipped(offset, f"{len(self._rows) - len(kept)} rows before it are not its own")
            self._damaged = True
        self._rows = list(kept.values())

    @property
    def is_between(self) -> bool:
        """True if no window is incomplete.

        Also true after a record that does not decode. It may have been the boundary, and the last
        record of the log for months: waiting for another boundary would prevent the log from being
        read to its end. Further records of the window still count.
        """
        return self._first is None or self._damaged

    def resume(self, wanted: int) -> int:
        """Return the offset to read from for a batch that begins at ``wanted`` or later.

        If records of such a batch have been read already, it is the offset after them.
        """
        return self._next if self._first is not None and self._continues(wanted) else wanted

    def seek(self, wanted: int) -> None:
        """Restart at ``wanted``, unless the records read so far belong to a batch there."""
        if not self._continues(wanted):
            self.restart(wanted)

    def _continues(self, wanted: int) -> bool:
        return self._from <= wanted <= (self._from if self._first is None else self._next)

    def restart(self, offset: int) -> None:
        """Restart reading at ``offset``, where a window may begin."""
        self._is_first = self._is_first or offset != self._from
        self._rows, self._first, self._from = [], None, offset
        self._last_seq, self._damaged = -1, False

    def _batch(self, line: Mapping[str, Any], window: tuple[int, int], offset: int) -> ResultBatch:
        stream, (start, end) = self._stream, window
        lost = line["keys"] - len(self._rows)
        assert self._first is not None
        is_tentative = line["label"] == "tentative"
        missing = set(line["missing"])
        if line.get("skipped") is True:
            missing.add(stream.query)  # the windows were not computed, and may not be empty
        where = f"{self._where}:{self._first}"
        rows = LazyRows(stream, self._rows, end - 1, where) if self._rows else None
        if stream.slide_us is None:
            prev_watermark, boundary = start, end
        elif stream.calendar is not None:
            prev_watermark = stream.calendar.after(start) - 1
            boundary = stream.calendar.after(end) - 1
        else:
            # The rows of a window have the time end - 1. A run covers the times of all its windows;
            # ``end`` is that of the last one.
            prev_watermark = end - 1 - (line["windows"] - 1) * stream.slide_us
            boundary = end - 1 + stream.slide_us
        return ResultBatch(
            Kind.TENTATIVE if is_tentative else Kind.INSERTION if rows else Kind.BOUNDARY,
            stream.name,
            self._first,
            offset + 1,
            prev_watermark,
            boundary,
            line["seq"] - line["keys"] + lost,
            line["seq"] - 1,
            tuple(sorted(missing)),
            sum(line.get("lost", {}).values()) + lost,
            sum(map(len, self._rows)) + _ROW_BYTES * len(self._rows),
            stime_min=prev_watermark,
            stime_max=prev_watermark if stream.slide_us is not None else boundary - 1,
            columns=rows,
            lost_rows=lost,
        )


class LazyRows:
    """The rows of one window, parsed on first use."""

    def __init__(
        self, stream: ResultStream, lines: Sequence[bytes], stime: int, where: str = ""
    ) -> None:
        self._stream = stream
        self._where = where
        self._lines: Sequence[bytes] | None = lines
        self._stime = stime
        self._columns: SourceColumns | None = None

    def load(self) -> SourceColumns:
        """Return the columns in row order; a null is a missing value (NaN).

        Damaged rows are omitted, so there may be fewer rows than the batch counts.
        """
        if self._columns is None:
            assert self._lines is not None
            try:
                self._columns = self._parsed(self._lines)
            except _DAMAGE:
                self._columns = self._parsed(list(self._complete(self._lines)))
            self._lines = None
        return self._columns

    def _complete(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        for line in lines:
            try:
                self._parsed([line])
            except _DAMAGE as error:
                _log.error("a row of the window at %s is invalid and lost: %s", self._where, error)
            else:
                yield line

    def _parsed(self, lines: Sequence[bytes]) -> SourceColumns:
        """Parse the rows; raises one of ``_DAMAGE`` if a line is not a row of this stream."""
        rows: list[dict[str, Any]] = orjson.loads(b"[" + b",".join(lines) + b"]")
        stream = self._stream
        places: dict[str, int] = {}
        if not all(isinstance(row["key"], str) for row in rows):
            raise TypeError("a key that is not a string")
        index = [places.setdefault(row["key"], len(places)) for row in rows]
        fields = [self._fields_of(row) for row in rows]
        if stream.slide_us is None:
            stimes = np.array([parse_time(row["stime"]) for row in rows], np.int64)
            values = [_column([of[name] for of in fields]) for name in stream.fields]
        else:
            stimes = np.full(len(rows), self._stime, np.int64)
            values = [
                _column([of[name][figure] for of in fields])
                for name, figures in stream.shown
                for figure in figures
            ]
        return SourceColumns(
            stimes, np.array(index, np.int32), list(places), stream.columns, tuple(values)
        )

    def _fields_of(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of a row; those that an earlier generation did not have are None."""
        stream = self._stream
        fields: Mapping[str, Any] = row["fields"]
        if not stream.generation or row.get("generation", 0) >= stream.generation:
            return fields
        if stream.slide_us is None:
            return {**dict.fromkeys(stream.fields), **fields}
        return {
            name: {**dict.fromkeys(names), **fields.get(name, {})} for name, names in stream.shown
        }


def _column(figures: list[float | None]) -> type_f64:
    return np.array(figures, np.float64)  # None is NaN


def _seq_of(row: bytes, boundary: Mapping[str, Any]) -> int | None:
    """Return the row's seq if it belongs to the window that this boundary closes."""
    try:
        found = parse_result(row)
    except MalformedRecordError:
        return None
    seq: int = found["seq"]
    names = ("query", "part", "epoch", "window_start", "window_end")
    is_own = found["kind"] == boundary["label"] and all(found[n] == boundary[n] for n in names)
    return seq if is_own and boundary["seq"] - boundary["keys"] <= seq < boundary["seq"] else None


def _time_of(line: Mapping[str, Any], name: str, where: str) -> int:
    try:
        return parse_time(line[name])
    except ValueError as error:
        raise MalformedRecordError(where, f"{name}: {error}") from error


def _kind_of(value: bytes) -> bytes:
    """Find the kind without parsing: the only text before it, the query's name, has no quotes."""
    at = value.find(_KIND) + len(_KIND)
    return value[at : value.find(b'"', at)]
