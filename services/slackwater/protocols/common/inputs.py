"""The logs that a stage reads: which consumer feeds each cursor, and how far each log is read.

An orderer reads source logs and result topics; a root reads delta logs. The cursors of each kind
decide which records count (``sunion/cursor.py``, ``sunion/chain.py``,
``soutput/delta_cursor.py``). This module holds the part common to all of them:

* A cursor is attached to the live consumer or parked at an offset (rule-12). A catch-up reader
  feeds a parked cursor until it reaches the live consumer and is attached again. A position below
  the beginning of its log is moved to the beginning by the cursor, which records the loss
  (rule-28).
* Before an input counts as failed, its logs are read to end offsets that were fetched after the
  deadline (rule-14, ``ends.py``).
* After a start, tentative output is suppressed until the logs are read to the end offsets that
  they had at the start (trace-6, rule-27).

``Inputs`` uses offsets only. It returns the cursors that a record is for, and the stage passes the
record to them. The alternative, a callback for each cursor, would hide the order in which a stage
processes a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from slackwater.protocols.common.ends import EndOffsetProbe
from slackwater.protocols.common.line import LineName

UNBOUNDED: Final = 2**62


class InputCursor(Protocol):
    """What this module needs of a line's cursor in one log.

    ``offset`` is that of the next record. ``attached`` is false while the cursor is parked.
    """

    offset: int
    attached: bool

    @property
    def boundary(self) -> int:
        """The event time up to which the log has been read."""
        ...

    def jump(self, beginning: int) -> None:
        """Move to ``beginning``, the log's first offset: retention deleted the next record."""
        ...

    def skip_to(self, offset: int) -> None:
        """Move to ``offset``: the live consumer delivered nothing between the two offsets."""
        ...


L = TypeVar("L")
C = TypeVar("C", bound=InputCursor)
Reader: TypeAlias = tuple[LineName, C]
"""A line and its cursor in one log."""


@dataclass(slots=True)
class InputLog(Generic[C]):
    """One log: the cursors of both lines, and the position of the live consumer.

    ``stable`` is None if the stable line does not read the log. ``ahead_max`` is how many offsets
    an attached cursor may be ahead of the live consumer; a cursor further ahead is parked.
    ``has_markers``: the log is written in transactions, so some offsets hold markers, which no
    reader receives; all its records are needed, since cursors take them in batches.
    """

    live: C
    stable: C | None
    ahead_max: int = UNBOUNDED
    has_markers: bool = False
    position: int = field(init=False)
    """The next offset of the live consumer."""
    readers: tuple[Reader[C], ...] = field(init=False)

    def __post_init__(self) -> None:
        stable = () if self.stable is None else ((LineName.STABLE, self.stable),)
        self.readers = ((LineName.LIVE, self.live), *stable)
        self.position = self.live.offset
        self.attach_at_position()

    def cursor(self, line: LineName) -> C:
        """The line's cursor."""
        if line is LineName.LIVE:
            return self.live
        assert self.stable is not None, "the stable line does not read this log"
        return self.stable

    def attach_at_position(self) -> None:
        """Attach the cursors at the live consumer's position, and park the others."""
        for _, cursor in self.readers:
            cursor.attached = cursor.offset == self.position

    def attach(self, cursor: C) -> None:
        """Attach the cursor if it has reached the live consumer; else park it."""
        cursor.attached = 0 <= cursor.offset - self.position <= self.ahead_max

    def advance(self, position: int) -> int:
        """Raise the live consumer's position to ``position``; return the position before."""
        before, self.position = self.position, max(self.position, position)
        return before


@dataclass(frozen=True, slots=True)
class ProbeEnds(Generic[L]):
    """Fetch the end offsets of these logs from the broker; answer with ``ends`` (rule-14)."""

    logs: tuple[L, ...]


