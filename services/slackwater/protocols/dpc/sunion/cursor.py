"""A line's cursor in one source log: accepts records and buffers their readings.

The source log is DPC's persistent log of a data source (section 2.2): any replica can replay it.
It may hold repeats, records of zombies, and holes. The cursor's acceptance rules yield one
sequence, the same for all readers from any position (rule-10, rule-12, rule-13).

A cursor is *attached* when the live consumer feeds it, or *parked* at an offset from which a
catch-up reader feeds it. Memory is bounded because a cursor that has read too far ahead is parked:
it drops its buffer and keeps the position to read it again from. Kafka is the buffer.

The stable line's cursor is strict: only the next id counts. The live line's cursor never waits: it
skips holes, reads only headers of records below its line, and may seek to the log's end. It has its
own next id and incarnation, so that its input never reaches the stable line (trace-35). It records
that it has skipped: the watermark after a skipped range promises that nothing older *follows*, not
that the skipped range has been read. Until the line has passed all event times of that range
(``complete_from``) the stream is incomplete, and is named in ``missing`` (guarantee-3).

A sensor with a wrong clock may stamp a reading hours ahead of its stream's watermark. Such readings
are kept in the *future buffer* until the line has reached their time (``chunks.py``).

An operator may look back: a join needs readings that the line has passed, up to ``lookback_us``
before its position. A cursor retains them, and reports the position from which replay restores them
(trace-26). Skipped or lost readings affect answers for ``lookback_us`` longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, takewhile

from slackwater.model.errors import MalformedRecordError
from slackwater.model.limits import FOREVER, NEVER
from slackwater.model.records import Gap, Kind, SourceColumns, SourcePosition, SourceRecord
from slackwater.protocols.dpc.sunion.chunks import (
    READING_BYTES,
    FutureBuffer,
    SourceChunk,
    bytes_from,
    nearest_in,
    offset_of,
)


class SourceCursor:
    """One line's cursor in one source log.

    Args:
        position: where to continue (rule-5); ``next_id`` -1 accepts any first record.
        strict: true for the stable line's rules, false for the live line's.
        disorder_us: how far below the largest time before it a reading may lie.
        lookback_us: how far below the line's position readings are still needed.
    """

    def __init__(
        self,
        position: SourcePosition,
        *,
        strict: bool,
        disorder_us: int = 0,
        lookback_us: int = 0,
    ) -> None:
        self._strict = strict
        self._disorder_us = disorder_us
        self._lookback_us = lookback_us
        self.offset = position.offset
        self.next_id = position.next_id
        self.inc = position.inc
        self.boundary = position.boundary
        self.attached = False
        self.hole_inc: int | None = None
        """Incarnation of the writer that left a hole here, until the hole is filled (rule-11)."""
        self.bytes_held = 0
        """Approximate bytes buffered ahead of the line."""
        self.passed_bytes = 0
        """Approximate bytes retained of what the line has passed, without the future buffer."""
        self._low = NEVER
        self._passed: deque[SourceChunk] = deque()
        self._chunks: deque[SourceChunk] = deque()
        self._future = FutureBuffer()
        # A log that is read for the first time and does not begin at 0 has lost its first readings.
        is_cut = position.inc < 0 < position.offset
        self._lost_from: int | None = position.boundary if is_cut else None
        self._before_loss: SourcePosition | None = position if is_cut else None
        # A live cursor with an incarnation and no next id has skipped records; without both, it has
        # read nothing yet.
        self._skipped = not strict and position.next_id < 0 <= position.inc
        self.complete_from: int | None = None
        """Event time from which on no skipped reading is missing; None if none was skipped."""
        self.gaps: list[tuple[int, int, Gap]] = []
        """(from, to, gap): lost readings, and the event times [from, to) in which they may lie."""

    # What comes in.

    def offer(self, offset: int, record: SourceRecord) -> bool:
        """Process the record at ``offset``; True if it counts (rule-10)."""
        if offset < self.offset:
            return False
        if record.gap and record.kind is not Kind.START and self._strict and not self._before_loss:
            # The loss concerns buckets beyond the record, and a restart must record it again.
            self._before_loss = self.rebuild
        if record.kind is Kind.VOID and self._strict and self.hole_inc is None:
            self._expect_loss()
        self.offset = offset + 1
        if record.kind is Kind.START:
            self.inc = max(self.inc, offset)
            if record.gap:
                self._begin_ids_anew(record)
        elif record.inc < self.inc or record.kind is Kind.VOID:
            return False
        elif record.inc > self.inc:
            # Its START was never read: it lies before a jump, or before the beginning.
            self.inc = record.inc
        if not self._is_next(record):
            return False
        prev_watermark = self.boundary
        self.next_id = record.last_id + 1
        self.boundary = max(self.boundary, record.boundary)
        for gap in record.gap if record.kind is not Kind.START else ():
            affected = (prev_watermark, self._affected_until(record), gap)
            if affected not in self.gaps:  # after being parked the cursor reads the record again
                self.gaps.append(affected)
        low = max(self._low - self._lookback_us, prev_watermark)
        if self.boundary > low or (record.readings and record.stime_max >= low):
            self._keep(SourceChunk(offset, record, prev_watermark, self.inc))
        return True

    def _keep(self, chunk: SourceChunk) -> None:
        if self._chunks or chunk.record.boundary > self._low:
            self._chunks.append(chunk)
            self.bytes_held += chunk.bytes_held
        else:
            self._keep_passed(chunk)

    def _keep_passed(self, chunk: SourceChunk) -> None:
        """Keep a chunk below the line's position; its readings may still lie ahead."""
        if chunk.record.readings and chunk.record.stime_max >= self._low:
            self._future.put(chunk, self._low - self._lookback_us)
        else:
            self._passed.append(chunk)
            self.passed_bytes += chunk.bytes_held

    def _forget(self) -> None:
        self._passed.clear()
        self._chunks.clear()
        self.bytes_held = self.passed_bytes = 0

    def _is_next(self, record: SourceRecord) -> bool:
        if self.next_id < 0 or record.first_id == self.next_id:
            self.hole_inc = None
        elif record.first_id < self.next_id:
            return False
        elif self._lost_from is not None:
            lost = Gap(record.stream, record.first_id - self.next_id)
            self.gaps.append((self._lost_from, self._affected_until(record), lost))
        elif self._strict:
            self.hole_inc = self.inc
            return False
        else:
            self._skipped = True
        self._lost_from = None
        if self._skipped:
            affected_until, before = self._affected_until(record), self.complete_from
            self.complete_from = affected_until if before is None else max(before, affected_until)
            self._skipped = False
        return True

    def _affected_until(self, record: SourceRecord) -> int:
        """Upper bound of the times of readings lost or skipped before ``record``."""
        return max(record.stime_max, record.boundary) + self._disorder_us

    def _begin_ids_anew(self, start: SourceRecord) -> None:
        """Restart ids: retention deleted the log's last records, so their ids are unknown.

        A reader that has read past the loss continues. Another one records a gap; it counts one
        reading, since the number is unknown.
        """
        if self._lost_from is not None:
            lost = Gap(start.stream, 1)
            self.gaps.append((self._lost_from, self._affected_until(start), lost))
            self._lost_from = None
        self.next_id, self.hole_inc = start.first_id, None

    def jump(self, beginning: int) -> None:
        """Continue at ``beginning``: retention deleted the records before it (rule-28).

        A stable cursor records the loss. A live cursor seeks without a record.
        """
        assert beginning > self.offset
        if not self._strict:
            self.seek(beginning)
            return
        self._expect_loss()
        self.offset = beginning

    def skip_to(self, offset: int) -> None:
        """Continue at ``offset``, as ``jump`` does: an offset without a record is a lost record."""
        self.jump(offset)

    def _expect_loss(self) -> None:
        """Treat ids absent before the next record as lost, and record where the loss begins.

        This applies after a removed position and after a damaged record (VOID): their readings may
        be nowhere else. It does not apply while a hole is being filled: everything after the hole
        is sent again. A restart continues before the loss (``rebuild``), so it records the same.
        """
        if self._before_loss is None:
            self._before_loss = self.rebuild
        if self._lost_from is None:
            self._lost_from = self.boundary
        self.next_id = max(self.next_id, 0)  # nothing was read yet, and ids begin at 0

    def seek(self, end: int) -> None:
        """Skip a backlog, live line only (rule-13); the first record at ``end`` is next."""
        assert not self._strict
        self.offset = max(self.offset, end)
        self.next_id = -1
        self.attached = False
        self._skipped = True
        self._forget()
        self._future = FutureBuffer()

    def adopt_stable_state(self, stable: SourceCursor) -> None:
        """Take over skipped readings from the stable line's cursor, live line only.

        Call where the two lines have met. If the stable cursor has read as far, its buffer is
        complete, and nothing is missing any longer. The exceptions are a stable cursor with a loss
        or a hole, and a live cursor that has skipped and not yet read its first record.
        """
        assert not self._strict
        is_complete = stable._before_loss is None and stable.hole_inc is None
        if not (self._has_skipped and is_complete and 0 <= self.next_id <= stable.next_id):
            return
        self.offset, self.next_id = stable.offset, stable.next_id
        self.inc, self.boundary = stable.inc, stable.boundary
        self.attached, self.bytes_held = stable.attached, stable.bytes_held
        self._low, self.passed_bytes = stable._low, stable.passed_bytes
        self._passed, self._chunks = stable._passed.copy(), stable._chunks.copy()
        self._future = FutureBuffer(stable._future.chunks.copy())
        self.complete_from = None

    # What goes out.

    def columns(self, start: int, end: int) -> Iterator[tuple[SourceColumns, int]]:
        """The columns that hold readings of [start, end), each with its previous watermark."""
        for chunk in self._within(start, end):
            try:
                loaded = chunk.load()
            except MalformedRecordError:
                self._lose(chunk.record)
            else:
                yield loaded, chunk.prev_watermark

    def _within(self, start: int, end: int) -> Iterator[SourceChunk]:
        """The chunks that may have readings in [start, end), in the order of the log."""
        future = deque(sorted(self._future.within(start, end), key=offset_of))
        for chunk in chain(self._passed, self._chunks):
            record = chunk.record
            if chunk.prev_watermark >= end:
                break
            if record.readings and record.stime_max >= start and record.stime_min < end:
                while future and future[0].offset < chunk.offset:
                    yield future.popleft()
                yield chunk
        yield from future

    def _lose(self, record: SourceRecord) -> None:
        """Record a gap for a record whose header decodes and whose readings do not."""
        affected = (record.stime_min, record.stime_max + 1, Gap(record.stream, record.readings))
        if affected not in self.gaps:
            self.gaps.append(affected)

    @property
    def buckets_held(self) -> int:
        """Upper bound of the buckets with readings, and runs of empty ones, that are buffered.

        Each reading may be alone in its bucket, and each record may end a run.
        """
        return self.bytes_held // READING_BYTES

    def next_reading(self, start: int) -> int | None:
        """The smallest buffered stime >= start; None if there is none.

        A lower bound of it, if readings do not decode.
        """
        return nearest_in(chain(self._future.within(start, FOREVER), self._chunks), start)

    def pass_to(self, start: int) -> None:
        """Advance to ``start``; drop readings that no operator looks back to."""
        if start <= self._low:
            return
        self._low = start
        needed_from = start - self._lookback_us
        while self._chunks and self._chunks[0].record.boundary <= start:
            chunk = self._chunks.popleft()
            self.bytes_held -= chunk.bytes_held
            self._keep_passed(chunk)
        self._future.pass_to(needed_from)
        while self._passed and self._is_done(self._passed[0], needed_from):
            self.passed_bytes -= self._passed.popleft().bytes_held
        self.gaps = [gap for gap in self.gaps if gap[1] > needed_from]
        if not self.gaps and self._lost_from is None:
            self._before_loss = None

    def _is_done(self, chunk: SourceChunk, start: int) -> bool:
        record = chunk.record
        return record.boundary <= start and (not record.readings or record.stime_max < start)

    @property
    def future_bytes(self) -> int:
        """Approximate bytes of readings stamped ahead of the watermark."""
        return self._future.bytes_held

    def excess_bytes(self, start: int, end: int) -> int:
        """Approximate bytes a line whose next bucket is [start, end) does not need (rule-12)."""
        overdue = sum(chunk.bytes_held for chunk in self._overdue(start))
        return bytes_from(self._chunks, end) + overdue

    def _overdue(self, start: int) -> Iterator[SourceChunk]:
        """Chunks that ``pass_to`` should have released or moved behind the line."""
        needed_from = start - self._lookback_us
        yield from takewhile(lambda chunk: self._is_done(chunk, needed_from), self._passed)
        yield from takewhile(lambda chunk: chunk.boundary <= start, self._chunks)

    # Where it is.

    def passed(self, start: int) -> int:
        """The end of complete event time, for a line whose next bucket begins at ``start``.

        It is NEVER while skipped readings still affect the line, however far the log is read. If it
        were the watermark, the input would not count as failed (rule-14), and the line would wait
        for it until each deadline.
        """
        if self.complete_from is None or start - self._lookback_us >= self.complete_from:
            return self.boundary
        return NEVER

    @property
    def next(self) -> SourcePosition:
        """Position of the first record that the line has not passed yet (rule-5)."""
        return self._before_loss or self._place(self._chunks, self._future.chunks)

    @property
    def rebuild(self) -> SourcePosition:
        """Position to replay from for all that the line still needs (rule-25, trace-26).

        While a loss affects the line the position lies before the loss, so that a restart records
        the loss again.
        """
        chunks = self._passed or self._chunks
        place = self._before_loss or self._place(chunks, self._future.chunks)
        return replace(place, next_id=-1) if self._has_skipped else place

    def _place(
        self, chunks: deque[SourceChunk], future: Sequence[SourceChunk] = ()
    ) -> SourcePosition:
        """Position to read from for all of these chunks."""
        if not chunks and not future:
            return SourcePosition(self.offset, self.next_id, self.inc, self.boundary)
        head = min([*future, *([chunks[0]] if chunks else [])], key=offset_of)
        return SourcePosition(head.offset, head.record.first_id, head.inc, head.prev_watermark)

    @property
    def _has_skipped(self) -> bool:
        """True if the cursor has skipped readings that are still needed.

        A position with ``next_id`` -1 passes this on to a restart.
        """
        return self.complete_from is not None and self._low - self._lookback_us < self.complete_from

    def park(self) -> None:
        """Drop the buffer; a catch-up reader reads it again from its beginning.

        Earlier records of the future buffer are kept: they may lie hours before that beginning.
        """
        place = self._place(self._passed or self._chunks)
        self._forget()
        self._future.keep_below(place.offset)
        self.offset = place.offset
        self.next_id = place.next_id
        self.inc = place.inc
        self.boundary = place.boundary
        self.attached = False

    @property
    def buffered_to(self) -> int:
        """The event time that the buffer reaches: the last watermark read.

        Readings stamped ahead of it do not count: to park the cursor would not release them.
        """
        return max(self.boundary, self._low)
