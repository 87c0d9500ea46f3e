"""A record that librdkafka only infers to be delivered (decision 94).

A broker that has no state of a producer accepts any sequence number. If it refuses the first of two
requests and accepts the second, librdkafka reports both as delivered, and the first is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.mock_cluster import NOT_LEADER, PRODUCE, MockCluster, mock_cluster

from slackwater.producer.kafka_sink import KafkaSink
from slackwater.producer.sink import Delivery
from slackwater.runtime.logs.kafka_writer import LogProducer
from slackwater.runtime.logs.transport import WriterFailedError

TOPIC: Final = "topic"
WAIT_S_MAX: Final = 30.0
REFUSED_AFTER_MS: Final = 1_000
"""Enough time to send the second request, if the client may."""
PIPELINED: Final = {"max.in.flight": 5}
A_RECORD_A_REQUEST: Final = {"batch.num.messages": 1, "log_level": 0}


def no_failure(why: str) -> None:
    raise AssertionError(why)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        yield cluster


def offsets_of_two_requests(
    cluster: MockCluster, config: dict[str, int], on_fatal: Callable[[str], None]
) -> list[int]:
    """Write two records to a new partition, whose leader refuses the first request."""
    config |= A_RECORD_A_REQUEST
    producer = LogProducer(cluster.bootstrap, config, in_flight_bytes_max=2**20)
    writer = producer.sole_writer(on_fatal)
    try:
        writer.append(TOPIC, 1, b"connected")
        writer.await_delivered(WAIT_S_MAX)
        offsets: list[int] = []
        cluster.refuse(PRODUCE, NOT_LEADER, after_ms=REFUSED_AFTER_MS)
        writer.append(TOPIC, 0, b"first", on_delivery=offsets.append)
        writer.append(TOPIC, 0, b"second", on_delivery=offsets.append)
        writer.await_delivered(WAIT_S_MAX)
        return offsets
    finally:
        producer.close()


def test_both_records_are_written_though_the_first_request_is_refused(
    cluster: MockCluster,
) -> None:
    assert offsets_of_two_requests(cluster, {}, no_failure) == [0, 1]


def test_a_writer_ends_at_a_delivery_without_an_offset(cluster: MockCluster) -> None:
    failed: list[str] = []
    with pytest.raises(WriterFailedError, match="without an offset"):
        offsets_of_two_requests(cluster, dict(PIPELINED), failed.append)
    assert len(failed) == 1


def test_the_producer_of_readings_sends_one_request_at_a_time(cluster: MockCluster) -> None:
    address = {"bootstrap.servers": cluster.bootstrap}
    sink = KafkaSink(TOPIC, "json", address | PIPELINED | A_RECORD_A_REQUEST, identity=None)
    table = pa.table({"value": list(range(40))})
    cluster.create(TOPIC, partitions=1)
    cluster.refuse(PRODUCE, NOT_LEADER, after_ms=REFUSED_AFTER_MS)
    sink.deliver(Delivery(table, "batch", 0))
    sink.close()
    assert written(cluster) == 40


def written(cluster: MockCluster) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "count"})
    try:
        partitions = consumer.list_topics(TOPIC, WAIT_S_MAX).topics[TOPIC].partitions
        logs = [TopicPartition(TOPIC, number) for number in partitions]
        return sum(consumer.get_watermark_offsets(log, WAIT_S_MAX)[1] for log in logs)
    finally:
        consumer.close()
