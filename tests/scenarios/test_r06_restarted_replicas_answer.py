"""trace-6: both replicas restart in the middle of a long failure, and continue to answer."""

from __future__ import annotations

from tests.simulator.story import Story


def test_both_replicas_restarted_one_after_the_other() -> None:
    story = Story(bound_us=1_000_000)
    story.time_passes(2)
    story.silence("s1", for_s=14)
    story.time_passes(4)
    story.kill("orderer/q.0.a")
    story.time_passes(2)
    story.kill("orderer/q.0.b")
    story.time_passes(4)
    assert story.latest_first_answer_s() < 1.1, "no answer was late"
    windows = [a.window for a in story.tentative]
    assert windows == sorted(set(windows)), "no window was answered twice"
    story.all_is_well_again()
    assert story.rec_done == [1]
    story.every_guarantee_holds()


def test_both_replicas_at_once() -> None:
    story = Story(bound_us=1_000_000)
    story.time_passes(2)
    story.silence("s1", for_s=14)
    story.time_passes(4)
    story.kill("orderer/q.0.a")
    story.kill("orderer/q.0.b")
    story.time_passes(4)
    late = [a for a in story.tentative if a.at > 8.1]
    assert late
    assert {a.missing for a in late} == {("s1",)}, "they emit again, and s2's readings are included"
    story.all_is_well_again()
    story.every_guarantee_holds()
