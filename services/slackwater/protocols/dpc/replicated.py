"""One child as the root sees it: R replicas' delta logs, read as one input.

DPC section 4.3 lets a node switch between the replicas of an upstream neighbour and asks the new
one to go on behind the last stable tuple. Here every replica's log is read all the time, and
progress is by event time, so there is nothing to ask for:

* The **stable line** (`StableInput`) follows whichever replica's stable log continues the child's
  frontier. Content there is the same in all replicas; a record that is ahead waits, one that is
  behind is a repeat (rules 10 to 12; R8). Only a bucket that feels a loss may come in two versions
  (R15): one without is better, and what has been begun of a version that nobody can complete is
  dropped for one that somebody can.
* The **live line** (`LiveInput`) sees both logs of every replica at once, and picks per bucket what
  the paper's Table II would choose: stable if any replica has it, else the tentative bucket of the
  replica that has come furthest (rules 13, 20, 21; R7, R34). Slices replace each other, they are
  never added, so nothing is counted twice however often a bucket is said.

Both drop everything that is not the next seq (an aggregator may send twice, rule 19) or is of an
older incarnation than the highest START read (rule 10).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from slackwater.model.records import (
    BucketRecord,
    DeltaRecord,
    Gap,
    Kind,
    LogPosition,
    Position,
)

UNKNOWN_SEQ: Final = -1


def damaged_delta(child: int, replica: int) -> DeltaRecord:
    """What does not decode stands as VOID in the place of one seq, or of none.

    It may have been the next one, a copy of another, or nothing that an aggregator has written:
    the seq that comes behind it tells. If it was the next one it leaves a hole, and the orderer
    says it again (rule 11).
    """
    return DeltaRecord(Kind.VOID, child, replica, 0, 0, 0, UNKNOWN_SEQ)


class Trail:
    """Where a log stood each time it crossed a window's edge, to know where to read again from.

    A line that must rebuild its windows from time t reads a log again from the last place at
    which the log had not yet passed t.
    """

    def __init__(self, position: LogPosition, pane_of: Callable[[int], int]) -> None:
        self._pane_of = pane_of
        self._places: deque[LogPosition] = deque([position])

    def mark(self, position: LogPosition) -> None:
        """The log stands here; only the first place in each pane counts."""
        last = self._places[-1].frontier
        if position.frontier <= last:
            return
        pane = self._pane_of(position.frontier.bucket_start)
        if last.bucket_start < pane:
            self._places.append(position)

    def reset(self, position: LogPosition) -> None:
        """The log's frontier was set back by a START: what it passed before counts no more."""
        while len(self._places) > 1 and self._places[-1].frontier >= position.frontier:
            self._places.pop()
        self.mark(position)

    def at(self, start: int) -> LogPosition:
        """Where to read from to see all of event time from ``start`` on."""
        best = self._places[0]
        for place in self._places:
            if place.frontier > Position(start):
                break
            best = place
        return best

    def __len__(self) -> int:
        """How many places are remembered."""
        return len(self._places)

    def forget_before(self, start: int) -> None:
        """Nothing below ``start`` will be asked for again."""
        while len(self._places) > 1 and self._places[1].frontier <= Position(start):
            self._places.popleft()


