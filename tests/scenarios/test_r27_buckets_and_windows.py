"""trace-27: w that does not divide the window, unaligned edges of sliding windows: still exact."""

from __future__ import annotations

import pytest
from tests.simulator.story import Story


@pytest.mark.parametrize(
    ("w_ms", "size_ms", "slide_ms"), [(70, 1000, 1000), (100, 1000, 300), (130, 500, 350)]
)
def test_cut_points_lie_on_every_edge(w_ms: int, size_ms: int, slide_ms: int) -> None:
    story = Story(
        w_us=w_ms * 1000, window_us=size_ms * 1000, slide_us=slide_ms * 1000, bound_us=1_000_000
    )
    story.time_passes(3)
    story.silence("s2", for_s=2.2)
    story.time_passes(3)
    story.kill("root/q.0")
    story.all_is_well_again(6)
    story.every_guarantee_holds()


def test_windows_longer_than_the_look_ahead() -> None:
    story = Story(
        w_us=100_000, window_us=6_000_000, slide_us=2_000_000, ahead_buckets_max=20,
        bound_us=1_000_000,
    )  # fmt: skip
    story.time_passes(9)
    story.silence("s1", for_s=5)
    story.time_passes(12)
    assert story.held()["root/q.0"] < 400, "buckets do not wait one by one for a long window"
    story.all_is_well_again(12)
    story.every_guarantee_holds()
