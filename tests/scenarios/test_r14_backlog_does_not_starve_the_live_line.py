"""trace-14: a source returns with a backlog of hours; live answers stay in time."""

from __future__ import annotations

from tests.simulator.readings import Habits
from tests.simulator.story import Story

from slackwater.protocols.dpc.soutput.upstream import ONLY_STALE_US_MAX

SLOW = {"record_us": 5_000, "live_records_max": 4}  # the backlog takes longer than the bound


def test_answers_stay_on_time_while_a_backlog_is_read() -> None:
    story = Story(
        children=(("s1",), ("s2",)), bound_us=1_000_000, replicas=1,
        w_us=500_000, habits=Habits(every_us=300_000), stale_us=ONLY_STALE_US_MAX,
    )  # fmt: skip
    story.time_passes(5)
    story.silence("s1", for_s=300)
    story.time_passes(299)
    assert story.root().line.state.value == "UP_FAILURE"
    story.time_passes(20)
    assert story.latest_first_answer_s(since_s=290) < 1.05
    assert story.rec_done == [1]
    in_one_transaction = [
        c.transaction.after.stable_from - c.transaction.before.stable_from
        for c in story.world.history.committed
    ]
    assert max(in_one_transaction) <= 100 * 1_000_000, "corrections use small transactions"
    story.every_guarantee_holds()


def test_the_live_line_seeks_past_the_backlog_and_names_what_it_left_out() -> None:
    story = Story(bound_us=1_000_000, replicas=1, backlog_records_max=20, **SLOW)
    story.time_passes(2)
    story.silence("s1", for_s=20)
    story.time_passes(24)
    assert story.orderer().counters.skipped > 0
    story.all_is_well_again()
    assert story.orderer().line.state.value == "STABLE", "the lines have joined"
    story.every_guarantee_holds()
