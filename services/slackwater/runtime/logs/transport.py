"""The interface of logs, and the guarantees of its implementations.

A *log* is one partition of a topic. Writers append to it and receive the record's offset, readers
read from a given offset, and any client may request its beginning and end. The protocols need
nothing else of Kafka, so the interface has no consumer groups, no committed offsets and no
rebalance: positions are kept in state records (rule-5). Two implementations pass one behaviour
suite: ``slackwater.runtime.logs.kafka`` and, for tests without a broker,
``tests.support.memory``. Rejected: each process uses a Kafka client directly. Time-outs
would then differ, and a client that gives up on a record leaves a hole.

Guarantees of an implementation:

* *Order.* Records appended by one writer to one log have rising offsets in the order of the calls.
  Offsets are not contiguous where transactions or compaction are used.
* *No holes.* A writer has no delivery time-out. A record that the broker rejects ends the writer:
  ``on_fatal`` is called once, and nothing is appended afterwards (rule-7).
* *Delivery.* ``on_delivery`` is called with the offset once the record is as durable as the topic's
  settings require. The calls are in order within a log. They may come from another thread, and
  before ``append`` returns.
* *Isolation.* A ``read_committed`` reader returns transactional records only when committed, and
  stops before the first open transaction, which is also its end offset. Transaction markers take
  offsets and are never returned. ``position`` passes a marker that has been read, which the offset
  after the last returned record does not.
* *Gone.* A reader whose position is outside [beginning, end] of a log raises ``PositionGoneError``;
  the position is never reset silently. Records that were fetched before are returned first.
* *Bounds.* A reader's prefetched records and a writer's records in flight are bounded in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from slackwater.model import limits
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.model.limits import PREFETCH_KIB_MAX
from slackwater.model.names import Names

Log: TypeAlias = tuple[str, int]
"""One partition of a topic."""

Isolation = Literal["read_committed", "read_uncommitted"]

RECORD_BYTES_MAX = limits.RECORD_BYTES_MAX
"""The largest record of an internal topic; pieces are cut at half of it (trace-32)."""


FETCH_WAIT_MS: Final = 50
"""Fetch wait of a reader whose logs change, or that must detect the ends of logs soon."""


class RawRecord(NamedTuple):
    """A record of a log. ``timestamp_ms`` is Kafka's timestamp; a tombstone's value is b""."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes

    @property
    def log(self) -> Log:
        """The log it was read from."""
        return self.topic, self.partition


class Marker(NamedTuple):
    """The end of a transaction in a log, written at ``at_ms`` of the broker's clock."""

    offset: int
    at_ms: int


class LogError(SlackwaterError):
    """An operation on a log failed."""


class PositionGoneError(LogError):
    """The offset is not in the log: retention has removed it, or the log was created again."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(f"{topic}:{partition} does not hold offset {offset} any more")
        self.topic, self.partition, self.offset = topic, partition, offset

    @property
    def log(self) -> Log:
        """The log whose position is gone."""
        return self.topic, self.partition


class WriterFailedError(LogError):
    """A record could not be written: the writer has ended (rule-7)."""


class NoAnswerError(LogError, TimeoutError):
    """The broker gave no answer in the time allowed."""


class TopicMissingError(EnvironmentProblem):
    """The topic does not exist; topics are created explicitly."""


class Writer(Protocol):
    """Appends records; see the guarantees above. Safe to use from several threads."""

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        on_delivery: Callable[[int], None] | None = None,
    ) -> None:
        """Append a record; waits only while the bytes in flight are at their bound.

        Without a value it is a tombstone: a compacted topic forgets the key.
        """
        ...

    def await_delivered(self, timeout_s: float | None = None) -> None:
        """Wait until all appended records are delivered; ``NoAnswerError`` after a time-out."""
        ...

    def delivered_to(self, topic: str, partition: int) -> int | None:
        """Return the offset after the last delivered record of a log; None before the first."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Bytes appended and not yet delivered."""
        ...

    @property
    def in_flight_bytes_max(self) -> int:
        """Limit of the bytes in flight."""
        ...

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for records in flight, at most ``timeout_s``, and end."""
        ...


class SharedProducer(Protocol):
    """A producer for several independent writers: see ``Transport.producer``."""

    def writer(self, on_fatal: Callable[[str], None], *, in_flight_bytes_max: int) -> Writer:
        """Return a writer, which waits for its own records only, and fails alone."""
        ...

    def close(self) -> None:
        """Close the producer, after its writers have been closed."""
        ...


class Reader(Protocol):
    """Reads logs from given positions. For one thread."""

    def assign(self, positions: Mapping[Log, int]) -> None:
        """Also read these logs from these offsets; a log that is already read is sought."""
        ...

    def unassign(self, logs: Iterable[Log]) -> None:
        """Stop reading these logs; prefetched records are dropped."""
        ...

    def poll(self, records_max: int = 1000, timeout_s: float = 0.0) -> list[RawRecord]:
        """Return available records; waits for the first only; raises ``PositionGoneError``."""
        ...

    def position(self, log: Log) -> int:
        """Return the offset below which all visible records have been returned."""
        ...

    @property
    def assigned(self) -> frozenset[Log]:
        """The logs being read."""
        ...

    def close(self) -> None:
        """Close the reader."""
        ...


class Transport(Protocol):
    """Access to the logs of a deployment, and their names."""

    @property
    def names(self) -> Names:
        """The deployment's names."""
        ...

    def writer(
        self,
        on_fatal: Callable[[str], None],
        *,
        in_flight_bytes_max: int = 64 * 1024 * 1024,
        linger_ms: float = 0.0,
    ) -> Writer:
        """Return a writer that never leaves a hole."""
        ...

    def producer(self, *, in_flight_bytes_max: int, linger_ms: float = 0.0) -> SharedProducer:
        """Return a producer for several writers; the bound applies to all of them together."""
        ...

    def reader(
        self,
        *,
        isolation: Isolation = "read_uncommitted",
        prefetch_kib_max: int = PREFETCH_KIB_MAX,
        gather_ms: int = 0,
        fetch_wait_ms_max: int = FETCH_WAIT_MS,
    ) -> Reader:
        """Return a reader without logs; ``gather_ms``: how long the broker may gather records.

        ``fetch_wait_ms_max``: how long a fetch may wait without records. A record ends the wait at
        once. The wait delays a log that is assigned meanwhile, and the detection of a log's end
        after a transaction's marker.
        """
        ...

    def end_offsets(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float = 10.0,
    ) -> dict[Log, int]:
        """Fetch the current end offset of each log; ``NoAnswerError`` after the time-out."""
        ...

    def beginning_offsets(self, logs: Iterable[Log], *, timeout_s: float = 10.0) -> dict[Log, int]:
        """Return the first offset that each log still holds."""
        ...

    async def end_offsets_async(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float,
    ) -> dict[Log, int] | None:
        """Fetch end offsets in an event loop; None after the time-out.

        Without an answer a log counts as read to its end (rule-14).
        """
        ...

    def markers(self, log: Log, *, timeout_s: float = 10.0) -> list[Marker]:
        """Return the transaction markers that the log holds, in order."""
        ...

    def delete_records(self, before: Mapping[Log, int], *, timeout_s: float = 30.0) -> None:
        """Delete the records below these offsets."""
        ...


