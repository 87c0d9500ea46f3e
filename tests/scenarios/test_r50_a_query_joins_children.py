"""Query r is applied while q runs, and reads q's children (decision 194, trace-50)."""

from __future__ import annotations

from itertools import pairwise

from tests.scenarios.test_r39_queries_that_share_children import (
    DELTAS,
    root_of_r,
    shared,
    starts_of_the_orderer,
)
from tests.simulator.config import Sharing
from tests.simulator.story import Story

from slackwater.model.names import ONLY
from slackwater.model.records import DeltaRecord, Kind, LogPosition, Position
from slackwater.protocols.dpc.soutput.delta_cursor import DeltaCursor
from slackwater.protocols.dpc.soutput.stable_input import StableInput

START = 1_000_000
JOINED = Sharing(3_000_000, 1_500_000, joins_us=10_100_000)
"""It is applied after 10.1 s, and begins at 12.5 s."""


def joined(*, truncated: bool) -> Story:
    """Return a run in which r joins, perhaps when deltas have been truncated."""
    story = shared(JOINED)
    story.time_passes(8)
    if truncated:
        for _ in range(2):
            story.world.truncate()
            story.time_passes(0.5)
        assert story.world.broker.log(DELTAS).beginning > 20
    return story


def test_it_answers_from_its_own_start_on() -> None:
    """Its first windows begin before its start, and q's children have readings of that time."""
    story = joined(truncated=False)
    story.time_passes(12)
    assert story.world.queries["r"].start_time_us == story.config.start_time_us + 12_500_000
    assert story.reader.stable[0].window == 11
    assert not story.reader.tentative
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_tentative_answers_have_nothing_from_before_its_start_either() -> None:
    story = joined(truncated=False)
    story.time_passes(4.2)
    story.silence("s1", for_s=4)
    story.time_passes(8)
    assert story.reader.tentative[0].window == 11
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_what_was_truncated_before_is_no_hole() -> None:
    """The logs begin in the middle: without START, and with a seq far above 0."""
    story = joined(truncated=True)
    story.time_passes(6)
    first = story.world.broker.log(DELTAS).values()[0][1]
    assert isinstance(first, DeltaRecord)
    assert first.seq > 0
    assert not story.reader.tentative
    assert story.reader.stable
    assert story.world.queries["r"].roots[0, ONLY].session.report().ready
    assert starts_of_the_orderer(story) == 1, "no hole was reported"
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_truncation_keeps_what_it_needs_from_its_registration_on() -> None:
    """Its root is down at first, and has no state record; q's reads on."""
    story = joined(truncated=True)
    story.time_passes(1.2)
    story.kill_for_good("root/r.0")
    before = story.world.broker.log(DELTAS).beginning
    for _ in range(4):
        story.time_passes(1)
        story.world.truncate()
    assert story.world.broker.log(DELTAS).beginning == before
    story.start_again("root/r.0")
    story.time_passes(4)
    for _ in range(3):
        story.world.truncate()
        story.time_passes(1)
    assert story.world.broker.log(DELTAS).beginning > before
    story.all_is_well_again()
    assert starts_of_the_orderer(story) == 1
    story.every_guarantee_holds()


def test_its_root_dies_at_once_and_the_aggregators_too() -> None:
    """What is sent again begins where the new root has read nothing."""
    story = joined(truncated=True)
    story.time_passes(2.5)
    for name in ("root/r.0", *story.config.aggregator_names):
        story.kill(name)
    story.time_passes(6)
    deltas = [
        d.seq for _, d in story.world.broker.log(DELTAS).values() if isinstance(d, DeltaRecord)
    ]
    assert any(b < a for a, b in pairwise(deltas)), "some are sent twice"
    assert root_of_r(story).logs[0].contiguous_seq > max(deltas) // 2
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_an_orderer_sends_again_what_the_joined_root_lacks() -> None:
    """A delta is damaged that r's root has not read; the orderer runs since before r."""
    story = shared(JOINED, replicas=1)
    story.time_passes(16)
    story.kill_for_good("root/r.0")
    story.time_passes(4)
    story.world.damage(DELTAS, root_of_r(story).logs[0].contiguous_seq + 5)
    story.start_again("root/r.0")
    story.all_is_well_again()
    assert starts_of_the_orderer(story) == 2
    story.every_guarantee_holds()


def test_a_log_that_begins_within_a_run_of_empty_buckets_has_no_hole() -> None:
    """The run began before the start of r and ends after it; START is not there any more."""
    at = LogPosition(0, 0, -1, Position(START))
    cursor = DeltaCursor(at, lambda e: e, strict=True)
    cursor.jump(70)
    line = StableInput([cursor], Position(START), 10_000_000, 600)
    run = DeltaRecord(Kind.BOUNDARY, 0, 0, 3, START - 500, START + 500, seq=4_000)
    assert line.take(0, 70, run, START)
    assert (line.frontier, line.missing_from) == (Position(START + 500), {})
