"""trace-2: records that a zombie writes into its successor's log do not count."""

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


@pytest.mark.parametrize("seed", range(4))
def test_a_successor_does_not_go_on_behind_what_a_zombie_wrote(seed: int) -> None:
    # 1. A is replaced by A', but continues to write.
    # 2. A' is killed. A's records since then look like the end of the log's contiguous prefix.
    # 3. A'' reads it. Readers have dropped them: a START after them would leave a hole.
    story = Story(seed, replicas=1, bound_us=1_000_000, zombie_us=(6_000_000, 7_000_000))
    story.time_passes(3)
    story.replace("orderer/q.0.a", wakes_after_s=0.1)
    story.time_passes(3.3)
    story.kill("orderer/q.0.a")
    story.all_is_well_again(10)
    story.every_guarantee_holds()
