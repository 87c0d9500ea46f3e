"""trace-11: a process that was paused does not declare its sources missing."""

from __future__ import annotations

import pytest
from tests.paper.stage import MS, Orderer, Settings, Source
from tests.simulator.story import Story

from slackwater.model.records import Kind
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.dpc.sunion.config import Emit


@pytest.mark.parametrize("sleeper", ["orderer/q.0.a", "root/q.0", "aggregator/0"])
def test_a_pause_shorter_than_the_bound_leaves_no_trace(sleeper: str) -> None:
    story = Story(replicas=1)  # X = 2 s
    story.time_passes(3)
    story.pause(sleeper, for_s=1.6)
    story.time_passes(6)
    assert story.tentative == []
    story.every_guarantee_holds()


def test_an_orderer_that_wakes_after_all_deadlines_reads_first() -> None:
    story = Story(replicas=1)
    story.time_passes(3)
    story.pause("orderer/q.0.a", for_s=5)
    story.time_passes(8)
    forks = story.orderer().counters.forks
    assert forks == 0, "all its input was in the logs when it resumed"
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_silence_of_half_the_bound_leaves_no_trace() -> None:
    story = Story()
    story.time_passes(3)
    story.silence("s1", for_s=1)
    story.time_passes(4)
    story.silence("s2", for_s=1.7)  # X less two margins, and the time to read
    story.time_passes(4)
    assert story.tentative == []
    story.every_guarantee_holds()


def test_a_broker_that_gives_no_answer_costs_no_more_than_the_question() -> None:
    """If a request for an end fails, there is no further wait: the bound is short (rule-14)."""
    sources = [Source("s1"), Source("s2")]
    orderer = Orderer(sources, Settings())
    core, deadline = orderer.core, 100 * MS + orderer.config.schedule.answer_within_us
    sources[0].emit([50], 100)
    orderer.listen()

    assert core.step(deadline) == [ProbeEnds((1,))]
    core.ends({1: None}, deadline)
    reported = [e.record for e in core.step(deadline + 1) if isinstance(e, Emit)]

    assert [(record.kind, record.missing) for record in reported] == [(Kind.TENTATIVE, ("s2",))]
