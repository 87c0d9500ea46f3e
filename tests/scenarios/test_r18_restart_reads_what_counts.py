"""trace-18: a root restarted at any point of a transaction repeats and skips no answer."""

from __future__ import annotations

import pytest
from tests.simulator.story import Story


@pytest.mark.parametrize("after_ms", [1, 2, 3, 4, 5, 6, 8, 10])
def test_killed_around_a_commit(after_ms: int) -> None:
    story = Story(bound_us=1_000_000, window_us=500_000, slide_us=500_000)
    story.time_passes(2.020 + after_ms / 1000)
    story.kill("root/q.0")
    story.time_passes(2.5)
    story.silence("s1", for_s=2)
    story.time_passes(2.020 + after_ms / 1000)
    story.kill("root/q.0")
    story.all_is_well_again(5)
    story.every_guarantee_holds()


def test_a_zombie_wakes_in_the_middle_of_its_transaction() -> None:
    story = Story(bound_us=1_000_000, window_us=500_000, slide_us=500_000)
    for _ in range(6):
        story.time_passes(1.523)
        story.replace("root/q.0", wakes_after_s=1.2)
    story.all_is_well_again(5)
    placements = [c.placement for c in story.world.history.committed]
    assert placements == sorted(placements), "no copy commits after a later one"
    story.every_guarantee_holds()


def test_the_state_record_is_old_when_nothing_happens_for_long() -> None:
    story = Story(bound_us=1_000_000)
    story.time_passes(3)
    story.kill_for_good("aggregator/0")
    story.kill_for_good("aggregator/1")
    story.time_passes(3)
    story.kill("root/q.0")
    story.time_passes(3)
    story.all_is_well_again()
    story.every_guarantee_holds()