class DeltaCursor:
    """One line's place in one deltas partition: offset, next seq, incarnation, and L of rule 11.

    ``strict`` is the stable line's cursor: only the next seq counts (rule 10). The live line's
    skips holes, and after a seek takes what comes (rule 13).
    """

    def __init__(
        self, position: LogPosition, pane_of: Callable[[int], int], *, strict: bool
    ) -> None:
        self._strict = strict
        self.offset = position.offset
        self.next_seq = position.next_seq
        self.inc = position.inc
        self.frontier = position.frontier
        self.attached = False
        self.stray: LogPosition | None = None
        """Where a seq beyond the next one was dropped, as long as the next has not come."""
        self.unread = 0
        """Records since the last one that counted that did not decode: so many seqs may be gone."""
        self._unread_from: LogPosition | None = None
        self.trail = Trail(position, pane_of)

    def position(self) -> LogPosition:
        """Where to read on: behind the last record that is known to count, or to be none."""
        return self._unread_from or LogPosition(self.offset, self.next_seq, self.inc, self.frontier)

    def reaches(self, offset: int, whole: int, seq: int) -> bool:
        """Is ``seq``, read next, what follows ``whole``, but for what did not decode?"""
        is_next = self.offset == offset and self.next_seq == whole and self.stray is None
        return is_next and whole <= seq <= whole + self.unread

    def admits(self, record: BucketRecord) -> bool:
        """Rule 10, and START: sets the incarnation and L. Moves past the record if it counts."""
        if record.seq == UNKNOWN_SEQ:
            if self.next_seq >= 0 and self.stray is None:
                self._unread_from = self.position()
                self.unread += 1
            return False
        if record.seq < self.next_seq:
            return False
        if self._strict and 0 <= self.next_seq < record.seq - self.unread:
            self.stray = self.stray or self.position()
            return False
        self.next_seq, self.stray = record.seq + 1, None
        self._all_is_known()
        if record.kind is Kind.START:
            self.inc = max(self.inc, record.seq if record.inc < 0 else record.inc)
            if record.frontier is not None and self._strict:
                self.frontier = record.frontier
                self.trail.reset(self.position())
            return False
        if record.kind is Kind.VOID or record.inc < self.inc:
            return False
        self.inc = record.inc  # its START may be gone, but a hole must be named by who can mend it
        return True

    def jump_to_seq(self, seq: int) -> None:
        """Nobody can send what lies below ``seq``: what was dropped may be next now (rule 28)."""
        assert self.stray is not None
        assert self.next_seq < seq
        self.return_to(replace(self.stray, next_seq=seq))
        self.stray = None
        self.attached = False

    def jump(self, beginning: int) -> None:
        """Retention took what was to be read next: go on with what comes at ``beginning``."""
        assert self.offset < beginning
        self.offset, self.next_seq, self.stray = beginning, -1, None
        self._all_is_known()

    def skip_to(self, offset: int) -> None:
        """Nothing: the seqs of records tell what is lacking."""

    @property
    def boundary(self) -> int:
        """The event time up to which whole buckets have been read."""
        return self.frontier.bucket_start

    def return_to(self, position: LogPosition) -> None:
        """Read again from ``position``."""
        self._all_is_known()
        self.offset, self.next_seq, self.inc, self.frontier = (
            position.offset,
            position.next_seq,
            position.inc,
            position.frontier,
        )

    def _all_is_known(self) -> None:
        self.unread, self._unread_from = 0, None


def behind(record: BucketRecord) -> Position:
    """The position behind a record: the next piece, or the next bucket (R32)."""
    if record.kind is not Kind.BOUNDARY and record.piece + 1 < record.pieces:
        return Position(record.bucket_start, record.piece + 1)
    return Position(record.bucket_end)


def _version(record: BucketRecord) -> tuple[int, tuple[Gap, ...]]:
    """What the pieces of one version of a bucket have in common."""
    return record.pieces, record.gap


