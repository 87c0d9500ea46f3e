"""The transport on a real Kafka, through librdkafka.

Three facts of the client shape this module. A producer that gives up on a record in time leaves a
hole behind which later records are accepted (trace R1), so there is no delivery time-out, and the
first record that is refused ends the writer. A consumer meets the end of a log as an event of its
own, and that event alone says that it has passed the markers of transactions. And both wait too
long for a broker that comes back, unless their back-off is bounded: a broker killed and restarted
costs us its own seconds and not the clients' as well.

aiokafka has the same functions for an event loop and a quicker fencing of transactions, which is
why the root uses it for its results; for bulk it needs four times the CPU.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from slackwater.runtime.incarnation import append_and_wait, start_incarnation
from slackwater.runtime.offsets import OffsetsClient
from slackwater.runtime.topics import confluent_consumer, confluent_producer, delete_records
from slackwater.runtime.transport import (
    Isolation,
    Log,
    LogError,
    NoAnswerError,
    PositionGoneError,
    RawRecord,
    WriterFailedError,
    read_range,
    read_to_end,
    record_bytes_max,
)

__all__ = [
    "KafkaTransport",
    "LogReader",
    "LogWriter",
    "append_and_wait",
    "read_range",
    "read_to_end",
    "start_incarnation",
]

_log = logging.getLogger(__name__)
_repeat_s_min = 30.0


class _OncePerOutage(logging.Filter):
    """A client that cannot connect says so at each attempt; twenty lines a second tell no more."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        facility = record.getMessage().split(" ", 1)[0]
        now_s = time.monotonic()
        if now_s - self._said.get(facility, -_repeat_s_min) < _repeat_s_min:
            return False
        self._said[facility] = now_s
        return True


_client_log = logging.getLogger(f"{__name__}.client")
_client_log.addFilter(_OncePerOutage())

# A batch around the largest record; the broker and the topics allow the same.
_batch_bytes_max = record_bytes_max + 64 * 1024
_delivery_poll_s = 0.1
record_overhead_bytes = 600
"""What a record in flight takes beside its value, in the client and for its report (measured)."""
_fetch_wait_ms = 50


# What every client shares beyond topics.toml: quick to come back, quiet while it cannot.
client_config: dict[str, Any] = {
    # A dozen processes with half a dozen clients each try again while a broker is away: at 20 ms
    # they took both cores of a small machine from the broker that was starting (34 s, not 9).
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 250,
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    # A machine that is gone answers nothing. A broker's first answer is included.
    "socket.connection.setup.timeout.ms": 2000,
    "log.connection.close": False,
    "logger": _client_log,
}


