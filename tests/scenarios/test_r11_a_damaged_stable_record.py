"""rule-11: a damaged stable record, and a writer's state record that lies after it.

1. One replica. A stable record turns into bytes that do not decode: the aggregator gives VOID.
2. The next record begins beyond L: a hole. The root reports it in its heartbeat.
3. The writer restarts. Its state record lies beyond the hole, and so does the contiguous prefix
   that it finds: if it continued at the end, the root would wait for the lost bucket for ever.

A writer with a reported hole therefore goes back to the end of the results (S), and sends again
from there.
"""

from __future__ import annotations

import pytest
from tests.simulator.story import Story

from slackwater.model.records import Kind, OrderedRecord


def starts(story: Story, replica: int = 0) -> int:
    log = story.world.q.ordered_log(0, replica, 0)
    return sum(isinstance(r, OrderedRecord) and r.kind is Kind.START for _, r in log.values())


CHILDREN = [(("s1", "s2"),), (("s1",), ("s2",))]


@pytest.mark.parametrize("children", CHILDREN)
@pytest.mark.parametrize("killed", [False, True])
def test_with_one_replica_the_writer_sends_it_again(
    children: tuple[tuple[str, ...], ...], killed: bool
) -> None:
    story = Story(children=children, replicas=1)
    a_stable_record_is_damaged(story)
    story.time_passes(3)  # long enough for a state record beyond the hole
    if killed:
        story.kill("orderer/q.0.a")
        story.time_passes(2)
    story.start_again("aggregator/0")
    story.all_is_well_again(10)

    assert starts(story) == 2 + killed, "one repetition suffices"
    assert story.tentative, "the bound is kept meanwhile"
    assert len(story.rec_done) == 1
    story.every_guarantee_holds()


def test_with_two_replicas_nobody_waits() -> None:
    story = Story(replicas=2)
    a_stable_record_is_damaged(story)
    story.time_passes(3)
    story.start_again("aggregator/0")
    story.time_passes(6)

    assert not story.tentative
    assert starts(story) == 2
    assert starts(story, replica=1) == 1
    story.every_guarantee_holds()


def a_stable_record_is_damaged(story: Story) -> None:
    """Damage the record before the aggregator has read it."""
    story.time_passes(5)
    story.kill_for_good("aggregator/0")
    story.time_passes(1)
    story.world.damage(story.world.q.ordered_log(0, 0, 0).name)


@pytest.mark.parametrize("seed", range(3))
def test_a_hole_is_named_by_its_writer_though_its_start_is_gone(seed: int) -> None:
    """Retention deletes START, too, before an aggregator has read it.

    The root has only the incarnation before it, and no writer of that incarnation exists any more.
    """
    story = Story(seed, replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.kill_for_good("aggregator/0")
    story.time_passes(0.3)
    story.kill("orderer/q.0.a")
    story.time_passes(2)
    story.world.cut("sw.ordered.q.0:0", 3)
    story.start_again("aggregator/0")
    story.all_is_well_again(10)
    story.every_guarantee_holds()
