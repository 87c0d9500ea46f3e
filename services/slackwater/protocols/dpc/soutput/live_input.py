"""The live line's view of one child: both logs of every replica, merged to one input.

The line reads all replicas' versions of a bucket and chooses one per bucket, as in the paper's
Table II: the stable version if any replica has it, else the tentative version of the replica that
has progressed furthest. Versions replace each other and are never added, so a bucket that is sent
again is not counted twice (rule-13, rule-20, rule-21; trace-7, trace-34).
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from slackwater.model.records import BucketRecord, Gap, Kind, LogPosition
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor, next_position


@dataclass(slots=True)
class BucketVersion:
    """One replica's stable or tentative version of a bucket, or of a run of empty buckets."""

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
        """Preference, the greatest first: stable, stable with a gap (trace-15), tentative."""
        return (2 - bool(self.gap)) if self.stable else 0

    @property
    def complete(self) -> bool:
        """True if all pieces are present; an incomplete set is no slice (rule-13)."""
        return len(self.pieces) == self.pieces_count

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
        return sum(piece.nbytes for piece in self.pieces.values())


@dataclass(slots=True)
class _ReplicaView:
    """The live line's view of one replica: its versions by bucket start."""

    stable_to: int
    tentative_to: int
    starts: list[int] = field(default_factory=list)
    versions: dict[int, BucketVersion] = field(default_factory=dict)
    bytes_held: int = 0

    def put(self, record: BucketRecord, *, stable: bool) -> None:
        """Store a piece: a stable version replaces any, a tentative one only tentative ones.

        A stable version within a tentative run of empty buckets stays beside the run (rule-13).
        """
        old = self.versions.get(record.bucket_start)
        while old is not None and old.stable and not stable:
            if record.bucket_end <= old.end:
                return
            record = replace(record, bucket_start=old.end)  # the rest of a run
            old = self.versions.get(old.end)
        start = record.bucket_start
        if (
            old is None
            or old.stable != stable
            or old.inc != record.inc
            or (record.piece in old.pieces or record.pieces != old.pieces_count)
        ):
            version = BucketVersion(
                start,
                record.bucket_end,
                stable,
                record.missing,
                record.gap,
                {},
                record.pieces,
                record.inc,
            )
            self._replace(old, version)
            old = version
        old.pieces[record.piece] = record
        self.bytes_held += record.nbytes
        if old.complete:
            self.come_to(record.bucket_end, stable=stable)
            self._drop_within(old)

    def _replace(self, old: BucketVersion | None, version: BucketVersion) -> None:
        """Store a version, in the place of ``old`` if another one begins at the same time."""
        if old is None:
            self.starts.insert(bisect_right(self.starts, version.start), version.start)
        else:
            self.bytes_held -= old.nbytes
        self.versions[version.start] = version
        if old is not None:
            self._keep_rest(old, version.end)

    def _keep_rest(self, run: BucketVersion, start: int) -> None:
        """Keep what a tentative run has from ``start`` on."""
        if not run.stable and start < run.end and start not in self.versions:
            rest = dataclasses.replace(run, start=start, pieces={}, pieces_count=0)
            self._replace(None, rest)

    def come_to(self, end: int, *, stable: bool) -> None:
        """Record that the replica has sent all buckets before ``end``."""
        if stable:
            self.stable_to = max(self.stable_to, end)
        else:
            self.tentative_to = max(self.tentative_to, end)

    def _drop_within(self, run: BucketVersion) -> None:
        """Drop the later buckets that a run of empty buckets replaces."""
        first = bisect_right(self.starts, run.start)
        last = bisect_left(self.starts, run.end, first)
        if first == last:
            return
        kept, replaced = [], []
        for start in self.starts[first:last]:
            version = self.versions[start]
            if version.stable and not run.stable:
                kept.append(start)
            else:
                replaced.append(version)
                self._drop(start)
        self.starts[first:last] = kept
        for version in replaced:
            self._keep_rest(version, run.end)

    def forget_before(self, start: int) -> None:
        """Drop the versions that end at ``start`` or before it.

        A run that begins before such a version may end after it, and is kept.
        """
        begun = bisect_left(self.starts, start)
        kept = []
        for at in self.starts[:begun]:
            if self.versions[at].end <= start:
                self._drop(at)
            else:
                kept.append(at)
        self.starts[:begun] = kept

    def before(self, is_past: Callable[[int], bool]) -> Iterable[BucketVersion]:
        """The versions before the first one whose end is not past."""
        return takewhile(
            lambda version: is_past(version.end), (self.versions[at] for at in self.starts)
        )

    def _drop(self, start: int) -> None:
        self.bytes_held -= self.versions.pop(start).nbytes

    def between(self, start: int, end: int) -> Iterable[BucketVersion]:
        """All complete versions in [start, end), in order."""
        for at in self.starts[: bisect_left(self.starts, end)]:
            version = self.versions[at]
            if version.end > start and version.complete:
                yield version


