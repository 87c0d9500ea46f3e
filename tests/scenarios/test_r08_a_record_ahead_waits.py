"""trace-8: the records of a replica that starts ahead of the root's frontier are held."""

from __future__ import annotations

from tests.simulator.story import Story

from slackwater.model.records import DeltaRecord, Kind, Position
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.config import DeltaLog, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore

A, B = DeltaLog(0, 0, LineName.STABLE), DeltaLog(0, 1, LineName.STABLE)
TENTH = 100_000


def test_a_new_replica_continues_when_the_other_dies_where_it_began() -> None:
    story = Story()
    world = story.world
    config = world.q.root_config(0, 1)
    root = RootCore(config, initial_state(config), suppress_until={})
    start_time = config.start_time

    def start(replica: int, bucket: int, seq: int) -> DeltaRecord:
        at = start_time + bucket * TENTH
        return DeltaRecord(Kind.START, 0, replica, -1, at, at, seq, frontier=Position(at))

    def empty(replica: int, bucket: int, seq: int) -> DeltaRecord:
        at = start_time + bucket * TENTH
        return DeltaRecord(Kind.BOUNDARY, 0, replica, 0, at, at + TENTH, seq)

    root.receive(A, 0, start(0, 0, 0))
    root.receive(B, 0, start(1, 5, 0))
    for seq in range(1, 4):
        root.receive(B, seq, empty(1, 4 + seq, seq))
    assert (LineName.STABLE, B) not in root.wanted(), "it is held until the frontier arrives there"
    for seq in range(1, 6):
        root.receive(A, seq, empty(0, seq - 1, seq))
    assert root.wanted() == {(LineName.STABLE, B): 1}, "now it continues, with the held record"
    for seq in range(1, 4):
        root.catch_up(LineName.STABLE, B, seq, empty(1, 4 + seq, seq))
    assert root._children[0].stable.frontier == Position(start_time + 8 * TENTH)
