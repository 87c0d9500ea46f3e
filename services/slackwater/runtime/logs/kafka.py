"""The transport on a real Kafka, through librdkafka.

Two properties of the client determine this module. First, the client reports the end of a log as
an event, and only this event shows that the position has passed the markers of transactions.
Second, clients by default wait too long before they reconnect to a restarted broker. Their back-off
is bounded here, so that an outage lasts no longer than the broker's restart. Writing is in
``kafka_writer``.

The other client library, aiokafka, needs four times the CPU for bulk reading. It fences
transactions sooner, so the root writes its results with it (decision 4).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from slackwater.model.limits import PREFETCH_KIB_MAX
from slackwater.model.names import UNPREFIXED, Names
from slackwater.runtime.logs.cluster import Where, cluster_of
from slackwater.runtime.logs.incarnation import append_and_wait, start_incarnation
from slackwater.runtime.logs.kafka_writer import LogProducer, LogWriter
from slackwater.runtime.logs.offsets import OffsetsClient
from slackwater.runtime.logs.topics import confluent_consumer, delete_records
from slackwater.runtime.logs.transport import (
    FETCH_WAIT_MS,
    RECORD_BYTES_MAX,
    Isolation,
    Log,
    LogError,
    Marker,
    NoAnswerError,
    PositionGoneError,
    RawRecord,
    extents,
    read_range,
    read_to_end,
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
_REPEAT_S_MIN = 30.0


class _OncePerOutage(logging.Filter):
    """Passes one connection error of each kind in ``_REPEAT_S_MIN``; a client logs 20 a second.

    A broker that has just started loads its coordinators: the client waits, and nothing is wrong.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if "Coordinator load in progress" in message:
            return False
        facility = message.split(" ", 1)[0]
        now_s = time.monotonic()
        if now_s - self._logged_at.get(facility, -_REPEAT_S_MIN) < _REPEAT_S_MIN:
            return False
        self._logged_at[facility] = now_s
        return True


_client_log = logging.getLogger(f"{__name__}.client")
_client_log.addFilter(_OncePerOutage())

# A batch that contains the largest record; the limits of broker and topics are the same.
_BATCH_BYTES_MAX = RECORD_BYTES_MAX + 64 * 1024


# Settings of every client in addition to topics.toml: soon reconnected, few log lines.
client_config: dict[str, Any] = {
    # A dozen processes with half a dozen clients each try to reconnect while a broker is down. With
    # 20 ms they occupied both cores of a small machine, and the broker started in 34 s, not in 9 s.
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 250,
    "socket.nagle.disable": True,
    "socket.keepalive.enable": True,
    # Limit of an attempt to reach a machine that is down; includes the broker's first response.
    "socket.connection.setup.timeout.ms": 2000,
    "log.connection.close": False,
    "logger": _client_log,
}
unpolled_config: dict[str, Any] = {k: v for k, v in client_config.items() if k != "logger"} | {
    "log_level": 0
}
"""The same for a client that is polled only when it is used.

With a logger a client queues its log lines until it is polled: several a second without a broker,
without a bound. A client that is closed sorts what is queued; after half an hour without a broker
that took more than nine minutes.
"""


