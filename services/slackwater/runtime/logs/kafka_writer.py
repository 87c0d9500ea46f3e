"""Writing to a real Kafka: writers that leave no hole, and the client that they share.

A producer that gives up on a record in time leaves a hole behind which later records are accepted
(trace-1), so there is no delivery time-out, and the first record that is refused ends its writer.

A client of its own for each writer would be the simplest: it could be emptied when its writer ends.
But a client is two threads, a connection, and a request for each record; what twenty streams write
at one cut point fits one request. So a process that writes many logs has one ``LogProducer``, and a
writer for each owner of logs: with its own bound of bytes in flight, its own failure and its own
waiting, so that a log that the broker does not take keeps nobody else waiting. What a writer that
has failed had in the shared client goes its way. It may arrive behind the hole, as a paused
writer's records may, and readers drop it for the same reason (rule-10 and rule-11).
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
"""What a record in flight takes beside its value, in the client and for its report (measured)."""
_DELIVERY_POLL_S: Final = 0.1


class LogProducer:
    """One client, and the thread that takes its delivery reports."""

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
            # Twice the bound of all writers together, which is the one that holds.
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
        """The only writer there will be: the client ends with it, and is emptied if it fails."""
        return self._writer(on_fatal, self._in_flight_bytes_max, is_sole=True)

    def writer(self, on_fatal: Callable[[str], None], *, in_flight_bytes_max: int) -> LogWriter:
        """Make one of several writers."""
        return self._writer(on_fatal, in_flight_bytes_max, is_sole=False)

    def close(self) -> None:
        """End; what is in flight is given up. Never raises."""
        self._ended = True
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._client.purge()

    # For its writers.

    def produce(
        self,
        log: Log,
        value: bytes,
        key: bytes | None,
        report: Callable[[KafkaError | None, Message], None],
    ) -> None:
        """Queue a record; waits for nothing."""
        self._client.produce(log[0], value, key, log[1], on_delivery=report)

    def empty(self) -> None:
        """Give up what is queued, without waiting for what the broker has been sent."""
        self._client.purge(blocking=False)

    def note(self, error: KafkaError) -> None:
        """After some errors a client takes no record of anybody: the next writer needs another."""
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
            except Exception as error:  # noqa: BLE001 -- without this thread all others would wait
                with self._lock:
                    writers = list(self._writers)
                for writer in writers:
                    writer.fail(f"a delivery could not be reported: {error!r}")


class LogWriter:
    """Appends records and leaves no hole (rule-7).

    ``on_delivery`` and ``on_fatal`` run in the client's thread: a shell on an event loop passes
    them on with ``call_soon_threadsafe``.
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
        value: bytes,
        key: bytes | None = None,
        on_delivery: Callable[[int], None] | None = None,
    ) -> None:
        """Append a record; waits only while the bytes in flight are at their bound."""
        size = len(value) + RECORD_OVERHEAD_BYTES
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
            self._raise_if_failed()
            assert not self._closing, "a closed writer writes nothing"
            # Under the lock, so that the order of calls is the order in the log.
            self._in_flight_bytes += size
            report = partial(self._report, size, on_delivery)
            try:
                self._producer.produce((topic, partition), value, key, report)
            except (KafkaException, BufferError) as error:
                self._in_flight_bytes -= size
                if isinstance(error, KafkaException):
                    self._producer.note(error.args[0])
                self.fail(f"{topic}:{partition} takes no record of {len(value)} bytes: {error}")
        self._raise_if_failed()

    def await_delivered(self, timeout_s: float | None = None) -> None:
        """Wait until all that was appended is delivered, else ``NoAnswerError``."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._failed is not None or self._in_flight_bytes == 0, timeout_s
            )
        self._raise_if_failed()
        if not done:
            raise NoAnswerError(f"{self._in_flight_bytes} bytes not delivered in {timeout_s} s")

    def delivered_to(self, topic: str, partition: int) -> int | None:
        """One past the offset of the last record delivered to the log; None before the first."""
        return self._delivered.get((topic, partition))

    @property
    def in_flight_bytes(self) -> int:
        """What is appended and not yet delivered takes in memory."""
        return self._in_flight_bytes

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what is in flight if the time allows, and end. Never raises."""
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
        """The first failure ends the writer: what is queued behind it is not to be sent."""
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
        except Exception as fault:  # noqa: BLE001 -- of this writer; other writers' reports follow
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
        assert offset is not None
        self._delivered[topic, partition] = offset + 1
        if on_delivery is not None and self._failed is None:
            on_delivery(offset)
