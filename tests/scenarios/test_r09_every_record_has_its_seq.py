"""trace-9: empty parts, control records and damaged ones: each seq exists and counts once."""

from __future__ import annotations

from tests.simulator.aggregator import aggregate
from tests.simulator.readings import Habits
from tests.simulator.story import Story


def test_every_part_gets_a_record_for_every_record() -> None:
    assert len(aggregate(None, 7, 3)) == 3
    story = Story(parts=3, habits=Habits(every_us=400_000, keys=1))
    story.time_passes(6)
    world = story.world
    for line in (0, 1):
        ordered = world.q.ordered_log(0, 0, line)
        for part in range(3):
            deltas = world.q.delta_log(part, 0, 0, line)
            assert [d.seq for _, d in deltas.values()] == list(range(ordered.end))  # type: ignore[attr-defined]
    story.every_guarantee_holds()


def test_a_doubled_aggregator_changes_nothing() -> None:
    story = Story(parts=2, bound_us=1_000_000)
    story.time_passes(2)
    story.silence("s2", for_s=4)
    story.world.double(0, 3_000_000)
    story.time_passes(2)
    story.replace("aggregator/0", wakes_after_s=2)
    story.time_passes(6)
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_damaged_record_is_passed_by_and_its_writer_starts_again() -> None:
    story = Story(bound_us=1_000_000)
    story.time_passes(3.1)
    story.pause("aggregator/0", for_s=0.3)
    story.time_passes(0.2)
    story.world.damage(story.world.q.ordered_log(0, 0, 0).name)  # the aggregator has not read it
    story.time_passes(6)
    notes = [n.what for n in story.world.history.notes if n.process == "orderer/q.0.a"]
    assert notes == ["started", "killed", "started"], "a reader has reported the hole"
    assert story.tentative == [], "the other replica had the record"
    story.kill_for_good("orderer/q.0.b")
    story.time_passes(4)
    assert story.tentative == [], "and the first one is complete again"
    story.all_is_well_again()
    story.every_guarantee_holds()
