"""dpc-10: the six policies of DPC, section 6.1, on the whole system in virtual time."""

from __future__ import annotations

from itertools import product

import pytest
from tests.simulator.story import Story

from slackwater.model.deployment import FailurePolicy, StabilizationPolicy
from slackwater.protocols.common.line import Policy

FAILURE: tuple[FailurePolicy, ...] = ("delay", "process")
STABILIZATION: tuple[StabilizationPolicy, ...] = ("suspend", "delay", "process")


@pytest.mark.parametrize("policy", [Policy(*p) for p in product(FAILURE, STABILIZATION)], ids=str)
def test_a_failure_heals_and_a_second_one_comes_meanwhile(policy: Policy) -> None:
    story = Story(bound_us=1_000_000, policy=policy, window_us=500_000, slide_us=500_000)
    story.time_passes(3)
    story.silence("s1", for_s=4)
    story.time_passes(4.2)
    story.silence("s2", for_s=3)
    story.time_passes(3)
    waited = {round(a.at - a.window - 0.5, 1) for a in story.tentative if 5 < a.at < 7}
    assert waited
    assert waited == ({0.9, 1.0} & waited if policy.failure == "delay" else {0.0} | waited & {0.1})
    if policy.stabilization != "suspend":
        assert story.latest_first_answer_s() < 1.1
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_suspend_is_silent_at_the_root_too_while_an_orderer_catches_up() -> None:
    """The root does not count a child as failed that delays its output by policy."""
    story = Story(
        bound_us=1_000_000, policy=Policy("process", "suspend"), record_us=4_000, replicas=1
    )
    story.time_passes(3)
    story.silence("s1", for_s=10)
    story.time_passes(10.3)
    before = len(story.tentative)
    story.all_is_well_again(for_s=12)
    assert before > 5
    assert len(story.tentative) <= before + 1, "one may have been in progress"
    story.every_guarantee_holds()
