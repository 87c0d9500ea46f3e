"""trace-33: while corrections are computed, live answers come within X."""

from __future__ import annotations

from tests.simulator.readings import Habits
from tests.simulator.story import Story

from slackwater.protocols.common.line import Policy
from slackwater.protocols.dpc.soutput.upstream import ONLY_STALE_US_MAX


def test_an_hour_is_corrected_and_live_answers_are_on_time() -> None:
    story = Story(
        children=(("s1", "s2"),), bound_us=1_000_000, replicas=1, backlog_records_max=100,
        w_us=2_000_000, window_us=4_000_000, slide_us=4_000_000, habits=Habits(every_us=1_500_000),
        stale_us=ONLY_STALE_US_MAX,
    )  # fmt: skip
    story.time_passes(20)
    story.silence("s1", for_s=3_600)
    story.time_passes(3_599)
    assert len(story.tentative) > 850
    story.time_passes(30)
    assert story.latest_first_answer_s() < 1.05
    assert story.rec_done == [1]
    story.every_guarantee_holds()


def test_a_slow_aggregator_lets_live_buckets_pass_the_corrections() -> None:
    story = Story(bound_us=1_000_000, replicas=1, aggregate_us=3_000, habits=Habits(every_us=2_000))
    story.time_passes(3)
    story.silence("s1", for_s=60)
    story.time_passes(66)
    assert story.latest_first_answer_s() < 1.05
    correcting = [a for a in story.tentative if a.at > 63.5]
    assert correcting, "the corrections took some time"
    assert all("s2" not in a.missing for a in story.tentative), "live buckets were not in time"
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_an_aggregator_slower_than_its_orderer_keeps_the_lines_apart() -> None:
    # The orderer has caught up at once; the aggregator needs more than X for the corrections.
    story = Story(bound_us=1_000_000, replicas=1, aggregate_us=10_000)
    story.time_passes(3)
    story.silence("s1", for_s=60)
    story.time_passes(70)
    late = [a for a in story.tentative if a.at > 63.5]
    assert late, "the corrections took some time"
    assert not any(a.missing for a in late), "live buckets were queued after corrections"
    story.time_passes(8)
    assert not story.orderer().line.forked
    assert story.latest_first_answer_s() < 1.05
    written = story.orderer().counters
    assert written.tentative < 60 * 10 + 15 * 10, "each bucket is written twice, but not for long"
    story.every_guarantee_holds()


def test_a_dead_root_is_not_waited_for() -> None:
    story = Story(bound_us=1_000_000, replicas=1, aggregate_us=10_000)
    story.time_passes(3)
    story.silence("s1", for_s=60)
    story.time_passes(61.5)
    assert story.orderer().line.forked
    story.kill_for_good("root/q.0")
    story.time_passes(1.5)
    assert not story.orderer().line.forked
    story.start_again("root/q.0")
    story.all_is_well_again(15)
    story.every_guarantee_holds()


def test_an_aggregator_that_is_never_near_does_not_keep_the_lines_apart() -> None:
    # Its records take 0.8 s: in time for X, and permanently more than "nearly".
    story = Story(bound_us=2_000_000, replicas=1)
    story.world.slow_down("aggregator/0", 60_000_000, 800_000)
    story.time_passes(3)
    story.silence("s1", for_s=20)
    story.time_passes(26)
    assert not story.orderer().line.forked
    assert story.tentative[-1].at < 28
    story.time_passes(40)
    story.every_guarantee_holds()


def test_a_suspending_policy_does_not_wait_for_the_roots() -> None:
    story = Story(
        bound_us=1_000_000, replicas=1, aggregate_us=10_000, policy=Policy("process", "suspend")
    )
    story.time_passes(3)
    story.silence("s1", for_s=60)
    story.time_passes(61.5)
    assert not story.orderer().line.forked
    story.all_is_well_again(15)
    story.every_guarantee_holds()
