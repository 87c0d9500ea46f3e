"""Heartbeats on a real broker: they continue while their owner is busy or the broker is down."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.names import Names
from slackwater.model.records import Hole
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ensure_topics, topics_for
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.heartbeats import INTERVAL_S, HeartbeatListener, HeartbeatSender


@pytest.fixture
def listener(bootstrap: str) -> Iterator[HeartbeatListener]:
    ensure_topics(bootstrap, topics_for([], []), WAIT_S_MAX)
    listening = HeartbeatListener(KafkaTransport(bootstrap)).start()
    yield listening
    listening.stop()


def test_a_busy_process_sends_heartbeats_and_not_too_often(
    bootstrap: str, listener: HeartbeatListener
) -> None:
    began_s = time.monotonic()
    sender = HeartbeatSender(bootstrap, "orderer/heard.0.a", names=Names()).start()
    assert listener.wait_for(lambda view: view.latest("orderer/heard.0.a") is not None, WAIT_S_MAX)
    assert not listener.ready("orderer/heard.0.a")
    hole = Hole("sw.ordered.heard.0", 2, 7)
    sender.update(inc=3, ready=True, states={"stable": "STABLE"}, holes=(hole,))
    assert listener.wait_for(lambda view: view.superseded("orderer/heard.0.a", 2), WAIT_S_MAX)
    beat = listener.latest("orderer/heard.0.a")
    assert beat is not None
    assert (beat.inc, beat.ready, beat.states) == (3, True, {"stable": "STABLE"})
    eventually(lambda: listener.ready("orderer/heard.0.a"))
    eventually(lambda: listener.hole_in("sw.ordered.heard.0", 2, 7))
    assert listener.claimed("orderer/heard.0.a", 3) is None
    now_us = 1_000_000_000
    latest = listener.last_heartbeat("orderer/heard.0.a", now_us)
    assert latest is not None
    assert now_us - (time.monotonic() - began_s) * 1e6 <= latest[1] <= now_us
    assert listener.last_heartbeat("orderer/heard.0.b", now_us) is None
    while_busy, give_up = {beat.at}, time.monotonic() + WAIT_S_MAX
    while len(while_busy) < 6:
        assert time.monotonic() < give_up, "no heartbeat of a busy owner is received"
        sum(range(10_000))
        while_busy.add((listener.latest("orderer/heard.0.a") or beat).at)
    sender.stop()
    beats = [
        record.timestamp_ms
        for record in read_to_end(KafkaTransport(bootstrap), ("sw.heartbeats", 0))
        if record.key == b"orderer/heard.0.a"
    ]
    # One per interval at most, and one for each of the two outputs' states that changed.
    assert len(beats) - 1 <= (beats[-1] - beats[0]) / 1000 / INTERVAL_S + 3


def test_the_health_file_is_touched_while_the_owner_is_ready_and_speaks(
    bootstrap: str, listener: HeartbeatListener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = tmp_path / "healthy"
    sender = HeartbeatSender(
        bootstrap, "orderer/healthy.0.a", health_file=health, names=Names()
    ).start()
    assert listener.wait_for(
        lambda view: view.latest("orderer/healthy.0.a") is not None, WAIT_S_MAX
    )
    assert not health.exists(), "not ready yet"

    sender.update(ready=True)
    eventually(health.exists, "the file is there")
    monkeypatch.setattr("slackwater.runtime.service.heartbeats.UNREPORTED_S_MAX", 0.0)

    def left_alone() -> bool:
        health.unlink(missing_ok=True)
        first = listener.latest("orderer/healthy.0.a")
        assert first is not None
        assert listener.wait_for(
            lambda view: (view.latest("orderer/healthy.0.a") or first).at > first.at + 300_000,
            WAIT_S_MAX,
        )
        return not health.exists()

    # Not at once: a heartbeat may have been in flight.
    eventually(left_alone, "an owner without updates is not working")
    sender.stop()


@pytest.mark.slow
def test_a_listener_and_a_sender_outlive_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        ensure_topics(broker.bootstrap, topics_for([], []), WAIT_S_MAX)
        listener = HeartbeatListener(KafkaTransport(broker.bootstrap)).start()
        sender = HeartbeatSender(broker.bootstrap, "proxy/s", names=Names()).start()
        assert listener.wait_for(lambda view: view.latest("proxy/s") is not None, WAIT_S_MAX)
        broker.kill()
        before = listener.latest("proxy/s")
        assert before is not None
        sender.update(ready=True)  # and does not wait for the broker
        assert not broker.is_running()
        broker.start()
        assert listener.wait_for(
            lambda view: (view.latest("proxy/s") or before).at > before.at + 1_000_000, WAIT_S_MAX
        )
        eventually(lambda: listener.ready("proxy/s"))
        sender.stop()
        listener.stop()
