"""The transport in memory: a broker for tests, without Kafka.

Tests of code that uses ``slackwater.runtime.logs.transport`` run on it. It models four properties
in which a Kafka log differs from a list: transaction markers take offsets and are never returned;
an open transaction hides later records from read_committed readers; retention moves the beginning
of a log; and while the broker is unreachable, appends wait instead of failing. The behaviour suite
in ``tests/contracts`` runs on it and on Kafka. Rejected: a mock of the Kafka client, which would
only repeat our assumptions about the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from threading import Condition
from types import TracebackType

from slackwater.model.limits import PREFETCH_KIB_MAX
from slackwater.model.names import UNPREFIXED, Names
from slackwater.runtime.logs.transport import (
    FETCH_WAIT_MS,
    RECORD_BYTES_MAX,
    Isolation,
    Log,
    Marker,
    NoAnswerError,
    PositionGoneError,
    RawRecord,
    TopicMissingError,
    WriterFailedError,
)


class _Fate(Enum):
    """What an entry is to read_committed readers."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    MARKER = "marker"


@dataclass(slots=True)
class _Entry:
    """A record or a transaction marker."""

    record: RawRecord
    fate: _Fate


class _Log:
    """The entries of one log; ``first`` is the offset of ``entries[0]``."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.first = 0
        self.entries: list[_Entry] = []

    def end(self, isolation: Isolation) -> int:
        if isolation == "read_committed":
            for index, entry in enumerate(self.entries):
                if entry.fate is _Fate.OPEN:
                    return self.first + index
        return self.first + len(self.entries)

    def append(self, record: RawRecord, fate: _Fate) -> _Entry:
        entry = _Entry(record._replace(offset=self.first + len(self.entries)), fate)
        self.entries.append(entry)
        return entry

    def visible(self, offset: int, isolation: Isolation) -> RawRecord | None:
        entry = self.entries[offset - self.first]
        hidden = {_Fate.MARKER, _Fate.ABORTED} if isolation == "read_committed" else {_Fate.MARKER}
        return None if entry.fate in hidden else entry.record

    def delete_before(self, offset: int) -> None:
        del self.entries[: offset - self.first]
        self.first = offset


class MemoryBroker:
    """Topics in memory, and a ``Transport`` to them; ``now_ms`` returns record timestamps."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0, names: Names = UNPREFIXED) -> None:
        self.names = names
        self._now_ms = now_ms
        self._logs: dict[Log, _Log] = {}
        self._away = False
        self._waiting: list[Callable[[], None]] = []
        self.changed = Condition()

    def create_topic(
        self, topic: str, partitions: int = 1, *, bytes_max: int = RECORD_BYTES_MAX
    ) -> None:
        """Create a topic that accepts records of up to ``bytes_max``."""
        with self.changed:
            for partition in range(partitions):
                assert (topic, partition) not in self._logs, f"{topic} is there already"
                self._logs[topic, partition] = _Log(bytes_max)

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Create the partitions that a topic of this size has, as far as they are missing."""
        with self.changed:
            for partition in range(partitions):
                self._logs.setdefault((topic, partition), _Log(RECORD_BYTES_MAX))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""
        with self.changed:
            for log in [log for log in self._logs if log[0] == topic]:
                del self._logs[log]

    def go_away(self) -> None:
        """Become unreachable: appends wait, readers get no records, requests no answer."""
        with self.changed:
            self._away = True

    def come_back(self) -> None:
        """Become reachable; waiting records are appended first, in order."""
        with self.changed:
            self._away = False
            waiting, self._waiting = self._waiting, []
            for action in waiting:
                action()
            self.changed.notify_all()

    def transaction(self) -> MemoryTransaction:
        """Begin a transaction; as a context manager it commits, or aborts on an error."""
        return MemoryTransaction(self)

    def when_back(self, action: Callable[[], None]) -> None:
        """Run an action now, or as soon as the broker is reachable."""
        with self.changed:
            if self._away:
                self._waiting.append(action)
            else:
                action()
                self.changed.notify_all()

    def land(self, log: Log, key: bytes | None, value: bytes, fate: _Fate) -> _Entry:
        """Append an entry; for the writers of this module."""
        return self.log(log).append(RawRecord(*log, -1, self._now_ms(), key, value), fate)

    def log(self, log: Log) -> _Log:
        """Return a log; for the readers and writers of this module."""
        if log not in self._logs:
            raise TopicMissingError(f"topic {log[0]} has no partition {log[1]}")
        return self._logs[log]

    @property
    def away(self) -> bool:
        """Whether the broker is unreachable."""
        return self._away

    def writer(
        self,
        on_fatal: Callable[[str], None],
        *,
        in_flight_bytes_max: int = 64 * 1024 * 1024,
        linger_ms: float = 0.0,
    ) -> MemoryWriter:
        """Return a writer; ``append`` delivers at once unless the broker is unreachable."""
        return MemoryWriter(self, on_fatal, in_flight_bytes_max)

    def producer(self, *, in_flight_bytes_max: int, linger_ms: float = 0.0) -> MemoryProducer:
        """Return a producer; its writers share nothing, since there is no client."""
        return MemoryProducer(self)

    def reader(
        self,
        *,
        isolation: Isolation = "read_uncommitted",
        prefetch_kib_max: int = PREFETCH_KIB_MAX,
        gather_ms: int = 0,
        fetch_wait_ms_max: int = FETCH_WAIT_MS,
    ) -> MemoryReader:
        """Return a reader without logs; the options have no effect, since nothing is fetched."""
        return MemoryReader(self, isolation)

    def end_offsets(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float = 10.0,
    ) -> dict[Log, int]:
        """Return the current end offset of each log."""
        with self.changed:
            self._await_back(timeout_s)
            return {log: self.log(log).end(isolation) for log in logs}

    def beginning_offsets(self, logs: Iterable[Log], *, timeout_s: float = 10.0) -> dict[Log, int]:
        """Return the first offset that each log still holds."""
        with self.changed:
            self._await_back(timeout_s)
            return {log: self.log(log).first for log in logs}

    async def end_offsets_async(
        self,
        logs: Iterable[Log],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float,
    ) -> dict[Log, int] | None:
        """Return the current end offset of each log; None while the broker is unreachable."""
        if self._away:
            return None
        return self.end_offsets(logs, isolation=isolation)

    def markers(self, log: Log, *, timeout_s: float = 10.0) -> list[Marker]:
        """Return the transaction markers that the log holds, in order."""
        with self.changed:
            self._await_back(timeout_s)
            ends = [e.record for e in self.log(log).entries if e.fate is _Fate.MARKER]
            return [Marker(record.offset, record.timestamp_ms) for record in ends]

    def delete_records(self, before: Mapping[Log, int], *, timeout_s: float = 30.0) -> None:
        """Delete the records below these offsets."""
        with self.changed:
            self._await_back(timeout_s)
            for log, offset in before.items():
                kept = self.log(log)
                kept.delete_before(min(max(offset, kept.first), kept.end("read_uncommitted")))

    def _await_back(self, timeout_s: float) -> None:
        if not self.changed.wait_for(lambda: not self._away, timeout_s):
            raise NoAnswerError(f"the broker gave no answer in {timeout_s} s")


class MemoryProducer:
    """A producer for several writers."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def writer(self, on_fatal: Callable[[str], None], *, in_flight_bytes_max: int) -> MemoryWriter:
        """Return a writer."""
        return MemoryWriter(self._broker, on_fatal, in_flight_bytes_max)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


