"""trace-12: with every source silent, windows are still answered in time."""

from __future__ import annotations

from tests.simulator.story import Story


def test_silence_of_everything() -> None:
    story = Story(bound_us=1_000_000)
    story.time_passes(3)
    story.silence("s1", for_s=6)
    story.silence("s2", for_s=6)
    story.time_passes(6)
    late = [a for a in story.tentative if a.at > 4]
    assert len(late) >= 4
    assert {a.missing for a in late} == {("s1", "s2")}
    assert story.latest_first_answer_s() < 1.05
    story.all_is_well_again()
    story.every_guarantee_holds()
