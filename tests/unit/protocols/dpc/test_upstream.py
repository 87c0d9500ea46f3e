"""A consumer's choice of a replica from its heartbeats (DPC, Table II and section 5.1)."""

from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.upstream import STALE_US_MAX, Loss, Upstream, suspends

STABLE, UP_FAILURE, STABILIZATION = LineState


def test_a_word_counts_until_it_is_stale() -> None:
    upstream = Upstream(2)
    assert upstream.states(0) == [None, None]
    upstream.update(0, STABLE, 1_000)
    upstream.update(1, UP_FAILURE, 5_000)
    assert upstream.states(1_000 + STALE_US_MAX - 1) == [STABLE, UP_FAILURE]
    assert upstream.states(1_000 + STALE_US_MAX) == [None, UP_FAILURE]
    assert upstream.stable(1_000) == [True, False]
    assert upstream.notice(2_000) == 1_000 + STALE_US_MAX, "when the first report will be stale"
    assert upstream.notice(1_000 + STALE_US_MAX) == 5_000 + STALE_US_MAX
    assert upstream.notice(10**9) is None


def test_a_replica_that_falls_silent_is_lost_when_its_word_is_stale() -> None:
    upstream = Upstream(2)
    upstream.update(0, STABLE, 0)
    upstream.notice(0)
    upstream.notice(STALE_US_MAX - 1)
    assert upstream.lost is None
    upstream.notice(STALE_US_MAX + 500)
    assert upstream.lost == Loss(0, 0, STALE_US_MAX + 500)


def test_a_replica_that_reports_a_loss_is_lost_at_once() -> None:
    upstream = Upstream(1)
    upstream.update(0, STABLE, 0)
    upstream.notice(0)
    upstream.update(0, UP_FAILURE, 40_000)
    upstream.notice(41_000)
    assert upstream.lost == Loss(0, 40_000, 41_000)
    upstream.lost = None
    upstream.notice(42_000)
    assert upstream.lost is None, "a loss is reported once"


def test_a_child_is_suspended_when_all_active_replicas_stabilize() -> None:
    upstream = Upstream(2)
    assert not suspends(upstream.states(0)), "without any heartbeat there is no reason to wait"
    upstream.update(0, STABILIZATION, 0)
    assert suspends(upstream.states(0))
    upstream.update(1, UP_FAILURE, 0)
    assert not suspends(upstream.states(0)), "that one sends heartbeats"
    upstream.update(1, STABLE, 0)
    assert not suspends(upstream.states(0)), "that one will"
    upstream.update(0, STABILIZATION, STALE_US_MAX)
    assert suspends(upstream.states(STALE_US_MAX)), "the other one has ended"
    assert not suspends(upstream.states(2 * STALE_US_MAX)), "and now both are"


def test_a_stable_report_is_ignored_after_a_missed_deadline_until_progress() -> None:
    upstream = Upstream(2)
    upstream.has_come([500, 500])
    upstream.update(0, STABLE, 0)
    upstream.update(1, UP_FAILURE, 0)
    upstream.notice(0)
    upstream.doubt(1_000)
    assert upstream.states(1_000) == [None, UP_FAILURE]
    assert upstream.lost == Loss(0, 0, 1_000)
    upstream.update(0, STABLE, 2_000)
    upstream.has_come([500, 500])
    assert upstream.stable(2_000) == [False, False], "repeating it does not suffice"
    upstream.has_come([501, 500])
    assert upstream.stable(3_000) == [True, False]
    upstream.notice(3_000)
    assert upstream.lost is None, "no replica has replaced it"
