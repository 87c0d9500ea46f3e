"""Delivers batches to a topic that a stream declares, in its format.

With an identity each batch is one transaction, which also commits the sender's position, as the
offset of a consumer group for this sender only. The topic and the position are therefore always
consistent: after a crash the broker has both or neither, and no file is needed. Without an identity
the producer is idempotent: retries count once within one process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from slackwater.producer.columns import is_text
from slackwater.producer.json_messages import messages as encoded
from slackwater.producer.sink import Delivery, Format, ProducerError, TryAgain

TIMEOUT_S: Final = 60.0
RETRY_S: Final = 0.2
RETRIES_MAX: Final = 300
NO_COORDINATOR: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
CONNECTION: Final = {
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "reconnect.backoff.max.ms": 500,
}
"""Settings that ``config`` may replace. By default a device that was cut off, and whose connection
nothing has closed, waits 60 s for the answer to its last request, also if it is back after 10 s."""
MESSAGE_BYTES_MAX_DEFAULT: Final = 1_000_000
"""Default of the client's ``message.max.bytes``."""
FRAMING_BYTES_MAX: Final = 100
"""Bytes that the client counts beside the content of a message; it has 36 without a key."""
Message = tuple[bytes, bytes | None]
"""Value and key."""
GROUP: Final = "slackwater-producer-{}"


class KafkaSink:
    """Writes to one topic. ``identity`` is the same for all runs of one sender."""

    def __init__(
        self,
        topic: str,
        format_: Format,
        config: Mapping[str, Any],
        identity: str | None,
        record_key: str | None = None,
    ) -> None:
        """``record_key``: the column of which each message has its key, with format ``json``."""
        self._topic, self._format, self._identity = topic, format_, identity
        self._record_key = record_key
        self._config = {**CONNECTION, **config}
        self._bytes_max = message_bytes_max(config) - FRAMING_BYTES_MAX
        self._producer: Any = None
        self._failed: list[str] = []
        self._is_refused = False
        self._group: Any = None
        self._committed = 0

    def position(self) -> int:
        """Return the number of readings committed by earlier runs; abort their open transaction."""
        if self._identity is None:
            return 0
        try:
            self._open()
        except KafkaException as error:
            self.close()
            raise ProducerError(f"topic {self._topic}: {error}") from error
        return self._committed

    def deliver(self, batch: Delivery) -> Mapping[str, int]:
        """Write a batch; return the number of its readings."""
        if batch.position is None:
            raise ProducerError("ids are for HTTP: for a topic use producer_id")
        keys = record_keys(batch.table, self._record_key)
        values = encoded(batch.table, self._format, self._bytes_max)
        # With keys there is one message for each row, in their order.
        messages = zip(values, keys, strict=False)
        try:
            self._open()
            if self._identity is None:
                self._write(messages)
            elif self._committed < batch.position:
                self._commit(messages, batch.position)
        except (KafkaException, BufferError) as error:
            # The commit's outcome is unknown; the next opening reads the committed position.
            self.close()
            raise TryAgain(f"topic {self._topic}: {error}") from error
        return {"accepted": len(batch.table)}

    def close(self) -> None:
        """Release the connections."""
        self._producer = None

    def _open(self) -> None:
        if self._producer is not None:
            return
        # One request in flight: with more, librdkafka may lose the first batch (decision 94).
        config = {**self._config, "enable.idempotence": True, "max.in.flight": 1, "linger.ms": 5}
        self._failed.clear()
        if self._identity is None:
            self._producer = KafkaProducer(config)
            return
        group = GROUP.format(self._identity)
        producer = KafkaProducer({**config, "transactional.id": group})
        producer.init_transactions(TIMEOUT_S)
        consumer = Consumer({**self._config, "group.id": group, "enable.auto.commit": False})
        try:
            self._committed = max(0, self._committed_at(consumer).offset)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        self._producer = producer

    def _committed_at(self, consumer: Any) -> TopicPartition:
        """Return the committed offset, also while a coordinator is elected.

        The client repeats this request itself only on connection errors. On a new cluster the first
        request creates the topic of offsets, whose partitions have no leader yet.
        """
        found: TopicPartition
        for retries_left in reversed(range(RETRIES_MAX + 1)):
            try:
                (found,) = consumer.committed([TopicPartition(self._topic, 0)], TIMEOUT_S)
                break
            except KafkaException as error:
                if error.args[0].code() not in NO_COORDINATOR or not retries_left:
                    raise
                time.sleep(RETRY_S)
        return found

    def _commit(self, messages: Iterable[Message], position: int) -> None:
        self._producer.begin_transaction()
        try:
            self._write(messages)
        except ProducerError:
            self._producer.abort_transaction(TIMEOUT_S)
            raise
        offset = TopicPartition(self._topic, 0, position)
        self._producer.send_offsets_to_transaction([offset], self._group, TIMEOUT_S)
        self._producer.commit_transaction(TIMEOUT_S)
        self._committed = position

    def _write(self, messages: Iterable[Message]) -> None:
        for value, key in messages:
            self._producer.produce(self._topic, value, key, on_delivery=self._report)
            self._producer.poll(0)
        left = self._producer.flush(TIMEOUT_S)
        if self._is_refused:
            raise ProducerError(
                f"topic {self._topic} refuses a message by its size: set message.max.bytes in"
                " `config` to the topic's max.message.bytes or less"
            )
        if left or self._failed:
            raise BufferError(
                self._failed[0] if self._failed else f"{left} messages are not acknowledged"
            )

    def _report(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._is_refused |= error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            self._failed.append(str(error))


def record_keys(table: Any, column: str | None) -> Iterator[bytes | None]:
    """Return the key of each row, None without a column; raises ``ProducerError``.

    A key is a text or a whole number: what the key of a reading may be.
    """
    if column is None:
        return repeat(None)
    if column not in table.column_names:
        raise ProducerError(f"record_key: the readings have no column {column!r}")
    values = table.column(column)
    if not is_text(values.type) and not pa.types.is_integer(values.type):
        raise ProducerError(f"record_key: column {column!r} is {values.type}, not text or integer")
    return iter([None if key is None else str(key).encode() for key in values.to_pylist()])


def message_bytes_max(config: Mapping[str, Any]) -> int:
    """Return the client's limit of a message."""
    return int(config.get("message.max.bytes", MESSAGE_BYTES_MAX_DEFAULT))
