"""trace-36: with all sources failed, or one an hour ahead, no future window is answered."""

from __future__ import annotations

from tests.simulator.story import Story


def test_all_sources_silent() -> None:
    story = Story(bound_us=500_000)
    story.time_passes(2)
    story.silence("s1", for_s=5)
    story.silence("s2", for_s=5)
    story.time_passes(4)
    assert story.tentative
    assert all(a.at >= a.window + 1 for a in story.tentative)
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_a_source_whose_boundary_jumps_ahead_while_another_is_silent() -> None:
    story = Story(bound_us=500_000)
    story.time_passes(2)
    story.silence("s1", for_s=5)
    story.time_passes(1.5)
    story.world.proxies["s2"].skew_us = 30_000_000
    story.time_passes(2)
    assert story.tentative
    assert all(a.at >= a.window + 1 for a in story.tentative)
