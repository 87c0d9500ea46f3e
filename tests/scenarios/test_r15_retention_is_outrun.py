"""trace-15, rule-28: retention has removed the record that a reader needs next.

A removed position must neither stop a reader nor be skipped silently. A loss in a log that derives
from another one is produced again; a loss in a source log is a gap, which the results report; and
of two replicas, one with a gap and one without, the root chooses the one without.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.simulator.checkers.answers import answers
from tests.simulator.story import Story, us

from slackwater.model.records import DeltaRecord, Kind
from slackwater.protocols.common.line import LineName
from slackwater.protocols.dpc.soutput.answers import GapNote
from slackwater.protocols.dpc.soutput.config import DeltaLog, FetchOrdered, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore


def notes(story: Story) -> list[GapNote]:
    effects = [e for c in story.world.history.committed for e in c.transaction.effects]
    return [e for e in effects if isinstance(e, GapNote)]


def seqs(story: Story, replica: int = 0) -> list[int]:
    log = story.world.q.delta_log(0, 0, replica, 0)
    return [record.seq for _, record in log.values() if isinstance(record, DeltaRecord)]


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_ordered_log_was_cut_before_an_aggregator_read_it(replicas: int) -> None:
    """Some seqs will never be sent.

    1. 40 to 70 are in no deltas and never will be: 71 is never the next seq.
    2. The root reads to the end, finds 40 before the start of the ordered log, and continues at 71:
       a hole, so the writer sends the buckets in between again.
    """
    story = Story(replicas=replicas)
    story.time_passes(4)
    story.kill_for_good("aggregator/0")
    story.time_passes(4)
    ordered = story.world.q.ordered_log(0, 0, 0)
    ordered.cut(ordered.end - 10)
    story.start_again("aggregator/0")
    story.all_is_well_again(10)

    emitted = seqs(story)
    assert any(b > a + 20 for a, b in pairwise(emitted)), "seqs are lost"
    assert not notes(story), "the sources still had all readings"
    assert story.root().holes == ()
    story.every_guarantee_holds()


def test_the_deltas_were_cut_before_the_root_read_them() -> None:
    """Their writer could send these seqs, but has no reason to.

    The root's consumer is stalled; retention deletes unread deltas. The ordered log is complete,
    and the aggregator has sent all of them: it sends them again when the hole is reported.
    """
    story = Story(replicas=1)
    story.time_passes(3)
    story.world.deafen_root("root/q.0", 0, 0, us(1.5))
    story.time_passes(1.3)
    deltas = story.world.q.delta_log(0, 0, 0, 0)
    deltas.cut(deltas.end - 4)
    story.all_is_well_again()

    emitted = seqs(story)
    assert any(b < a for a, b in pairwise(emitted)), "some are sent twice"
    assert not notes(story)
    assert story.root().holes == ()
    story.every_guarantee_holds()


@pytest.mark.parametrize("restarted", [False, True])
def test_the_deltas_were_cut_under_a_parked_position(restarted: bool) -> None:
    """s1 is silent; the stable line is parked at a position in s2's deltas, which is deleted."""
    story = Story(
        children=(("s1",), ("s2",)), replicas=1, window_us=500_000, slide_us=500_000,
        ahead_buckets_max=20,
    )  # fmt: skip
    story.time_passes(4)
    story.silence("s1", for_s=10)
    story.time_passes(8)
    for line in (0, 1):
        deltas = story.world.q.delta_log(0, 1, 0, line)
        deltas.cut(deltas.end - 5)
    if restarted:
        story.kill("root/q.0")
    story.time_passes(4)
    story.all_is_well_again(10)

    assert not notes(story), "the sources still had all readings"
    story.every_guarantee_holds()


def test_the_root_takes_the_replica_that_lost_nothing() -> None:
    """Two versions of a bucket (trace-15).

    1. A's log is complete. B was down while retention deleted records of s1: its log has a gap.
    2. The root is behind, and B's deltas arrive first: A's aggregator is down.
    3. A's ordered log has the bucket, so the gap is not accepted. There is no stable answer until
       A's aggregator has restarted; in the meantime the answers are tentative.
    """
    story = b_has_a_gap(Story(replicas=2))
    story.start_again("root/q.0")
    story.time_passes(3)
    waiting = len(story.stable)
    story.start_again("aggregator/0")
    story.all_is_well_again(10)

    assert not notes(story)
    assert len(story.stable) > waiting + 4
    story.every_guarantee_holds()


def test_a_gap_that_every_replica_has_is_named() -> None:
    """A's logs are deleted as well (a new disk): no replica can have the bucket without a gap."""
    story = b_has_a_gap(Story(replicas=2))
    story.kill_for_good("orderer/q.0.a")
    for line in (0, 1):
        log = story.world.q.ordered_log(0, 0, line)
        log.cut(log.end)
    story.start_again("root/q.0")
    story.time_passes(4)
    assert notes(story), "waiting for A is useless"
    story.all_is_well_again(8)

    assert {gap.stream for note in notes(story) for gap in note.gap} == {"s1"}
    lost = [
        emitted.window
        for emitted in answers(story.world.history)
        if emitted.stable and emitted.lost
    ]
    assert lost
    assert len(story.stable) > 10, "and it continues"
    story.every_guarantee_holds()


def test_truncation_in_a_failure_keeps_what_is_to_be_corrected() -> None:
    """s1 is silent for long, and logs are truncated repeatedly meanwhile (dpc-15).

    The root's live line no longer needs s2's deltas since then, but its stable line does.
    """
    story = Story(
        children=(("s1",), ("s2",)), replicas=1, window_us=500_000, slide_us=500_000,
        ahead_buckets_max=20,
    )  # fmt: skip
    deltas = story.world.q.delta_log(0, 1, 0, 0)
    story.time_passes(4)
    story.silence("s1", for_s=10)
    for _ in range(8):
        story.time_passes(1)
        story.world.truncate()
    assert 0 < deltas.beginning < deltas.end - 60, "logs before the failure are truncated"
    story.time_passes(2)
    story.all_is_well_again(10)

    starts = [v for _, v in deltas.values() if isinstance(v, DeltaRecord) and v.kind is Kind.START]
    assert starts == [], "no writer had to send again"
    story.every_guarantee_holds()


def b_has_a_gap(story: Story) -> Story:
    story.time_passes(4)
    for name in ("aggregator/0", "root/q.0", "orderer/q.0.b"):
        story.kill_for_good(name)
    story.time_passes(4)
    story.world.cut("sw.source.s1", 5)
    story.start_again("orderer/q.0.b")
    story.time_passes(2)
    return story


def test_a_broker_that_is_away_is_asked_one_question_at_a_time() -> None:
    """A seq is lost and the broker is down for hours.

    Five requests per second would wait for it.
    """
    story = Story()
    log = DeltaLog(0, 0, LineName.STABLE)
    core = RootCore(
        story.world.q.root_config(0, 1),
        initial_state(story.world.q.root_config(0, 1)),
        suppress_until={},
    )
    start, later = (DeltaRecord(Kind.START, 0, 0, -1, 0, 0, seq) for seq in (0, 5))
    core.receive(log, 0, start)
    core.receive(log, 1, later)
    now = story.world.scheduler.now

    def asks(at: int) -> int:
        return sum(isinstance(effect, FetchOrdered) for effect in core.step(at))

    assert asks(now) == 1
    assert [asks(now + n * 1_000_000) for n in range(1, 60)] == [0] * 59
    assert core.wake_at is None or core.wake_at > now + 59_000_000, "and no check is needed"
    core.ordered({})
    assert asks(now + 60_000_000) == 1
