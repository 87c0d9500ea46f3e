"""The interface of the Kafka client of a topic's input.

A client reads assigned partitions and returns runs of messages: one ``Fetched`` for consecutive
messages of a partition, and a ``Notice`` where the client reports the end of a partition or an
error. Within a partition the order is that of the log; a notice is at its place in this order.

The client library implements the protocol: changes of leaders, truncation after an unclean
election, transactions, checksums, TLS. A client of this module only converts the library's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from confluent_kafka import KafkaError

from slackwater.model.records import type_i64

NoticeKind = Literal["end", "missing", "gone", "error"]
"""``missing``: the topic cannot be read; ``gone``: the position is no longer in its log."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Consecutive messages of one partition; a message without a value has an empty one."""

    partition: int
    offsets: type_i64
    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Notice:
    """An event of a partition; ``offset`` is valid for ``end`` only."""

    partition: int
    kind: NoticeKind
    offset: int
    text: str


class TopicClient(Protocol):
    """Reads assigned partitions of one topic."""

    def assign(self, positions: Mapping[int, int]) -> None:
        """Assign these partitions, starting at these offsets."""
        ...

    def read(self, wait_s: float) -> Sequence[Fetched | Notice]:
        """Return the available messages and notices; wait up to ``wait_s`` for the first message.

        Values may be in the client's memory; they are valid until ``release``.
        """
        ...

    def release(self) -> None:
        """Release the memory of the last read."""
        ...

    def pause(self) -> None:
        """Stop fetching; messages that were fetched and not read are fetched again later."""
        ...

    def resume(self, timeout_s: float) -> Mapping[int, int] | None:
        """Continue to fetch, and return the partitions' end offsets; None without a response.

        The request is part of resuming: it wakes the thread that fetches. librdkafka (2.14) does
        not wake it when a partition is resumed, and the next fetch may come a second later.
        """
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
    """Return the kind of notice for an error code of librdkafka."""
    if code == KafkaError._PARTITION_EOF:
        return "end"
    if code == KafkaError._AUTO_OFFSET_RESET:
        return "gone"
    return "missing" if code in _MISSING else "error"
