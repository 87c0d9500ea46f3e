"""trace-4: a flapping source, an overlap, a root's restart: no answer is revoked unreplaced."""

from __future__ import annotations

from tests.simulator.story import Story


def test_a_source_that_returns_for_a_moment_revokes_only_what_it_replaces() -> None:
    story = Story(bound_us=1_000_000)
    story.time_passes(2)
    story.silence("s1", for_s=6)
    story.time_passes(4)
    story.silence("s2", for_s=8)  # from here on s2 is missing too, also after s1 has returned
    story.time_passes(5)
    last_undone = max(to for _, to in story.undone)
    last_emitted = max(a.window for a in story.tentative)
    assert last_undone < last_emitted, "windows without s2 keep their answers"
    assert story.rec_done == []
    story.all_is_well_again()
    assert story.rec_done == [1]
    story.every_guarantee_holds()


def test_windows_that_straddle_a_second_failure_keep_the_healthy_streams() -> None:
    story = Story(bound_us=500_000, window_us=1_000_000, slide_us=500_000)
    for _ in range(5):
        story.time_passes(1)
        story.silence("s1", for_s=1.3)
        story.time_passes(1.6)
    story.all_is_well_again()
    assert all(a.missing in {("s1",), ()} for a in story.tentative)
    story.every_guarantee_holds()
