"""trace-34, rule-14: a log that is parked ahead of its time delays no answer (decision 121).

One replica is overloaded and still reports STABLE. The other has forked and runs ahead of the
root's next window, so the root has parked its live log. The log holds nothing that is due, and is
not read to its end before the root answers.
"""

from __future__ import annotations

from tests.simulator.story import Story

BOUND_S = 0.8


def test_the_answer_comes_within_the_bound() -> None:
    story = Story(bound_us=800_000, w_us=50_000, margin_us=30_000, ahead_buckets_max=8)
    story.time_passes(3.5)
    story.overload("orderer/q.0.b", for_s=4.6, unit_s=0.2)
    story.time_passes(0.335)
    story.silence("s1", for_s=2.4)
    story.time_passes(3)
    assert story.tentative, "the silence is longer than the bound"
    assert story.latest_first_answer_s() <= BOUND_S + 0.05
    story.all_is_well_again()
    story.every_guarantee_holds()
