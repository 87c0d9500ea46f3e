"""Result lines -> batches of readings: what a chained query reads (trace-20).

A result topic has one record a row, and behind a window's rows the boundary that closes them. A
root writes them in fenced transactions that never cut a window, so a reader of committed records
sees rows, boundary, rows, boundary, whatever batches its client hands over. The assembler turns
them into one ``ResultBatch`` a window. Only kind and boundary are looked at when a record comes;
the rows are parsed together, once, when somebody wants their columns: what lies below a line's
place is never parsed at all.

Offsets have holes, where markers of transactions and aborted records lie; nothing here counts them.

Retention cuts where a segment ends, which may be between the rows of a window. So the first window
that is read may lack its first rows: it is passed over, and its time is not covered.

Nobody can say a result again, so one that does not decode is lost, as in a source log (decision
27): a row is counted in its window's ``lost``, and a boundary leaves its window's time uncovered. A
row of which only the kind can be read is found when the rows are parsed: ``load`` leaves it out, so
that it returns fewer rows than the batch counts. A record that no root has written holds no seq of
the window, or one that the window has already: it is left out, and nothing is lost.
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

_log = logging.getLogger(__name__)
_KIND: Final = b'"kind":"'
_ROWS: Final = (b"stable", b"tentative")
_DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError)
"""What reading the text of a row may raise if it is not what a root has written."""
_COUNT_MAX: Final = 2**53
"""Counts and seqs lie below it."""
"""Event times lie below it, on both sides of 1970."""
_ROW_BYTES: Final = 64
"""What a row takes beside its text."""


@dataclass(frozen=True, slots=True)
class ResultStream:
    """One part of a query as a stream of another: ``<query>/<part>``.

    ``slide_us`` is None for a query without a window, whose rows bring their own event times.
    """

    query: str
    part: int
    fields: tuple[str, ...]
    aggregate: tuple[str, ...]
    slide_us: int | None

    @property
    def name(self) -> str:
        """As logs and state records name it."""
        return f"{self.query}/{self.part}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns: a field for each figure, ``temperature_avg``."""
        if self.slide_us is None:
            return self.fields
        return tuple(f"{field}_{figure}" for field in self.fields for figure in self.aggregate)


class Assembler:
    """Puts the records of one result partition together, in the order of their offsets."""

    def __init__(
        self,
        stream: ResultStream,
        where: str = "",
        skipped: Callable[[int, str], None] = lambda _offset, _found: None,
    ) -> None:
        self._stream = stream
        self._where = where
        self._skipped = skipped
        """Told of each record that is passed over: its offset, and what is wrong with it."""
        self._rows: list[bytes] = []
        self._first: int | None = None
        self._from = self._next = 0
        self._damaged = False
        """Something since the last boundary did not decode."""
        self._last_seq = -1
        """Of the last boundary."""
        self._is_first = True
        """No boundary has been read yet: what lies before may be gone."""

    def take(self, offset: int, value: bytes) -> ResultBatch | None:
        """The next record; the window's batch if this was its boundary, and all of it is there."""
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
        """Start and end; ``MalformedRecordError`` if it is no boundary that a root has written."""
        if line["kind"] != "boundary":
            raise MalformedRecordError(where, f"a {line['kind']} has no place")
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
        """Leave out what is of another window, whose boundary is lost, and what nobody wrote.

        Each seq of the window counts once, as it was said first.
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
        """Is the last window that was begun complete?

        What cannot be read may have been its boundary, and the last record for months: whoever
        waited for another would never have read the log to its end. If there is more to come, it
        counts all the same.
        """
        return self._first is None or self._damaged

    def resume(self, wanted: int) -> int:
        """Where to read on for a batch that begins at ``wanted`` or behind.

        In the middle of a window that was begun there: behind what is held of it. Else anew.
        """
        if self._first is not None and self._from <= wanted <= self._next:
            return self._next
        self.restart(wanted)
        return wanted

    def restart(self, offset: int) -> None:
        """Reading begins at ``offset``, where a window may begin."""
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
            missing.add(stream.query)  # it has not been computed: no rows does not mean empty
        where = f"{self._where}:{self._first}"
        rows = LazyRows(stream, self._rows, end - 1, where) if self._rows else None
        if stream.slide_us is None:
            prev_watermark, boundary = start, end
        else:
            # A run of windows ends with its last; the first one's end is the floor.
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
        )


class LazyRows:
    """The rows of one window, parsed when they are first needed."""

    def __init__(
        self, stream: ResultStream, lines: Sequence[bytes], stime: int, where: str = ""
    ) -> None:
        self._stream = stream
        self._where = where
        self._lines: Sequence[bytes] | None = lines
        self._stime = stime
        self._columns: SourceColumns | None = None

    def load(self) -> SourceColumns:
        """The columns, in the order of the rows; a figure that is null is a missing value.

        Rows that are damaged are left out: there may be fewer than the batch counts.
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
                _log.error("the rows at %s: one cannot be read and is lost: %s", self._where, error)
            else:
                yield line

    def _parsed(self, lines: Sequence[bytes]) -> SourceColumns:
        """Raises one of ``_DAMAGE`` if one of the lines is no row of this stream."""
        rows: list[dict[str, Any]] = orjson.loads(b"[" + b",".join(lines) + b"]")
        stream = self._stream
        places: dict[str, int] = {}
        if not all(isinstance(row["key"], str) for row in rows):
            raise TypeError("a key that is no text")
        index = [places.setdefault(row["key"], len(places)) for row in rows]
        fields = [row["fields"] for row in rows]
        if stream.slide_us is None:
            stimes = np.array([parse_time(row["stime"]) for row in rows], np.int64)
            values = [_column([of[name] for of in fields]) for name in stream.fields]
        else:
            stimes = np.full(len(rows), self._stime, np.int64)
            values = [
                _column([of[name][figure] for of in fields])
                for name in stream.fields
                for figure in stream.aggregate
            ]
        return SourceColumns(
            stimes, np.array(index, np.int32), list(places), stream.columns, tuple(values)
        )


def _column(figures: list[float | None]) -> type_f64:
    return np.array(figures, np.float64)  # None is NaN


def _seq_of(row: bytes, boundary: Mapping[str, Any]) -> int | None:
    """The row's seq, if it is one of the window that this boundary closes."""
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
    """The kind, without parsing: it stands behind names and numbers that hold no quote."""
    at = value.find(_KIND) + len(_KIND)
    return value[at : value.find(b'"', at)]
