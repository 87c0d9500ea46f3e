"""Requests for offsets: a stuck client is replaced, a late one is waited for."""

from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.support.waiting import WAIT_S_MAX

from slackwater.runtime.logs.kafka import client_config
from slackwater.runtime.logs.offsets import OffsetsClient
from slackwater.runtime.logs.topics import ensure_topics, topics_for


class Stuck:
    """Has metadata of a topic that was being created, and never refreshes it."""

    asked = 0

    def offsets_for_times(
        self, wanted: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        self.asked += 1
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    def poll(self, timeout: float) -> None:
        """Return nothing."""


def test_a_client_with_outdated_metadata_is_replaced(bootstrap: str) -> None:
    ensure_topics(bootstrap, topics_for([], []), WAIT_S_MAX)
    client, stuck = OffsetsClient(bootstrap, client_config), Stuck()
    client._consumers["read_uncommitted"] = cast(Consumer, stuck)
    assert client.ends([("sw.registry", 0)], "read_uncommitted", WAIT_S_MAX).keys() == {
        ("sw.registry", 0)
    }
    assert stuck.asked == 1