@dataclass(slots=True)
class StableInput:
    """The stable line's view of one child: a frontier, fed by R stable logs (rules 10 to 12)."""

    cursors: list[DeltaCursor]
    frontier: Position
    ahead_us_max: int
    holes: dict[int, int] = field(default_factory=dict)
    """Replica -> incarnation of the writer that left a hole in its stable log."""
    second: dict[int, Position] = field(default_factory=dict)
    """Replica -> the frontier at which its record is the second choice (R15): it has a gap, or it
    is of another version of the bucket than what has been begun."""
    exhausted: dict[int, Position] = field(default_factory=dict)
    """Replica -> the frontier at which its log was found to hold nothing more."""
    _version: tuple[int, tuple[Gap, ...]] = (1, ())
    """Of what was taken last."""
    _begun: dict[int, LogPosition] = field(default_factory=dict)
    """Replica -> where the bucket begins in its log that it has said last."""

    def take(self, replica: int, offset: int, record: BucketRecord, low: int) -> bool:
        """Offer a record of a replica's stable log; True if it moved the frontier.

        ``low`` is where the stable line stands: too far ahead of it the cursor is parked, which
        is also what becomes of a record ahead of the frontier (rule 12). A parked cursor stays at
        the record's offset, to read it again.
        """
        cursor = self.cursors[replica]
        if offset < cursor.offset:
            return False
        before = cursor.position()
        admitted = cursor.admits(record)
        cursor.offset = offset + 1
        if not admitted:
            return False
        start = Position(record.bucket_start, record.piece)
        if start != cursor.frontier:
            # A hole if it is beyond; else a repeat, by a zombie or after a restart.
            if start > cursor.frontier:
                self.holes[replica] = cursor.inc
            return False
        self.holes.pop(replica, None)
        if record.piece == 0:
            self._begun[replica] = before
        end, here = behind(record), self.frontier
        holds_it = record.bucket_start <= here.bucket_start < record.bucket_end
        if here.piece and holds_it and _version(record) != self._version:
            # Two versions are cut between other keys: what has been begun must go on, or end here.
            self.second[replica] = here
            self._hold(cursor, before)
            if not self.rivals(replica):
                self._begin_again()
            return False
        if end <= here:
            self._move(cursor, end)
            return False
        is_ahead = start > here
        if is_ahead and replica in self.torn:
            self.holes[replica] = cursor.inc  # nobody will bring the frontier here: read on
            return False
        too_far = record.bucket_start - low > self.ahead_us_max
        if is_ahead or too_far or not self._may_take(replica, record):
            self._hold(cursor, before)
            return False
        self._move(cursor, end)
        self.frontier, self._version = end, _version(record)
        return True

    def _may_take(self, replica: int, record: BucketRecord) -> bool:
        """With a gap only if nobody has the bucket without."""
        if not record.gap or self.frontier.piece:
            return True
        self.second[replica] = self.frontier
        return not self.rivals(replica)

    def _begin_again(self) -> None:
        """With the bucket, for those who have another version of it than what has been begun."""
        bucket = Position(self.frontier.bucket_start)
        for replica, place in self._begun.items():
            if self.second.get(replica) == self.frontier and place.frontier <= bucket:
                self._hold(self.cursors[replica], place)
        self.frontier = bucket
        # What was found out of this bucket's positions was found out of the other version's.
        self.second.clear()
        self.exhausted.clear()

    def rivals(self, replica: int) -> list[int]:
        """The other replicas whose logs may yet deliver what is better at the frontier (R15)."""
        here = self.frontier
        return [
            other
            for other, cursor in enumerate(self.cursors)
            if other != replica
            and cursor.frontier <= here
            and self.second.get(other) != here
            and self.exhausted.get(other) != here
        ]

    @property
    def _unanswered(self) -> list[int]:
        """Replicas whose logs go on elsewhere than where the frontier is, or as a second choice."""
        return [
            replica
            for replica, cursor in enumerate(self.cursors)
            if cursor.frontier > self.frontier or self.second.get(replica) == self.frontier
        ]

    @property
    def awaited(self) -> list[int]:
        """Replicas that others wait for: have their logs got what goes on at the frontier?"""
        return sorted({rival for replica in self._unanswered for rival in self.rivals(replica)})

    @property
    def torn(self) -> dict[int, int]:
        """Replica -> incarnation of the writer in whose stable log there is a hole.

        Seen as such; or because its START names a place beyond the frontier, and nobody's log has
        what lies between: then it must say that again too.
        """
        if self.frontier in self.second.values():
            return self.holes  # somebody has it, as a second choice
        ahead = [r for r, cursor in enumerate(self.cursors) if cursor.frontier > self.frontier]
        return self.holes | {r: self.cursors[r].inc for r in ahead if not self.rivals(r)}

    def wants(self, replica: int) -> bool:
        """Shall the replica's log be read on? Not what is ahead, nor while there may be better."""
        if self.second.get(replica) == self.frontier:
            return not self.rivals(replica)
        return self.cursors[replica].frontier <= self.frontier or replica in self.torn

    @property
    def held(self) -> int:
        """How many places its cursors remember."""
        return sum(len(cursor.trail) for cursor in self.cursors)

    def _hold(self, cursor: DeltaCursor, place: LogPosition) -> None:
        cursor.return_to(place)
        cursor.attached = False

    def _move(self, cursor: DeltaCursor, frontier: Position) -> None:
        cursor.frontier = frontier
        cursor.trail.mark(cursor.position())


