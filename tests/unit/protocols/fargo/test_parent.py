"""What a parent does with merged panes, and when it reads the deltas (rule-36)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.deployment import WindowSpec
from slackwater.model.heads import PaneColumns, PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.records import LogPosition, Position
from slackwater.primitives.windows import Grid
from slackwater.protocols.fargo.parent import MergedPanes, wait_us

GRID = Grid(10, WindowSpec(100, 100))
WAIT = 25
AT = LogPosition(3, 3, 0, Position(0))


def columns(rows: int) -> PaneColumns:
    return PaneColumns(tuple(map(str, range(rows))), np.zeros((6, 1, rows)), {})


def record(
    start: int, end: int, rows: int = 2, *, pieces: int = 1, piece: int = 0, digest: int = 9
) -> MergedRecord:
    ref = PaneRef(0, start, rows, pieces if rows else 0, digest)
    return MergedRecord(PaneRecord(ref, piece, columns(rows)), end, (AT,))


def parent(*, rests: bool = False, now: int = 0) -> MergedPanes:
    panes = MergedPanes(GRID, lambda e: e, WAIT, replicas=1)
    panes.begin(Position(0), now, has_unread=rests)
    return panes


@pytest.mark.parametrize(("frontier", "is_used"), [(0, True), (10, False), (90, False)])
def test_a_pane_counts_where_it_starts_and_not_inside(frontier: int, is_used: bool) -> None:
    found = parent().take(record(0, 100), Position(frontier), now=100)
    assert (found is not None) is is_used


def test_a_pane_does_not_count_within_a_bucket() -> None:
    assert parent().take(record(0, 100), Position(0, 1), now=100) is None


def test_the_second_record_of_a_pane_is_dropped() -> None:
    panes = parent()
    assert panes.take(record(0, 100), Position(0), 100) is not None
    assert panes.take(record(0, 100), Position(100), 101) is None


def test_pieces_of_two_contents_are_not_mixed() -> None:
    panes = parent()
    assert panes.take(record(0, 100, pieces=2), Position(0), 1) is None
    other = record(0, 100, pieces=2, piece=1, digest=8)
    assert panes.take(other, Position(0), 2) is None
    assert panes.take(record(0, 100, pieces=2, digest=8), Position(0), 3) is not None


def test_pieces_of_two_writers_complete_each_other() -> None:
    panes = parent()
    assert panes.take(record(0, 100, pieces=2), Position(0), 1) is None
    assert panes.take(record(0, 100, pieces=2), Position(0), 2) is None
    found = panes.take(record(0, 100, pieces=2, piece=1), Position(0), 3)
    assert found is not None
    assert len(found.pieces) == 2


@pytest.mark.parametrize(
    ("frontier", "is_used"), [(0, True), (100, True), (200, True), (130, False)]
)
def test_a_run_of_empty_panes_counts_from_any_of_them(frontier: int, is_used: bool) -> None:
    found = parent().take(record(0, 300, rows=0), Position(frontier), 300)
    assert (found is not None) is is_used
    assert found is None or (found.end, found.pieces) == (300, ())


def test_behind_its_first_pane_a_record_is_empty() -> None:
    found = parent().take(record(0, 300), Position(100), 300)
    assert found is not None
    assert (found.end, found.pieces, found.rows) == (300, (), 0)


@pytest.mark.parametrize(
    "foreign", [record(5, 100), record(0, 95), MergedRecord(record(0, 100).pane, 100, (AT, AT))]
)
def test_a_record_of_other_windows_or_replicas_does_not_count(foreign: MergedRecord) -> None:
    assert parent().take(foreign, Position(max(foreign.start, 0)), 100) is None


def test_a_later_pane_is_ahead() -> None:
    assert parent().is_ahead(record(100, 200), Position(50))
    assert not parent().is_ahead(record(100, 200), Position(100))


# Time.


def test_it_rests_at_the_end_of_a_pane_if_the_merger_is_punctual() -> None:
    panes = parent()
    panes.take(record(0, 100), Position(110), 100 + WAIT)  # the deltas have been read
    assert panes.look(Position(110), 126) is None, "inside a pane"
    assert panes.look(Position(200), 201) == 300 + WAIT
    assert panes.rests


def test_it_does_not_rest_for_a_merger_that_is_late() -> None:
    panes = parent()
    panes.take(record(0, 100), Position(110), 101 + WAIT)
    panes.look(Position(200), 201)
    assert not panes.rests


def test_it_reads_when_a_pane_has_not_come_in_time() -> None:
    panes = parent(rests=True)
    assert panes.take(record(0, 100), Position(0), 101) is not None
    assert panes.look(Position(100), 199 + WAIT) == 200 + WAIT, "it rests"
    assert panes.look(Position(100), 200 + WAIT) is None
    assert panes.look(Position(200), 230) is None
    assert not panes.rests, "until a pane has come in time again"


def test_behind_a_backlog_it_waits_after_the_last_pane() -> None:
    panes = parent(rests=True, now=1_000)
    assert panes.look(Position(0), 1_001) == 1_000 + WAIT
    assert panes.take(record(0, 100), Position(0), 1_020) is not None
    assert panes.look(Position(100), 1_030) == 1_020 + WAIT
    assert panes.look(Position(100), 1_020 + WAIT) is None
    assert not panes.rests


def test_before_the_begin_is_known_nothing_is_missing() -> None:
    panes = MergedPanes(GRID, lambda _: None, WAIT, replicas=1)
    panes.begin(Position(0), 0, has_unread=True)
    assert panes.look(Position(0), 1 << 40) is None
    assert panes.rests


def test_it_begins_to_rest_only_at_a_panes_start_with_panes_to_be_read() -> None:
    panes = MergedPanes(GRID, lambda e: e, WAIT, replicas=1)
    panes.begin(Position(10), 0, has_unread=True)
    assert not panes.rests


@pytest.mark.parametrize(("deadline", "wait"), [(1_950_000, 250_000), (400_000, 100_000), (-5, 0)])
def test_the_wait_is_a_share_of_the_time_to_the_deadline(deadline: int, wait: int) -> None:
    assert wait_us(deadline) == wait


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(0, 1)), max_size=30))
def test_whatever_comes_no_event_time_is_taken_twice_or_left_out(
    records: list[tuple[int, int, int]],
) -> None:
    """Repeated, late and early records: what is used continues the frontier without a gap."""
    panes, frontier, now = parent(), Position(0), 0
    for pane, length, rows in records:
        now += 10
        merged = record(100 * pane, 100 * (pane + length), rows)
        if panes.is_ahead(merged, frontier):
            continue
        found = panes.take(merged, frontier, now)
        if found is not None:
            assert merged.start <= frontier.bucket_start < found.end
            assert bool(found.pieces) == (bool(rows) and merged.start == frontier.bucket_start)
            frontier = Position(found.end)
