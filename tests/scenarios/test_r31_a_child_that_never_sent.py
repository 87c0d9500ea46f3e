"""trace-31: the streams of a child that never sent a record are named from the definition."""

from __future__ import annotations

from tests.simulator.story import Story


def test_a_child_without_any_orderer() -> None:
    story = Story(children=(("s1",), ("s2", "s3")), replicas=1, bound_us=1_000_000)
    story.kill_for_good("orderer/q.1.a")
    story.time_passes(5)
    assert story.tentative
    assert {a.missing for a in story.tentative} == {("s2", "s3")}
    story.all_is_well_again()
    story.every_guarantee_holds()
