"""R33: while the past is corrected, the present is answered within X."""

from __future__ import annotations

import pytest
from tests.simulator.readings import Habits
from tests.simulator.story import Story


@pytest.mark.timeout(120)
def test_an_hour_is_corrected_and_live_answers_are_on_time() -> None:
    story = Story(
        children=(("s1", "s2"),), bound_us=1_000_000, replicas=1, backlog_records_max=100,
        w_us=2_000_000, window_us=4_000_000, slide_us=4_000_000, habits=Habits(every_us=1_500_000),
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
    # Slow, but not slower than the orderer: that one has joined its lines before then, and what is
    # live stands behind the corrections (a limit that the README names).
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
