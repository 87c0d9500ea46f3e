"""Query p reads the results of q, and processes of both fail (trace-13, trace-20)."""

from __future__ import annotations

import pytest
from tests.simulator.config import Chain
from tests.simulator.story import Story

BOUND_S = 1.0


def chain(**shape: object) -> Story:
    return Story(bound_us=round(BOUND_S * 1e6), chain=Chain(**shape))  # type: ignore[arg-type]


def test_a_silence_costs_the_whole_chain_one_bound() -> None:
    story = chain()
    story.time_passes(3)
    story.silence("s1", for_s=5)
    story.time_passes(7)
    p = story.reader
    # Tentative answers of q are passed on at once, with q's missing streams.
    assert {a.window for a in p.tentative} == {a.window for a in story.tentative}
    assert {a.missing for a in p.tentative} == {("s1",)}
    assert p.latest_first_answer_s() <= BOUND_S
    story.all_is_well_again()
    # No UNDO is forwarded: p's root decides from its own log (trace-3).
    assert p.undone
    assert p.rec_done == story.rec_done == [1]
    story.every_guarantee_holds()


def test_a_silence_shorter_than_the_bound_less_four_margins_is_masked() -> None:
    story = chain()
    story.time_passes(3)
    story.silence("s1", for_s=0.6)
    story.time_passes(4)
    assert not story.tentative
    assert not story.reader.tentative
    assert story.reader.latest_first_answer_s() > 0.2
    story.every_guarantee_holds()


def test_q_s_root_dies_in_the_middle_of_its_corrections() -> None:
    """Its committed answers count, its successor writes the rest; p reads each window once."""
    story = chain()
    story.time_passes(3)
    story.silence("s1", for_s=6)
    while not story.undone:
        story.time_passes(0.001)
    assert len(story.undone) < len(story.tentative)
    story.kill("root/q.0")
    story.all_is_well_again()
    assert story.reader.rec_done[-1:] == [len(story.reader.rec_done)]
    story.every_guarantee_holds()


def test_q_has_no_root_for_some_time() -> None:
    """For p this is a silent source: it names the query."""
    story = chain()
    story.time_passes(3)
    story.kill_for_good("root/q.0")
    story.time_passes(4)
    p = story.reader
    assert {a.missing for a in p.tentative} == {("q",)}
    assert p.latest_first_answer_s() <= BOUND_S
    story.start_again("root/q.0")
    story.all_is_well_again()
    assert p.rec_done == [1]
    story.every_guarantee_holds()


@pytest.mark.parametrize("replicas", [1, 2])
def test_p_s_orderers_start_again_while_q_is_tentative(replicas: int) -> None:
    story = chain(replicas=replicas)
    story.time_passes(3)
    story.silence("s1", for_s=5)
    story.time_passes(3)
    for replica in range(replicas):
        story.kill(f"orderer/p.0.{chr(ord('a') + replica)}")
    story.time_passes(4)
    assert {a.missing for a in story.reader.tentative} == {("s1",)}
    story.all_is_well_again()
    assert story.reader.undone
    story.every_guarantee_holds()


def test_a_stream_that_both_queries_read_falls_silent() -> None:
    """A diamond: p reads s1 directly and through q, whose windows are shorter."""
    story = Story(
        bound_us=1_000_000,
        window_us=300_000,
        slide_us=300_000,
        parts=2,
        chain=Chain(children=(("q",), ("s1", "t1")), window_us=900_000, slide_us=450_000),
    )
    story.time_passes(3)
    story.silence("s1", for_s=3)
    story.time_passes(5)
    assert {a.missing for a in story.reader.tentative} == {("s1",)}
    story.all_is_well_again()
    story.every_guarantee_holds()
