"""Queries q and r read the same children, and each root's failures are its own.

Orderers and aggregators serve the roots of both: records that the slower one lacks are sent again,
and kept until it has read them (decision 93, rule-11, rule-26, trace-39).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.simulator.config import Sharing
from tests.simulator.story import Questions, Story

from slackwater.model.records import DeltaRecord, Kind, OrderedRecord, RootState

BOUND_S = 1.0
DELTAS = "sw.deltas.q.0:0"
ORDERED = "sw.ordered.q.0:0"


LONGER = Sharing(3_000_000, 1_500_000)


def shared(r: Sharing = LONGER, **more: Any) -> Story:
    """Query q has windows of a second, r others."""
    return Story(bound_us=round(BOUND_S * 1e6), sharing=r, **more)


def answered(of: Questions) -> list[tuple[object, ...]]:
    """Return all answers of a query, at any time."""
    return [(a.window, a.missing) for a in (*of.tentative, *of.stable)]


def root_of_r(story: Story) -> RootState:
    state = story.world.queries["r"].root_state(0)
    assert state is not None
    return state


def a_silence(kills: tuple[str, ...]) -> Story:
    """s1 is silent for five seconds; meanwhile some processes are killed."""
    story = shared()
    story.time_passes(4)
    story.silence("s1", for_s=5)
    story.time_passes(3)
    for name in kills:
        story.kill(name)
    story.time_passes(4)
    story.all_is_well_again()
    return story


def test_a_source_falls_silent_and_the_root_of_one_of_two_queries_dies() -> None:
    story, undisturbed = a_silence(("root/r.0",)), a_silence(())
    r = story.reader
    for of in (story, r):
        assert {a.missing for a in of.tentative} == {("s1",)}
        assert of.undone
        assert of.rec_done == [1]
    assert story.latest_first_answer_s() <= BOUND_S
    assert answered(story) == answered(undisturbed), "faults of r's root do not affect q"
    story.every_guarantee_holds()
    undisturbed.every_guarantee_holds()


def test_orderers_and_aggregators_run_once_for_both() -> None:
    story = shared()
    story.time_passes(6)
    written = [name for name in story.world.broker.logs if name.startswith(("sw.ord", "sw.del"))]
    assert {name.split(".")[2] for name in written if story.world.broker.log(name).end} == {"q"}
    assert {"root/q.0", "root/r.0", "orderer/q.0.a"} <= {*story.config.names}
    assert "orderer/r.0.a" not in story.config.names
    assert story.stable
    assert story.reader.stable
    story.every_guarantee_holds()


def test_edges_of_both_are_cut_points() -> None:
    """Neither width nor slide of r's windows is a multiple of w or of q's slide."""
    story = shared(Sharing(730_000, 310_000), w_us=100_000, window_us=500_000, slide_us=350_000)
    story.time_passes(3)
    story.silence("s1", for_s=2)
    story.time_passes(3)
    story.all_is_well_again()
    story.every_guarantee_holds()


def r_falls_behind(story: Story) -> None:
    """For four seconds r has no root; q's root continues, and logs are truncated."""
    story.time_passes(4)
    story.kill_for_good("root/r.0")
    for _ in range(4):
        story.time_passes(1)
        story.world.truncate()


@pytest.mark.parametrize("log", [DELTAS, ORDERED])
def test_logs_are_kept_for_the_root_that_is_behind(log: str) -> None:
    story = shared(replicas=1)
    r_falls_behind(story)
    of_r = root_of_r(story).logs[0]
    needed = min(of_r.stable.offset, of_r.live.offset) if log == DELTAS else of_r.contiguous_seq
    assert 0 < story.world.broker.log(log).beginning <= needed
    story.start_again("root/r.0")
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_deltas_that_one_root_lacks_are_sent_again() -> None:
    """Retention deletes deltas that q's root has read, and r's consumer has not fetched."""
    story = shared(replicas=1)
    story.time_passes(3)
    story.world.deafen_root("root/r.0", 0, 0, 1_500_000)
    story.time_passes(1.3)
    deltas = story.world.broker.log(DELTAS)
    story.world.cut(DELTAS, 4)
    story.all_is_well_again()
    seqs = [delta.seq for _, delta in deltas.values() if isinstance(delta, DeltaRecord)]
    assert any(b < a for a, b in pairwise(seqs)), "some are sent twice"
    assert starts_of_the_orderer(story) == 1
    assert not story.tentative, "q's root lacks nothing"
    story.every_guarantee_holds()


@pytest.mark.parametrize("loss", ["retention", "damaged deltas", "damaged records"])
def test_what_one_root_lacks_is_emitted_again(loss: str) -> None:
    """Deltas are lost that q's root has read and r's has not; or their ordered records are, too."""
    story = shared(replicas=1)
    r_falls_behind(story)
    lacking = root_of_r(story).logs[0].contiguous_seq + 5
    if loss == "retention":
        story.world.cut(DELTAS, story.world.broker.log(DELTAS).end - lacking - 1)
    else:
        for log in (DELTAS, ORDERED) if loss == "damaged records" else (DELTAS,):
            story.world.damage(log, lacking)
    story.start_again("root/r.0")
    story.all_is_well_again()
    assert starts_of_the_orderer(story) == 2
    story.every_guarantee_holds()


def starts_of_the_orderer(story: Story) -> int:
    records = (record for _, record in story.world.q.ordered_log(0, 0, 0).all_values())
    return sum(isinstance(r, OrderedRecord) and r.kind is Kind.START for r in records)


def test_one_sick_replica_makes_neither_tentative() -> None:
    story = shared()
    story.time_passes(3)
    story.deafen("orderer/q.0.a", "s1", for_s=8)
    story.time_passes(8)
    assert story.orderer(0, 0).counters.tentative > 20, "it is tentative itself"
    assert not story.tentative
    assert not story.reader.tentative
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_both_roots_start_again_at_once() -> None:
    story = shared(parts=2)
    story.time_passes(4)
    story.silence("s2", for_s=4)
    story.time_passes(2)
    for name in (*story.config.root_names, *story.reader.config.root_names):
        story.kill(name)
    story.time_passes(4)
    story.all_is_well_again()
    assert story.undone
    assert story.reader.undone
    story.every_guarantee_holds()
