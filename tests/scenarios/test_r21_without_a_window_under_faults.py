"""trace-21 in the simulator: rows instead of figures, alone and at either end of a chain."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.config import Chain
from tests.simulator.story import Story

ROWS = {"rows": True, "w_us": 100_000, "window_us": 100_000, "slide_us": 100_000}
SHAPES: dict[str, dict[str, Any]] = {
    "two children, two parts": {"children": (("s1",), ("s2",)), "parts": 2, **ROWS},
    "read by windows": {"chain": Chain(window_us=300_000, slide_us=300_000), **ROWS},
    "reads windows": {"chain": Chain(children=(("q", "t1"),), parts=2, rows=True)},
    "a join": {"join_us": 150_000, "chain": Chain(rows=True), **ROWS},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_silence_and_a_root_that_dies_among_its_corrections(shape: str) -> None:
    """Each row is written once as stable, in the order of time, children and inputs."""
    story = Story(bound_us=1_000_000, **SHAPES[shape])
    story.time_passes(3)
    story.silence("s1", for_s=3)
    while not story.undone:
        story.time_passes(0.001)
    story.kill("root/q.0")
    if story.config.chain is not None:
        story.kill("orderer/p.0.a")
        story.kill("root/p.0")
    story.all_is_well_again()
    assert story.rec_done
    story.every_guarantee_holds()
