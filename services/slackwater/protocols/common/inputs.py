"""The logs that a stage reads: who feeds each cursor, and how far the logs are known to be read.

An orderer reads source logs and result topics, a root delta logs. Which records count, and what
they leave, is decided by the cursors of each kind (``sunion/cursor.py``, ``sunion/chain.py``,
``soutput/delta_cursor.py``). What is the same for all of them is here:

* A cursor is attached to the live consumer or parked at an offset (rule-12). A parked cursor is fed
  by a catch-up reader and attached again where it has reached the live consumer. Positions below
  the beginning of a log are moved to it, by the cursor, which records the loss (rule-28).
* Before an input counts as failed, its logs are read to ends that were fetched after the deadline
  (rule-14, ``ends.py``).
* After a start, tentative output is suppressed until the logs are read to the ends that they had at
  the start (trace-6, rule-27).

``Inputs`` looks at offsets only. It returns the cursors that a record is for, and the stage hands
the record to them. The alternative, a callback for each cursor, would hide the order in which a
stage takes a record into account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from slackwater.protocols.common.ends import EndOffsetProbe
from slackwater.protocols.common.line import LineName

UNBOUNDED: Final = 2**62


class InputCursor(Protocol):
    """A line's place in one log, as far as this module needs it."""

    offset: int
    attached: bool

    @property
    def boundary(self) -> int:
        """The event time up to which the log has been read."""
        ...

    def jump(self, beginning: int) -> None:
        """Retention took what was to be read next; the log begins at ``beginning``."""
        ...

    def skip_to(self, offset: int) -> None:
        """The live consumer went on at ``offset``, beyond the record that was next."""
        ...


L = TypeVar("L")
C = TypeVar("C", bound=InputCursor)
Reader: TypeAlias = tuple[LineName, C]
"""A line, and its cursor in some log."""


@dataclass(slots=True)
class InputLog(Generic[C]):
    """One log: the cursors of both lines, and the place of the live consumer.

    ``stable`` is None where the stable line does not read the log. ``ahead_max`` says how many
    offsets a cursor may be ahead of the live consumer and still wait for it; one that is further
    ahead is parked.
    """

    live: C
    stable: C | None
    ahead_max: int = UNBOUNDED
    position: int = field(init=False)
    """The offset that the live consumer is to bring next."""
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
        """Attach the cursors that are where the live consumer is, and park the others."""
        for _, cursor in self.readers:
            cursor.attached = cursor.offset == self.position

    def attach(self, cursor: C) -> None:
        """Attach the cursor if it has reached the live consumer, else park it."""
        cursor.attached = 0 <= cursor.offset - self.position <= self.ahead_max

    def advance(self, position: int) -> int:
        """The live consumer is at ``position``; returns where it was."""
        before, self.position = self.position, max(self.position, position)
        return before

    def taking(self, first: int, last: int) -> Sequence[Reader[C]]:
        """The attached cursors, and those in [first, last], which are attached by that."""
        found = []
        for reader in self.readers:
            cursor = reader[1]
            if cursor.attached or first <= cursor.offset <= last:
                cursor.attached = True
                found.append(reader)
        return found


@dataclass(frozen=True, slots=True)
class ProbeEnds(Generic[L]):
    """Ask the broker for the ends of these logs; answer with ``ends`` (rule-14)."""

    logs: tuple[L, ...]