def read_range(
    transport: Transport,
    log: Log,
    start: int,
    end: int,
    *,
    isolation: Isolation = "read_uncommitted",
    idle_s_max: float | None = None,
) -> Iterator[RawRecord]:
    """Yield the records of [start, end), in order; ends when the position has reached ``end``.

    ``end`` must not lie beyond the log's end, or the call waits for it.

    Raises:
        NoAnswerError: no progress for ``idle_s_max``; with None the wait has no limit.
        PositionGoneError: retention has removed the position.
    """
    if start >= end:
        return
    reader = transport.reader(isolation=isolation)
    try:
        reader.assign({log: start})
        idle_s, step_s = 0.0, 0.1
        while reader.position(log) < end:
            before = reader.position(log)
            for record in reader.poll(timeout_s=step_s):
                if record.offset < end:
                    yield record
            idle_s = 0.0 if reader.position(log) > before else idle_s + step_s
            if idle_s_max is not None and idle_s >= idle_s_max:
                raise NoAnswerError(
                    f"{log[0]}:{log[1]} at {before}: no answer from the broker for {idle_s_max:g} s"
                )
    finally:
        reader.close()


def read_to_end(
    transport: Transport,
    log: Log,
    start: int | None = None,
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_s: float = 30.0,
) -> Iterator[RawRecord]:
    """Yield the records from ``start`` (None: the beginning) to the end offset at the call.

    Raises as ``read_range``; ``timeout_s`` limits each request, and the time without progress.
    """
    if start is None:
        start = transport.beginning_offsets([log], timeout_s=timeout_s)[log]
    end = transport.end_offsets([log], isolation=isolation, timeout_s=timeout_s)[log]
    return read_range(transport, log, start, end, isolation=isolation, idle_s_max=timeout_s)


def last_records(
    transport: Transport,
    beginnings: Mapping[Log, int],
    ends: Mapping[Log, int],
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_s: float = 30.0,
) -> list[RawRecord]:
    """Return the last visible record below each log's end; none for a log without records.

    The offsets before an end may be those of markers and of aborted transactions. Each attempt
    therefore starts further back. ``timeout_s`` limits each attempt.
    """
    last: dict[Log, RawRecord] = {}
    back, wanted = 16, {log for log, end in ends.items() if beginnings[log] < end}
    while wanted:
        for log in list(wanted):
            start = max(beginnings[log], ends[log] - back)
            try:
                for record in read_range(
                    transport, log, start, ends[log], isolation=isolation, idle_s_max=timeout_s
                ):
                    last[log] = record
            except PositionGoneError:
                pass  # retention removed it meanwhile
            if log in last or start == beginnings[log]:
                wanted.remove(log)
        back *= 32
    return list(last.values())


def extents(
    transport: Transport, logs: Iterable[Log], *, timeout_s: float = 10.0
) -> dict[Log, tuple[int, int]]:
    """Return the beginning and end offsets of each log."""
    wanted = list(logs)
    beginnings = transport.beginning_offsets(wanted, timeout_s=timeout_s)
    ends = transport.end_offsets(wanted, timeout_s=timeout_s)
    return {log: (beginnings[log], ends[log]) for log in wanted}
