"""trace-65 to trace-68: merged panes are used where they must not be, or are waited for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.clock import MS
from tests.simulator.config import spread
from tests.simulator.mergers import SimMerger
from tests.simulator.readings import Habits
from tests.simulator.roots import SimRoot
from tests.simulator.story import Story

from slackwater.model.merged import MergedRecord
from slackwater.model.names import ONLY
from slackwater.model.records import DeltaRecord, Kind

ROOT = "root/q.0"
X_S = 0.6
WAIT_S = 0.15
"""A quarter of the time until a root's deadline, rounded up."""


def story_of_mergers(seed: int = 1, **config: Any) -> Story:
    """Return a run with two children, each with two mergers, and windows of four panes."""
    given: dict[str, Any] = {
        "children": spread(["s1", "s2"], 2),
        "window_us": 800 * MS,
        "slide_us": 200 * MS,
        "w_us": 50 * MS,
        "bound_us": round(X_S * 1e6),
        "mergers": 2,
        "habits": Habits(every_us=20 * MS, keys=3),
    }
    return Story(seed, **(given | config))


def root(story: Story, copy: int = ONLY) -> SimRoot:
    """Return the present process of part 0."""
    return story.world.q.roots[0, copy]


def counts(story: Story) -> dict[str, int]:
    """Return what the root reports of merged panes, and how many deltas it has read."""
    found = root(story)
    report = found.session.report().detail
    return {name: report[name] for name in ("merged", "resting")} | {
        "read": found.session.core.movable.records_read
    }


def merged_log(story: Story, child: int = 0) -> list[MergedRecord]:
    """Return all that has been written to the log of a child's merged panes."""
    log = story.world.log_at(("sw.merged.q.0", child))
    return [of for _, of in log.all_values() if isinstance(of, MergedRecord)]


def mergers(story: Story) -> list[str]:
    """Return the names of all mergers."""
    return story.config.merger_names


def well(story: Story) -> None:
    """End all faults, and check everything."""
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_root_with_mergers_reads_panes_in_place_of_deltas() -> None:
    story = story_of_mergers()
    story.time_passes(2)
    before = counts(story)
    story.time_passes(4)
    after = counts(story)
    panes, buckets = 2 * 20, 2 * 80
    assert after["merged"] - before["merged"] >= panes - 4
    assert after["read"] - before["read"] < buckets / 4, "of two replicas each"
    assert story.tentative == []
    well(story)


def test_both_copies_write_each_pane_and_an_empty_one_too() -> None:
    story = story_of_mergers(habits=Habits(every_us=900 * MS, keys=1))
    story.time_passes(6)
    for child in range(2):
        records = merged_log(story, child)
        assert any(not of.pane.ref.rows for of in records)
        ends = sorted({(of.start, of.end) for of in records})
        reached = ends[0][0]
        for start, end in ends:
            assert start <= reached, "a pane has no record"
            reached = max(reached, end)
        starts = [of.start for of in records]
        assert any(starts.count(start) == 2 for start in starts)
    well(story)


# trace-65: a merged pane inside one that has begun.


@pytest.mark.parametrize("at_s", [3.03, 3.12])
def test_a_pane_that_has_begun_is_read_to_its_end_from_the_deltas(at_s: float) -> None:
    """The mergers return within a pane that the root has begun, and write it at its end."""
    story = story_of_mergers()
    for name in mergers(story):
        story.kill_for_good(name)
    story.time_passes(at_s)
    assert counts(story) == {"merged": 0, "resting": 0, "read": counts(story)["read"]}
    for name in mergers(story):
        story.start_again(name)
    story.time_passes(3)
    assert counts(story)["resting"] == 2
    assert story.tentative == []
    well(story)


# trace-66: a pane that is missing.


def test_the_root_reads_the_deltas_when_all_mergers_are_dead() -> None:
    story = story_of_mergers()
    story.time_passes(2)
    assert counts(story)["resting"] == 2
    for name in mergers(story):
        story.kill_for_good(name)
    story.time_passes(3)
    assert counts(story)["resting"] == 0
    assert story.tentative == []
    assert story.latest_first_answer_s(since_s=2) <= WAIT_S + 0.1
    assert story.latest_first_answer_s(since_s=3) < WAIT_S, "once, not for each window"
    well(story)


def test_one_of_two_mergers_is_enough() -> None:
    story = story_of_mergers()
    story.time_passes(2)
    for child in range(2):
        story.kill_for_good(f"merger/q.{child}.a")
    story.time_passes(3)
    assert counts(story)["resting"] == 2
    assert story.latest_first_answer_s(since_s=2) < WAIT_S
    assert story.tentative == []
    well(story)


