"""trace-61: a root that starts takes panes that are not what it would have read itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.readings import Habits
from tests.simulator.roots import SimRoot
from tests.simulator.story import Story

from slackwater.model.heads import Head, PaneRecord, PaneRef
from slackwater.model.names import ONLY

WINDOW_S, SLIDE_S = 2.0, 0.2
ROOT = "root/q.0"


def story_of_heads(seed: int = 1, **config: Any) -> Story:
    """Return a run with windows of ten panes, whose roots store a head whenever they may."""
    given: dict[str, Any] = {
        "window_us": 2_000_000,
        "slide_us": 200_000,
        "bound_us": 500_000,
        "head_us": 100,
        "habits": Habits(every_us=20_000, keys=3),
    }
    return Story(seed, **(given | config))


def root(story: Story, copy: int = ONLY) -> SimRoot:
    """Return the present process of a copy of part 0."""
    return story.world.q.roots[0, copy]


def head_of(found: SimRoot) -> Head | None:
    """Return the head from which it has started."""
    moved = found.session.mover.installed
    return None if moved is None else moved.head


def stored(story: Story) -> list[object]:
    """Return all that has been written to the log of panes."""
    log = story.world.log_at(("sw.panes.q", 0))
    return [value.record for _, value in log.values() if value is not None]  # type: ignore[attr-defined]


def test_a_root_that_is_killed_reads_what_follows_the_head() -> None:
    story = story_of_heads()
    story.time_passes(6)
    story.kill(ROOT)
    story.time_passes(3)
    head = head_of(root(story))
    assert head is not None
    assert len({ref.start for ref in head.panes}) >= 8, "nearly a window"
    assert max(head.frontiers) - head.stable_from > 1_500_000
    inputs = root(story).session.inputs
    ends = sum(story.world.log_at(at).end for at in inputs)
    again = ends - sum(log.stable.offset for log in head.logs)
    assert root(story).session.core.movable.records_read <= again < ends / 2
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_what_is_answered_soon_is_not_stored() -> None:
    story = story_of_heads(window_us=200_000, head_us=1_000_000)
    story.time_passes(4)
    assert stored(story) == []


def test_a_complete_pane_is_written_once() -> None:
    story = story_of_heads()
    story.time_passes(6)
    written = [record for record in stored(story) if isinstance(record, PaneRecord)]
    pieces = [(record.ref, record.piece) for record in written]
    assert len(pieces) == len(set(pieces))
    heads = [record for record in stored(story) if isinstance(record, Head)]
    assert len(heads) > 5
    assert len(written) > 20


@pytest.mark.parametrize(
    ("at_s", "copies"), [(4.01, 1), (4.13, 1), (4.38, 1), (4.09, 2), (4.27, 2)]
)
def test_a_bucket_that_has_begun_is_read_again(at_s: float, copies: int) -> None:
    story = story_of_heads(
        piece_bytes_max=60, copies=copies, habits=Habits(every_us=5_000, keys=6), w_us=100_000
    )
    story.time_passes(at_s)
    story.kill(ROOT if copies == 1 else f"{ROOT}.a")
    story.time_passes(3)
    assert head_of(root(story, ONLY if copies == 1 else 0)) is not None
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_damaged_head_is_left_out_and_the_older_one_is_taken() -> None:
    story = story_of_heads()
    story.time_passes(6)
    log = story.world.log_at(("sw.panes.q", 0))
    heads = [(at, v.record) for at, v in log.values() if v and isinstance(v.record, Head)]  # type: ignore[attr-defined]
    last = max(heads, key=lambda each: each[1].order)
    log.damage(last[0])
    story.kill(ROOT)
    story.time_passes(3)
    found = head_of(root(story))
    assert found is not None
    assert found.order < last[1].order
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_head_with_a_damaged_pane_is_left_out() -> None:
    story = story_of_heads()
    story.time_passes(6)
    log = story.world.log_at(("sw.panes.q", 0))
    heads = [v.record for _, v in log.values() if v and isinstance(v.record, Head)]  # type: ignore[attr-defined]
    last = max(heads, key=lambda head: head.order)
    older = {ref for head in heads if head is not last for ref in head.panes}
    new: set[PaneRef] = {*last.panes} - older
    for at, value in log.values():
        if value and isinstance(value.record, PaneRecord) and value.record.ref in new:  # type: ignore[attr-defined]
            log.damage(at)
    story.kill(ROOT)
    story.time_passes(3)
    found = head_of(root(story))
    assert found is not None
    assert found.order < last.order
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_nothing_stored_and_it_reads_from_s() -> None:
    story = story_of_heads()
    story.time_passes(6)
    story.world.spoil_panes("sw.panes.q:0", 1_000)
    story.kill(ROOT)
    story.time_passes(3)
    assert head_of(root(story)) is None
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_the_other_copy_takes_over_and_stores_on() -> None:
    story = story_of_heads(copies=2)
    story.time_passes(6)
    terms = {record.term for record in stored(story) if isinstance(record, Head)}
    story.kill(f"{ROOT}.a")
    story.time_passes(4)
    heads = [record for record in stored(story) if isinstance(record, Head)]
    assert {head.term for head in heads} > terms
    assert head_of(root(story, 0)) is not None, "the follower starts from a head"
    noted = [note for note in story.history.notes if "continues from a head" in note.what]
    assert noted[-1].process == f"{ROOT}.a"
    story.all_is_well_again()
    story.every_guarantee_holds()