class Inputs(Generic[L, C]):
    """The logs of one stage; ``L`` is the stage's type for naming a log.

    Args:
        logs: all logs, with cursors at the positions of the state record.
        inputs: the logs that make up each input of the ``Line``, in its order.
        suppress_until: by log, the end offset at the start; tentative output is suppressed until
            the logs are read to there.
    """

    def __init__(
        self,
        logs: Mapping[L, InputLog[C]],
        inputs: Sequence[Sequence[L]],
        suppress_until: Mapping[L, int],
    ) -> None:
        self._logs = dict(logs)
        self._inputs = inputs
        self._input_of = {log: i for i, of in enumerate(inputs) for log in of}
        self._unread = dict(suppress_until)
        self._probes: dict[L, EndOffsetProbe] = {}
        self._read_through: dict[L, int] = {}
        """By log, the fetch time of the latest end offset that the live line has read to."""

    def readers(self, log: L) -> tuple[Reader[C], ...]:
        """The cursors in a log."""
        return self._logs[log].readers

    def live(self, log: L) -> C:
        """The live line's cursor."""
        return self._logs[log].live

    def stable(self, log: L) -> C:
        """The stable line's cursor."""
        return self._logs[log].cursor(LineName.STABLE)

    # Where the live consumer is.

    @property
    def positions(self) -> dict[L, int]:
        """The next offset of the live consumer, by log."""
        return {log: at.position for log, at in self._logs.items()}

    def position(self, log: L) -> int:
        """The next offset of the live consumer in a log."""
        return self._logs[log].position

    def begin_at(self, beginnings: Mapping[L, int]) -> None:
        """Move cursors below a log's beginning to it, before the first read (rule-28)."""
        for log, beginning in beginnings.items():
            at = self._logs[log]
            for _, cursor in at.readers:
                if cursor.offset < beginning:
                    cursor.jump(beginning)
            at.advance(beginning)
            at.attach_at_position()

    def live_at(self, log: L, offset: int) -> None:
        """Set the position of a live consumer that already reads the log for other fragments.

        A cursor elsewhere than at ``offset`` is parked. Records before ``offset`` are not lost: the
        catch-up reader reads them (rule-12).
        """
        at = self._logs[log]
        at.position = offset
        for _, cursor in at.readers:
            at.attach(cursor)

    # Records of the live consumer, and the cursors that they are for (rule-12).

    def needs(self, log: L, offset: int) -> bool:
        """True if any cursor needs the record at ``offset``; else it need not be decoded."""
        at = self._logs[log]
        return at.has_markers or any(
            offset >= cursor.offset if cursor.attached else offset == cursor.offset
            for _, cursor in at.readers
        )

    def pass_by(self, log: L, offset: int) -> None:
        """Record that the live consumer has passed a record that no cursor needs."""
        self._logs[log].position = offset + 1

    def receive(self, log: L, offset: int, next_offset: int) -> Sequence[Reader[C]]:
        """The cursors that take a record, or a batch of records, of [offset, next_offset).

        An attached cursor at a smaller offset skips to it; a cursor parked at it is attached. So is
        one that is parked at a marker after the live consumer's previous batch: no record lies
        between that and this one.
        """
        at = self._logs[log]
        before, at.position = at.position, next_offset
        found = []
        for reader in at.readers:
            cursor = reader[1]
            if cursor.attached:
                if cursor.offset < offset:
                    cursor.skip_to(offset)
            elif cursor.offset != offset and not (
                at.has_markers and before <= cursor.offset < offset
            ):
                continue
            cursor.attached = True
            found.append(reader)
        return found

    def read_to(self, log: L, position: int) -> None:
        """Record that the live consumer has read all records below ``position`` (trace-11).

        There may be no record between its previous position and this one, but a marker.
        """
        at = self._logs[log]
        before = at.advance(position)
        for _, cursor in at.readers:
            if cursor.attached or cursor.offset >= before:
                cursor.attached = True
                cursor.skip_to(position)

    # Parked cursors, fed by catch-up readers.

    def parked(self, line: LineName) -> list[tuple[L, C]]:
        """The parked cursors of a line."""
        logs = self._logs.items()
        if line is LineName.LIVE:
            return [(log, at.live) for log, at in logs if not at.live.attached]
        return [(log, of) for log, at in logs if (of := at.stable) is not None and not of.attached]

    def replaying(self, line: LineName, log: L, offset: int, next_offset: int) -> C | None:
        """The cursor that takes a catch-up reader's record, or batch, of [offset, next_offset).

        None if the cursor was attached, or parked elsewhere, after the record was fetched. Before a
        batch, and within it, the reader may have passed markers.
        """
        at = self._logs[log]
        cursor = at.cursor(line)
        takes = cursor.offset < next_offset if at.has_markers else cursor.offset == offset
        return cursor if takes and not cursor.attached else None

    def caught_up_to(self, line: LineName, log: L, position: int) -> None:
        """Record that a line's catch-up reader has read all records below ``position``."""
        at = self._logs[log]
        cursor = at.cursor(line)
        if not cursor.attached:
            cursor.skip_to(position)
            at.attach(cursor)

    def attach(self, line: LineName, log: L) -> None:
        """Attach a parked cursor that has moved, if it has reached the live consumer."""
        at = self._logs[log]
        at.attach(at.cursor(line))

    def attach_parked(self, line: LineName, log: L) -> None:
        """Attach a cursor that was just parked, if it stands at the live consumer's next offset."""
        at, cursor = self._logs[log], self._logs[log].cursor(line)
        cursor.attached = cursor.offset == at.position

    def has_reached_consumer(self, line: LineName, log: L) -> bool:
        """True if the cursor has read all that the live consumer has read."""
        at = self._logs[log]
        return at.cursor(line).offset >= at.position

    def position_gone(self, line: LineName, log: L, beginning: int) -> None:
        """Move a parked cursor to ``beginning``: retention deleted its next record (rule-28).

        An orderer's stable cursor records the loss (``SourceCursor.jump``).
        """
        cursor = self._logs[log].cursor(line)
        if not cursor.attached and cursor.offset < beginning:
            cursor.jump(beginning)

    # Ends of logs: rule-14.

    def probe(self, logs: Iterable[L]) -> tuple[L, ...]:
        """The logs among these whose end offsets must be fetched; pass them to ``answer``."""
        wanted = tuple(log for log in logs if log not in self._probes)
        for log in wanted:
            self._probes[log] = EndOffsetProbe(self._logs[log].live.offset)
        return wanted

    def is_probed(self, log: L) -> bool:
        """True if the end offset has been requested, and the log is not read to it yet."""
        return log in self._probes

    def answer(self, ends: Mapping[L, int | None], fetched_at: int) -> None:
        """Record end offsets requested at ``fetched_at``; None if the broker gave no answer."""
        for log, end in ends.items():
            probe = self._probes.setdefault(log, EndOffsetProbe(self._logs[log].live.offset))
            probe.answer(end, fetched_at)

    def read_through(
        self, deadline: Callable[[int], int | None], passed_us: int = 0
    ) -> Sequence[tuple[int, int]]:
        """Inputs whose logs the live line has now all read to fetched ends.

        Yields (input, the earliest fetch time of these ends). ``deadline`` is the schedule's.
        ``passed_us`` is the wall time since the last call.
        """
        if not self._probes:
            return ()
        found = []
        for log, probe in list(self._probes.items()):
            live = self._logs[log].live
            if probe.is_read(live.offset, passed_us) or _holds_nothing_due(live, probe, deadline):
                del self._probes[log]
                self._read_through[log] = probe.fetched_at
                input_ = self._input_of[log]
                through = [self._read_through.get(each) for each in self._inputs[input_]]
                if None not in through:
                    found.append((input_, min(at for at in through if at is not None)))
        return found

    # After a start: trace-6.

    @property
    def has_unread(self) -> bool:
        """True if records that were in the logs at the start may still be unread."""
        return bool(self._unread)

    def suppress_to_positions(self) -> None:
        """Suppress tentative output until all is read that the live consumer has read."""
        logs = self._logs.items()
        self._unread |= {log: at.position for log, at in logs if at.live.offset < at.position}

    def is_unread(self, needed_to: int) -> bool:
        """True if the unit that ends at ``needed_to`` may need records unread since the start.

        A log that has been read to ``needed_to`` in event time suffices: its cursor may be parked
        there (rule-12).
        """
        self._unread = {
            log: end
            for log, end in self._unread.items()
            if (live := self._logs[log].live).offset < end and live.boundary < needed_to
        }
        return bool(self._unread)

    @property
    def awaited(self) -> set[L]:
        """The logs that are still to be read to an end offset, requested now or at the start."""
        return {*self._probes, *self._unread}


def _holds_nothing_due(
    cursor: InputCursor, probe: EndOffsetProbe, deadline: Callable[[int], int | None]
) -> bool:
    """True if a parked cursor has read everything that was due when the end was fetched.

    The cursor is parked ahead of its line. It would not reach the end until the line has followed,
    and the line must not wait for that (decision 121).
    """
    if cursor.attached or not probe.answered:
        return False
    next_due = deadline(cursor.boundary)
    return next_due is not None and next_due > probe.fetched_at
