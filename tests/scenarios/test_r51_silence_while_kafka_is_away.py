"""trace-51: Kafka is away, or one copy cannot reach it: no copy takes the other for dead."""

from __future__ import annotations

from tests.simulator.clock import SECOND
from tests.simulator.story import Story


def test_the_broker_is_away_and_nobody_takes_over() -> None:
    story = Story(copies=2, bound_us=500_000, window_us=500_000, slide_us=500_000)
    story.time_passes(3)
    story.world.broker_away(4 * SECOND)
    story.time_passes(9)
    assert len(story.history.tenures) == 1
    story.every_guarantee_holds()


def test_a_follower_that_is_cut_off_from_the_broker_suspects_nobody() -> None:
    story = Story(copies=2, bound_us=500_000, window_us=500_000, slide_us=500_000)
    story.time_passes(3)
    story.world.cut_off("root/q.0.b", 3 * SECOND)
    story.time_passes(6)
    assert len(story.history.tenures) == 1
    assert story.tentative == []
    story.every_guarantee_holds()


def test_a_follower_that_was_paused_reads_before_it_judges() -> None:
    story = Story(copies=2, bound_us=500_000, window_us=500_000, slide_us=500_000)
    story.time_passes(3)
    story.pause("root/q.0.b", for_s=2)
    story.time_passes(5)
    assert len(story.history.tenures) == 1
    story.every_guarantee_holds()


def test_the_copy_that_answers_is_cut_off_from_the_broker_alone() -> None:
    """The other one takes over in time; the first one is fenced, and follows."""
    story = Story(copies=2, bound_us=500_000, window_us=500_000, slide_us=500_000)
    story.time_passes(3.3)
    story.world.cut_off("root/q.0.a", 2 * SECOND)
    story.time_passes(6)
    assert [t.state.copy for t in story.history.tenures] == [0, 1]
    assert story.tentative == []
    assert story.latest_first_answer_s(since_s=2.0) < 0.3
    story.every_guarantee_holds()
