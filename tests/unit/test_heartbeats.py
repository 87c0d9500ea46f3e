"""What is made of heartbeats: superseded, holes, ready, and two processes under one name."""

from dataclasses import replace

from slackwater.model.records import Heartbeat, Hole
from slackwater.runtime.heartbeats import HeartbeatView, believable, stale_s, states_s_max

A = Heartbeat(
    process="orderer/climate.0.a", pid=10, started_at=1_000, at=2_000, inc=5, ready=True, states={}
)


def test_rule_6_a_greater_incarnation_supersedes_for_good() -> None:
    view = HeartbeatView()
    assert not view.superseded(A.process, 5)
    view.hear(A, 0.0)
    assert not view.superseded(A.process, 5)
    view.hear(replace(A, pid=11, started_at=3_000, inc=9), 0.1)
    assert view.superseded(A.process, 5)
    assert not view.superseded(A.process, 9)
    assert not view.superseded("orderer/climate.0.b", 5)
    view.hear(A, 100.0)  # the zombie wakes up and is all that is heard
    assert view.superseded(A.process, 5)


def test_of_two_under_one_name_the_later_start_counts_while_it_speaks() -> None:
    view = HeartbeatView()
    successor = replace(A, pid=11, started_at=3_000, inc=-1, ready=False)
    view.hear(A, 0.0)
    view.hear(successor, 0.1)
    view.hear(A, 0.2)
    assert view.latest(A.process) == successor
    view.hear(A, 0.1 + stale_s + 0.01)  # the successor has died
    assert view.latest(A.process) == A


def test_rule_11_a_hole_in_my_log_is_heard_until_its_witness_falls_silent() -> None:
    view = HeartbeatView()
    view.hear(replace(A, process="root/climate.0", holes=(Hole("sw.ordered.q.0", 2, 5),)), 0.0)
    assert view.hole_in("sw.ordered.q.0", 2, 5, now_s=0.1)
    assert not view.hole_in("sw.ordered.q.0", 2, 6, now_s=0.1), "an older incarnation's hole"
    assert not view.hole_in("sw.ordered.q.0", 0, 5, now_s=0.1)
    assert not view.hole_in("sw.ordered.q.0", 2, 5, now_s=stale_s + 0.1)
    view.hear(replace(A, process="root/climate.0"), 0.2)
    assert not view.hole_in("sw.ordered.q.0", 2, 5, now_s=0.3)


def test_ready_and_age() -> None:
    view = HeartbeatView()
    assert view.age_ms(A.process, 5.0) is None
    assert not view.ready(A.process, 5.0)
    view.hear(replace(A, ready=False), 1.0)
    assert not view.ready(A.process, 1.1)
    view.hear(A, 2.0)
    assert view.ready(A.process, 2.1)
    assert view.age_ms(A.process, 2.25) == 250.0
    assert not view.ready(A.process, 2.1 + stale_s)
    assert view.all() == {A.process: A}


def test_a_hung_owner_says_nothing_of_its_outputs_though_its_heart_beats() -> None:
    """Heartbeats are a thread: an orderer that hangs went on saying STABLE, and was waited for."""
    beat = replace(A, states={"sw.ordered.climate.0": "STABLE"})
    assert believable(beat, states_s_max) == beat
    hung = believable(beat, states_s_max + 0.001)
    assert hung.states == {}
    assert hung.detail == {}, "how far it has come is said by one that goes on"
    assert hung.ready
    assert hung.inc == beat.inc, "who it is remains true"
