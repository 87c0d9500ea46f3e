"""Writes to Kafka: writers that leave no hole, and the producer that they share.

A producer that drops a record after a time-out leaves a hole, after which later records are
accepted (trace-1). There is therefore no delivery time-out, and the first record that the broker
rejects ends its writer.

One producer for each writer would be the simplest design: the producer could be purged when its
writer ends. But each producer has two threads and a connection, and sends a request for each
record, whereas the records of twenty streams at one cut point fit one request. A process that
writes many logs therefore has one ``LogProducer``, and a writer for each fragment or stream. Each
writer has its own bound of bytes in flight, and fails and waits alone, so a rejected record delays
no other writer. Records of a failed writer stay in the shared producer. They may be written after
the hole, like those of a paused writer, and readers drop them for the same reason (rule-10 and
rule-11).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from slackwater.runtime.logs.cluster import Where
from slackwater.runtime.logs.topics import confluent_producer
from slackwater.runtime.logs.transport import Log, NoAnswerError, WriterFailedError

RECORD_OVERHEAD_BYTES: Final = 600
"""Memory of a record in flight in addition to its value: client and delivery report (measured)."""
_DELIVERY_POLL_S: Final = 0.1


class LogProducer:
    """One Kafka producer, and the thread that serves its delivery reports."""

    def __init__(
        self,
        where: Where,
        config: Mapping[str, Any],
        *,
        in_flight_bytes_max: int,
        linger_ms: float = 0.0,
    ) -> None:
        assert in_flight_bytes_max > 0
        self._in_flight_bytes_max = in_flight_bytes_max
        self._config = {
            **confluent_producer(where),  # all acknowledged, in order, no delivery time-out
            **config,
            "linger.ms": linger_ms,
            # Twice the bound of all writers together, so that the writers' bound is effective.
            "queue.buffering.max.kbytes": 2 * in_flight_bytes_max // 1024 + 32 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
        self._client = Producer(self._config)
        self._is_broken = False
        self._writers: WeakSet[LogWriter] = WeakSet()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="deliveries", daemon=True)
        self._thread.start()

    def sole_writer(self, on_fatal: Callable[[str], None]) -> LogWriter:
        """Return the only writer; the producer ends with the writer, and is purged if it fails."""
        return self._writer(on_fatal, self._in_flight_bytes_max, is_sole=True)

    def writer(self, on_fatal: Callable[[str], None], *, in_flight_bytes_max: int) -> LogWriter:
        """Return one of several writers."""
        return self._writer(on_fatal, in_flight_bytes_max, is_sole=False)

    def close(self) -> None:
        """Close the producer; records in flight are dropped. Never raises."""
        self._ended = True
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._client.purge()

    # Called by its writers.

    def produce(
        self,
        log: Log,
        value: bytes | None,
        key: bytes | None,
        report: Callable[[KafkaError | None, Message], None],
    ) -> None:
        """Queue a record without waiting."""
        self._client.produce(log[0], value, key, log[1], on_delivery=report)

    def empty(self) -> None:
        """Drop queued records, without waiting for those that have been sent."""
        self._client.purge(blocking=False)

    def note(self, error: KafkaError) -> None:
        """Record an error; after a fatal one the next writer gets another Kafka client."""
        self._is_broken |= error.fatal()

    def _writer(
        self, on_fatal: Callable[[str], None], in_flight_bytes_max: int, *, is_sole: bool
    ) -> LogWriter:
        writer = LogWriter(self, on_fatal, in_flight_bytes_max, is_sole=is_sole)
        with self._lock:
            self._writers.add(writer)
            if self._is_broken:
                broken, self._client = self._client, Producer(self._config)
                self._is_broken = False
                broken.purge(blocking=False)
        return writer

    def _run(self) -> None:
        while not self._ended:
            try:
                self._client.poll(_DELIVERY_POLL_S)
            except Exception as error:  # noqa: BLE001 -- all writers depend on this thread
                with self._lock:
                    writers = list(self._writers)
                for writer in writers:
                    writer.fail(f"a delivery could not be reported: {error!r}")


class LogWriter:
    """Appends records and leaves no hole (rule-7).

    ``on_delivery`` and ``on_fatal`` are called in the producer's thread; in a program with an event
    loop they must use ``call_soon_threadsafe``.
    """

    def __init__(
        self,
        producer: LogProducer,
        on_fatal: Callable[[str], None],
        in_flight_bytes_max: int,
        *,
        is_sole: bool,
    ) -> None:
        assert in_flight_bytes_max > 0
        self.in_flight_bytes_max = in_flight_bytes_max
        self._producer = producer
        self._is_sole = is_sole
        self._on_fatal = on_fatal
        self._in_flight_bytes = 0
        self._delivered: dict[Log, int] = {}
        self._failed: str | None = None
        self._changed = threading.Condition()
        self._closing = False

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        on_delivery: Callable[[int], None] | None = None,
    ) -> None:
        """Append a record; waits only while the bytes in flight are at their bound."""
        size = len(value or b"") + RECORD_OVERHEAD_BYTES
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
            self._raise_if_failed()
            assert not self._closing, "append after close"
            # Inside the lock, so that the order of calls is the order in the log.
            self._in_flight_bytes += size
            report = partial(self._report, size, on_delivery)
            try:
                self._producer.produce((topic, partition), value, key, report)
            except (KafkaException, BufferError) as error:
                self._in_flight_bytes -= size
                if isinstance(error, KafkaException):
                    self._producer.note(error.args[0])
                self.fail(f"{topic}:{partition} takes no record of {size} bytes: {error}")
        self._raise_if_failed()

    def await_delivered(self, timeout_s: float | None = None) -> None:
        """Wait until all appended records are delivered; ``NoAnswerError`` after a time-out."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._failed is not None or self._in_flight_bytes == 0, timeout_s
            )
        self._raise_if_failed()
        if not done:
            raise NoAnswerError(f"{self._in_flight_bytes} bytes not delivered in {timeout_s} s")

    def delivered_to(self, topic: str, partition: int) -> int | None:
        """Return the offset after the last delivered record of a log; None before the first."""
        return self._delivered.get((topic, partition))

    @property
    def in_flight_bytes(self) -> int:
        """Memory of the records that are appended and not delivered, in bytes."""
        return self._in_flight_bytes

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for records in flight, at most ``timeout_s``, and end. Never raises."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.wait_for(
                lambda: self._failed is not None or self._in_flight_bytes == 0, timeout_s
            )
        if self._is_sole:
            self._producer.close()

    def fail(self, why: str) -> None:
        """End the writer after its first failure; records queued later are not sent."""
        with self._changed:
            if self._failed is not None:
                return
            self._failed = why
            self._changed.notify_all()
        if self._is_sole:
            self._producer.empty()
        self._on_fatal(why)

    def _has_room(self, size: int) -> bool:
        room = self._in_flight_bytes + size <= self.in_flight_bytes_max
        return room or self._in_flight_bytes == 0 or self._failed is not None

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise WriterFailedError(self._failed)

    def _report(
        self,
        size: int,
        on_delivery: Callable[[int], None] | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        try:
            if error is not None:
                self._refused(error, message, size)
            else:
                self._arrived(message, on_delivery)
        except Exception as fault:  # noqa: BLE001 -- ends this writer; others' reports follow
            self.fail(f"a delivery could not be reported: {fault!r}")
        finally:
            with self._changed:
                self._in_flight_bytes -= size
                self._changed.notify_all()

    def _refused(self, error: KafkaError, message: Message, size: int) -> None:
        self._producer.note(error)
        if not self._closing:
            self.fail(
                f"{message.topic()}:{message.partition()} refused a record of "
                f"{size - RECORD_OVERHEAD_BYTES} bytes: {error.str()}"
            )

    def _arrived(self, message: Message, on_delivery: Callable[[int], None] | None) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        if offset is None:
            # librdkafka infers a delivery from a later one, which is wrong where the broker had no
            # state of the producer (decision 94). The record may be missing.
            self.fail(f"{topic}:{partition} reports a record as delivered without an offset")
            return
        self._delivered[topic, partition] = offset + 1
        if on_delivery is not None and self._failed is None:
            on_delivery(offset)
