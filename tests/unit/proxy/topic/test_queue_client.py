"""The client that returns memory addresses, on librdkafka's mock broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from slackwater.model.errors import EnvironmentProblem
from slackwater.proxy.topic import opening
from slackwater.proxy.topic.client import Fetched, Notice, TopicClient
from slackwater.proxy.topic.objects import ConfluentClient
from slackwater.proxy.topic.opening import consumer_config, open_client
from slackwater.proxy.topic.queue import QueueClient
from slackwater.runtime.logs.cluster import cluster_of

WAIT_S_MAX = 30.0
Make = Callable[[str, Any], TopicClient]
CLIENTS = pytest.mark.parametrize("make", [QueueClient, ConfluentClient])


class MockBroker:
    """A broker in the memory of a producer."""

    def __init__(self, **config: object) -> None:
        mock = {"test.mock.num.brokers": 1, "log_level": 2}
        self.producer = Producer(mock | {k.replace("_", "."): v for k, v in config.items()})
        (broker,) = self.producer.list_topics(timeout=WAIT_S_MAX).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"

    def write(self, topic: str, values: list[bytes | None], partition: int = 0) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=partition)
        assert self.producer.flush(WAIT_S_MAX) == 0

    def config(self) -> dict[str, Any]:
        return consumer_config(cluster_of(self.bootstrap), "test", 20)


@pytest.fixture(name="broker")
def _broker() -> MockBroker:
    return MockBroker()


def read_to_ends(client: TopicClient, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    """Return all messages by partition, up to the end of each."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    ended: set[int] = set()
    give_up = time.monotonic() + WAIT_S_MAX
    while len(ended) < partitions:
        assert time.monotonic() < give_up, f"{len(ended)} of {partitions} partitions have ended"
        for one in client.read(0.1):
            if isinstance(one, Fetched):
                found.setdefault(one.partition, []).extend(
                    zip(one.offsets.tolist(), list(one.values), strict=True)
                )
            elif one.kind == "end":
                assert one.offset == 1 + found[one.partition][-1][0]
                ended.add(one.partition)
        client.release()
    return found


@CLIENTS
def test_all_partitions_are_read_in_their_order_from_where_they_are_assigned(
    broker: MockBroker, make: Make
) -> None:
    wanted: dict[int, list[tuple[int, bytes]]] = {}
    for number in range(3):
        values = [b"%d-%d" % (number, i) for i in range(25_000)]
        broker.write("lab", list(values), number)
        wanted[number] = list(enumerate(values))[10 * number :]
    client = make("lab", broker.config())
    client.assign({number: 10 * number for number in range(3)})
    assert read_to_ends(client, 3) == wanted
    client.close()


@CLIENTS
def test_messages_have_the_epoch_of_their_leader(broker: MockBroker, make: Make) -> None:
    """The leaders of the mock broker have epoch 0."""
    for number in range(2):
        broker.write("lab", [b"one", b"two"], number)
    client = make("lab", broker.config())
    client.assign({0: 0, 1: 0})
    epochs: dict[int, int] = {}
    give_up = time.monotonic() + WAIT_S_MAX
    while len(epochs) < 2:
        assert time.monotonic() < give_up
        epochs |= {one.partition: one.epoch for one in client.read(0.1) if isinstance(one, Fetched)}
        client.release()
    client.close()
    assert epochs == {0: 0, 1: 0}


@CLIENTS
def test_a_message_without_a_value_is_empty(broker: MockBroker, make: Make) -> None:
    broker.write("lab", [b"one", None, b"", b"four"])
    client = make("lab", broker.config())
    client.assign({0: 0})
    assert [value for _, value in read_to_ends(client, 1)[0]] == [b"one", b"", b"", b"four"]
    client.close()


@CLIENTS
def test_a_position_beyond_the_end_is_gone(broker: MockBroker, make: Make) -> None:
    broker.write("lab", [b"one"])
    client = make("lab", broker.config())
    client.assign({0: 5_000})
    give_up = time.monotonic() + WAIT_S_MAX
    found: list[Fetched | Notice] = []
    while not found:
        assert time.monotonic() < give_up
        found = [*client.read(0.1)]
    assert [one.kind for one in found if isinstance(one, Notice)] == ["gone"]
    client.release()
    client.close()


def test_the_usual_client_hands_over_places_and_without_the_library_objects(
    broker: MockBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = cluster_of(broker.bootstrap)
    usual = open_client(cluster, "lab", "test", 20)
    assert isinstance(usual, QueueClient)
    usual.close()

    def missing() -> None:
        raise ImportError("no library")

    monkeypatch.setattr(opening, "library", missing)
    other = open_client(cluster, "lab", "test", 20)
    assert isinstance(other, ConfluentClient)
    assert "no library" in caplog.text
    other.close()


def test_a_setting_that_is_refused_is_named_and_its_value_is_not(broker: MockBroker) -> None:
    with pytest.raises(EnvironmentProblem, match=r"ssl\.key\.pem") as raised:
        QueueClient("lab", broker.config() | {"security.protocol": "ssl", "ssl.key.pem": "secret"})
    assert "secret" not in str(raised.value)


def test_what_the_library_logs_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No broker listens at this address."""
    config = consumer_config(cluster_of("127.0.0.1:1"), "test", 20)
    logger = logging.getLogger("test.queue_client")
    client = QueueClient("lab", config | {"logger": logger})
    client.assign({0: 0})
    give_up = time.monotonic() + WAIT_S_MAX
    while "127.0.0.1:1" not in caplog.text:
        assert time.monotonic() < give_up
        client.read(0.1)
    assert caplog.records[0].levelno >= logging.WARNING
    client.close()
    client.close()
