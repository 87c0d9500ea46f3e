"""Delivers batches to a topic that a stream declares, in its format.

With an identity each batch is one transaction, which also commits the sender's position, as the
offset of a consumer group for this sender only. The topic and the position are therefore always
consistent: after a crash the broker has both or neither, and no file is needed. Without an identity
the producer is idempotent: retries count once within one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from slackwater.producer.sink import Delivery, Format, ProducerError, TryAgain

TIMEOUT_S: Final = 60.0
READINGS_A_MESSAGE_MAX: Final = 4_096
"""Maximum readings of a ``json-columns`` message: far below Kafka's limit for tens of fields."""
GROUP: Final = "slackwater-producer-{}"


class KafkaSink:
    """Writes to one topic. ``identity`` is the same for all runs of one sender."""

    def __init__(
        self, topic: str, format_: Format, config: Mapping[str, Any], identity: str | None
    ) -> None:
        self._topic, self._format, self._identity = topic, format_, identity
        self._config = dict(config)
        self._producer: Any = None
        self._failed: list[str] = []
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
        messages = list(self._messages(batch.table))
        try:
            self._open()
            if self._identity is None:
                self._write(messages)
            elif self._committed < batch.position:
                self._producer.begin_transaction()
                self._write(messages)
                offset = TopicPartition(self._topic, 0, batch.position)
                self._producer.send_offsets_to_transaction([offset], self._group, TIMEOUT_S)
                self._producer.commit_transaction(TIMEOUT_S)
                self._committed = batch.position
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
            (found,) = consumer.committed([TopicPartition(self._topic, 0)], TIMEOUT_S)
            self._committed = max(0, found.offset)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        self._producer = producer

    def _write(self, messages: list[bytes]) -> None:
        for message in messages:
            self._producer.produce(self._topic, message, on_delivery=self._report)
            self._producer.poll(0)
        left = self._producer.flush(TIMEOUT_S)
        if left or self._failed:
            raise BufferError(
                self._failed[0] if self._failed else f"{left} messages are not acknowledged"
            )

    def _report(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _messages(self, table: Any) -> Iterator[bytes]:
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if pa.types.is_temporal(kind):
                raise ProducerError(
                    f"column {name!r} is {kind}: send times as numbers in the stream's unit"
                )
        if self._format == "json":
            yield from map(orjson.dumps, table.to_pylist())
            return
        for start in range(0, len(table), READINGS_A_MESSAGE_MAX):
            yield orjson.dumps(table.slice(start, READINGS_A_MESSAGE_MAX).to_pydict())
