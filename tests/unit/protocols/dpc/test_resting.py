"""A child that rests: its deltas are not read, and merged panes move its cursors (rule-36)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.paper.stage import MS, Settings

from slackwater.model.records import LogPosition, Position
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog, RootConfig, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.resting import MergedOffsets

SETTINGS = Settings(bucket_ms=100, window_ms=1_000, bound_ms=1_000)
LOG = DeltaLog(0, 0, LineName.STABLE)
OTHER = DeltaLog(0, 1, LineName.STABLE)
LIVE = DeltaLog(0, 0, LineName.LIVE)


@dataclass
class Rooted:
    """A core of one child with two replicas, whose frontier is at 0."""

    core: RootCore

    @classmethod
    def new(cls) -> Rooted:
        config = RootConfig(
            "root/q.0", "q", 0, 1, (("s1",),), 2, ("f",), SETTINGS.grid, SETTINGS.schedule(2),
            start_time=0, bound_us=SETTINGS.bound_ms * MS, merged_wait_us=100,
        )  # fmt: skip
        return cls(RootCore(config, initial_state(config), suppress_until={}))

    def use(self, end_ms: int, *positions: LogPosition) -> None:
        core = self.core
        core.resting.use(0, end_ms * MS, core.contents.empty, positions, core.needed_to)


def at(offset: int, frontier_ms: int) -> LogPosition:
    return LogPosition(offset, offset, 0, Position(frontier_ms * MS))


def test_neither_line_reads_what_the_pane_at_the_frontier_will_bring() -> None:
    rooted = Rooted.new()
    rooted.core.resting.rest(0, live_next=0)
    assert not rooted.core.resting.needs(LOG)
    assert rooted.core.resting.needs(LIVE), "live logs are always read"
    rooted.core.resting.pass_by(LOG, 0)
    assert rooted.core.wanted() == {}
    rooted.core.resting.read(0)
    wanted = rooted.core.wanted()
    assert wanted == {(line, LOG): 0 for line in (LineName.LIVE, LineName.STABLE)}


def test_the_live_line_reads_on_if_its_next_window_needs_more() -> None:
    rooted = Rooted.new()
    rooted.core.resting.rest(0, live_next=3_000 * MS)
    assert rooted.core.resting.needs(LOG)
    assert not rooted.core.resting.is_read(LineName.STABLE, LOG)
    assert rooted.core.resting.is_read(LineName.LIVE, LOG)


def test_a_merged_pane_moves_the_cursors_and_what_has_been_read() -> None:
    rooted = Rooted.new()
    rooted.core.resting.rest(0, live_next=0)
    rooted.use(1_000, at(11, 1_000), at(9, 800))
    assert rooted.core.resting.frontier(0) == Position(1_000 * MS)
    state = {(log.child, log.replica, log.line): log for log in rooted.core.state.logs}
    assert [state[0, replica, 0].contiguous_seq for replica in (0, 1)] == [11, 9]
    rooted.core.resting.read(0)
    wanted: dict[Any, int] = rooted.core.wanted()
    stable = {log: offset for (line, log), offset in wanted.items() if line is LineName.STABLE}
    assert stable in ({}, {LOG: 11, OTHER: 9}), "ahead of the live consumer, or read from there"
    cursors = rooted.core._children[0].stable.cursors
    assert [cursor.offset for cursor in cursors] == [11, 9]


def test_a_cursor_that_has_read_further_stays_there() -> None:
    rooted = Rooted.new()
    rooted.use(1_000, at(11, 1_000), at(9, 800))
    rooted.use(2_000, at(5, 2_000), at(19, 2_000))
    cursors = rooted.core._children[0].stable.cursors
    assert [cursor.offset for cursor in cursors] == [11, 19]


def test_a_pane_that_has_begun_is_not_replaced() -> None:
    rooted = Rooted.new()
    rooted.core._children[0].panes.advance(100 * MS)
    with pytest.raises(AssertionError, match="has begun"):
        rooted.use(1_000, at(1, 1_000), at(1, 1_000))


def test_panes_from_s_on_are_read_again() -> None:
    offsets = MergedOffsets(4)
    for end, offset in ((100, 4), (200, 5), (100, 6), (200, 7), (300, 8)):
        offsets.note(end, offset)
    offsets.note(None, 9)
    assert [offsets.at(start) for start in (0, 100, 150, 200, 250)] == [4, 5, 5, 8, 8]
    assert offsets.at(300) == 10
    assert len(offsets) == 0
