"""trace-12: a cursor is attached again although its stream's watermark is far ahead of others."""

from tests.simulator.readings import Habits
from tests.simulator.story import Story


def test_lines_join_where_one_stream_is_seconds_later_than_the_others() -> None:
    story = Story(
        children=(("s1", "s2"),), bound_us=1_000_000, replicas=1, habits=Habits(every_us=100_000),
        disorder_more_us={"s1": 3_000_000},
    )  # fmt: skip
    story.time_passes(8)
    story.silence("s2", for_s=6)
    story.time_passes(6)
    assert story.tentative
    story.time_passes(8)
    assert not story.orderer().line.forked
    last = story.tentative[-1].at
    story.time_passes(4)
    assert story.tentative[-1].at == last, "the lines never join"
    story.every_guarantee_holds()
