"""R2: a zombie shares its successor's log; what it writes there counts for nothing."""

from __future__ import annotations

import pytest
from tests.simulator.story import Story


@pytest.mark.parametrize("writer", ["proxy/s1", "orderer/q.0.a", "aggregator/0", "root/q.0"])
@pytest.mark.parametrize("silent", [False, True])
def test_a_zombie_wakes_beside_its_successor(writer: str, silent: bool) -> None:
    story = Story(replicas=1, bound_us=1_000_000)
    story.time_passes(3)
    if silent:
        story.silence("s2", for_s=7)
        story.time_passes(2)
    story.replace(writer, wakes_after_s=2)
    story.time_passes(4)
    story.replace(writer, wakes_after_s=0.2)
    story.time_passes(4)
    story.all_is_well_again()
    story.every_guarantee_holds()
