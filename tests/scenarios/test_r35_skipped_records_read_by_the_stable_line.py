"""trace-35: skipped records are missing only until the stable line has read them.

A skipped record may have had readings as old as the stream's ``disorder`` allows, here nearly two
seconds. Its writer sends it again, the stable line reads all of them in the right order, and the
lines meet. If the stream still counted as incomplete, each bucket of two seconds would have a
tentative record, and a correction some milliseconds later.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import answers
from tests.simulator.readings import Habits
from tests.simulator.story import Story, us


def test_a_stream_that_is_whole_again_is_not_missed_for_its_disorder() -> None:
    story = Story(
        seed=2,  # records follow the lost one before its proxy ends
        children=(("s1",),),
        replicas=1,
        window_us=400_000,
        slide_us=400_000,
        w_us=50_000,
        bound_us=500_000,
        margin_us=20_000,
        disorder_us=1_900_000,
        habits=Habits(every_us=40_000, jitter_us=0),
        pace=0.3,
        restart_us=(500_000, 1_000_000),
    )
    story.time_passes(4)
    story.world.lose("proxy/s1", us(0.3))
    story.time_passes(1.5)
    core = story.orderer()
    assert core.counters.tentative > 0, "the live line has answered without the skipped records"
    assert core.line.stable_next == core.line.live_next, "the stable line has all records"
    before = core.counters.tentative
    story.all_is_well_again()
    assert core.counters.tentative == before
    story.every_guarantee_holds()


def test_a_stream_is_missed_for_its_own_disorder_and_not_for_another_s() -> None:
    """s1 is in order, s2 three seconds late. s1 returns; s2 is silent, so the lines stay separate.

    1. The live line has skipped s1's backlog, so windows that end before its return lack s1.
    2. Later readings are in order: the other windows lack s2 alone.
    """
    story = Story(
        replicas=1, bound_us=1_000_000, backlog_records_max=10, record_us=5_000, live_records_max=4,
        children=(("s1", "s2"),), disorder_more_us={"s2": 3_000_000},
    )  # fmt: skip
    story.time_passes(6)
    story.silence("s1", for_s=8)
    story.time_passes(1)
    story.silence("s2", for_s=14)
    story.time_passes(13)
    assert story.orderer().counters.skipped > 0
    back = story.config.start_time_us + us(14)
    missing = {
        emitted.window: emitted.missing
        for emitted in answers(story.history)
        if not emitted.stable and emitted.window > story.config.start_time_us + us(10)
    }
    assert {of for at, of in missing.items() if at < back} == {("s1", "s2")}
    assert {of for at, of in missing.items() if at > back} == {("s2",)}
    story.all_is_well_again()
    story.every_guarantee_holds()
