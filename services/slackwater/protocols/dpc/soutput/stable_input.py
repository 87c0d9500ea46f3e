"""The stable line's view of one child: the stable logs of R replicas, merged to one input.

In DPC, section 4.3, a node switches between the replicas of an upstream neighbour and requests that
the new one continues after the last stable tuple. Here every replica's log is always read, and
progress is by event time, so no request is needed: the line follows any replica's stable log that
continues the child's frontier. Stable content is the same in all replicas; a record ahead of the
frontier waits, a record behind it is a repeat. Only a bucket that lost readings to retention may
exist in two versions. A version without the gap is preferred. A version of which some pieces have
been taken is dropped if no replica can complete it and one can complete another (rule-10 to
rule-12; trace-8, trace-15).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from slackwater.model.records import BucketRecord, Gap, LogPosition, Position
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor, next_position


def _version(record: BucketRecord) -> tuple[int, tuple[Gap, ...]]:
    """Identifies the version of a bucket that a piece belongs to."""
    return record.pieces, record.gap


@dataclass(slots=True)
class StableInput:
    """The stable line's view of one child: a frontier, fed by R stable logs.

    See rule-10 to rule-12.
    """

    cursors: list[DeltaCursor]
    frontier: Position
    ahead_us_max: int
    ahead_records_max: int
    """H of rule-12, as event time and as a number of buckets; a run of empty ones counts as one."""
    holes: dict[int, int] = field(default_factory=dict)
    """Replica -> incarnation of the writer that left a hole in its stable log."""
    deferred: dict[int, Position] = field(default_factory=dict)
    """Replica -> the frontier at which its record is deferred: the record has a gap, or belongs to
    another version of the bucket than the begun one (trace-15)."""
    exhausted: dict[int, Position] = field(default_factory=dict)
    """Replica -> the frontier at which its log had no further record."""
    begun: dict[int, LogPosition] = field(default_factory=dict)
    """Replica -> position in its log at which its latest bucket begins."""
    _version: tuple[int, tuple[Gap, ...]] = (1, ())
    """The version of the record taken last."""
    _ahead: deque[int] = field(default_factory=deque)
    """Starts of the buckets and runs taken beyond the end of the stable line's next window."""

    def take(self, replica: int, offset: int, record: BucketRecord, low: int) -> bool:
        """Offer a record of a replica's stable log; True if it moved the frontier.

        ``low`` is the end of the stable line's next window. The cursor is parked if the record is
        too far ahead of it, or ahead of the frontier (rule-12). A parked cursor stays at the
        record's offset, to read it again.
        """
        cursor = self.cursors[replica]
        if offset < cursor.offset:
            return False
        before, is_first = cursor.position(), cursor.inc < 0
        admitted = cursor.admits(record)
        cursor.offset = offset + 1
        if not admitted:
            return False
        start = Position(record.bucket_start, record.piece)
        if is_first and start < cursor.frontier:
            cursor.frontier = start  # the log begins before what is needed of it (trace-50)
        if start != cursor.frontier:
            # Beyond L the log has a hole; below L the record is a repeat of a zombie or a restart.
            if start > cursor.frontier:
                self.holes[replica] = cursor.inc
            return False
        self.holes.pop(replica, None)
        if record.piece == 0:
            self.begun[replica] = before
        end, here = next_position(record), self.frontier
        holds_it = record.bucket_start <= here.bucket_start < record.bucket_end
        if here.piece and holds_it and _version(record) != self._version:
            # Pieces of different versions do not fit together: the version that was begun must be
            # completed by another replica, or be dropped.
            self.deferred[replica] = here
            self._hold(cursor, before)
            if not self.alternatives(replica):
                self._begin_again()
            return False
        if end <= here:
            self._move(cursor, end)
            return False
        is_ahead = start > here
        if is_ahead and replica in self.missing_from:
            self.holes[replica] = cursor.inc  # no replica can move the frontier here: read on
            return False
        too_far = not self.has_room(record.bucket_start, low)
        if is_ahead or too_far or not self._may_take(replica, record):
            self._hold(cursor, before)
            return False
        if record.piece == 0 and record.bucket_start > low:
            self._ahead.append(record.bucket_start)
        self._move(cursor, end)
        self.frontier, self._version = end, _version(record)
        return True

    def move_to(self, end: int, behind: Sequence[LogPosition], low: int) -> None:
        """Move the frontier to ``end``: what lies before it has been read elsewhere.

        ``behind`` has the position of each replica's log there; ``low`` as in ``take``.
        """
        assert not self.frontier.piece, "the bucket at the frontier is incomplete"
        if self.frontier.bucket_start > low:
            self._ahead.append(self.frontier.bucket_start)
        self._set_frontier(end)
        for cursor, position in zip(self.cursors, behind, strict=True):
            cursor.move_to(position)

    def skip_to(self, end: int, positions: Sequence[LogPosition]) -> None:
        """Raise the frontier to ``end``: what lies before it is not needed any more.

        Each replica's log is read from one of ``positions`` on, as by a root that starts there.
        """
        assert end > self.frontier.bucket_start, "it has been read that far"
        self._set_frontier(end)
        for cursor, position in zip(self.cursors, positions, strict=True):
            cursor.start_at(position)

    def _set_frontier(self, end: int) -> None:
        self.frontier = Position(end)
        for of_replicas in (self.holes, self.deferred, self.exhausted, self.begun):
            of_replicas.clear()

    def has_room(self, start: int, low: int) -> bool:
        """True if the bucket at ``start`` is not too far ahead of ``low`` (rule-12).

        It is too far ahead if it lies beyond H in event time and as many buckets as H have been
        taken: a year with a few readings is not.
        """
        while self._ahead and self._ahead[0] <= low:
            self._ahead.popleft()
        return start - low <= self.ahead_us_max or len(self._ahead) < self.ahead_records_max

    def _may_take(self, replica: int, record: BucketRecord) -> bool:
        """True unless the record has a gap, and another replica may have the bucket without it."""
        if not record.gap or self.frontier.piece:
            return True
        self.deferred[replica] = self.frontier
        return not self.alternatives(replica)

    def _begin_again(self) -> None:
        """Restart the bucket with the version of the replicas that deferred a record of it."""
        bucket = Position(self.frontier.bucket_start)
        for replica, place in self.begun.items():
            if self.deferred.get(replica) == self.frontier and place.frontier <= bucket:
                self._hold(self.cursors[replica], place)
        self.frontier = bucket
        # These were recorded for the version that is dropped.
        self.deferred.clear()
        self.exhausted.clear()

    def alternatives(self, replica: int) -> list[int]:
        """Other replicas whose logs may still have a better record at the frontier (trace-15)."""
        here = self.frontier
        return [
            other
            for other, cursor in enumerate(self.cursors)
            if other != replica
            and cursor.frontier <= here
            and self.deferred.get(other) != here
            and self.exhausted.get(other) != here
        ]

    @property
    def _ahead_or_deferred(self) -> list[int]:
        """Replicas whose logs continue beyond the frontier, or with a deferred record."""
        return [
            replica
            for replica, cursor in enumerate(self.cursors)
            if cursor.frontier > self.frontier or self.deferred.get(replica) == self.frontier
        ]

    @property
    def awaited(self) -> list[int]:
        """The alternatives of any replica that waits at the frontier."""
        return sorted(
            {
                alternative
                for replica in self._ahead_or_deferred
                for alternative in self.alternatives(replica)
            }
        )

    @property
    def missing_from(self) -> dict[int, int]:
        """Replica -> incarnation of the writer whose stable log has a hole.

        A hole shows in one of two ways: a record begins beyond L, or a log continues beyond the
        frontier and no replica's log has the records between. The writer sends both again.
        """
        if self.frontier in self.deferred.values():
            return self.holes  # a deferred record continues the frontier
        ahead = [r for r, cursor in enumerate(self.cursors) if cursor.frontier > self.frontier]
        return self.holes | {r: self.cursors[r].inc for r in ahead if not self.alternatives(r)}

    def wants(self, replica: int) -> bool:
        """True if the replica's log should be read on.

        Not if it is ahead of the frontier, or if its next record waits for other replicas.
        """
        if self.deferred.get(replica) == self.frontier:
            return not self.alternatives(replica)
        return self.cursors[replica].frontier <= self.frontier or replica in self.missing_from

    @property
    def held(self) -> int:
        """Number of replay positions kept by its cursors."""
        return sum(len(cursor.replay_positions) for cursor in self.cursors)

    def _hold(self, cursor: DeltaCursor, place: LogPosition) -> None:
        cursor.return_to(place)
        cursor.attached = False

    def _move(self, cursor: DeltaCursor, frontier: Position) -> None:
        cursor.frontier = frontier
        cursor.replay_positions.mark(cursor.position())
