"""confluent-kafka's consumer as a client: an object per message, if there is no compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from slackwater.model.records import NO_EPOCH
from slackwater.proxy.topic.client import (
    NO_EPOCHS,
    VALUES_ONLY,
    Fetched,
    Notice,
    RecordParts,
    kind_of,
)
from slackwater.runtime.logs.topics import Config

MESSAGES_MAX: Final = 5_000
"""Maximum messages of one read. They are parsed in a few milliseconds."""


class ConfluentClient:
    """confluent-kafka's consumer: an object per message."""

    def __init__(self, topic: str, config: Config, wanted: RecordParts = VALUES_ONLY) -> None:
        self._topic, self._wanted = topic, wanted
        self._consumer = Consumer(config)
        self._assigned: list[TopicPartition] = []
        self._reads = 0

    def assign(self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS) -> None:
        """Assign these partitions, starting at these offsets; see ``TopicClient``."""
        self._consumer.assign(
            [
                TopicPartition(self._topic, p, at, leader_epoch=epochs.get(p, NO_EPOCH))
                for p, at in positions.items()
            ]
        )
        self._assigned = [TopicPartition(self._topic, p, OFFSET_END) for p in positions]

    def read(self, wait_s: float) -> list[Fetched | Notice]:
        """Return available messages and notices; wait up to ``wait_s`` for the first message."""
        messages = self._consumer.consume(MESSAGES_MAX, 0)
        if not messages and wait_s:
            first = self._consumer.poll(wait_s)
            messages = [] if first is None else [first, *self._consumer.consume(MESSAGES_MAX, 0)]
        self._reads += bool(messages)
        by_partition: dict[int, list[Message]] = {}
        for message in messages:
            by_partition.setdefault(message.partition() or 0, []).append(message)
        return [
            found
            for number, some in by_partition.items()
            for found in _in_order(number, some, self._wanted)
        ]

    def release(self) -> None:
        """Do nothing: values are bytes."""

    def metadata_count(self) -> int:
        """Return the number of reads, since this client does not tell of metadata."""
        return self._reads

    def pause(self) -> None:
        """Stop fetching; messages that were fetched and not read are fetched again later."""
        self._consumer.pause(self._assigned)

    def resume(self, timeout_s: float) -> dict[int, int] | None:
        """Continue to fetch, and return the partitions' end offsets; None without a response."""
        self._consumer.resume(self._assigned)
        try:
            found = self._consumer.offsets_for_times(self._assigned, timeout=timeout_s)
        except KafkaException:
            return None
        if any(at.error is not None or at.offset < 0 for at in found):
            return None
        return {at.partition: at.offset for at in found}

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _in_order(
    partition: int, messages: list[Message], wanted: RecordParts = VALUES_ONLY
) -> list[Fetched | Notice]:
    """Return runs of messages and the notices between them."""
    if not any(map(Message.error, messages)):
        return [_fetched(partition, messages, wanted)]
    found: list[Fetched | Notice] = []
    run: list[Message] = []
    for message in messages:
        error = message.error()
        if error is None:
            run.append(message)
            continue
        if run:
            found.append(_fetched(partition, run, wanted))
            run = []
        at = message.offset() or 0
        found.append(Notice(partition, kind_of(error.code()), at, error.str()))
    return [*found, _fetched(partition, run, wanted)] if run else found


def _fetched(partition: int, messages: list[Message], wanted: RecordParts = VALUES_ONLY) -> Fetched:
    values = [value or b"" for value in map(Message.value, messages)]
    times = np.array([_time(m) for m in messages], np.int64) if wanted.times else None
    keys = [_bytes(key) for key in map(Message.key, messages)] if wanted.keys else None
    first, last = messages[0].offset() or 0, messages[-1].offset() or 0
    if last - first == len(messages) - 1:
        offsets = np.arange(first, last + 1, dtype=np.int64)
    else:  # compaction and transactions leave holes in the offsets
        offsets = np.array([m.offset() for m in messages], np.int64)
    epoch: int | None = messages[-1].leader_epoch()  # None if unknown, whatever its type says
    return Fetched(partition, offsets, values, times, keys, NO_EPOCH if epoch is None else epoch)


def _time(message: Message) -> int:
    kind, time_ms = message.timestamp()
    return -1 if kind == TIMESTAMP_NOT_AVAILABLE else time_ms


def _bytes(key: str | bytes | None) -> bytes:
    return key.encode() if isinstance(key, str) else key or b""
