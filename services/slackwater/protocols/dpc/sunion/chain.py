"""A query as another's source: cursors in result topics (trace-20), for a chain of queries.

DPC's diagrams are chains of nodes whose SUnions read the outputs of others (sections 2.1 and 4.2);
tentative tuples and tentative boundaries travel downstream, so that a failure costs the whole
chain one X (section 6.3). Here part p of a query is one stream, ``<query>/<p>``, kept in two logs:
the stable line reads the stable topic alone, the live line both, and per window the stable version
replaces the tentative one. Corrections need not be forwarded: the stable answer of an undone
window is in the stable topic, and what this query revokes its own root decides (trace-3).

These logs are written in fenced transactions (rule-22 and rule-23), so most of what a source log's
cursor must mistrust cannot occur in them: no repeats, no zombies, no incarnations. What is left is
order between two logs, and holes: a seek of the live line, or retention. Both are seen in what the
batches say of themselves. Each accounts for the event times [floor, boundary), neighbouring windows
touch, so a line has come as far as the batches it has read cover its way without a hole
(``reach``). Offsets prove nothing here: commit markers take some, and readers never see them.

Rejected: forwarding UNDO and tentative rows as events that patch the reader's state. It is what
the paper does, and needs every tentative tuple kept until it is patched (trace-5).
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
"""What a batch without rows takes in memory, about."""


@dataclass(slots=True)
class ResultChunk:
    """A batch that the line has not passed yet, and what is missing in its time for good."""

    batch: ResultBatch
    prev_watermark: int
    gaps: tuple[tuple[int, int, Gap], ...] = ()
    is_loaded: bool = False
    """Its rows have been read once, so ``gaps`` has those that cannot be."""

    @property
    def boundary(self) -> int:
        """The end of its time."""
        return self.batch.boundary

    @property
    def bytes_held(self) -> int:
        """About what it takes in memory."""
        return _CHUNK_BYTES + self.batch.bytes_held


class ResultCursor:
    """One line's place in one result topic of one part.

    Args:
        position: where to go on; its boundary is how far the way is covered without the buffer.
        name: of the query that is read.
        strict: the stable line's: a hole can only be retention's, and is recorded as a gap.
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
        """Always None: a log of transactions has no holes that its writer could fill."""
        self.bytes_held = 0
        self.passed_bytes = self.future_bytes = 0
        self._low = NEVER
        self._chunks: deque[ResultChunk] = deque()

    # What comes in.

    def offer(self, offset: int, record: ResultBatch) -> bool:
        """Take the batch that begins at ``offset`` into account; says whether it counted.

        The cursor may be in the middle of it, where damage was taken for the end of a window.
        """
        if record.next_offset <= self.offset:
            return False
        self.offset = record.next_offset
        before, self._next_id = self._next_id, record.last_id + 2  # the batch's boundary has one
        if record.boundary <= self.boundary:
            return False
        prev_watermark, gaps = record.prev_watermark, []
        if record.lost:
            gaps.append((record.stime_min, record.stime_max + 1, Gap(self._name, record.lost)))
        if self._strict:
            if prev_watermark > self.boundary:
                # At least one: a window's boundary is a record too.
                lost = max(record.first_id - before, 1)
                gaps.append((self.boundary, prev_watermark, Gap(self._name, lost)))
            prev_watermark = self.boundary
        self.boundary = record.boundary
        chunk = ResultChunk(record, prev_watermark, tuple(gaps))
        self._chunks.append(chunk)
        self.bytes_held += chunk.bytes_held
        return True

    def read_to(self, position: int) -> None:
        """No record that a reader can see lies between here and ``position`` (rule-13)."""
        self.offset = max(self.offset, position)

    def jump(self, beginning: int) -> None:
        """Retention took what was to be read next; the batch that comes tells what was in it."""
        assert beginning > self.offset
        self.offset = beginning

    def skip_to(self, offset: int) -> None:
        """Nothing: offsets without a record are usual, and batches tell what they cover."""

    def seek(self, end: int) -> None:
        """Live line only: leave out a backlog (rule-13); what it covered is then not covered."""
        assert not self._strict
        self.offset = max(self.offset, end)
        self.attached = False
        self._clear()

    # What goes out.

    def columns(self, start: int, end: int) -> Iterator[tuple[SourceColumns, int]]:
        """The columns of the rows with start <= stime < end, and the floor of each."""
        for chunk in self._within(start, end):
            if chunk.batch.readings:
                yield self.load(chunk), chunk.prev_watermark

    def load(self, chunk: ResultChunk) -> SourceColumns:
        """The rows of a batch that has any; what of them cannot be read is lost (rule-28)."""
        batch = chunk.batch
        assert batch.columns is not None
        loaded = batch.columns.load()
        unread = batch.readings - len(loaded.stimes)
        if unread and not chunk.is_loaded:
            affected = (batch.stime_min, batch.stime_max + 1, Gap(self._name, unread))
            chunk.gaps = (*chunk.gaps, affected)
        chunk.is_loaded = True
        return loaded

    def next_reading(self, start: int) -> int | None:
        """The smallest stime >= start that is buffered; None if there is none."""
        for chunk in self._chunks:
            if chunk.batch.readings and chunk.batch.stime_max >= start:
                return max(chunk.batch.stime_min, start)
        return None

    @property
    def gaps(self) -> list[tuple[int, int, Gap]]:
        """(from, to, gap): what retention took, and the event times it may have lain in."""
        return [gap for chunk in self._chunks for gap in chunk.gaps]

    def missing(self, start: int, end: int) -> Iterator[str]:
        """What the batches that account for [start, end) lack."""
        for chunk in self._chunks:
            if chunk.batch.missing and chunk.prev_watermark < end and chunk.batch.boundary > start:
                yield from chunk.batch.missing

    def pass_to(self, start: int) -> None:
        """The line has taken everything below ``start``: forget it."""
        self._low = max(self._low, start)
        chunks = self._chunks
        while chunks and chunks[0].batch.boundary <= self._low:
            chunk = chunks.popleft()
            self.bytes_held -= chunk.bytes_held
            self._base = max(self._base, chunk.batch.boundary)

    def excess_bytes(self, start: int, end: int) -> int:
        """About what a line whose next bucket is [start, end) does not need (rule-12)."""
        overdue = takewhile(lambda chunk: chunk.boundary <= start, self._chunks)
        return bytes_from(self._chunks, end) + sum(chunk.bytes_held for chunk in overdue)

    def _within(self, start: int, end: int) -> Iterator[ResultChunk]:
        for chunk in self._chunks:
            if chunk.batch.stime_max >= start and chunk.batch.stime_min < end:
                yield chunk

    # Where it is.

    def reach(self, e: int) -> int:
        """How far the batches cover event time from ``e`` on without a hole; e: not at all."""
        e = max(e, self._base)
        for chunk in self._chunks:
            if chunk.prev_watermark > e:
                break
            e = max(e, chunk.batch.boundary)
        return e

    def passed(self, start: int) -> int:
        """How far the log is complete, for a line whose next bucket begins at ``start``."""
        return passed(start, (self,))

    @property
    def base(self) -> int:
        """How far the line has come by what it has passed."""
        return self._base

    @property
    def next(self) -> SourcePosition:
        """Where to read from to have all that the line has not passed yet (rule-5, rule-25)."""
        if not self._chunks:
            # Behind a hole nothing is covered, and a restart must know no better.
            return SourcePosition(self.offset, self._next_id, -1, self._base)
        head = self._chunks[0].batch
        return SourcePosition(head.offset, head.first_id, -1, self._base)

    @property
    def rebuild(self) -> SourcePosition:
        """The same: nobody looks back into results yet."""
        return self.next

    def park(self) -> None:
        """Forget what is buffered; a catch-up reader reads it again from there."""
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
        """The largest event time of which rows are held.

        Not the last window's promise: that lies a whole window ahead, and holds no memory.
        """
        return max(self._low, self._chunks[-1].batch.prev_watermark if self._chunks else self._low)


