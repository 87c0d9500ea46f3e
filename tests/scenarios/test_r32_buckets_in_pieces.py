"""trace-32: a bucket of several records stays complete when its writer dies between them."""

from __future__ import annotations

import pytest
from tests.simulator.readings import Habits
from tests.simulator.story import Story

from slackwater.model.records import OrderedRecord

MANY = Habits(every_us=4_000, keys=3)


def test_every_piece_counts() -> None:
    story = Story(piece_bytes_max=60, habits=MANY, bound_us=1_000_000)
    story.time_passes(3)
    story.silence("s1", for_s=2)
    story.all_is_well_again(6)
    story.every_guarantee_holds()


@pytest.mark.parametrize("seed", range(8))
def test_killed_between_the_pieces_of_a_bucket(seed: int) -> None:
    story = Story(seed, piece_bytes_max=60, habits=MANY, replicas=1)
    for _ in range(3):
        # Just after a cut point plus disorder: a bucket's pieces are in flight.
        story.time_passes(1.0 + (0.0225 - story.world.scheduler.now / 1e6) % 0.1)
        story.kill("orderer/q.0.a")
    story.all_is_well_again(5)
    records = [r for _, r in story.world.q.ordered_log(0, 0, 0).values()]
    starts = [r for r in records if isinstance(r, OrderedRecord) and r.frontier is not None]
    assert len(starts) == 4
    story.every_guarantee_holds()