@dataclass(slots=True)
class Said:
    """What one replica says of one bucket, or of a run of empty ones, tentatively or for good."""

    start: int
    end: int
    stable: bool
    missing: tuple[str, ...]
    gap: tuple[Gap, ...]
    pieces: dict[int, BucketRecord]
    pieces_count: int
    inc: int

    @property
    def rank(self) -> int:
        """Stable is better than stable with a gap (R15), and that than tentative."""
        return (2 - bool(self.gap)) if self.stable else 0

    @property
    def complete(self) -> bool:
        """An incomplete set of pieces is no slice (rule 13)."""
        return len(self.pieces) == self.pieces_count

    @property
    def nbytes(self) -> int:
        """About its size in memory."""
        return sum(piece.nbytes for piece in self.pieces.values())


@dataclass(slots=True)
class _ReplicaView:
    """One replica in the live line's eyes: what it said, by bucket start."""

    stable_to: int
    tentative_to: int
    starts: list[int] = field(default_factory=list)
    said: dict[int, Said] = field(default_factory=dict)
    bytes_held: int = 0

    def put(self, record: BucketRecord, *, stable: bool) -> None:
        """A stable slice replaces any; a tentative one what was said before it (rule 13)."""
        start = record.bucket_start
        old = self.said.get(start)
        if old is not None and old.stable and not stable:
            return
        if old is None:
            self.starts.insert(bisect_right(self.starts, start), start)
        if (
            old is None
            or old.stable != stable
            or old.inc != record.inc
            or (record.piece in old.pieces or record.pieces != old.pieces_count)
        ):
            self.bytes_held -= 0 if old is None else old.nbytes
            old = Said(
                start,
                record.bucket_end,
                stable,
                record.missing,
                record.gap,
                {},
                record.pieces,
                record.inc,
            )
            self.said[start] = old
        old.pieces[record.piece] = record
        self.bytes_held += record.nbytes
        if old.complete:
            self.come_to(record.bucket_end, stable=stable)
            if stable:
                self._drop_within(old)

    def come_to(self, end: int, *, stable: bool) -> None:
        """The replica has said all of the buckets before ``end``."""
        if stable:
            self.stable_to = max(self.stable_to, end)
        else:
            self.tentative_to = max(self.tentative_to, end)

    def _drop_within(self, run: Said) -> None:
        """A run of empty buckets replaces also the later buckets it covers."""
        first = bisect_right(self.starts, run.start)
        last = bisect_left(self.starts, run.end, first)
        for start in self.starts[first:last]:
            self._drop(start)
        del self.starts[first:last]

    def forget_before(self, start: int) -> None:
        kept = 0
        while kept < len(self.starts) and self.said[self.starts[kept]].end <= start:
            self._drop(self.starts[kept])
            kept += 1
        del self.starts[:kept]

    def _drop(self, start: int) -> None:
        self.bytes_held -= self.said.pop(start).nbytes

    def between(self, start: int, end: int) -> Iterable[Said]:
        """Everything complete that was said of [start, end), in order."""
        i = max(bisect_right(self.starts, start) - 1, 0)
        for at in self.starts[i:]:
            if at >= end:
                return
            said = self.said[at]
            if said.end > start and said.complete:
                yield said


@dataclass(frozen=True, slots=True)
class Ingredient:
    """What a child contributes to [start, end): the pieces of one bucket, or emptiness."""

    start: int
    end: int
    stable: bool
    pieces: tuple[BucketRecord, ...]
    missing: tuple[str, ...]
    gap: tuple[Gap, ...]


