"""trace-35: the live line has its own counters, and reads a stream again after a seek."""

from __future__ import annotations

from tests.simulator.story import Story

SLOW = {"record_us": 5_000, "live_records_max": 4}  # the backlog takes longer than the bound


def test_the_live_line_hears_the_stream_again() -> None:
    story = Story(bound_us=1_000_000, replicas=1, backlog_records_max=10, **SLOW)
    story.time_passes(2)
    story.silence("s1", for_s=10)
    story.time_passes(10.4)
    assert story.orderer().counters.skipped > 0, "it has skipped the backlog"
    story.time_passes(4)
    late = [a for a in story.tentative if a.at > 14]
    assert late == [], "and is complete again"
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_what_the_live_line_sees_never_reaches_the_stable_line() -> None:
    story = Story(bound_us=1_000_000, replicas=1, backlog_records_max=10, **SLOW)
    story.time_passes(2)
    story.silence("s1", for_s=6)
    story.time_passes(3)
    story.replace("proxy/s1", wakes_after_s=4)  # a zombie's records after a START that was not read
    story.time_passes(8)
    story.all_is_well_again()
    story.every_guarantee_holds()
