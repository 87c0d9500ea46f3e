"""What a topic's input needs from a Kafka client.

A client reads assigned partitions and hands over runs of messages: one ``Fetched`` for consecutive
messages of a partition, and a ``Notice`` where the client reports the end of a partition or an
error. Within a partition the order is that of the log; a notice stands where it was reported.

The protocol belongs to the client library: leaders that move, truncation after an unclean
election, transactions, checksums, TLS. A client here only shapes what the library hands over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from confluent_kafka import KafkaError

from slackwater.model.records import type_i64

NoticeKind = Literal["end", "missing", "gone", "error"]
"""``missing``: the topic cannot be read; ``gone``: its log does not hold the position."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Consecutive messages of one partition; a message without a value has an empty one."""

    partition: int
    offsets: type_i64
    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Notice:
    """What a client reports of a partition; ``offset`` is meant for ``end`` only."""

    partition: int
    kind: NoticeKind
    offset: int
    text: str


class TopicClient(Protocol):
    """Reads assigned partitions of one topic."""

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on."""
        ...

    def read(self, wait_s: float) -> Sequence[Fetched | Notice]:
        """Return what is available, waiting up to ``wait_s`` for a first message.

        Values may be in memory of the client; they are valid until ``release``.
        """
        ...

    def release(self) -> None:
        """Give the memory of the last read back to the client."""
        ...

    def close(self) -> None:
        """Close the client."""
        ...


_MISSING: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


def kind_of(code: int) -> NoticeKind:
    """Return what an error code of librdkafka means to a reader."""
    if code == KafkaError._PARTITION_EOF:
        return "end"
    if code == KafkaError._AUTO_OFFSET_RESET:
        return "gone"
    return "missing" if code in _MISSING else "error"
