"""A client of offsets that has no answer for long is replaced: its leaders may have died."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from slackwater.runtime.logs import offsets
from slackwater.runtime.logs.cluster import Cluster, confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.offsets import OffsetsClient
from slackwater.runtime.logs.transport import NoAnswerError


class FakeConsumer:
    """A consumer whose leader is dead, or answers with offset 7."""

    def __init__(self, *, is_dead: bool) -> None:
        self.is_dead = is_dead

    def offsets_for_times(self, wanted: list[Any], timeout: float) -> list[Any]:
        assert timeout > 0
        if self.is_dead:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for at in wanted:
            at.offset = 7
        return wanted

    def poll(self, _timeout_s: float) -> None: ...


@pytest.mark.parametrize(("silent_s", "made"), [(0.0, 2), (60.0, 1)])
def test_a_client_without_an_answer_is_replaced(
    monkeypatch: pytest.MonkeyPatch, silent_s: float, made: int
) -> None:
    """Not for a request with a short time-out: the broker may be slow."""
    clients: list[FakeConsumer] = []

    def opened(_config: object) -> FakeConsumer:
        clients.append(FakeConsumer(is_dead=not clients))
        return clients[-1]

    monkeypatch.setattr(offsets, "Consumer", opened)
    monkeypatch.setattr(offsets, "confluent_consumer", lambda _: {})
    monkeypatch.setattr(offsets, "SILENT_S_MAX", silent_s)
    client = OffsetsClient("broker", {})
    with pytest.raises(NoAnswerError, match="gave no offsets of t:0"):
        client.ends([("t", 0)], "read_uncommitted", 0.01)
    if made == 2:
        assert client.ends([("t", 0)], "read_uncommitted", 0.01) == {("t", 0): 7}
    else:
        with pytest.raises(NoAnswerError):
            client.ends([("t", 0)], "read_uncommitted", 0.01)
    assert len(clients) == made


def test_a_client_that_was_idle_is_not_replaced_for_one_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last answer was an hour ago, and it has been asked in vain for 10 ms."""
    consumer = FakeConsumer(is_dead=False)
    made = [consumer]
    monkeypatch.setattr(offsets, "Consumer", lambda _: made.pop())
    monkeypatch.setattr(offsets, "confluent_consumer", lambda _: {})
    client = OffsetsClient("broker", {})
    monkeypatch.setattr("slackwater.runtime.logs.offsets.time.monotonic", lambda: 0.0)
    assert client.ends([("t", 0)], "read_uncommitted", 0.01) == {("t", 0): 7}
    monkeypatch.setattr("slackwater.runtime.logs.offsets.time.monotonic", lambda: 3_600.0)
    consumer.is_dead = True
    with pytest.raises(NoAnswerError):
        client.ends([("t", 0)], "read_uncommitted", 0.01)
    consumer.is_dead = False
    assert client.ends([("t", 0)], "read_uncommitted", 0.01) == {("t", 0): 7}


def test_a_client_that_is_seldom_polled_queues_no_log_lines() -> None:
    """What it queues while its broker is away has no bound, and is sorted when it is closed."""
    config = KafkaTransport("127.0.0.1:1")._offsets._config
    assert "logger" not in config
    assert config["log_level"] == 0


@pytest.mark.parametrize("where", ["127.0.0.1:1", Cluster("127.0.0.1:1")])
def test_a_client_that_knows_no_broker_begins_anew_but_not_after_a_time(
    where: str | Cluster,
) -> None:
    config = confluent_client(where)
    assert config["metadata.recovery.strategy"] == "rebootstrap"
    assert config["metadata.recovery.rebootstrap.trigger.ms"] == 2_147_483_647  # 24 days, the most
    Consumer(config | {"group.id": "g", "log_level": 0}).close()  # the library knows the settings
