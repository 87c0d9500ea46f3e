"""Cursors in the result topics of another query, for chains of queries (trace-20).

DPC's diagrams are chains of nodes whose SUnions read the outputs of others (sections 2.1 and 4.2);
tentative tuples and tentative boundaries are forwarded, so that a failure delays the whole chain by
one X (section 6.3). Here part p of a query is one stream, ``<query>/<p>``, stored in two logs. The
stable line reads only the stable topic. The live line reads both, and per window the stable version
replaces the tentative one. Corrections need not be forwarded: the stable answer of an undone
window is in the stable topic, and the reading query's own root decides what it revokes (trace-3).

These logs are written in fenced transactions (rule-22 and rule-23), so they have no repeats, no
zombies and no incarnations. The cursors have to handle two things: the order of records in
different logs, and holes, which a seek of the live line or retention leaves. They use the event
times [prev_watermark, boundary) that each batch covers. The ranges of successive batches touch, so
a line's progress is the range covered without a hole (``reach``). Offsets do not show a hole:
transaction markers occupy some, and no reader receives them.

Rejected: forwarding UNDO and tentative rows as events that patch the reader's state, as in the
paper. Every tentative tuple would be kept until it is patched (trace-5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from slackwater.model.limits import FOREVER, NEVER
from slackwater.model.records import Gap, ResultBatch, SourceColumns, SourcePosition
from slackwater.protocols.dpc.sunion.chunks import bytes_from

_CHUNK_BYTES: Final = 512
"""Approximate size of a batch without rows in memory."""


@dataclass(slots=True)
class ResultChunk:
    """A batch that the line has not passed yet, and the losses in its event time."""

    batch: ResultBatch
    prev_watermark: int
    expected_id: int
    """The id after those of the batch before."""
    gaps: tuple[tuple[int, int, Gap], ...] = ()
    is_loaded: bool = False
    """True if the rows have been decoded once, so that ``gaps`` counts those that do not decode."""

    @property
    def boundary(self) -> int:
        """The end of the batch's event time."""
        return self.batch.boundary

    @property
    def bytes_held(self) -> int:
        """Approximate size in memory, in bytes."""
        return _CHUNK_BYTES + self.batch.bytes_held


