"""rule-26: the start of a replica without a state record.

From the sources' start it would process their whole retention, and repeat its peer's output of
days. It continues at a peer's frontier: earlier buckets are in the peer's log (trace-8). Without a
peer it begins at the sources' start; but a log that has an end and no records is not a new log
(trace-15), and is continued where the results end.
"""

from __future__ import annotations

from tests.paper.stage import MS, Orderer, Settings, Source
from tests.simulator.clock import SECOND
from tests.simulator.story import Story
from tests.simulator.world import START_TIME_US

from slackwater.model.records import Kind, OrderedRecord, OrdererState
from slackwater.protocols.common.line import LineName


def forget(story: Story, replica: int) -> None:
    """Simulate a new disk: no state record, no records."""
    name = story.world.q.orderer_name(0, replica)
    state_log = story.world.q.state_log()
    for offset, value in state_log.values():
        if isinstance(value, OrdererState) and value.fragment == name:
            state_log.damage(offset)
    for line in (0, 1):
        log = story.world.q.ordered_log(0, replica, line)
        log.cut(log.end)


def begins_at_s(story: Story, replica: int) -> list[float]:
    """Return the frontiers in its STARTs."""
    log = story.world.q.ordered_log(0, replica, 0)
    return [
        (record.frontier.bucket_start - START_TIME_US) / SECOND
        for _, record in log.values()
        if isinstance(record, OrderedRecord)
        and record.kind is Kind.START
        and record.frontier is not None
    ]


def test_a_new_replica_goes_on_at_its_peers_frontier_and_can_stand_alone() -> None:
    story = Story(replicas=2)
    story.time_passes(2)
    story.kill_for_good("orderer/q.0.b")
    story.time_passes(6)
    forget(story, replica=1)

    story.start_again("orderer/q.0.b")
    story.time_passes(3)
    story.kill_for_good("orderer/q.0.a")
    story.time_passes(4)

    (frontier,) = begins_at_s(story, replica=1)
    assert 6 < frontier < 9
    assert not story.tentative
    story.start_again("orderer/q.0.a")
    story.all_is_well_again(4)
    story.every_guarantee_holds()


def test_a_replica_that_never_ran_goes_on_at_its_peers_frontier_too() -> None:
    """Its log has no end either, so only the peer's record determines the start."""
    story = Story(replicas=2)
    story.kill_for_good("orderer/q.0.b")
    story.world.present("orderer/q.0.b").producer.allowed = 0
    story.time_passes(6)
    assert story.world.q.ordered_log(0, 1, 0).end == 0

    story.start_again("orderer/q.0.b")
    story.time_passes(2)

    (frontier,) = begins_at_s(story, replica=1)
    assert 4 < frontier < 7
    story.all_is_well_again(2)
    story.every_guarantee_holds()


def test_an_empty_log_with_an_end_goes_on_where_the_results_end() -> None:
    story = Story(replicas=1)
    story.time_passes(6)
    story.kill_for_good("orderer/q.0.a")
    story.time_passes(1)
    forget(story, replica=0)

    story.start_again("orderer/q.0.a")
    story.all_is_well_again(8)

    (frontier,) = begins_at_s(story, replica=0)
    assert 4 <= frontier <= 6, "not the sources' beginning"
    story.every_guarantee_holds()


def test_without_peer_and_results_it_begins_at_the_sources_beginning() -> None:
    story = Story(replicas=1)
    story.time_passes(3)

    assert begins_at_s(story, replica=0) == [0]


def test_a_peer_s_position_in_a_source_log_that_was_made_again_is_not_taken() -> None:
    """It lies beyond the log's end: the replica would wait there, and skip all that is written."""

    def emitted(ticks: int) -> Source:
        source = Source("s1")
        for at in range(100, 100 * ticks + 1, 100):
            source.emit([at - 50], at)
        return source

    peer = Orderer([emitted(50)], Settings(), replicas=2)
    peer.listen()
    peer.step(5_000)
    peer.save()
    assert peer.saved.frontier == 5_000 * MS
    for ticks, begins_at_ms in ((50, 5_000), (10, 0)):
        new = Orderer([emitted(ticks)], Settings(), replica=1, peers=[peer])
        (start,) = new.logs[LineName.STABLE]
        assert start.bucket_start == begins_at_ms * MS
        new.listen()
        new.step(ticks * 100)
        assert new.core.line.stable_next == 100 * ticks * MS
