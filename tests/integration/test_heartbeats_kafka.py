"""Heartbeats on a real broker: ten a second, also while their owner is busy or the broker away."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.model.records import Hole
from slackwater.runtime.broker import EmbeddedBroker
from slackwater.runtime.heartbeats import HeartbeatListener, HeartbeatSender
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.topics import ensure_topics, topics_for
from slackwater.runtime.transport import read_to_end


@pytest.fixture
def listener(bootstrap: str) -> Iterator[HeartbeatListener]:
    ensure_topics(bootstrap, topics_for([], []))
    listening = HeartbeatListener(KafkaTransport(bootstrap)).start()
    yield listening
    listening.stop()


def test_a_process_is_heard_ten_times_a_second(bootstrap: str, listener: HeartbeatListener) -> None:
    sender = HeartbeatSender(bootstrap, "orderer/heard.0.a").start()
    assert listener.wait_for(lambda view: view.latest("orderer/heard.0.a") is not None, 20)
    assert not listener.ready("orderer/heard.0.a")
    hole = Hole("sw.ordered.heard.0", 2, 7)
    sender.update(inc=3, ready=True, states={"stable": "STABLE"}, holes=(hole,))
    assert listener.wait_for(lambda view: view.superseded("orderer/heard.0.a", 2), 20)
    beat = listener.latest("orderer/heard.0.a")
    assert beat is not None
    assert (beat.inc, beat.ready, beat.states) == (3, True, {"stable": "STABLE"})
    assert listener.ready("orderer/heard.0.a")
    assert listener.hole_in("sw.ordered.heard.0", 2, 7)
    assert not listener.superseded("orderer/heard.0.a", 3)
    heard = listener.heard("orderer/heard.0.a", now_us=10_000_000)
    assert heard is not None
    assert 8_000_000 < heard[1] <= 10_000_000
    assert listener.heard("orderer/heard.0.b", now_us=10_000_000) is None
    first = beat.at
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        sum(range(10_000))  # a busy owner
    assert listener.wait_for(
        lambda view: (view.latest("orderer/heard.0.a") or beat).at > first + 900_000, 20
    )
    sender.stop()
    beats = [
        record.timestamp_ms
        for record in read_to_end(KafkaTransport(bootstrap), ("sw.heartbeats", 0))
        if record.key == b"orderer/heard.0.a"
    ]
    per_s = (len(beats) - 1) / (beats[-1] - beats[0]) * 1000
    assert 7 < per_s < 11


def test_the_health_file_is_touched_while_the_owner_is_ready_and_speaks(
    bootstrap: str, listener: HeartbeatListener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = tmp_path / "healthy"
    sender = HeartbeatSender(bootstrap, "orderer/healthy.0.a", health_file=health).start()
    assert listener.wait_for(lambda view: view.latest("orderer/healthy.0.a") is not None, 20)
    assert not health.exists(), "not ready yet"

    def touched() -> bool:
        health.unlink(missing_ok=True)
        first = listener.latest("orderer/healthy.0.a")
        assert first is not None
        assert listener.wait_for(
            lambda view: (view.latest("orderer/healthy.0.a") or first).at > first.at + 500_000, 20
        )
        return health.exists()

    sender.update(ready=True)
    assert touched()
    monkeypatch.setattr("slackwater.runtime.heartbeats.unsaid_s_max", 0.0)
    touched()  # one may still have been under way
    assert not touched(), "an owner that says nothing new is not at work"
    sender.stop()


@pytest.mark.slow
def test_a_listener_and_a_sender_outlive_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        ensure_topics(broker.bootstrap, topics_for([], []))
        listener = HeartbeatListener(KafkaTransport(broker.bootstrap)).start()
        sender = HeartbeatSender(broker.bootstrap, "proxy/s").start()
        assert listener.wait_for(lambda view: view.latest("proxy/s") is not None, 20)
        broker.kill()
        before = listener.latest("proxy/s")
        assert before is not None
        asked = time.monotonic()
        sender.update(ready=True)
        assert time.monotonic() - asked < 0.5, "the owner does not wait for the broker"
        broker.start()
        assert listener.wait_for(
            lambda view: (view.latest("proxy/s") or before).at > before.at + 1_000_000, 30
        )
        assert listener.ready("proxy/s")
        sender.stop()
        listener.stop()