class ResultCursor:
    """One line's cursor in one result topic of one part.

    Args:
        position: where to continue; event time below its boundary is covered already.
        name: name of the query that is read.
        strict: true for the stable line: a hole is a loss to retention, recorded as a gap.
    """

    def __init__(self, position: SourcePosition, name: str, *, strict: bool) -> None:
        self._name = name
        self._strict = strict
        self.offset = position.offset
        self._next_id = position.next_id
        self._base = position.boundary
        self.boundary = position.boundary
        self.attached = False
        self.hole_inc: int | None = None
        """Always None: a transactional log has no holes that its writer could fill."""
        self.bytes_held = 0
        self.passed_bytes = self.future_bytes = 0
        self._low = NEVER
        self._chunks: deque[ResultChunk] = deque()

    # What comes in.

    def offer(self, offset: int, record: ResultBatch) -> bool:
        """Process the batch that begins at ``offset``; True if it counts.

        The cursor may stand inside the batch: where a damaged record was taken for the end of a
        window, an earlier batch ended there.
        """
        if record.next_offset <= self.offset:
            return False
        self.offset = record.next_offset
        before, self._next_id = self._next_id, record.last_id + 2  # the boundary has an id too
        if record.boundary <= self.boundary:
            return False
        prev_watermark, gaps = record.prev_watermark, []
        if record.lost:
            gaps.append((record.stime_min, record.stime_max + 1, Gap(self._name, record.lost)))
        if self._strict:
            if prev_watermark > self.boundary:
                # At least one record is lost: each window has a boundary.
                lost = max(record.first_id - record.lost_rows - before, 1)
                gaps.append((self.boundary, prev_watermark, Gap(self._name, lost)))
            prev_watermark = self.boundary
        self.boundary = record.boundary
        chunk = ResultChunk(record, prev_watermark, before, tuple(gaps))
        self._chunks.append(chunk)
        self.bytes_held += chunk.bytes_held
        return True

    def jump(self, beginning: int) -> None:
        """Move to ``beginning`` after a loss to retention; the next batch shows its extent."""
        assert beginning > self.offset
        self.offset = beginning

    def skip_to(self, offset: int) -> None:
        """Advance to ``offset``: no record lies between (rule-13).

        That is no loss: some offsets have no record, and batches show what they cover.
        """
        self.offset = max(self.offset, offset)

    def seek(self, end: int) -> None:
        """Skip a backlog, live line only (rule-13); its event times are then not covered."""
        assert not self._strict
        self.offset = max(self.offset, end)
        self.attached = False
        self._clear()

    # What goes out.

    def columns(self, start: int, end: int) -> Iterator[tuple[SourceColumns, int]]:
        """The columns that hold rows of [start, end), each with its previous watermark."""
        for chunk in self._within(start, end):
            if chunk.batch.readings:
                yield self.load(chunk), chunk.prev_watermark

    def load(self, chunk: ResultChunk) -> SourceColumns:
        """The rows of a batch that has rows; unreadable rows count as lost (rule-28)."""
        batch = chunk.batch
        assert batch.columns is not None
        loaded = batch.columns.load()
        unread = batch.readings - len(loaded.stimes)
        if unread and not chunk.is_loaded:
            affected = (batch.stime_min, batch.stime_max + 1, Gap(self._name, unread))
            chunk.gaps = (*chunk.gaps, affected)
        chunk.is_loaded = True
        return loaded

    @property
    def buckets_held(self) -> int:
        """Number of windows and runs of empty ones that are buffered."""
        return len(self._chunks)

    def next_reading(self, start: int) -> int | None:
        """The smallest stime >= start that is buffered; None if there is none."""
        for chunk in self._chunks:
            if chunk.batch.readings and chunk.batch.stime_max >= start:
                return max(chunk.batch.stime_min, start)
        return None

    @property
    def gaps(self) -> list[tuple[int, int, Gap]]:
        """(from, to, gap): lost rows, and the event times [from, to) in which they may lie."""
        return [gap for chunk in self._chunks for gap in chunk.gaps]

    def missing(self, start: int, end: int) -> Iterator[str]:
        """The missing inputs of the batches that cover [start, end)."""
        for chunk in self._chunks:
            if chunk.batch.missing and chunk.prev_watermark < end and chunk.batch.boundary > start:
                yield from chunk.batch.missing

    def pass_to(self, start: int) -> None:
        """Drop everything below ``start``, which the line has passed."""
        self._low = max(self._low, start)
        chunks = self._chunks
        while chunks and chunks[0].batch.boundary <= self._low:
            chunk = chunks.popleft()
            self.bytes_held -= chunk.bytes_held
            self._base = max(self._base, chunk.batch.boundary)

    def excess_bytes(self, start: int, end: int) -> int:
        """Approximate bytes a line whose next bucket is [start, end) does not need (rule-12)."""
        overdue = takewhile(lambda chunk: chunk.boundary <= start, self._chunks)
        return bytes_from(self._chunks, end) + sum(chunk.bytes_held for chunk in overdue)

    def _within(self, start: int, end: int) -> Iterator[ResultChunk]:
        for chunk in self._chunks:
            if chunk.batch.stime_max >= start and chunk.batch.stime_min < end:
                yield chunk

    # Where it is.

    def reach(self, e: int) -> int:
        """The end of the event time after ``e`` that is covered without a hole, at least ``e``."""
        e = max(e, self._base)
        for chunk in self._chunks:
            if chunk.prev_watermark > e:
                break
            e = max(e, chunk.batch.boundary)
        return e

    def passed(self, start: int) -> int:
        """The end of complete event time, for a line whose next bucket begins at ``start``."""
        return passed(start, (self,))

    @property
    def base(self) -> int:
        """The line's progress by the batches it has passed."""
        return self._base

    @property
    def next(self) -> SourcePosition:
        """Where to read from for all that the line has not passed yet (rule-5, rule-25)."""
        if not self._chunks:
            # Not ``boundary``: after a seek the event time up to there is not covered, and a
            # restart must not take it for covered.
            return SourcePosition(self.offset, self._next_id, -1, self._base)
        head = self._chunks[0]  # with its expected id, a hole before it is counted again the same
        return SourcePosition(head.batch.offset, head.expected_id, -1, self._base)

    @property
    def rebuild(self) -> SourcePosition:
        """Same as ``next``: no operator looks back into results."""
        return self.next

    def park(self) -> None:
        """Drop the buffer; a catch-up reader reads it again."""
        place = self.next
        self.offset, self._next_id = place.offset, place.next_id
        self._clear()
        self.attached = False

    def _clear(self) -> None:
        self._chunks.clear()
        self.bytes_held = 0
        self.boundary = self._base

    @property
    def buffered_to(self) -> int:
        """The event time that the buffer reaches, by the watermark before its last batch.

        This is the time of the batch's rows, if it has any. The watermark after them lies a slide
        ahead, up to which nothing is buffered.
        """
        return max(self._low, self._chunks[-1].batch.prev_watermark if self._chunks else self._low)


