"""trace-3.

The root answers tentatively for causes that no orderer observes, and undoes the answers.
"""

from __future__ import annotations

from tests.simulator.story import Story

TWO_CHILDREN = (("s1",), ("s2",))


def test_a_dead_aggregator_is_undone_though_no_orderer_forked() -> None:
    story = Story(children=TWO_CHILDREN, replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.kill_for_good("aggregator/0")
    story.time_passes(4)
    assert {a.missing for a in story.tentative} == {("s1", "s2")}
    assert not story.orderer(0).line.forked
    story.all_is_well_again()
    assert story.undone
    assert story.rec_done == [1]
    story.every_guarantee_holds()


def test_a_root_that_dies_with_tentative_answers_leaves_none_behind() -> None:
    story = Story(children=TWO_CHILDREN, bound_us=1_000_000)
    story.time_passes(2)
    story.silence("s2", for_s=6)
    story.time_passes(4)
    assert story.tentative
    before = len(story.undone)
    story.kill("root/q.0")
    story.time_passes(1.5)
    assert len(story.undone) == before, "nothing is undone at a restart"
    story.all_is_well_again()
    assert story.rec_done == [1]
    story.every_guarantee_holds()
