"""A line's cursor in one delta log: accepts records, and keeps positions for replay.

An aggregator may send a record twice (rule-19), and a writer that was replaced may still write. The
stable line's cursor accepts only the next seq; the live line's also skips holes. Both drop records
of a smaller incarnation than the greatest one read (rule-10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from slackwater.model.records import BucketRecord, DeltaRecord, Kind, LogPosition, Position

UNKNOWN_SEQ: Final = -1


def damaged_delta(child: int, replica: int) -> DeltaRecord:
    """A VOID record in place of an undecodable one, which may have had one seq or none.

    The damaged record may have been the next one, a repeat, or that of a foreign writer; the seq of
    the record after it decides. If it was the next one it leaves a hole, and the orderer sends it
    again (rule-11).
    """
    return DeltaRecord(Kind.VOID, child, replica, 0, 0, 0, UNKNOWN_SEQ)


class ReplayPositions:
    """Positions of a log at window edges, to replay from.

    A line that must rebuild its windows from time t reads a log again from the last position at
    which the log had not yet passed t.
    """

    def __init__(self, position: LogPosition, pane_of: Callable[[int], int]) -> None:
        self._pane_of = pane_of
        self._places: deque[LogPosition] = deque([position])

    def mark(self, position: LogPosition) -> None:
        """Record the log's position; only the first one in each pane is kept."""
        last = self._places[-1].frontier
        if position.frontier <= last:
            return
        pane = self._pane_of(position.frontier.bucket_start)
        if last.bucket_start < pane:
            self._places.append(position)

    def reset(self, position: LogPosition) -> None:
        """Drop positions from ``position``'s frontier on: a START has set the frontier back."""
        while len(self._places) > 1 and self._places[-1].frontier >= position.frontier:
            self._places.pop()
        self.mark(position)

    def begin_at(self, position: LogPosition) -> None:
        """Drop all positions but this one, which may be before or after them."""
        self._places = deque([position])

    def at(self, start: int) -> LogPosition:
        """The position from which a replay covers event time from ``start`` on."""
        best = self._places[0]
        for place in self._places:
            if place.frontier > Position(start):
                break
            best = place
        return best

    def __len__(self) -> int:
        """Number of positions kept."""
        return len(self._places)

    def forget_before(self, start: int) -> None:
        """Drop positions that only serve event times below ``start``."""
        while len(self._places) > 1 and self._places[1].frontier <= Position(start):
            self._places.popleft()


class DeltaCursor:
    """One line's cursor in a deltas partition: offset, next seq, incarnation, and L of rule-11.

    ``strict`` is the stable line's cursor: only the next seq counts (rule-10). The live line's
    skips holes, and after a seek accepts any seq (rule-13). ``replay_from``: the position to replay
    from if it is not where the cursor begins, since a head has been installed.
    """

    def __init__(
        self,
        position: LogPosition,
        pane_of: Callable[[int], int],
        *,
        strict: bool,
        replay_from: LogPosition | None = None,
    ) -> None:
        self._strict = strict
        self.offset = position.offset
        self.next_seq = position.next_seq
        self.inc = position.inc
        self.frontier = position.frontier
        self.attached = False
        self.pending_gap: LogPosition | None = None
        """Position at which a seq beyond the next one was dropped, until the next one arrives."""
        self.undecoded = 0
        """Number of undecodable records since the last accepted one: each may have had a seq."""
        self._undecoded_from: LogPosition | None = None
        self.replay_positions = ReplayPositions(replay_from or position, pane_of)
        if replay_from is not None:
            self.replay_positions.mark(position)

    def position(self) -> LogPosition:
        """Position after the last record that was accepted or certainly does not count.

        It is before undecodable records that follow: one of them may have been the next record.
        """
        return self._undecoded_from or LogPosition(
            self.offset, self.next_seq, self.inc, self.frontier
        )

    def reaches(self, offset: int, contiguous_seq: int, seq: int) -> bool:
        """True if the record at ``offset`` with ``seq`` follows ``contiguous_seq``.

        Seqs between the two are those of undecodable records, or, if nothing of the log has been
        read, those that were truncated before (trace-50).
        """
        if not contiguous_seq and self.next_seq < 0:
            return self.offset == offset
        is_next = (
            self.offset == offset and self.next_seq == contiguous_seq and self.pending_gap is None
        )
        return is_next and contiguous_seq <= seq <= contiguous_seq + self.undecoded

    def admits(self, record: BucketRecord) -> bool:
        """True if the record counts; START sets the incarnation and L (rule-10)."""
        if record.seq == UNKNOWN_SEQ:
            if self.next_seq >= 0 and self.pending_gap is None:
                self._undecoded_from = self.position()
                self.undecoded += 1
            return False
        if record.seq < self.next_seq:
            return False
        if self._strict and 0 <= self.next_seq < record.seq - self.undecoded:
            self.pending_gap = self.pending_gap or self.position()
            return False
        self.next_seq, self.pending_gap = record.seq + 1, None
        self._clear_undecoded()
        if record.kind is Kind.START:
            self.inc = max(self.inc, record.seq if record.inc < 0 else record.inc)
            if record.frontier is not None and self._strict:
                self.frontier = record.frontier
                self.replay_positions.reset(self.position())
            return False
        if record.kind is Kind.VOID or record.inc < self.inc:
            return False
        self.inc = record.inc  # START may be lost, and a hole names the writer that can fill it
        return True

    def jump_to_seq(self, seq: int) -> None:
        """Continue with ``seq``: lower ones are lost (rule-28).

        The cursor is parked at the record that was dropped, which may be the next one now.
        """
        assert self.pending_gap is not None
        assert self.next_seq < seq
        self.return_to(replace(self.pending_gap, next_seq=seq))
        self.pending_gap = None
        self.attached = False

    def jump(self, beginning: int) -> None:
        """Continue at ``beginning``, with any seq: retention removed the next record."""
        assert self.offset < beginning
        self.offset, self.next_seq, self.pending_gap = beginning, -1, None
        self._clear_undecoded()

    def skip_to(self, offset: int) -> None:
        """Does nothing: the seqs of records show which are missing."""

    @property
    def boundary(self) -> int:
        """The event time up to which whole buckets have been read."""
        return self.frontier.bucket_start

    def return_to(self, position: LogPosition) -> None:
        """Read again from ``position``."""
        self._clear_undecoded()
        self.offset, self.next_seq, self.inc, self.frontier = (
            position.offset,
            position.next_seq,
            position.inc,
            position.frontier,
        )

    def move_to(self, position: LogPosition) -> None:
        """Continue at a later position of the log; what lies before it is not needed."""
        if position.offset > self.offset:
            self.return_to(position)
            self.pending_gap = None
            self.replay_positions.mark(position)

    def start_at(self, position: LogPosition) -> None:
        """Continue at any position of the log, like a cursor that is made there."""
        self.return_to(position)
        self.pending_gap = None
        self.replay_positions.begin_at(position)

    def _clear_undecoded(self) -> None:
        self.undecoded, self._undecoded_from = 0, None


def next_position(record: BucketRecord) -> Position:
    """Return the position after a record: the next piece, or the next bucket (trace-32)."""
    if record.kind is not Kind.BOUNDARY and record.piece + 1 < record.pieces:
        return Position(record.bucket_start, record.piece + 1)
    return Position(record.bucket_end)