class NullCursor:
    """The stable line's cursor in a tentative topic, which ignores all records (trace-20)."""

    offset = 0
    boundary = FOREVER
    hole_inc: int | None = None
    bytes_held = buckets_held = passed_bytes = future_bytes = 0
    buffered_to = NEVER
    gaps: tuple[tuple[int, int, Gap], ...] = ()

    @property
    def attached(self) -> bool:
        """Always true."""
        return True

    @attached.setter
    def attached(self, _: bool) -> None: ...

    def offer(self, offset: int, record: ResultBatch) -> bool:
        """Ignores the record."""
        return False

    def jump(self, beginning: int) -> None:
        """Does nothing."""

    def skip_to(self, offset: int) -> None:
        """Does nothing."""

    @property
    def next(self) -> SourcePosition:
        """A placeholder: in its place the state record has the live line's position."""
        return SourcePosition(0, 0, -1, NEVER)

    @property
    def rebuild(self) -> SourcePosition:
        """Same as ``next``."""
        return self.next

    def columns(self, start: int, end: int) -> tuple[tuple[SourceColumns, int], ...]:
        """Always empty: the cursor buffers nothing."""
        return ()

    def next_reading(self, start: int) -> None:
        """Always None: the cursor buffers nothing."""

    def excess_bytes(self, start: int, end: int) -> int:
        """Always 0: the cursor buffers nothing."""
        return 0

    def pass_to(self, start: int) -> None:
        """Does nothing."""

    def park(self) -> None:
        """Does nothing."""


def passed(start: int, cursors: Iterable[ResultCursor]) -> int:
    """The end of the event time that the logs of one part cover together, from ``start`` on.

    It is ``start`` or less if not even the next window is covered. The logs may cover in turns:
    tentative windows may lie between two runs of stable ones.
    """
    cursors = tuple(cursors)
    reached, before = start, None
    while reached != before:
        before = reached
        for cursor in cursors:
            reached = max(reached, cursor.reach(reached))
    if reached > start:
        return reached
    return min(start, max(cursor.base for cursor in cursors))


def live_columns(
    stable: ResultCursor, tentative: ResultCursor, start: int, end: int
) -> Iterator[tuple[SourceColumns, int]]:
    """The rows of both logs in [start, end); of a window with two versions, the stable one."""
    yield from stable.columns(start, end)
    for chunk in tentative._within(start, end):
        if chunk.batch.readings and not _is_stable_in(chunk.batch, stable):
            yield tentative.load(chunk), chunk.prev_watermark


def live_gaps(stable: ResultCursor, tentative: ResultCursor) -> Iterator[tuple[int, int, Gap]]:
    """The losses in the answers whose rows ``live_columns`` yields."""
    yield from stable.gaps
    for chunk in tentative._chunks:
        if chunk.gaps and not _is_stable_in(chunk.batch, stable):
            yield from chunk.gaps


def _is_stable_in(batch: ResultBatch, stable: ResultCursor) -> bool:
    """True if the stable topic covers the event time of this window, or run of empty windows.

    Event time below the position at which the log was first read counts as covered: the window may
    have begun before it.
    """
    return stable.reach(batch.prev_watermark) >= batch.boundary


def live_missing(
    stable: ResultCursor, tentative: ResultCursor, start: int, end: int
) -> tuple[str, ...]:
    """The missing inputs of the tentative answers used for [start, end)."""
    if stable.reach(start) >= end:
        return ()
    return tuple(tentative.missing(start, end))