class KafkaTransport:
    """Logs of one Kafka cluster. Cheap: clients are made when they are asked for."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._offsets = OffsetsClient(bootstrap, client_config)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="offsets")

    def writer(
        self,
        on_fatal: Callable[[str], None],
        *,
        in_flight_bytes_max: int = 64 * 1024 * 1024,
        linger_ms: float = 0.0,
    ) -> LogWriter:
        """A writer that never leaves a hole."""
        return LogWriter(
            self.bootstrap,
            on_fatal,
            in_flight_bytes_max=in_flight_bytes_max,
            linger_ms=linger_ms,
        )

    def reader(
        self,
        *,
        isolation: Isolation = "read_uncommitted",
        prefetch_kib_max: int = 16 * 1024,
        gather_ms: int = 0,
    ) -> LogReader:
        """A reader without any log yet."""
        return LogReader(
            self.bootstrap,
            isolation=isolation,
            prefetch_kib_max=prefetch_kib_max,
            gather_ms=gather_ms,
        )

    def end_offsets(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float = 10.0,
    ) -> dict[Log, int]:
        """Where each log ends now; under read_committed the last stable offset."""
        return self._offsets.ends(logs, isolation, timeout_s)

    def beginning_offsets(self, logs: Iterable[Log], *, timeout_s: float = 10.0) -> dict[Log, int]:
        """The first offset that each log still holds."""
        return self._offsets.beginnings(logs, timeout_s)

    async def end_offsets_async(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float,
    ) -> dict[Log, int] | None:
        """Where each log ends now, without blocking the loop; None = no answer in time."""
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(
            self._threads, self._offsets.ends, list(logs), isolation, timeout_s
        )
        # Waited for without being cancelled: the thread gives up by itself.
        done, _ = await asyncio.wait([asked], timeout=timeout_s)
        asked.add_done_callback(_heed)
        try:
            return asked.result() if done else None
        except NoAnswerError:
            return None

    def delete_records(self, before: Mapping[Log, int], *, timeout_s: float = 30.0) -> None:
        """Give up what lies below these offsets (an offset beyond the end is the end)."""
        if not before:
            return
        ends = self.end_offsets(before, timeout_s=timeout_s)
        allowed = {log: min(offset, ends[log]) for log, offset in before.items()}
        delete_records(self.bootstrap, allowed, timeout_s)


def _heed(answer: asyncio.Future[Any]) -> None:
    """Look at an answer that comes too late, so that its error is not reported as unseen."""
    if not answer.cancelled():
        answer.exception()


class LogWriter:
    """Appends records and leaves no hole (rule 7).

    A thread of its own takes the delivery reports, so ``on_delivery`` and ``on_fatal`` run there:
    a shell on an event loop passes them on with ``call_soon_threadsafe``.
    """

    def __init__(
        self,
        bootstrap: str,
        on_fatal: Callable[[str], None],
        *,
        in_flight_bytes_max: int = 64 * 1024 * 1024,
        linger_ms: float = 0.0,
    ) -> None:
        assert in_flight_bytes_max > 0
        self._on_fatal = on_fatal
        self._in_flight_bytes_max = in_flight_bytes_max
        self._in_flight_bytes = 0
        self._delivered: dict[Log, int] = {}
        self._failed: str | None = None
        self._changed = threading.Condition()
        self._closing = self._ended = False
        self._producer = Producer(
            confluent_producer(bootstrap)  # all acknowledged, in order, no delivery time-out
            | client_config
            | {
                "linger.ms": linger_ms,
                # Twice our own bound, which is the one that holds.
                "queue.buffering.max.kbytes": 2 * in_flight_bytes_max // 1024 + 32 * 1024,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._thread = threading.Thread(target=self._run, name="deliveries", daemon=True)
        self._thread.start()

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        key: bytes | None = None,
        on_delivery: Callable[[int], None] | None = None,
    ) -> None:
        """Append a record; waits only while the bytes in flight are at their bound."""
        size = len(value) + record_overhead_bytes
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
            self._raise_if_failed()
            assert not self._closing, "a closed writer writes nothing"
            # Under the lock, so that the order of calls is the order in the log.
            self._in_flight_bytes += size
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=partial(self._report, size, on_delivery),
                )
            except (KafkaException, BufferError) as error:
                self._in_flight_bytes -= size
                self._fail(f"{topic}:{partition} takes no record of {len(value)} bytes: {error}")
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
        self._ended = True
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._producer.purge()

    def _has_room(self, size: int) -> bool:
        room = self._in_flight_bytes + size <= self._in_flight_bytes_max
        return room or self._in_flight_bytes == 0 or self._failed is not None

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise WriterFailedError(self._failed)

    def _run(self) -> None:
        while not self._ended:
            try:
                self._producer.poll(_delivery_poll_s)
            except Exception as error:  # noqa: BLE001 -- without this thread all others would wait
                self._fail(f"a delivery could not be reported: {error!r}")

    def _report(
        self,
        size: int,
        on_delivery: Callable[[int], None] | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        if error is not None:
            if not self._closing:
                self._fail(
                    f"{message.topic()}:{message.partition()} refused a record of "
                    f"{size - record_overhead_bytes} bytes: {error.str()}"
                )
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self._delivered[topic, partition] = offset + 1
        if on_delivery is not None and self._failed is None:
            on_delivery(offset)
        with self._changed:
            self._in_flight_bytes -= size
            self._changed.notify_all()

    def _fail(self, why: str) -> None:
        """The first failure ends the writer: what is queued behind it must not be sent."""
        with self._changed:
            if self._failed is not None:
                return
            self._failed = why
            self._changed.notify_all()
        self._producer.purge(blocking=False)
        self._on_fatal(why)


class LogReader:
    """Reads logs from given positions, without a group and without committed offsets."""

    def __init__(
        self,
        bootstrap: str,
        *,
        isolation: Isolation = "read_uncommitted",
        prefetch_kib_max: int = 16 * 1024,
        gather_ms: int = 0,
    ) -> None:
        self._positions: dict[Log, int] = {}
        self._pending: list[LogError] = []
        """At most one of a log: the client says it once and then reads it no more."""
        self._consumer = Consumer(
            confluent_consumer(bootstrap)  # no commits, no automatic reset
            | client_config
            | {
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                # Also how long the end of a log behind a transaction's marker takes to be seen,
                # and how long a newly assigned log waits for a fetch under way.
                "fetch.wait.max.ms": gather_ms or _fetch_wait_ms,
                "fetch.min.bytes": 1024 * prefetch_kib_max if gather_ms else 1,
                "fetch.queue.backoff.ms": 5,  # by default a full prefetch costs a pause of 1 s
                "queued.max.messages.kbytes": prefetch_kib_max,
                # A record above this is fetched all the same, alone.
                "fetch.message.max.bytes": min(_batch_bytes_max, 256 * prefetch_kib_max),
                "fetch.max.bytes": max(_batch_bytes_max, 1024 * prefetch_kib_max),
                "message.max.bytes": record_bytes_max,
            }
        )

    def assign(self, positions: Mapping[Log, int]) -> None:
        """Read these logs, from these offsets, beside those already read; again = seek."""
        assert all(offset >= 0 for offset in positions.values()), f"no offset: {positions}"
        if not positions:
            return
        self.unassign(log for log in positions if log in self._positions)
        self._consumer.incremental_assign(
            [TopicPartition(*log, offset) for log, offset in positions.items()]
        )
        self._positions.update(positions)

    def unassign(self, logs: Iterable[Log]) -> None:
        """Read these logs no more; records fetched ahead are dropped."""
        gone = [log for log in logs if log in self._positions]
        if not gone:
            return
        self._consumer.incremental_unassign([TopicPartition(*log) for log in gone])
        for log in gone:
            del self._positions[log]
        self._pending = [
            error
            for error in self._pending
            if not (isinstance(error, PositionGoneError) and error.log in gone)
        ]

    def poll(self, records_max: int = 1000, timeout_s: float = 0.0) -> list[RawRecord]:
        """Records that are there; waits only for the first, raises ``PositionGoneError``."""
        self._raise_pending()
        # consume() with a time-out waits until it has as many as were asked for, so the first
        # record is waited for alone.
        records: list[RawRecord] = []
        messages = self._consumer.consume(records_max, 0)
        if not messages and timeout_s > 0:
            first = self._consumer.poll(timeout_s)
            messages = [] if first is None else [first]
            if first is not None and records_max > 1:
                messages += self._consumer.consume(records_max - 1, 0)
        for message in messages:
            self._take(message, records)
        if not records:
            self._raise_pending()
        return records

    def position(self, log: Log) -> int:
        """Every visible record below it has been handed over."""
        return self._positions[log]

    @property
    def assigned(self) -> frozenset[Log]:
        """The logs being read."""
        return frozenset(self._positions)

    def close(self) -> None:
        """Leave; takes a few milliseconds."""
        self._positions.clear()
        self._consumer.close()

    def _raise_pending(self) -> None:
        if self._pending:
            raise self._pending.pop(0)

    def _take(self, message: Message, records: list[RawRecord]) -> None:
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            if error is not None and error.fatal():
                raise LogError(f"the reader has failed: {error.str()}")
            return  # an error of the client as a whole: brokers down, and the like; it goes on
        log = (topic, partition)
        if log not in self._positions:
            return
        if error is None:
            self._positions[log] = offset + 1
            records.append(
                RawRecord(
                    *log, offset, message.timestamp()[1], message.key(), message.value() or b""
                )
            )
        elif error.code() == KafkaError._PARTITION_EOF:
            self._positions[log] = max(self._positions[log], offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._pending.append(PositionGoneError(topic, partition, self._positions[log]))
        elif error.code() in _transient:
            _log.debug("%s:%s: %s", topic, partition, error.str())
        else:
            self._pending.append(LogError(f"{topic}:{partition} cannot be read: {error.str()}"))


# The client goes on by itself after these; the broker is on its way up or down.
_transient = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
