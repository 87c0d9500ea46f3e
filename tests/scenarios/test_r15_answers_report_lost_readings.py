"""trace-15, trace-20: every answer reports readings lost to retention, also a reader's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.paper.stage import Stage
from tests.simulator.checkers.answers import GivenAnswer, answers
from tests.simulator.config import Chain
from tests.simulator.story import Story

from slackwater.model.records import Gap
from slackwater.protocols.dpc.soutput.answers import TentativeWindow


def of_p(story: Story) -> list[GivenAnswer]:
    return list(answers(story.reader.history))


def with_a_loss(**shape: object) -> Story:
    """The orderer of q is down while retention deletes readings of s1 that it has not read."""
    chain = Chain(replicas=1, **shape)  # type: ignore[arg-type]
    story = Story(replicas=1, bound_us=1_000_000, chain=chain)
    story.time_passes(3.3)
    story.pause("orderer/q.0.a", for_s=3)
    story.time_passes(2.5)
    story.world.cut("sw.source.s1", 2)
    return story


@pytest.mark.parametrize("replaced", [False, True])
def test_a_reader_s_stable_answers_carry_the_loss_on(replaced: bool) -> None:
    story = with_a_loss()
    if replaced:
        story.kill("orderer/p.0.a")
    story.all_is_well_again()
    lost = {emitted.window for emitted in of_p(story) if emitted.stable and emitted.lost}
    assert lost == {
        emitted.window for emitted in answers(story.history) if emitted.stable and emitted.lost
    }
    assert lost
    story.every_guarantee_holds()


def test_a_tentative_answer_names_what_the_stable_one_it_is_made_of_has_lost() -> None:
    """Only t1 delays p, and q's windows, which are final, lack readings of s1.

    1. Retention has outrun q's orderer: W[5, 6) of q is stable, and reports lost readings.
    2. p answers [5, 6) tentatively, with q's row, and without t1's readings.
    """
    story = with_a_loss(children=(("q", "t1"),))
    story.silence("t1", for_s=6)
    story.time_passes(8)
    lost = {emitted.window for emitted in answers(story.history) if emitted.stable and emitted.lost}
    made_of_them = [s for s in of_p(story) if s.missing == ("t1",) and s.window in lost]
    assert made_of_them
    assert {emitted.lost for emitted in made_of_them} == {("q",)}
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_so_does_one_that_is_made_of_a_stream_whose_input_has_lost_something() -> None:
    """The proxy reports losses by its topic's retention; s2 is silent, so answers are tentative.

    s1 has passed the window, so it is not missing; its readings are lost nevertheless.
    """
    stage = Stage()
    while stage.now_ms < 4_000:
        stage.now_ms += 50
        for source in stage.sources.values():
            source.emit([stage.now_ms - 49], stage.now_ms)
        if stage.now_ms == 550:
            stage.sources["s2"].disconnect()
        if stage.now_ms == 650:
            log = stage.sources["s1"].log
            log[-1] = replace(log[-1], gap=(Gap("s1", 7),))
        stage.work()
    tentative = [s.effect for s in stage.emitted if isinstance(s.effect, TentativeWindow)]
    touched = [w for w in tentative if w.gap]
    assert [w.window_start // 1_000 for w in touched] == [600]
    assert (touched[0].missing, touched[0].gap) == (("s2",), (Gap("s1", 7),))
