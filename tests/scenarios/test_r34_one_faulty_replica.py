"""trace-34: a replica that does not receive a source does not make every answer tentative."""

from __future__ import annotations

import pytest
from tests.simulator.story import Story


@pytest.mark.parametrize("seed", [1, 2])  # in the second run the faulty replica is the faster one
def test_the_healthy_replica_is_waited_for(seed: int) -> None:
    story = Story(seed, bound_us=1_000_000)
    story.time_passes(3)
    story.deafen("orderer/q.0.a", "s1", for_s=8)
    story.time_passes(8)
    assert story.orderer(0, 0).counters.tentative > 20, "the faulty one emits tentative output"
    assert story.tentative == []
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_when_the_healthy_one_dies_the_sick_one_is_listened_to() -> None:
    story = Story(bound_us=1_000_000)
    story.time_passes(3)
    story.deafen("orderer/q.0.a", "s1", for_s=8)
    story.time_passes(3)
    story.kill_for_good("orderer/q.0.b")
    story.time_passes(4)
    assert {a.missing for a in story.tentative if a.at > 8} == {("s1",)}
    assert story.latest_first_answer_s() < 1.05
    story.all_is_well_again()
    story.every_guarantee_holds()
