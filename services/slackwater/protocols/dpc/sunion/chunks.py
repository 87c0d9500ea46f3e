"""The buffer of a source log's cursor: records with readings that its line still needs.

A sensor with a wrong clock may stamp a reading hours ahead of its stream's watermark; the needed
readings are then no contiguous range of the log. Such readings are kept in ``FutureBuffer`` until
the line has reached their time; the other readings of their records are released.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Reversible
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import SourceColumns, SourceRecord, type_i64

READING_BYTES: Final = 24
"""Approximate size of a reading in memory, and of a record without its readings."""


@dataclass(slots=True)
class SourceChunk:
    """A record with readings, or a watermark, that the line has not passed yet.

    ``prev_watermark`` is the watermark before the record: all readers leave out a reading below it
    (trace-23). ``inc`` is the incarnation of the record's writer.
    """

    offset: int
    record: SourceRecord
    prev_watermark: int
    inc: int
    loaded: SourceColumns | None = None
    _times: type_i64 | None = None
    """The times of the readings, ascending."""

    def load(self) -> SourceColumns:
        """The readings, decoded once."""
        if self.loaded is None:
            assert self.record.columns is not None
            self.loaded = self.record.columns.load()
        return self.loaded

    def first_from(self, start: int) -> int | None:
        """The smallest time >= ``start`` of its readings, us; None if there is none.

        It is exact within the record too: the record of a file may span a year, and the buckets
        between two of its readings are one run (trace-24). If the readings do not decode, they may
        lie anywhere between the times of the header.
        """
        record, low = self.record, max(start, self.prev_watermark)
        if not record.readings or record.stime_max < low:
            return None
        if record.stime_min >= low:
            return record.stime_min
        if self._times is None:
            try:
                stimes = self.load().stimes
            except MalformedRecordError:
                return low
            is_ascending = bool(np.all(stimes[1:] >= stimes[:-1]))
            self._times = stimes if is_ascending else np.sort(stimes)
        at = int(np.searchsorted(self._times, low))
        return int(self._times[at]) if at < len(self._times) else None

    @property
    def boundary(self) -> int:
        """The watermark of the record."""
        return self.record.boundary

    @property
    def bytes_held(self) -> int:
        """Approximate size of the record in memory, in bytes."""
        return READING_BYTES * (1 + self.record.readings)

    def since(self, low: int) -> SourceChunk:
        """A copy without the readings below ``low``; unchanged if none is left or none decodes."""
        try:
            columns_all = self.load()
        except MalformedRecordError:
            return self
        kept = columns_all.stimes >= low
        if not kept.any():
            return self
        stimes, index = columns_all.stimes[kept], columns_all.key_index[kept]
        values = tuple(column[kept] for column in columns_all.values)
        columns = SourceColumns(stimes, index, columns_all.keys, columns_all.fields, values)
        record = replace(self.record, stime_min=int(stimes.min()), columns=columns)
        return replace(self, record=record, loaded=columns, _times=None)


class Buffered(Protocol):
    """A buffered record or window of a cursor."""

    @property
    def boundary(self) -> int:
        """The watermark it carries."""
        ...

    @property
    def bytes_held(self) -> int:
        """Approximate size in memory."""
        ...


def bytes_from(chunks: Reversible[Buffered], end: int) -> int:
    """Approximate bytes of the chunks after the first one whose watermark reaches ``end``.

    The time taken depends on the number of these chunks only.
    """
    held = behind = 0
    for chunk in reversed(chunks):
        if chunk.boundary < end:
            break
        held, behind = held + behind, chunk.bytes_held
    return held


def nearest_in(chunks: Iterable[SourceChunk], start: int) -> int | None:
    """The smallest time >= ``start`` of the chunks' readings, us; None if there is none."""
    best: int | None = None
    for chunk in chunks:
        if best is not None and chunk.prev_watermark >= best:
            continue
        first = chunk.first_from(start)
        if first is not None and (best is None or first < best):
            best = first
    return best


@dataclass(slots=True)
class FutureBuffer:
    """Readings ahead of the line in event time, of records that the line has passed, by time."""

    chunks: list[SourceChunk] = field(default_factory=list)

    def put(self, chunk: SourceChunk, low: int) -> None:
        """Add the record's readings from ``low`` on."""
        insort(self.chunks, chunk.since(low), key=_time_of)

    def pass_to(self, low: int) -> None:
        """Drop the readings below ``low``."""
        passed = 0
        while passed < len(self.chunks) and _time_of(self.chunks[passed]) < low:
            passed += 1
        begun, self.chunks[:passed] = self.chunks[:passed], []
        for chunk in begun:
            if chunk.record.stime_max >= low:
                self.put(chunk, low)

    def within(self, start: int, end: int) -> Iterator[SourceChunk]:
        """The chunks that may have readings in [start, end)."""
        for chunk in self.chunks:
            if _time_of(chunk) >= end:
                return
            if chunk.record.stime_max >= start:
                yield chunk

    @property
    def bytes_held(self) -> int:
        """Approximate size in memory."""
        loaded = (c.loaded for c in self.chunks if c.loaded is not None)
        return sum(READING_BYTES * (1 + len(columns.stimes)) for columns in loaded)

    def keep_below(self, offset: int) -> None:
        """Drop the chunks at ``offset`` and after it: they are read again."""
        self.chunks = [chunk for chunk in self.chunks if chunk.offset < offset]


def _time_of(chunk: SourceChunk) -> int:
    return chunk.record.stime_min


def offset_of(chunk: SourceChunk) -> int:
    """The record's offset in its log."""
    return chunk.offset
