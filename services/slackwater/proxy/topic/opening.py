"""Opens a client of a topic: with messages as memory addresses or, if unavailable, as objects."""

from __future__ import annotations

import logging
from typing import Final

from slackwater.proxy.topic.client import VALUES_ONLY, RecordParts, TopicClient
from slackwater.proxy.topic.objects import ConfluentClient
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import client_config
from slackwater.runtime.logs.librdkafka import library
from slackwater.runtime.logs.topics import Config, confluent_consumer

_log = logging.getLogger(__name__)
QUEUED_MESSAGES: Final = 100_000
"""Messages of a partition that the client prefetches: a tenth of a second at a million per second.
A fetch that was sent meanwhile may take as long, if other partitions have no messages."""
PARTITION_FETCH_BYTES: Final = 1 << 20
"""Maximum bytes per partition and fetch, unless a batch is larger. A backlog is fetched partition
by partition: with 16 MiB the reader gets 250,000 small messages of one partition before those of
the next, so one source log is seconds ahead of the others, and windows miss their deadlines."""


def open_client(
    cluster: Cluster, topic: str, group: str, fetch_wait_ms: int, wanted: RecordParts = VALUES_ONLY
) -> TopicClient:
    """Return a client of the topic; a fetch without messages ends after ``fetch_wait_ms``."""
    config = consumer_config(cluster, group, fetch_wait_ms)
    try:
        from slackwater.proxy.topic.queue import QueueClient

        library()
    except Exception as error:  # noqa: BLE001 -- whatever hinders it, the topic is read
        _log.warning("topic %s is read message by message, at a lower rate: %s", topic, error)
        return ConfluentClient(topic, config, wanted)
    return QueueClient(topic, config, wanted)


def consumer_config(cluster: Cluster, group: str, fetch_wait_ms: int) -> Config:
    """Return librdkafka's settings for reading a topic.

    With the default ``fetch.queue.backoff.ms`` of one second, a reader that empties the queue in
    less time would wait for most of that second.
    """
    own = confluent_consumer(
        cluster,
        group_id=group,
        enable_partition_eof=True,
        queued_min_messages=QUEUED_MESSAGES,
        fetch_queue_backoff_ms=1,
        fetch_wait_max_ms=fetch_wait_ms,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
    )
    return client_config | own
