"""Keys of the messages that a producer writes to a topic."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.unit.proxy.topic.test_queue_client import MockBroker

import slackwater
from slackwater.producer import ProducerError
from slackwater.producer.kafka_sink import record_keys

WAIT_S_MAX = 30.0


def messages(bootstrap: str, n: int) -> list[tuple[bytes | None, Any]]:
    """Return (key, value) of the messages of all partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition("lab", partition, 0) for partition in range(4)])
    found: list[tuple[bytes | None, Any]] = []
    while len(found) < n:
        for message in consumer.consume(n, 1.0):
            assert message.error() is None
            key = message.key()
            assert not isinstance(key, str)
            found.append((key, json.loads(message.value() or b"")))
    consumer.close()
    return found


def test_each_message_has_the_key_of_its_row() -> None:
    broker = MockBroker()
    with slackwater.Producer(
        bootstrap=broker.bootstrap, topic="lab", record_key="node", batch_readings=3
    ) as producer:
        producer.send({"node": ["a", None, "ü", "a"], "t": [1, 2, 3, 4]})
        producer.send({"node": "b", "t": 5})
    found = messages(broker.bootstrap, 5)
    assert sorted((value["t"], key) for key, value in found) == [
        (1, b"a"), (2, None), (3, "ü".encode()), (4, b"a"), (5, b"b"),
    ]  # fmt: skip
    with slackwater.Producer(bootstrap=broker.bootstrap, topic="lab") as producer:
        producer.send({"node": "b", "t": 6})
    assert [key for key, value in messages(broker.bootstrap, 6) if value["t"] == 6] == [None]


def test_a_key_is_a_text_or_a_whole_number() -> None:
    table = pa.table({"i": [7, None], "x": [1.5, 2.5]})
    assert list(record_keys(table, "i")) == [b"7", None]
    with pytest.raises(ProducerError, match="column 'x' is double, not text or integer"):
        record_keys(table, "x")
    with pytest.raises(ProducerError, match="record_key: the readings have no column 'y'"):
        record_keys(table, "y")


@pytest.mark.parametrize("form", ["json-array", "json-columns"])
def test_messages_of_several_readings_have_no_key(form: Any) -> None:
    with pytest.raises(ProducerError, match="record_key is for format json"):
        slackwater.Producer(bootstrap="b:1", topic="lab", format=form, record_key="node")


def test_requests_have_no_keys_of_records() -> None:
    with pytest.raises(ProducerError, match="record_key is for a topic"):
        slackwater.Producer("room", record_key="node")
