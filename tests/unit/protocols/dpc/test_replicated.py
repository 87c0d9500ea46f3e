"""The live line's view of a child's replicas: precedence of records and of replicas."""

from __future__ import annotations

import numpy as np
import pytest

from slackwater.model.records import BucketRecord, Kind, LogPosition, OrderedRecord, Position
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor, damaged_delta
from slackwater.protocols.dpc.soutput.live_input import Ingredient, LiveInput
from slackwater.protocols.dpc.sunion.empty_runs import last_alike

STABLE, LIVE = 0, 1
BUCKET = 100


class Logs:
    """Both logs of some replicas, and the live line that reads them as they are written."""

    def __init__(self, replicas: int) -> None:
        position = LogPosition(0, 0, -1, Position(0))
        pairs = [
            tuple(DeltaCursor(position, lambda e: e, strict=False) for _ in range(2))
            for _ in range(replicas)
        ]
        self.input = LiveInput(
            [(a, b) for a, b in pairs], 0, ahead_us_max=100 * BUCKET, ahead_records_max=100
        )
        self._ends: dict[tuple[int, int], int] = {}

    def emit(
        self, replica: int, line: int, start: int, value: float, *, inc: int = 0, piece: int = 0,
        pieces: int = 1,
    ) -> None:  # fmt: skip
        """Write a replica's next record, with one reading."""
        at = self._ends.get((replica, line), 0)
        self._ends[replica, line] = at + 1
        record = OrderedRecord(
            Kind.INSERTION if line == STABLE else Kind.TENTATIVE, 0, replica, inc, start,
            start + BUCKET, piece, pieces, seq=at, keys=(f"k{piece}",),
            offsets=np.array([0.0, 1.0]), fields=("v",), values=(np.array([value]),),
        )  # fmt: skip
        self.input.take(replica, line, at, record)

    def run(self, replica: int, line: int, start: int, end: int) -> None:
        """Write a replica's next record: the buckets of [start, end) are empty."""
        at = self._ends.get((replica, line), 0)
        self._ends[replica, line] = at + 1
        record = OrderedRecord(Kind.BOUNDARY, 0, replica, 0, start, end, seq=at)
        self.input.take(replica, line, at, record)

    def covered(self) -> list[tuple[int, int, bool, list[float]]]:
        """Return the ingredients with their ends, in buckets."""
        covered = []
        for of in self.input.ingredients(0, 100 * BUCKET):
            _, stable, values = _reported(of)
            covered.append((of.start // BUCKET, of.end // BUCKET, stable, values))
        return covered

    def start(self, line: int, inc: int) -> None:
        """Restart replica 0."""
        at = self._ends.get((0, line), 0)
        self._ends[0, line] = at + 1
        record = OrderedRecord(Kind.START, 0, 0, inc, 0, 0, seq=at, frontier=Position(0))
        self.input.take(0, line, at, record)

    def chosen(self) -> list[tuple[int, bool, list[float]]]:
        """Return for each answered bucket whether it is stable, and its pieces' values."""
        return [_reported(found) for found in self.input.ingredients(0, 100 * BUCKET)]


def _reported(found: Ingredient) -> tuple[int, bool, list[float]]:
    values = [v for piece in found.pieces for v in piece.values[0].tolist()]  # type: ignore[union-attr]
    return found.start, found.stable, values


@pytest.mark.parametrize("line", [STABLE, LIVE])
def test_rule_10_what_a_zombie_writes_behind_its_successors_start_is_dropped(line: int) -> None:
    """Otherwise it would be the later one in the live log, and count (rule-13)."""
    logs = Logs(replicas=1)
    logs.start(line, inc=3)
    logs.emit(0, line, 0, 1.0, inc=3)
    logs.start(line, inc=5)
    logs.emit(0, line, 0, 2.0, inc=5)
    logs.emit(0, line, 0, 1.0, inc=3)
    logs.emit(0, line, BUCKET, 1.0, inc=3)
    assert logs.chosen() == [(0, line == STABLE, [2.0])]


def test_rule_13_what_is_later_in_the_live_log_replaces_what_was_said_before() -> None:
    """A restarted replica emits a bucket again, with more data, or divided differently."""
    logs = Logs(replicas=1)
    logs.emit(0, LIVE, 0, 1.0)
    logs.emit(0, LIVE, 0, 2.0, inc=5)
    assert logs.chosen() == [(0, False, [2.0])]
    logs.emit(0, LIVE, 0, 3.0, inc=9, piece=0, pieces=2)
    assert logs.chosen() == [], "an incomplete set of pieces is not a slice"
    logs.emit(0, LIVE, 0, 4.0, inc=9, piece=1, pieces=2)
    assert logs.chosen() == [(0, False, [3.0, 4.0])]


def test_rule_13_pieces_of_two_incarnations_make_no_slice() -> None:
    """The first one ended after its first piece, and a seek has skipped the second one's."""
    logs = Logs(replicas=1)
    logs.emit(0, LIVE, 0, 1.0, inc=5, piece=0, pieces=2)
    logs.emit(0, LIVE, 0, 2.0, inc=9, piece=1, pieces=2)
    assert logs.chosen() == []


def test_rule_13_a_stable_slice_replaces_any_and_is_replaced_by_none() -> None:
    logs = Logs(replicas=1)
    logs.emit(0, LIVE, 0, 1.0)
    logs.emit(0, STABLE, 0, 2.0)
    logs.emit(0, LIVE, 0, 3.0, inc=5)
    assert logs.chosen() == [(0, True, [2.0])]


@pytest.mark.parametrize("further", [0, 1])
def test_rule_21_of_tentative_replicas_the_one_that_has_come_furthest_is_taken(
    further: int,
) -> None:
    """Table II: among equals it is the more useful one, also for buckets that both have."""
    logs = Logs(replicas=2)
    for replica in range(2):
        logs.emit(replica, LIVE, 0, float(replica))
    logs.emit(further, LIVE, BUCKET, 7.0)
    assert logs.chosen() == [(0, False, [float(further)]), (BUCKET, False, [7.0])]


@pytest.mark.parametrize("stable", [0, 1])
def test_rule_21_a_stable_slice_is_better_than_one_of_a_replica_that_is_further(
    stable: int,
) -> None:
    logs = Logs(replicas=2)
    logs.emit(stable, STABLE, 0, 1.0)
    for start in (0, BUCKET):
        logs.emit(1 - stable, LIVE, start, 2.0)
    assert logs.chosen() == [(0, True, [1.0]), (BUCKET, False, [2.0])]


class Stable:
    """One replica's stable deltas, as read by the stable line's cursor."""

    def __init__(self) -> None:
        self.cursor = DeltaCursor(LogPosition(0, 0, -1, Position(0)), lambda e: e, strict=True)

    def read(self, *seqs: int | None) -> list[bool]:
        """Return those that count; None is a record that does not decode."""
        return [self._take(seq) for seq in seqs]

    def _take(self, seq: int | None) -> bool:
        record: BucketRecord = damaged_delta(0, 0)
        if seq is not None:
            record = OrderedRecord(Kind.BOUNDARY, 0, 0, 0, seq, seq + 1, seq=seq)
        admitted = self.cursor.admits(record)
        self.cursor.offset += 1
        return admitted


FOREIGN = None


def test_r9_what_nobody_wrote_takes_no_seq() -> None:
    """The true record after it was dropped as a repeat, and its orderer ended to send it again."""
    log = Stable()
    assert log.read(0, FOREIGN, 1, FOREIGN, FOREIGN, 2) == [True, False, True, False, False, True]
    assert log.cursor.pending_gap is None


def test_r9_a_damaged_delta_takes_its_own() -> None:
    log = Stable()
    assert log.read(0, FOREIGN, 2, 3) == [True, False, True, True]
    assert log.read(FOREIGN, FOREIGN, 6) == [False, False, True], "two of them"
    assert log.cursor.pending_gap is None


def test_r9_a_copy_of_what_is_damaged_counts() -> None:
    log = Stable()
    assert log.read(0, FOREIGN, 0, 1, 2) == [True, False, False, True, True]


def test_r9_what_is_further_ahead_is_a_hole() -> None:
    log = Stable()
    assert log.read(0, FOREIGN, 3) == [True, False, False]
    assert log.cursor.pending_gap is not None
    assert log.cursor.pending_gap.next_seq == 1


def test_r9_a_place_among_what_was_not_read_counts_the_same_again() -> None:
    log = Stable()
    log.read(0, FOREIGN)
    place = log.cursor.position()
    assert (place.offset, place.next_seq) == (1, 1), "before it"
    again = Stable()
    again.cursor.return_to(place)
    assert again.read(FOREIGN, 2) == [False, True]


EMPTY: list[float] = []


@pytest.mark.parametrize("replica", [0, 1])
@pytest.mark.parametrize("run_first", [True, False])
@pytest.mark.parametrize("at", [2, 5, 9])
def test_a_stable_bucket_replaces_its_part_of_a_tentative_run(
    replica: int, run_first: bool, at: int
) -> None:
    logs = Logs(replicas=2)
    for is_run in (run_first, not run_first):
        if is_run:
            logs.run(0, LIVE, 2 * BUCKET, 10 * BUCKET)
        else:
            logs.emit(replica, STABLE, at * BUCKET, 7.0)
    parts = [(2, at, False, EMPTY), (at, at + 1, True, [7.0]), (at + 1, 10, False, EMPTY)]
    assert logs.covered() == [part for part in parts if part[0] < part[1]]
    assert logs.input.live_to([False, False]) == 10 * BUCKET


def test_a_stable_run_within_a_tentative_one_replaces_its_part() -> None:
    logs = Logs(replicas=1)
    logs.run(0, LIVE, 0, 10 * BUCKET)
    logs.run(0, STABLE, 0, 4 * BUCKET)
    assert logs.covered() == [(0, 4, True, EMPTY), (4, 10, False, EMPTY)]
    logs.run(0, STABLE, 4 * BUCKET, 20 * BUCKET)
    assert logs.covered() == [(0, 4, True, EMPTY), (4, 20, True, EMPTY)]


def test_a_tentative_run_that_a_stable_run_overlaps_keeps_its_rest() -> None:
    logs = Logs(replicas=1)
    logs.run(0, LIVE, 2 * BUCKET, 10 * BUCKET)
    logs.run(0, STABLE, 0, 4 * BUCKET)
    assert logs.covered() == [(0, 4, True, EMPTY), (4, 10, False, EMPTY)]


def test_what_is_later_in_the_live_log_replaces_what_a_run_has_and_the_reverse() -> None:
    logs = Logs(replicas=1)
    logs.run(0, LIVE, 0, 4 * BUCKET)
    logs.emit(0, LIVE, 2 * BUCKET, 7.0)
    assert logs.covered() == [
        (0, 2, False, EMPTY), (2, 3, False, [7.0]), (3, 4, False, EMPTY),
    ]  # fmt: skip
    logs.run(0, LIVE, BUCKET, 4 * BUCKET)
    assert logs.covered() == [(0, 1, False, EMPTY), (1, 4, False, EMPTY)]


def test_a_run_that_an_answer_passes_in_part_is_kept_and_what_lies_within_goes() -> None:
    logs = Logs(replicas=1)
    logs.run(0, LIVE, 0, 10 * BUCKET)
    logs.emit(0, STABLE, 2 * BUCKET, 7.0)
    logs.input.forget_before(5 * BUCKET)
    assert [(of.start, of.end) for of in logs.input.ingredients(5 * BUCKET, 20 * BUCKET)] == [
        (5 * BUCKET, 10 * BUCKET)
    ]
    assert logs.input.held == 1 + sum(
        len(cursor.replay_positions) for pair in logs.input.cursors for cursor in pair
    )
    logs.input.forget_before(10 * BUCKET)
    assert logs.input.bytes_held == 0


@pytest.mark.parametrize("due_to", [1, 2, 3, 7, 64, 1_000, 99_999, 100_000, 200_000])
def test_the_end_of_a_run_is_found_in_a_few_looks(due_to: int) -> None:
    grid, looks = Grid(BUCKET, None), []

    def is_alike(start: int) -> bool:
        looks.append(start)
        return start + BUCKET <= due_to * BUCKET

    assert last_alike(grid, BUCKET, 100_000 * BUCKET, is_alike) == min(due_to, 100_000) * BUCKET
    assert len(looks) <= 40
