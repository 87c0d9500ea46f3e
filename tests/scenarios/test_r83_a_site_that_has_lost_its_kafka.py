"""trace-83: the Kafka of a site is lost with its disk. What may be lost is said, at both places."""

from __future__ import annotations

from tests.paper.stage import MS, Settings, Stage
from tests.support.remote_child import HERE, NORTH, Centre, merged_pane

from slackwater.model.records import Gap, Kind
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.answers import GapNote, StableWindow

LOST_UNTIL_MS = 1_000
REPORTED = (Gap("s1", 1), Gap("s2", 1), Gap("s3", 1))


def at_the_site(first_reading_ms: int) -> Stage:
    """Run a site that begins again at 0 with empty logs; answers of 100 ms."""
    stage = Stage(settings=Settings(lost_until_ms=LOST_UNTIL_MS))
    while stage.now_ms < first_reading_ms:
        stage.now_ms += 50
        stage.work()
    stage.run_to(first_reading_ms + 1_500)
    return stage


def test_each_answer_of_the_site_that_may_lack_readings_says_so() -> None:
    """A mutant forgets it: what the sensors had sent before is counted as never sent."""
    stage = at_the_site(600)
    effects = [of.effect for of in stage.emitted]
    noted = [of for of in effects if isinstance(of, GapNote)]
    assert {of.gap for of in noted} == {REPORTED}
    assert min(of.window_start for of in noted) == 0
    assert max(of.window_end for of in noted) == LOST_UNTIL_MS * MS
    stable = [of for of in effects if isinstance(of, StableWindow)]
    reported = {of.window_start // MS for of in stable if of.gap}
    assert reported == {*range(0, LOST_UNTIL_MS, 100)}
    assert {of.window_start // MS for of in stable if not of.gap} >= {1_000, 1_900}


def test_a_run_of_empty_buckets_does_not_pass_the_loss() -> None:
    """The run is one record: it would call empty what is complete, or complete what is lost."""
    for first_ms in (600, 2_500):
        log = at_the_site(first_ms).orderer.logs[LineName.STABLE]
        buckets = [of for of in log if of.kind is not Kind.START]
        edge = LOST_UNTIL_MS * MS
        assert not [of for of in buckets if of.bucket_start < edge < of.bucket_end]
        assert {of.gap for of in buckets if of.bucket_start < edge} == {REPORTED}
        assert {of.gap for of in buckets if of.bucket_start >= edge} == {()}


def test_the_answers_of_the_centre_say_it_and_are_exact_again_behind_it() -> None:
    centre = Centre()
    centre.run_to(3_500, NORTH, HERE)
    centre.run_to(6_500, HERE)  # north is away
    lost = (Gap("at-north", 1),)
    centre.receive(merged_pane(NORTH, 3_000, 5_000, gap=lost))
    centre.receive(merged_pane(NORTH, 5_000))
    centre.run_to(8_500, NORTH, HERE)
    assert centre.of("stable") == [*range(0, 8_000, 1_000)], "each once, in order"
    assert centre.lost == ["at-north", "at-north"], "of two windows"