class NullCursor:
    """The stable line's cursor in a tentative topic: it never looks at one (trace-20)."""

    offset = 0
    boundary = FOREVER
    hole_inc: int | None = None
    bytes_held = passed_bytes = future_bytes = 0
    buffered_to = NEVER
    gaps: tuple[tuple[int, int, Gap], ...] = ()

    @property
    def attached(self) -> bool:
        """Always: nothing keeps it from being where the line is."""
        return True

    @attached.setter
    def attached(self, _: bool) -> None: ...

    def offer(self, offset: int, record: ResultBatch) -> bool:
        """Looks away."""
        return False

    def jump(self, beginning: int) -> None:
        """Nowhere."""

    def skip_to(self, offset: int) -> None:
        """Nowhere."""

    @property
    def next(self) -> SourcePosition:
        """Nowhere: a state record has the live line's in its place."""
        return SourcePosition(0, 0, -1, NEVER)

    @property
    def rebuild(self) -> SourcePosition:
        """Nowhere."""
        return self.next

    def columns(self, start: int, end: int) -> tuple[tuple[SourceColumns, int], ...]:
        """None."""
        return ()

    def next_reading(self, start: int) -> None:
        """None."""

    def excess_bytes(self, start: int, end: int) -> int:
        """Nothing."""
        return 0

    def pass_to(self, start: int) -> None:
        """Nothing to forget."""

    def park(self) -> None:
        """Nothing to forget."""


def passed(start: int, cursors: Iterable[ResultCursor]) -> int:
    """How far several logs of one part are complete together, from ``start`` on.

    Below ``start`` if they do not even cover what comes next. Windows may be covered by turns:
    tentative ones between two stretches of stable ones.
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
    """Both logs' rows of [start, end): of a window that has two versions the stable one."""
    yield from stable.columns(start, end)
    for chunk in tentative._within(start, end):
        if chunk.batch.readings and not _is_stable_in(chunk.batch, stable):
            yield tentative.load(chunk), chunk.prev_watermark


def live_gaps(stable: ResultCursor, tentative: ResultCursor) -> Iterator[tuple[int, int, Gap]]:
    """What the answers have lost that ``live_columns`` takes the rows of."""
    yield from stable.gaps
    for chunk in tentative._chunks:
        if chunk.gaps and not _is_stable_in(chunk.batch, stable):
            yield from chunk.gaps


def _is_stable_in(batch: ResultBatch, stable: ResultCursor) -> bool:
    """Has the stable topic the same window, or run of empty ones?

    Its end counts, not its beginning: where a log is read for the first time a window may have
    begun before the position.
    """
    return stable.reach(batch.prev_watermark) >= batch.boundary


def live_missing(
    stable: ResultCursor, tentative: ResultCursor, start: int, end: int
) -> tuple[str, ...]:
    """What the tentative answers lack that [start, end) is made of."""
    if stable.reach(start) >= end:
        return ()
    return tuple(tentative.missing(start, end))