class KafkaTransport:
    """Logs of a deployment on a Kafka cluster. Cheap: clients are created on first use."""

    def __init__(self, where: Where, names: Names = UNPREFIXED) -> None:
        self.cluster = cluster_of(where)
        self.names = names
        self._offsets = OffsetsClient(self.cluster, unpolled_config)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="offsets")

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses of the brokers."""
        return self.cluster.bootstrap

    def writer(
        self,
        on_fatal: Callable[[str], None],
        *,
        in_flight_bytes_max: int = 64 * 1024 * 1024,
        linger_ms: float = 0.0,
    ) -> LogWriter:
        """Return a writer that never leaves a hole."""
        producer = LogProducer(
            self.cluster,
            client_config,
            in_flight_bytes_max=in_flight_bytes_max,
            linger_ms=linger_ms,
        )
        return producer.sole_writer(on_fatal)

    def producer(self, *, in_flight_bytes_max: int, linger_ms: float = 0.0) -> LogProducer:
        """Return a producer shared by several writers."""
        return LogProducer(
            self.cluster,
            client_config,
            in_flight_bytes_max=in_flight_bytes_max,
            linger_ms=linger_ms,
        )

    def reader(
        self,
        *,
        isolation: Isolation = "read_uncommitted",
        prefetch_kib_max: int = PREFETCH_KIB_MAX,
        gather_ms: int = 0,
        fetch_wait_ms_max: int = FETCH_WAIT_MS,
    ) -> LogReader:
        """Return a reader without logs."""
        return LogReader(
            self.cluster,
            group_id=self.names.assigned_group,
            isolation=isolation,
            prefetch_kib_max=prefetch_kib_max,
            gather_ms=gather_ms,
            fetch_wait_ms_max=fetch_wait_ms_max,
        )

    def end_offsets(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float = 10.0,
    ) -> dict[Log, int]:
        """Return the end offset of each log; under read_committed the last stable offset."""
        return self._offsets.ends(logs, isolation, timeout_s)

    def beginning_offsets(self, logs: Iterable[Log], *, timeout_s: float = 10.0) -> dict[Log, int]:
        """Return the first offset that each log still holds."""
        return self._offsets.beginnings(logs, timeout_s)

    async def end_offsets_async(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float,
    ) -> dict[Log, int] | None:
        """Return end offsets without blocking the event loop; None without an answer in time."""
        loop = asyncio.get_running_loop()
        request = loop.run_in_executor(
            self._threads, self._offsets.ends, list(logs), isolation, timeout_s
        )
        # The request is not cancelled after the time-out: its thread ends by itself.
        done, _ = await asyncio.wait([request], timeout=timeout_s)
        request.add_done_callback(_retrieve_error)
        try:
            return request.result() if done else None
        except NoAnswerError:
            return None

    def markers(self, log: Log, *, timeout_s: float = 10.0) -> list[Marker]:
        """Return the transaction markers that the log holds now, in order."""
        # Imported here, since aiokafka is not in every image.
        from slackwater.runtime.logs.markers import fetch_markers

        start, end = extents(self, [log], timeout_s=timeout_s)[log]
        return fetch_markers(self.cluster, log, start, end, timeout_s)

    def delete_records(self, before: Mapping[Log, int], *, timeout_s: float = 30.0) -> None:
        """Delete the records below these offsets; an offset beyond the end means the end."""
        if not before:
            return
        ends = self.end_offsets(before, timeout_s=timeout_s)
        allowed = {log: min(offset, ends[log]) for log, offset in before.items()}
        delete_records(self.cluster, allowed, timeout_s)


def _retrieve_error(answer: asyncio.Future[Any]) -> None:
    """Retrieve the error of a late answer, so that asyncio does not log it as never retrieved."""
    if not answer.cancelled():
        answer.exception()


class LogReader:
    """Reads logs from given positions, without a group and without committed offsets."""

    def __init__(
        self,
        where: Where,
        *,
        group_id: str = UNPREFIXED.assigned_group,
        isolation: Isolation = "read_uncommitted",
        prefetch_kib_max: int = PREFETCH_KIB_MAX,
        gather_ms: int = 0,
        fetch_wait_ms_max: int = FETCH_WAIT_MS,
    ) -> None:
        self._positions: dict[Log, int] = {}
        self._pending: list[LogError] = []
        """At most one per log: the client reports an error once and stops reading the log."""
        self._consumer = Consumer(
            confluent_consumer(where, group_id=group_id)  # no commits, no automatic reset
            | client_config
            | {
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "fetch.wait.max.ms": gather_ms or fetch_wait_ms_max,
                "fetch.min.bytes": 1024 * prefetch_kib_max if gather_ms else 1,
                "fetch.queue.backoff.ms": 5,  # by default a full prefetch costs a pause of 1 s
                "queued.max.messages.kbytes": prefetch_kib_max,
                # A larger record is still fetched, alone.
                "fetch.message.max.bytes": min(_BATCH_BYTES_MAX, 256 * prefetch_kib_max),
                "fetch.max.bytes": max(_BATCH_BYTES_MAX, 1024 * prefetch_kib_max),
                "message.max.bytes": RECORD_BYTES_MAX,
            }
        )

    def assign(self, positions: Mapping[Log, int]) -> None:
        """Also read these logs, from these offsets; seeks in a log that is already read."""
        assert all(offset >= 0 for offset in positions.values()), f"no offset: {positions}"
        if not positions:
            return
        self.unassign(log for log in positions if log in self._positions)
        self._consumer.incremental_assign(
            [TopicPartition(*log, offset) for log, offset in positions.items()]
        )
        self._positions.update(positions)

    def unassign(self, logs: Iterable[Log]) -> None:
        """Stop reading these logs; prefetched records are dropped."""
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
        """Return available records; waits for the first only; raises ``PositionGoneError``."""
        self._raise_pending()
        # consume() with a time-out waits for the full number of records, so the first record is
        # awaited alone.
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
        """Return the offset below which all visible records have been returned."""
        return self._positions[log]

    @property
    def assigned(self) -> frozenset[Log]:
        """The logs being read."""
        return frozenset(self._positions)

    def close(self) -> None:
        """Close the reader; takes a few milliseconds."""
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
            return  # concerns the client, e.g. all brokers down; it recovers by itself
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


# The client recovers from these by itself; the broker is starting or stopping.
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