class Inputs(Generic[L, C]):
    """The logs of one stage; ``L`` is how the stage names a log.

    Args:
        logs: all of them, with cursors at the positions of the state record.
        inputs: the logs that make up each input of the ``Line``, in its order.
        suppress_until: by log, the end that was seen at the start.
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
        """By log, when the last end was fetched to which the live line has read it."""

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
        """The offset that the live consumer is to bring next, by log."""
        return {log: at.position for log, at in self._logs.items()}

    def begin_at(self, beginnings: Mapping[L, int]) -> None:
        """Before anything is read: retention may have been there first (rule-28)."""
        for log, beginning in beginnings.items():
            at = self._logs[log]
            for _, cursor in at.readers:
                if cursor.offset < beginning:
                    cursor.jump(beginning)
            at.advance(beginning)
            at.attach_at_position()

    def live_at(self, log: L, offset: int) -> None:
        """The live consumer reads the log for others already: its next record is at ``offset``.

        A cursor that is not there is parked. What lies before ``offset`` is no loss: the catch-up
        reader has it (rule-12).
        """
        at = self._logs[log]
        at.position = offset
        for _, cursor in at.readers:
            at.attach(cursor)

    # Records of the live consumer, and the cursors that they are for (rule-12).

    def needs(self, log: L, offset: int) -> bool:
        """Is a record at ``offset`` for any cursor? Else it need not be decoded."""
        at = self._logs[log]
        at.position = offset + 1
        return any(
            offset >= cursor.offset if cursor.attached else offset == cursor.offset
            for _, cursor in at.readers
        )

    def receive(self, log: L, offset: int) -> Sequence[Reader[C]]:
        """A record at ``offset``."""
        at = self._logs[log]
        at.position = offset + 1
        found = []
        for reader in at.readers:
            cursor = reader[1]
            if cursor.attached:
                if cursor.offset < offset:
                    cursor.skip_to(offset)
            elif cursor.offset != offset:
                continue
            cursor.attached = True
            found.append(reader)
        return found

    def receive_batch(self, log: L, offset: int, next_offset: int) -> Sequence[Reader[C]]:
        """Records of [offset, next_offset) that count as one, in a log of transactions.

        Such a log has offsets that no reader sees. Nothing that can be seen lies between what the
        live consumer brought before and this.
        """
        at = self._logs[log]
        return at.taking(at.advance(next_offset), offset)

    def read_to(self, log: L, position: int) -> Sequence[Reader[C]]:
        """All that can be seen below ``position``, also if it was no record."""
        at = self._logs[log]
        return at.taking(at.advance(position), UNBOUNDED)

    # Parked cursors, fed by catch-up readers.

    def parked(self, line: LineName) -> list[tuple[L, C]]:
        """The parked cursors of a line."""
        logs = self._logs.items()
        if line is LineName.LIVE:
            return [(log, at.live) for log, at in logs if not at.live.attached]
        return [(log, of) for log, at in logs if (of := at.stable) is not None and not of.attached]

    def replaying(self, line: LineName, log: L, offset: int) -> C | None:
        """The cursor that a catch-up reader's record is for.

        None: it was fetched before the cursor was attached, or was parked elsewhere.
        """
        cursor = self._logs[log].cursor(line)
        return None if cursor.attached or offset != cursor.offset else cursor

    def attach(self, line: LineName, log: L) -> None:
        """A parked cursor has moved: attach it if it has reached the live consumer."""
        at = self._logs[log]
        at.attach(at.cursor(line))

    def attach_parked(self, line: LineName, log: L) -> None:
        """A cursor was parked: it stays attached where the live consumer brings the same next."""
        at, cursor = self._logs[log], self._logs[log].cursor(line)
        cursor.attached = cursor.offset == at.position

    def has_reached_consumer(self, line: LineName, log: L) -> bool:
        """Has the cursor read all that the live consumer has brought?"""
        at = self._logs[log]
        return at.cursor(line).offset >= at.position

    def position_gone(self, line: LineName, log: L, beginning: int) -> None:
        """Retention took the record that a parked cursor needs next (rule-28)."""
        cursor = self._logs[log].cursor(line)
        if not cursor.attached and cursor.offset < beginning:
            cursor.jump(beginning)

    # Ends of logs: rule-14.

    def probe(self, logs: Iterable[L]) -> tuple[L, ...]:
        """The logs among these whose ends are to be fetched; ``answer`` brings them."""
        wanted = tuple(log for log in logs if log not in self._probes)
        for log in wanted:
            self._probes[log] = EndOffsetProbe(self._logs[log].live.offset)
        return wanted

    def is_probed(self, log: L) -> bool:
        """Has the end been asked for, and not been read to yet?"""
        return log in self._probes

    def answer(self, ends: Mapping[L, int | None], fetched_at: int) -> None:
        """The ends of some logs as of ``fetched_at``; None: the broker gave no answer."""
        for log, end in ends.items():
            probe = self._probes.setdefault(log, EndOffsetProbe(self._logs[log].live.offset))
            probe.answer(end, fetched_at)

    def read_through(self, passed_us: int = 0) -> Sequence[tuple[int, int]]:
        """Inputs that the live line has now read to ends, and when the earliest was fetched.

        ``passed_us`` is the time since the last look.
        """
        if not self._probes:
            return ()
        found = []
        for log, probe in list(self._probes.items()):
            if probe.is_read(self._logs[log].live.offset, passed_us):
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
        """May there be anything left of what lay in the logs at the start?"""
        return bool(self._unread)

    def is_unread(self, needed_to: int) -> bool:
        """Is there, of what the live line needs? Its next unit ends at ``needed_to``.

        A log that has been read as far in event time is read far enough: its cursor may be parked
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
        """The logs that are still to be read to some end."""
        return {*self._probes, *self._unread}
