"""trace-19: one aggregator for both replicas is a single point of failure.

One Spark application runs the fragments of A and B, and fails. Both orderers are running, but until
a new JVM has started, every window is tentative and lacks everything. With an aggregator for each
replica no answer waits for a take-over.
"""

from __future__ import annotations

from tests.simulator.story import Story


def test_with_one_each_a_dead_aggregator_costs_no_answer() -> None:
    story = Story(replicas=2, bound_us=500_000)
    story.time_passes(3)
    story.kill_for_good("aggregator/0")
    story.time_passes(8)
    story.all_is_well_again(4)

    assert not story.tentative
    assert story.latest_first_answer_s() < 0.2
    story.every_guarantee_holds()


def test_a_single_one_makes_every_window_tentative_until_it_is_back() -> None:
    """Within the bound, and with all streams in ``missing``."""
    story = Story(replicas=1, bound_us=500_000)
    story.time_passes(3)
    story.kill_for_good("aggregator/0")
    story.time_passes(8)
    story.all_is_well_again(6)

    assert len(story.tentative) >= 7
    assert {answer.missing for answer in story.tentative} == {("s1", "s2")}
    assert story.latest_first_answer_s() < 0.6
    assert story.rec_done == [1]
    story.every_guarantee_holds()


def test_where_a_window_is_one_bucket_the_lines_join_again() -> None:
    """Deltas that are too late for their window still show their child's progress.

    Otherwise a child that failed once would remain behind the next window's start, hence failed,
    and each window would be answered tentatively at its normal time and corrected soon after, for
    ever.
    """
    story = Story(replicas=1, bound_us=500_000, window_us=100_000, slide_us=100_000)
    story.time_passes(2)
    story.kill_for_good("aggregator/0")
    story.time_passes(2)
    story.all_is_well_again(6)

    assert story.rec_done == [1]
    story.every_guarantee_holds()
