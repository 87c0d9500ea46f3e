"""trace-54: a copy that is to end resigns, if the other one could answer at once."""

from __future__ import annotations

import pytest
from tests.simulator.clock import SECOND
from tests.simulator.story import Story


def story_of_copies() -> Story:
    story = Story(copies=2, bound_us=500_000, window_us=200_000, slide_us=200_000)
    story.time_passes(3)
    return story


def now_s(story: Story) -> float:
    return story.world.scheduler.now / SECOND


def writers(story: Story) -> list[int]:
    """Return the copies that have begun a term, in order."""
    return [term.state.copy for term in story.history.tenures]


def test_a_planned_end_costs_no_silence() -> None:
    """Answers are as soon as without it; a death would cost at least 120 ms."""
    story = story_of_copies()
    usual = story.latest_first_answer_s(since_s=1.0)
    stopped_at = now_s(story)
    story.stop("root/q.0.a")
    story.time_passes(2)
    assert writers(story) == [0, 1]
    assert story.latest_first_answer_s(since_s=stopped_at) < usual + 0.07
    assert story.tentative == []
    story.every_guarantee_holds()


def test_the_parts_of_a_host_that_is_restarted_come_back() -> None:
    """Each copy is stopped in turn, as in a rolling restart."""
    story = story_of_copies()
    for name in ("root/q.0.a", "root/q.0.b", "root/q.0.a"):
        story.stop(name)
        story.time_passes(2)
    assert writers(story) == [0, 1, 0, 1]
    assert story.tentative == []
    story.every_guarantee_holds()


def test_nobody_resigns_in_favour_of_a_copy_that_is_dead() -> None:
    """The copy answers until its process ends, and again when it is back."""
    story = story_of_copies()
    story.kill_for_good("root/q.0.b")
    story.time_passes(1)
    story.stop("root/q.0.a")
    story.time_passes(3)
    assert story.history.resigned == []
    assert writers(story) == [0, 0]
    story.every_guarantee_holds()


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.01, 0.02, 0.04])
def test_the_copy_dies_in_whose_favour_the_other_one_has_resigned(after_s: float) -> None:
    story = story_of_copies()
    story.stop("root/q.0.a")
    story.time_passes(after_s)
    story.kill_for_good("root/q.0.b")
    story.time_passes(3)
    assert writers(story)[-1] == 0, "the stopped one has been restarted, and answers"
    story.every_guarantee_holds()


def test_both_copies_are_stopped_at_once() -> None:
    """They come back, and one of them answers."""
    story = story_of_copies()
    story.stop("root/q.0.a")
    story.stop("root/q.0.b")
    story.time_passes(4)
    assert writers(story)[0] == 0
    story.every_guarantee_holds()