class LiveInput:
    """The live line's view of one child: both logs of every replica (rules 13, 20, 21).

    ``low`` is where choosing has come to: below it nothing is kept. A cursor that is twice
    ``ahead_us_max`` beyond it is parked: a child whose sources run ahead of time must not fill the
    memory (rule 12).
    """

    def __init__(
        self, cursors: Sequence[tuple[DeltaCursor, DeltaCursor]], start: int, ahead_us_max: int
    ) -> None:
        self.cursors = cursors
        self.ahead_us_max = ahead_us_max
        self.low = start
        self._views = [_ReplicaView(start, start) for _ in cursors]

    def take(self, replica: int, line: int, offset: int, record: BucketRecord) -> None:
        """A record of a replica's stable (line 0) or live log (line 1)."""
        cursor = self.cursors[replica][line]
        if offset < cursor.offset:
            return
        before = cursor.position()
        admitted = cursor.admits(record)
        cursor.offset = offset + 1
        if not admitted:
            return
        if record.bucket_start - self.low > 2 * self.ahead_us_max:
            cursor.return_to(before)
            cursor.attached = False
            return
        end = behind(record)
        if end > cursor.frontier:
            cursor.frontier = end
            cursor.trail.mark(cursor.position())
        if record.bucket_end > self.low:
            self._views[replica].put(record, stable=line == 0)
        elif record.piece + 1 == record.pieces:
            # Too late for an answer, but it tells how far the replica has come. Where a unit is one
            # bucket, a child that failed once would else be behind, hence failed, for ever.
            self._views[replica].come_to(record.bucket_end, stable=line == 0)

    def is_hungry(self, cursor: DeltaCursor) -> bool:
        """Shall a parked cursor be read on?"""
        return cursor.frontier.bucket_start - self.low <= self.ahead_us_max

    def forget_before(self, start: int) -> None:
        """Buckets before ``start`` will not be chosen any more."""
        self.low = start
        for view in self._views:
            view.forget_before(start)

    def live_to(self, healthy: Sequence[bool]) -> int:
        """How far the child has come: stably, or tentatively if nobody here says STABLE (R34).

        ``healthy[r]``: replica r's heartbeat is fresh and says STABLE. A tentative passing counts
        only if no replica says so: the stable bucket is on its way.
        """
        stable_to = self.stable_to
        for says_stable, view in zip(healthy, self._views, strict=True):
            if says_stable and view.tentative_to <= view.stable_to:
                return stable_to
        return max(stable_to, *(v.tentative_to for v in self._views))

    @property
    def held(self) -> int:
        """How many buckets, runs and places are held in memory."""
        places = sum(len(cursor.trail) for pair in self.cursors for cursor in pair)
        return places + sum(len(view.said) for view in self._views)

    @property
    def bytes_held(self) -> int:
        """About what these buckets take in memory."""
        return sum(view.bytes_held for view in self._views)

    @property
    def stable_to(self) -> int:
        """How far some replica has come stably."""
        return max(self.each_stable_to)

    @property
    def each_stable_to(self) -> list[int]:
        """How far each replica has come stably."""
        return [v.stable_to for v in self._views]

    def passes_without(self, replica: int, end: int) -> bool:
        """Has another replica come as far as ``end``, stably or not?"""
        others = (v for r, v in enumerate(self._views) if r != replica)
        return any(max(v.stable_to, v.tentative_to) >= end for v in others)

    @property
    def reaches_to(self) -> int:
        """How far ahead anything is buffered."""
        return max(max(v.stable_to, v.tentative_to) for v in self._views)

    def ingredients(self, start: int, end: int) -> list[Ingredient]:
        """What there is to answer [start, end) with, in bucket order; holes are absent.

        Per bucket: stable, whoever says it, else the one replica whose tentative frontier is
        furthest (Table II); never a sum of two.
        """
        order = sorted(self._views, key=lambda v: (v.tentative_to, v.stable_to), reverse=True)
        chosen: dict[int, Said] = {}
        for view in order:
            for said in view.between(start, end):
                best = chosen.get(said.start)
                if best is None or said.rank > best.rank:
                    chosen[said.start] = said
        return self._without_overlaps(chosen, start)

    def _without_overlaps(self, chosen: dict[int, Said], start: int) -> list[Ingredient]:
        """Runs of empty buckets may overlap other replicas' buckets: take what adds time."""
        found: list[Ingredient] = []
        reached = start
        for said in sorted(chosen.values(), key=lambda s: (s.start, not s.stable)):
            if said.end <= reached:
                continue
            pieces = tuple(said.pieces[i] for i in sorted(said.pieces))
            if said.start < reached:
                pieces = ()  # a run of empty buckets that began earlier
            found.append(
                Ingredient(
                    max(said.start, reached), said.end, said.stable, pieces, said.missing, said.gap
                )
            )
            reached = said.end
        return found