@dataclass(frozen=True, slots=True)
class Ingredient:
    """A child's contribution to [start, end): the pieces of one bucket, or an empty run."""

    start: int
    end: int
    stable: bool
    pieces: tuple[BucketRecord, ...]
    missing: tuple[str, ...]
    gap: tuple[Gap, ...]


class LiveInput:
    """The live line's view of one child: both logs of every replica (rule-13, rule-20, rule-21).

    ``low`` is the event time up to which versions have been chosen; nothing below it is kept. A
    cursor more than twice ``ahead_us_max`` beyond it is parked if the replica's versions are twice
    ``ahead_records_max``, so that memory is bounded if the child's sources run ahead of the clock
    (rule-12).
    """

    def __init__(
        self,
        cursors: Sequence[tuple[DeltaCursor, DeltaCursor]],
        start: int,
        ahead_us_max: int,
        ahead_records_max: int,
    ) -> None:
        self.cursors = cursors
        self.ahead_us_max = ahead_us_max
        self._ahead_records_max = ahead_records_max
        self.low = start
        self._views = [_ReplicaView(start, start) for _ in cursors]

    def take(self, replica: int, line: int, offset: int, record: BucketRecord) -> None:
        """Process a record of a replica's stable (line 0) or live log (line 1)."""
        cursor = self.cursors[replica][line]
        if offset < cursor.offset:
            return
        before = cursor.position()
        admitted = cursor.admits(record)
        cursor.offset = offset + 1
        if not admitted:
            return
        span = record.bucket_start - self.low
        if span > 2 * self.ahead_us_max and self._held(replica) >= 2 * self._ahead_records_max:
            cursor.return_to(before)
            cursor.attached = False
            return
        end = next_position(record)
        if end > cursor.frontier:
            cursor.frontier = end
            cursor.replay_positions.mark(cursor.position())
        if record.bucket_end > self.low:
            self._views[replica].put(record, stable=line == 0)
        elif record.piece + 1 == record.pieces:
            # The record is too late for an answer, but it shows the replica's progress. Without
            # it, if a window is one bucket, a child that failed once would lag and so stay failed.
            self._views[replica].come_to(record.bucket_end, stable=line == 0)

    def move_to(self, behind: Sequence[LogPosition]) -> None:
        """Continue in the stable logs at these positions; what lies before has been read."""
        for view, (cursor, _), position in zip(self._views, self.cursors, behind, strict=True):
            cursor.move_to(position)
            view.come_to(position.frontier.bucket_start, stable=True)

    def skip_to(self, positions: Sequence[LogPosition]) -> None:
        """Continue in the stable logs at these positions, like a root that starts there."""
        for view, (cursor, _), position in zip(self._views, self.cursors, positions, strict=True):
            cursor.start_at(position)
            view.come_to(position.frontier.bucket_start, stable=True)

    def needs_input(self, replica: int, cursor: DeltaCursor) -> bool:
        """True if a parked cursor should be read on."""
        is_near = cursor.frontier.bucket_start - self.low <= self.ahead_us_max
        return is_near or self._held(replica) < self._ahead_records_max

    def _held(self, replica: int) -> int:
        """Number of a replica's buckets and runs in memory."""
        return len(self._views[replica].versions)

    def forget_before(self, start: int) -> None:
        """Drop the buckets before ``start``: they have been chosen."""
        self.low = start
        for view in self._views:
            view.forget_before(start)

    def live_to(self, healthy: Sequence[bool]) -> int:
        """The child's progress: stable, or tentative if no replica is healthy (trace-34).

        ``healthy[r]``: replica r's heartbeat is fresh and reports STABLE. Tentative progress does
        not count while a healthy replica may still send the stable bucket. A replica whose
        tentative buckets are ahead of its stable ones has forked since its heartbeat, and does not
        count as healthy.
        """
        stable_to = self.stable_to
        for is_stable, view in zip(healthy, self._views, strict=True):
            if is_stable and view.tentative_to <= view.stable_to:
                return stable_to
        return max(stable_to, *(v.tentative_to for v in self._views))

    @property
    def held(self) -> int:
        """Number of buckets, runs and replay positions in memory."""
        places = sum(len(cursor.replay_positions) for pair in self.cursors for cursor in pair)
        return places + sum(len(view.versions) for view in self._views)

    @property
    def bytes_held(self) -> int:
        """Approximate size of the buffered buckets in memory."""
        return sum(view.bytes_held for view in self._views)

    def bytes_before(self, is_past: Callable[[int], bool]) -> int:
        """Approximate size of the versions before the first one whose end is not past."""
        return sum(version.nbytes for view in self._views for version in view.before(is_past))

    @property
    def stable_to(self) -> int:
        """The furthest stable progress of any replica."""
        return max(self.each_stable_to)

    @property
    def each_stable_to(self) -> list[int]:
        """The stable progress of each replica."""
        return [v.stable_to for v in self._views]

    def passes_without(self, replica: int, end: int) -> bool:
        """True if another replica has reached ``end``, stably or tentatively."""
        others = (v for r, v in enumerate(self._views) if r != replica)
        return any(max(v.stable_to, v.tentative_to) >= end for v in others)

    @property
    def reaches_to(self) -> int:
        """The furthest progress of any replica, stable or tentative."""
        return max(max(v.stable_to, v.tentative_to) for v in self._views)

    def ingredients(self, start: int, end: int) -> list[Ingredient]:
        """The chosen versions of [start, end) at present, in bucket order.

        Per bucket this is the stable version of any replica, else the version of the replica whose
        tentative frontier is furthest (Table II). A bucket without a version has no ingredient.
        """
        order = sorted(self._views, key=lambda v: (v.tentative_to, v.stable_to), reverse=True)
        found = [
            (i, version) for i, view in enumerate(order) for version in view.between(start, end)
        ]
        # If a replica's tentative versions overlap, the one that begins later was sent later.
        found.sort(key=lambda each: (-each[1].rank, each[0], -each[1].start))
        chosen: list[Ingredient] = []
        for _, version in found:
            for low, high in _uncovered(chosen, max(version.start, start), version.end):
                insort(chosen, _ingredient(version, low, high), key=lambda each: each.start)
        return chosen


def _uncovered(chosen: Sequence[Ingredient], start: int, end: int) -> list[tuple[int, int]]:
    """The ranges within [start, end) that no ingredient covers; they are in order and disjoint."""
    parts = []
    for each in chosen[bisect_right(chosen, start, key=lambda one: one.end) :]:
        if each.start >= end:
            break
        if start < each.start:
            parts.append((start, each.start))
        start = each.end
    if start < end:
        parts.append((start, end))
    return parts


def _ingredient(version: BucketVersion, start: int, end: int) -> Ingredient:
    """A version's contribution to [start, end).

    Only a run of empty buckets may contribute less than its whole range: other versions may replace
    some of its buckets, and others may be answered. It has no pieces.
    """
    pieces = tuple(version.pieces[i] for i in sorted(version.pieces))
    is_run = all(piece.kind is Kind.BOUNDARY for piece in pieces)
    if is_run or (start, end) != (version.start, version.end):
        pieces = ()
    return Ingredient(start, end, version.stable, pieces, version.missing, version.gap)
