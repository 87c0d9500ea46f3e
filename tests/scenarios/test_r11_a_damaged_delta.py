"""rule-11: a delta is damaged in the log before the root has read it.

1. A record of a deltas partition turns into bytes that do not decode.
2. If the root ended at it, it would restart before it and end again, for ever.

Deltas derive from logs that still exist, so nothing is lost: a record that does not decode counts
as VOID in the place of the next seq. If it was another record, or one that does not count, there is
now a hole, or a repeat; a hole is reported, and the writer sends the missing records again
(decision 24).
"""

from __future__ import annotations

import pytest
from tests.simulator.story import Story

from slackwater.model.records import Kind, OrderedRecord
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog


def starts(story: Story, replica: int = 0) -> int:
    log = story.world.q.ordered_log(0, replica, 0)
    return sum(isinstance(r, OrderedRecord) and r.kind is Kind.START for _, r in log.values())


def a_delta_is_damaged(story: Story, line: LineName = LineName.STABLE) -> None:
    """The root is down and has not read it; other records follow."""
    story.kill_for_good("root/q.0")
    story.time_passes(0.35)
    story.world.damage(story.world.q.delta_log(0, 0, 0, line).name)
    story.time_passes(0.5)
    story.start_again("root/q.0")


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_a_stable_delta(replicas: int, seed: int) -> None:
    story = Story(seed, replicas=replicas, bound_us=1_000_000)
    story.time_passes(3)
    a_delta_is_damaged(story)
    story.time_passes(6)
    assert starts(story) == 2, "the hole was reported, and one repetition suffices"
    story.all_is_well_again(10)
    story.every_guarantee_holds()


def test_a_tentative_delta() -> None:
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.silence("s2", for_s=4)
    story.time_passes(2)
    a_delta_is_damaged(story, LineName.LIVE)
    story.all_is_well_again(10)
    assert starts(story) == 1
    assert story.root()._contiguous_seq[DeltaLog(0, 0, LineName.LIVE)] == (
        story.world.q.ordered_log(0, 0, LineName.LIVE).end
    ), "a restarted aggregator need not repeat records behind it"
    story.every_guarantee_holds()


def test_a_repeat_of_a_delta() -> None:
    """Two aggregators are running: the damaged record may be a repeat, and the next seq follows."""
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.world.double(0, 2_000_000)
    story.time_passes(1)
    a_delta_is_damaged(story)
    story.all_is_well_again(10)
    story.every_guarantee_holds()


def test_all_that_was_made_is_whole_behind_it() -> None:
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    a_delta_is_damaged(story)
    story.all_is_well_again(10)
    for line in LineName:
        contiguous_seq = story.root()._contiguous_seq[DeltaLog(0, 0, line)]
        assert contiguous_seq >= story.world.q.ordered_log(0, 0, line).end - 1