class MemoryWriter:
    """Appends to a ``MemoryBroker``."""

    def __init__(
        self, broker: MemoryBroker, on_fatal: Callable[[str], None], in_flight_bytes_max: int
    ) -> None:
        self._broker = broker
        self._on_fatal = on_fatal
        self.in_flight_bytes_max = in_flight_bytes_max
        self._in_flight_bytes = 0
        self._delivered: dict[Log, int] = {}
        self._failed: str | None = None

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        on_delivery: Callable[[int], None] | None = None,
    ) -> None:
        """Append a record, at once or as soon as the broker is reachable."""
        self._raise_if_failed()
        value = value or b""
        size = len(value)
        with self._broker.changed:
            self._broker.changed.wait_for(
                lambda: (
                    self._in_flight_bytes == 0
                    or self._in_flight_bytes + size <= self.in_flight_bytes_max
                )
            )
            self._in_flight_bytes += size
        self._broker.when_back(lambda: self._land((topic, partition), key, value, on_delivery))

    def _land(
        self, log: Log, key: bytes | None, value: bytes, report: Callable[[int], None] | None
    ) -> None:
        if self._failed is not None:
            return
        if len(value) > self._broker.log(log).bytes_max:
            self._failed = f"{log[0]}:{log[1]} takes no record of {len(value)} bytes"
            self._on_fatal(self._failed)
            return
        offset = self._broker.land(log, key, value, _Fate.COMMITTED).record.offset
        self._delivered[log] = offset + 1
        if report is not None:
            report(offset)
        self._in_flight_bytes -= len(value)

    def await_delivered(self, timeout_s: float | None = None) -> None:
        """Wait until all appended records are delivered."""
        with self._broker.changed:
            done = self._broker.changed.wait_for(
                lambda: self._failed is not None or self._in_flight_bytes == 0, timeout_s
            )
        self._raise_if_failed()
        if not done:
            raise NoAnswerError(f"{self._in_flight_bytes} bytes not delivered in {timeout_s} s")

    def delivered_to(self, topic: str, partition: int) -> int | None:
        """Return the offset after the last delivered record of a log."""
        return self._delivered.get((topic, partition))

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that are appended and not delivered."""
        return self._in_flight_bytes

    def close(self, timeout_s: float = 5.0) -> None:
        """Do nothing: there are no resources to release."""

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise WriterFailedError(self._failed)


class MemoryReader:
    """Reads from a ``MemoryBroker``."""

    def __init__(self, broker: MemoryBroker, isolation: Isolation) -> None:
        self._broker = broker
        self._isolation: Isolation = isolation
        self._positions: dict[Log, int] = {}
        self._closed = False

    def assign(self, positions: Mapping[Log, int]) -> None:
        """Read these logs from these offsets."""
        assert not self._closed, "a closed reader reads nothing"
        self._positions.update(positions)

    def unassign(self, logs: Iterable[Log]) -> None:
        """Stop reading these logs."""
        for log in logs:
            self._positions.pop(log, None)

    def poll(self, records_max: int = 1000, timeout_s: float = 0.0) -> list[RawRecord]:
        """Return available records; waits only for the first."""
        with self._broker.changed:
            records = self._take(records_max)
            if not records and timeout_s > 0:
                self._broker.changed.wait_for(self._anything_new, timeout_s)
                records = self._take(records_max)
            return records

    def position(self, log: Log) -> int:
        """Return the offset below which all visible records have been returned."""
        return self._positions[log]

    @property
    def assigned(self) -> frozenset[Log]:
        """The logs being read."""
        return frozenset(self._positions)

    def close(self) -> None:
        """Forget the positions."""
        self._closed = True
        self._positions.clear()

    def _anything_new(self) -> bool:
        return not self._broker.away and any(
            self._broker.log(log).end(self._isolation) != position
            for log, position in self._positions.items()
        )

    def _take(self, records_max: int) -> list[RawRecord]:
        records: list[RawRecord] = []
        if self._broker.away:
            return records
        for log in self._positions:
            kept = self._broker.log(log)
            end = kept.end(self._isolation)
            if not kept.first <= self._positions[log] <= kept.end("read_uncommitted"):
                if records:
                    break  # return what was read; the next call raises
                raise PositionGoneError(*log, self._positions[log])
            while self._positions[log] < end and len(records) < records_max:
                record = kept.visible(self._positions[log], self._isolation)
                self._positions[log] += 1
                if record is not None:
                    records.append(record)
        return records


class MemoryTransaction:
    """Records that become visible to committed readers together, or never."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._entries: list[_Entry] = []
        self._touched: dict[Log, None] = {}

    def append(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> None:
        """Append within the transaction."""
        with self._broker.changed:
            self._entries.append(self._broker.land((topic, partition), key, value, _Fate.OPEN))
            self._touched[topic, partition] = None

    def commit(self) -> None:
        """Make the records visible."""
        self._end(_Fate.COMMITTED)

    def abort(self) -> None:
        """Hide the records from committed readers permanently."""
        self._end(_Fate.ABORTED)

    def _end(self, fate: _Fate) -> None:
        with self._broker.changed:
            for entry in self._entries:
                entry.fate = fate
            for log in self._touched:
                self._broker.land(log, None, b"", _Fate.MARKER)
            self._entries.clear()
            self._touched.clear()
            self._broker.changed.notify_all()

    def __enter__(self) -> MemoryTransaction:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.commit()
        else:
            self.abort()