def test_a_pane_that_the_log_lacks_is_read_from_the_deltas() -> None:
    story = story_of_mergers()
    story.time_passes(2)
    for child in range(2):
        story.world.cut(f"sw.merged.q.0:{child}", 0)
    story.kill(ROOT)
    story.time_passes(2)
    assert story.tentative == []
    well(story)


def test_a_merger_that_is_always_late_is_not_waited_for() -> None:
    story = story_of_mergers()
    for name in mergers(story):
        story.world.slow_down(name, 6_000_000, 250 * MS)
    story.time_passes(5)
    assert counts(story)["resting"] == 0
    assert story.latest_first_answer_s(since_s=2) < WAIT_S
    well(story)


# trace-67: a failure lies behind the merged panes.


@pytest.mark.parametrize("copies", [1, 2])
def test_corrections_come_merged_while_the_live_line_reads_what_is_present(copies: int) -> None:
    story = story_of_mergers(copies=copies)
    story.time_passes(2)
    story.silence("s1", for_s=3)
    story.time_passes(9)
    assert story.tentative, "the failure was longer than X"
    answered = story.latest_first_answer_s()
    assert answered <= X_S + 0.02
    well(story)


def test_a_failure_shorter_than_x_leaves_no_trace() -> None:
    story = story_of_mergers()
    story.time_passes(2)
    story.silence("s1", for_s=X_S * 0.4)
    story.time_passes(3)
    assert story.tentative == []
    well(story)


# trace-68: readings are lost, and deltas are deleted.


def test_a_pane_with_a_loss_is_not_merged() -> None:
    story = story_of_mergers(children=spread(["s1"], 1))
    story.time_passes(1)
    story.silence("s1", for_s=1.5)
    story.time_passes(2)
    story.world.cut("sw.source.s1", 1)
    story.time_passes(4)
    lost = {
        record.bucket_start
        for replica in range(story.config.replicas)
        for _, record in story.world.q.delta_log(0, 0, replica, 0).all_values()
        if isinstance(record, DeltaRecord) and record.gap
    }
    if lost:
        grid = story.config.grid
        panes = {grid.pane_start(at) for at in lost}
        assert panes.isdisjoint(of.start for of in merged_log(story))
        assert any(_of(story, name).session.report().detail["withheld"] for name in mergers(story))
    well(story)


def _of(story: Story, name: str) -> SimMerger:
    found = story.world.present(name)
    assert isinstance(found, SimMerger)
    return found


@pytest.mark.parametrize("head_us", [0, 100])
def test_logs_are_truncated_to_what_the_roots_need(head_us: int) -> None:
    story = story_of_mergers(head_us=head_us)
    story.time_passes(3)
    story.world.truncate()
    story.world.truncate()
    for child in range(2):
        log = story.world.log_at(("sw.merged.q.0", child))
        assert log.beginning > 0
        assert any(isinstance(of, MergedRecord) for _, of in log.values()) or log.end > 0
    deltas = story.world.q.delta_log(0, 0, 0, 0)
    assert deltas.beginning > 0, "a root that rests moves its positions"
    for name in [ROOT, *mergers(story)]:
        story.kill(name)
    story.time_passes(2)
    assert counts(story)["resting"] == 2
    well(story)


def test_a_merger_that_the_roots_have_left_behind_begins_again() -> None:
    story = story_of_mergers()
    story.time_passes(1)
    for name in mergers(story):
        story.pause(name, for_s=3)
    story.time_passes(2)
    story.world.truncate()
    story.world.truncate()
    story.time_passes(4)
    assert counts(story)["resting"] == 2
    assert story.tentative == []
    well(story)


def test_a_new_generation_has_mergers_of_its_own() -> None:
    story = story_of_mergers()
    story.time_passes(2)
    story.world.change()
    story.time_passes(5)
    later = story.world.queries["q.g1"].roots[0, ONLY].session.report().detail
    assert later["merged"] > 0
    well(story)


def test_a_run_of_empty_buckets_that_passes_a_pane_s_end_is_read_again() -> None:
    """trace-69: behind the run the log has nothing for the pane's end, and no writer mends it."""
    story = story_of_mergers(
        children=spread(["s1"], 1), replicas=1, habits=Habits(every_us=900 * MS, keys=1)
    )
    passing = 0
    for _ in range(20):  # a silence shorter than the wait, so the merged pane is used
        story.silence("s1", for_s=WAIT_S * 0.8)
        story.time_passes(0.27)
    grid = story.config.grid
    for _, record in story.world.q.delta_log(0, 0, 0, 0).all_values():
        if isinstance(record, DeltaRecord) and record.kind is Kind.BOUNDARY:
            edge = grid.pane_end(record.bucket_start)
            passing += edge < record.bucket_end
    assert passing >= 3
    assert counts(story)["merged"] >= 5
    ended = [note for note in story.world.history.notes if note.what == "killed"]
    assert ended == []
    well(story)
