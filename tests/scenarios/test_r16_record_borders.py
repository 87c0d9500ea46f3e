"""trace-16: replicas that restart or catch up cut their records at the same positions."""

from __future__ import annotations

from tests.simulator.readings import Habits
from tests.simulator.story import Story

from slackwater.model.records import Kind, OrderedRecord


def test_a_replica_that_catches_up_writes_the_same_records() -> None:
    story = Story(piece_bytes_max=150, habits=Habits(every_us=5_000), bound_us=1_000_000)
    story.time_passes(2)
    story.pause("orderer/q.0.b", for_s=3)
    story.silence("s2", for_s=4)
    story.time_passes(3)
    story.kill("orderer/q.0.b")
    story.time_passes(6)
    found = []
    for replica in range(2):
        log = story.world.q.ordered_log(0, replica, 0)
        records = [r for _, r in log.values() if isinstance(r, OrderedRecord)]
        found.append(
            {
                (r.bucket_start, r.piece): (r.pieces, tuple(r.keys), r.values[0].tobytes())
                for r in records
                if r.kind is Kind.INSERTION
            }
        )
    a, b = found
    both = a.keys() & b.keys()
    assert any(pieces > 1 for pieces, _, _ in a.values()), "buckets were cut into pieces"
    assert len(both) > 50
    assert all(a[at] == b[at] for at in both)
    story.every_guarantee_holds()
