"""What a cursor keeps of a source log: records with readings that its line still needs.

A sensor's clock may be wrong, and a reading stamped hours ahead of its stream's watermark. What the
line needs is not a stretch of the log then. Such readings are kept in ``FutureBuffer``, without the
rest of their records, until their time comes: the records around them are released all the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Reversible
from dataclasses import dataclass, field, replace
from typing import Protocol

from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import SourceColumns, SourceRecord


@dataclass(slots=True)
class SourceChunk:
    """A record with readings, or a promise, that the line has not passed yet.

    ``prev_watermark`` is the promise that held before it: a reading below it broke the promise, and
    is skipped by everybody alike (trace-23).
    """

    offset: int
    record: SourceRecord
    prev_watermark: int
    inc: int
    loaded: SourceColumns | None = None

    def load(self) -> SourceColumns:
        """The readings, decoded once."""
        if self.loaded is None:
            assert self.record.columns is not None
            self.loaded = self.record.columns.load()
        return self.loaded

    @property
    def boundary(self) -> int:
        """The promise that it carries itself."""
        return self.record.boundary

    @property
    def bytes_held(self) -> int:
        """About what the record takes in memory."""
        return 24 + self.record.readings * 24

    def since(self, low: int) -> SourceChunk:
        """The same without the readings below ``low``; as it is if it cannot be read."""
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
        return replace(self, record=record, loaded=columns)


class Buffered(Protocol):
    """What a cursor keeps of one record, or of one window."""

    @property
    def boundary(self) -> int:
        """The promise that it carries."""
        ...

    @property
    def bytes_held(self) -> int:
        """About what it takes in memory."""
        ...


def bytes_from(chunks: Reversible[Buffered], end: int) -> int:
    """What lies behind the first chunk whose promise reaches ``end``.

    Looks at these chunks, from the last one on, and at no other.
    """
    held = behind = 0
    for chunk in reversed(chunks):
        if chunk.boundary < end:
            break
        held, behind = held + behind, chunk.bytes_held
    return held


@dataclass(slots=True)
class FutureBuffer:
    """Readings that the promises have passed and whose time has not come, by their times."""

    chunks: list[SourceChunk] = field(default_factory=list)

    def put(self, chunk: SourceChunk, low: int) -> None:
        """What the record holds from ``low`` on."""
        insort(self.chunks, chunk.since(low), key=_time_of)

    def pass_to(self, low: int) -> None:
        """Forget what lies below ``low``."""
        passed = 0
        while passed < len(self.chunks) and _time_of(self.chunks[passed]) < low:
            passed += 1
        begun, self.chunks[:passed] = self.chunks[:passed], []
        for chunk in begun:
            if chunk.record.stime_max >= low:
                self.put(chunk, low)

    def within(self, start: int, end: int) -> Iterator[SourceChunk]:
        """What may have readings in [start, end)."""
        for chunk in self.chunks:
            if _time_of(chunk) >= end:
                return
            if chunk.record.stime_max >= start:
                yield chunk

    @property
    def bytes_held(self) -> int:
        """About what it takes in memory."""
        return sum(24 + 24 * len(c.loaded.stimes) for c in self.chunks if c.loaded is not None)

    def keep_below(self, offset: int) -> None:
        """Forget what is read again from ``offset`` on."""
        self.chunks = [chunk for chunk in self.chunks if chunk.offset < offset]


def _time_of(chunk: SourceChunk) -> int:
    return chunk.record.stime_min


def offset_of(chunk: SourceChunk) -> int:
    """Where the record lies in its log."""
    return chunk.offset
