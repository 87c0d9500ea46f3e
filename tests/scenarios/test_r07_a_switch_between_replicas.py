"""trace-7: a tentative bucket of one replica replaces the other's; a switch leaves no hole."""

from __future__ import annotations

from tests.simulator.story import Story


def test_a_replica_dies_while_both_speak_tentatively() -> None:
    story = Story(bound_us=1_000_000, window_us=2_000_000, slide_us=1_000_000)
    story.time_passes(2)
    story.silence("s1", for_s=10)
    story.time_passes(3)
    story.kill_for_good("orderer/q.0.a")
    story.time_passes(3)
    story.start_again("orderer/q.0.a")
    story.time_passes(2)
    story.kill_for_good("orderer/q.0.b")
    story.time_passes(2)
    assert {a.missing for a in story.tentative} == {("s1",)}, "s2 is never missing"
    story.all_is_well_again()
    story.every_guarantee_holds()
