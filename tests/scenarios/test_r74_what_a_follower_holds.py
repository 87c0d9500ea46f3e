"""trace-74: a follower leaves deltas unread; they count all the same when it takes over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenarios.test_r11_a_damaged_delta import starts
from tests.scenarios.test_r54_a_copy_resigns import now_s, writers
from tests.scenarios.test_r57_two_copies_disagree import alarms, follower
from tests.simulator.story import Story

NEVER = 1 << 62


def story_of_copies(**config: Any) -> Story:
    """Two copies, windows that are answered soon."""
    usual = {"bound_us": 500_000, "window_us": 200_000, "slide_us": 200_000}
    return Story(copies=2, **{"compare_us": NEVER, **usual, **config})


def holds(story: Story) -> bool:
    core = follower(story).core
    assert core is not None
    return core.resting.holding.is_active


def read(story: Story) -> int:
    """Return how many records the follower has decoded."""
    core = follower(story).core
    assert core is not None
    return core.movable.records_read


def test_what_others_have_answered_is_never_read() -> None:
    story = story_of_copies()
    story.time_passes(2)
    assert holds(story)
    before = read(story)
    story.time_passes(3)
    assert read(story) == before
    assert len(story.stable) > 15
    story.every_guarantee_holds()


@pytest.mark.parametrize("children", [(("s1", "s2"),), (("s1",), ("s2",))])
@pytest.mark.parametrize("after_s", [3.0, 3.1])
def test_a_follower_that_takes_over_reads_what_it_holds(
    children: tuple[tuple[str, ...], ...], after_s: float
) -> None:
    """With two children one is ahead of the other: at each state record something is held of it."""
    lags = {"s2": 150_000}
    story = story_of_copies(children=children, w_us=20_000, disorder_more_us=lags)
    story.time_passes(after_s)
    usual = story.latest_first_answer_s(since_s=1.0)
    assert holds(story)
    begun = starts(story)
    story.kill_for_good("root/q.0.a")
    story.time_passes(2)
    assert writers(story) == [0, 1]
    assert story.latest_first_answer_s(since_s=after_s) < usual + 0.2
    assert starts(story) == begun, "nobody has to send again"
    assert story.tentative == []
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_two_copies_take_over_from_each_other_again_and_again() -> None:
    story = story_of_copies()
    for name in "abab":
        story.time_passes(2.5)
        story.kill(f"root/q.0.{name}")
    story.time_passes(2)
    assert writers(story) == [0, 1, 0, 1, 0]
    assert story.tentative == []
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_planned_end_waits_for_nothing_that_is_held() -> None:
    story = story_of_copies()
    story.time_passes(3)
    usual = story.latest_first_answer_s(since_s=1.0)
    stopped_at = now_s(story)
    story.stop("root/q.0.a")
    story.time_passes(2)
    assert story.latest_first_answer_s(since_s=stopped_at) < usual + 0.07
    story.every_guarantee_holds()


def test_in_a_failure_it_reads_what_both_lines_need() -> None:
    story = story_of_copies()
    story.time_passes(3)
    story.silence("s2", for_s=3)
    story.time_passes(2)
    assert story.tentative != []
    assert not holds(story)
    story.kill_for_good("root/q.0.a")
    story.time_passes(4)
    story.all_is_well_again()
    assert story.undone != []
    story.every_guarantee_holds()


def test_it_holds_again_after_a_failure() -> None:
    story = story_of_copies()
    story.time_passes(2)
    story.silence("s2", for_s=2)
    story.time_passes(6)
    assert holds(story)
    before = read(story)
    story.time_passes(1)
    assert read(story) == before
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_window_that_takes_long_to_read_is_folded_as_it_comes() -> None:
    story = story_of_copies(window_us=1_000_000, held_read_us=400)
    story.time_passes(3)
    before = read(story)
    story.time_passes(2)
    assert read(story) > before
    story.kill_for_good("root/q.0.a")
    story.time_passes(3)
    assert story.tentative == []
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_of_so_many_state_records_it_compares_the_panes_of_one() -> None:
    story = story_of_copies(compare_us=800_000)
    story.time_passes(10)
    compared = follower(story).session._copy.following.compared
    assert len(story.stable) / 8 < compared < len(story.stable) / 2
    assert alarms(story) == []
    story.every_guarantee_holds()


def test_a_damaged_delta_that_was_held_is_sent_again() -> None:
    """The follower finds it when it takes over, as a root does that starts."""
    story = story_of_copies(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    assert holds(story)
    story.kill_for_good("root/q.0.a")
    story.time_passes(0.08)
    assert writers(story) == [0], "it has not taken over"
    story.world.damage(story.world.q.delta_log(0, 0, 0, 0).name)
    story.time_passes(5)
    assert writers(story) == [0, 1]
    assert starts(story) == 2, "the hole was reported"
    story.all_is_well_again(10)
    story.every_guarantee_holds()
