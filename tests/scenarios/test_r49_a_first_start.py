"""trace-49: a first start is no failure.

The query is registered, its orderers and its root run, and the aggregator needs four seconds more.
"""

from __future__ import annotations

import pytest
from tests.simulator.story import Story

STARTS_S = 4.0
BEGINS_S = 5.0


def started(*, begins_s: float = BEGINS_S) -> Story:
    story = Story(replicas=1, bound_us=500_000, begins_after_us=int(begins_s * 1e6))
    story.kill_for_good("aggregator/0")
    story.time_passes(STARTS_S)
    story.start_again("aggregator/0")
    return story


@pytest.mark.parametrize("begins_s", [STARTS_S - 0.2, BEGINS_S])
def test_the_windows_of_a_first_start_are_answered_once_and_exactly(begins_s: float) -> None:
    """The backlog of the start is aggregated before the begin, or after it within the bound."""
    story = started(begins_s=begins_s)
    story.all_is_well_again(4)
    assert not story.tentative
    assert not story.undone
    assert story.stable[0].window == 0.0, "no reading is left out"
    assert story.stable[0].at < STARTS_S + 0.5, "a stable answer is not held back"
    assert story.latest_first_answer_s() < 0.4
    story.every_guarantee_holds()


def test_without_a_begin_they_are_answered_tentatively_and_undone() -> None:
    story = started(begins_s=0)
    story.all_is_well_again(6)
    assert len(story.tentative) >= 3
    assert story.undone
    assert story.rec_done == [1]


def test_a_source_that_is_silent_from_the_start_is_waited_for_no_longer_than_the_bound() -> None:
    """The bound holds from the begin on, and the tentative answers name what is missing."""
    story = Story(replicas=1, bound_us=500_000, begins_after_us=2_000_000)
    story.silence("s2", for_s=6)
    story.time_passes(6)
    assert story.tentative[0].at == pytest.approx(2.5, abs=0.1)
    assert {answer.missing for answer in story.tentative} == {("s2",)}
    assert story.latest_first_answer_s() < 0.6
    story.all_is_well_again(4)
    story.every_guarantee_holds()


@pytest.mark.parametrize("name", ["root/q.0", "orderer/q.0.a", "aggregator/0"])
def test_a_process_that_starts_again_keeps_the_begin(name: str) -> None:
    story = started()
    story.time_passes(0.5)
    story.kill(name)
    story.time_passes(2)
    story.kill(name)
    story.all_is_well_again(4)
    assert all(answer.at > BEGINS_S for answer in story.tentative)
    story.every_guarantee_holds()
