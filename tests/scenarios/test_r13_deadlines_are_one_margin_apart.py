"""trace-13: the orderer's tentative buckets arrive before the root has to answer."""

from __future__ import annotations

from tests.simulator.story import Story


def test_only_the_silent_source_is_missing_not_its_child() -> None:
    story = Story(children=(("s1", "s2"), ("s3",)), bound_us=500_000)
    story.time_passes(3)
    story.silence("s1", for_s=4)
    story.time_passes(6)
    assert story.tentative
    assert {a.missing for a in story.tentative} == {("s1",)}
    story.all_is_well_again()
    story.every_guarantee_holds()
