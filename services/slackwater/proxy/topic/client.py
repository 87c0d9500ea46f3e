"""The interface of the Kafka client of a topic's input.

A client reads assigned partitions and returns runs of messages: one ``Fetched`` for consecutive
messages of a partition, and a ``Notice`` where the client reports the end of a partition or an
error. Within a partition the order is that of the log; a notice is at its place in this order.

The client library implements the protocol: changes of leaders, truncation after an unclean
election, transactions, checksums, TLS. A client of this module only converts the library's output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from confluent_kafka import KafkaError

from slackwater.model.records import NO_EPOCH, type_i64
from slackwater.proxy.topicmemory import UNKNOWN_OFFSET

NoticeKind = Literal["end", "missing", "gone", "error"]
"""``missing``: the topic cannot be read; ``gone``: the position is no longer in its log, or the log
was truncated before it."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Consecutive messages of one partition; a message without a value has an empty one.

    ``times`` (in ms, -1 for none) and ``keys`` (empty for none) are those of the records, if the
    client was opened to return them. ``epoch`` is the leader epoch of the last message, or
    ``NO_EPOCH``.
    """

    partition: int
    offsets: type_i64
    values: Sequence[bytes]
    times: type_i64 | None = None
    keys: Sequence[bytes] | None = None
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Notice:
    """An event of a partition; ``offset`` is valid for ``end`` only."""

    partition: int
    kind: NoticeKind
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class RecordParts:
    """What a client returns besides values."""

    times: bool = False
    keys: bool = False


VALUES_ONLY: Final = RecordParts()
NO_EPOCHS: Final[Mapping[int, int]] = {}
_TRUNCATED: Final = re.compile(r"log truncation detected at .*: broker end offset is (\d+)")


def truncated_at(gone: Notice) -> int:
    """Return the offset at which the log was truncated, or ``UNKNOWN_OFFSET``.

    The library keeps the leader epoch of the position, and of the messages that it has returned,
    and asks the leader where this epoch ends (KIP-320). It returns the answer in the text of the
    error only. There is none if the leader has no such epoch, or is not asked.
    """
    found = _TRUNCATED.search(gone.text)
    return UNKNOWN_OFFSET if found is None else int(found[1])


class TopicClient(Protocol):
    """Reads assigned partitions of one topic."""

    def assign(self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS) -> None:
        """Assign these partitions, starting at these offsets.

        ``epochs`` has, by partition, the leader epoch of the message before the offset or of a
        later one, where known. A log that has been truncated since is then noticed, also if it is
        longer again than the offset. An earlier epoch would pass for a truncation.
        """
        ...

    def read(self, wait_s: float) -> Sequence[Fetched | Notice]:
        """Return the available messages and notices; wait up to ``wait_s`` for the first message.

        Values may be in the client's memory; they are valid until ``release``.
        """
        ...

    def release(self) -> None:
        """Release the memory of the last read."""
        ...

    def metadata_count(self) -> int:
        """Return how many metadata responses the client has received.

        Messages that were returned before a greater number was may be of the topic's earlier id
        only; see ``watched``.
        """
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
