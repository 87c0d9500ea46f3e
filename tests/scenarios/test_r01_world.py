"""trace-1: a hole in the middle of a log, after which later records of its writer were written."""

from __future__ import annotations

import pytest
from tests.simulator.story import Story


@pytest.mark.parametrize("writer", ["proxy/s1", "orderer/q.0.a", "aggregator/0"])
def test_the_writer_sends_again_from_the_hole(writer: str) -> None:
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.world.lose(writer, 350_000)
    story.time_passes(6)
    started = [n.process for n in story.world.history.notes if n.what == "started"]
    assert started.count(writer) == 2
    assert len(started) == 6, "no other process had to restart"
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_running_aggregator_receives_the_root_s_report_of_a_hole() -> None:
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.world.lose("aggregator/0", 30_000_000)
    story.time_passes(4)
    assert not story.orderer().line.forked
    assert story.root().holes == ()
    story.every_guarantee_holds()


def test_an_aggregator_sends_again_what_the_root_has_read_beyond() -> None:
    """After a long outage the roots' read position must lie before the hole (rule-26)."""
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    story.kill_for_good("aggregator/0")
    story.time_passes(0.2)
    story.start_again("aggregator/0")
    story.time_passes(0.2)
    story.world.lose("aggregator/0", 30_000_000)
    story.time_passes(0.8)  # it has just started, and ignores reports of holes
    assert story.root().holes
    story.kill_for_good("aggregator/0")
    story.time_passes(4)
    story.start_again("aggregator/0")
    story.all_is_well_again()
    assert not story.orderer().line.forked
    assert story.root().holes == ()
    story.every_guarantee_holds()
