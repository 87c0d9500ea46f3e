"""A model of Kafka: the properties on which the protocols rely, and those that they must tolerate.

Logs have offsets; retention deletes their beginnings. The records of a transaction are in the log
at once, and count for a read-committed reader once its commit marker is there, which takes an
offset: the next position is not a record's offset + 1 (trace-18). The end for such a reader is the
first open transaction. A greater epoch of a transactional id fences the older one and aborts its
open transaction. A producer's records arrive in order, without holes; when its process is killed,
an unknown number of the last ones never arrive. While the broker is down nothing is read, records
wait, and requests for end offsets fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from tests.simulator.clock import Scheduler

V = TypeVar("V")
Watcher = Callable[[], None]


class PositionGoneError(Exception):
    """Raised if retention has deleted the requested record."""


class FencedError(Exception):
    """Raised if another producer has taken over the transactional id."""


@dataclass(slots=True)
class Open:
    """A transaction; ``committed`` is None while it is open."""

    committed: bool | None = None


@dataclass(slots=True)
class Entry(Generic[V]):
    """One offset: a record, or a marker (no value). A damaged record has no value either."""

    value: V | None
    transaction: Open | None = None
    marker: bool = False
    damaged: V | None = None
    """The record before the damage."""


class Log(Generic[V]):
    """One partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.beginning = 0
        self.watchers: list[Watcher] = []
        self._entries: list[Entry[V]] = []
        self._gone: list[Entry[V]] = []
        self._closed_to = 0

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.beginning + len(self._entries)

    @property
    def stable_end(self) -> int:
        """The end for a read-committed reader: the first open transaction."""
        at, end = max(self._closed_to, self.beginning), self.end
        while at < end:
            transaction = self._entries[at - self.beginning].transaction
            if transaction is not None and transaction.committed is None:
                break
            at += 1
        self._closed_to = at
        return at

    def append(
        self, value: V | None, transaction: Open | None = None, *, marker: bool = False
    ) -> int:
        """Append a record, and notify the watchers."""
        self._entries.append(Entry(value, transaction, marker))
        for watcher in self.watchers:
            watcher()
        return self.end - 1

    def read(self, offset: int, records_max: int) -> list[tuple[int, V | None]]:
        """Read records from ``offset`` on, of any transaction; damaged ones without a value."""
        if offset < self.beginning:
            raise PositionGoneError(self.name)
        first = offset - self.beginning
        if first >= len(self._entries):
            return []
        some = self._entries[first : first + records_max]
        return [(offset + i, entry.value) for i, entry in enumerate(some)]

    def read_committed(self) -> tuple[list[V], int]:
        """Read all committed records up to the stable end; return them and the next position."""
        end = self.stable_end
        values = [
            entry.value
            for entry in self._entries[: end - self.beginning]
            if not entry.marker
            and entry.value is not None
            and (entry.transaction is None or entry.transaction.committed)
        ]
        return values, end

    def read_visible(self, offset: int, records_max: int) -> tuple[list[tuple[int, V]], int]:
        """Read some committed records from ``offset`` on; return them and the next position.

        The position passes markers and aborted records if no visible record precedes them.
        """
        if offset < self.beginning:
            raise PositionGoneError(self.name)
        found: list[tuple[int, V]] = []
        end = self.stable_end
        while offset < end:
            entry = self._entries[offset - self.beginning]
            if entry.value is not None and (
                entry.transaction is None or entry.transaction.committed
            ):
                if len(found) == records_max:
                    break
                found.append((offset, entry.value))
            offset += 1
        return found, offset

    def cut(self, beginning: int) -> None:
        """Delete all records before ``beginning``, as retention does."""
        beginning = min(max(beginning, self.beginning), self.end)
        self._gone += self._entries[: beginning - self.beginning]
        del self._entries[: beginning - self.beginning]
        self.beginning = beginning

    def lose_end(self, end: int) -> None:
        """Lose all records from ``end`` on, as an unclean election does; offsets are used again."""
        del self._entries[max(0, end - self.beginning) :]
        self._closed_to = min(self._closed_to, self.end)

    @property
    def last(self) -> int | None:
        """Return the offset of the last record that is not a marker; None if there is none."""
        records = (i for i in reversed(range(len(self._entries))) if not self._entries[i].marker)
        last = next(records, None)
        return None if last is None else self.beginning + last

    def damage(self, offset: int, left: V | None = None) -> None:
        """Replace the record there by ``left``, which does not decode."""
        entry = self._entries[offset - self.beginning]
        if entry.value is not None:
            entry.value, entry.damaged = left, entry.value

    def values(self) -> list[tuple[int, V | None]]:
        """Return all records in the log."""
        return self.read(self.beginning, len(self._entries))

    def all_values(self) -> list[tuple[int, V | None]]:
        """Return all records, including deleted ones: for the history, not for processes."""
        return [(i, entry.value) for i, entry in enumerate((*self._gone, *self._entries))]

    def written(self) -> list[tuple[int, V | None]]:
        """Return all records, including damaged ones: for the history, not for processes."""
        return [
            (i, entry.value if entry.damaged is None else entry.damaged)
            for i, entry in enumerate((*self._gone, *self._entries))
        ]


class _Send(NamedTuple):
    due: int
    log: Log[object]
    value: object
    delivered: Callable[[int], None] | None


@dataclass(eq=False)
class Broker:
    """The logs by name, the transactional ids, and whether the broker is up."""

    scheduler: Scheduler
    up: bool = True
    logs: dict[str, Log[object]] = field(default_factory=dict)
    producers: list[Producer] = field(default_factory=list)
    _epochs: dict[str, int] = field(default_factory=dict)
    _open: dict[str, list[tuple[Open, list[Log[object]]]]] = field(default_factory=dict)

    def log(self, name: str) -> Log[object]:
        """Return the partition of this name."""
        if name not in self.logs:
            self.logs[name] = Log(name)
        return self.logs[name]

    def go_away(self) -> None:
        """Stop responding until ``come_back``."""
        self.up = False

    def come_back(self) -> None:
        """Resume, and process everything that waited."""
        self.up = True
        for producer in self.producers:
            producer.pump()
        for log in self.logs.values():
            for watcher in log.watchers:
                watcher()

    # Transactions.

    def fence(self, transactional_id: str) -> int:
        """Start a new epoch: fence older ones, and abort their open transaction."""
        epoch = self._epochs.get(transactional_id, -1) + 1
        self._epochs[transactional_id] = epoch
        for transaction, logs in self._open.pop(transactional_id, []):
            self._close(transaction, logs, committed=False)
        return epoch

    def begin(
        self, transactional_id: str, epoch: int, records: Sequence[tuple[Log[object], object]]
    ) -> Open:
        """Write the records; they are not committed yet."""
        self._check(transactional_id, epoch)
        transaction = Open()
        logs = list({log.name: log for log, _ in records}.values())
        self._open.setdefault(transactional_id, []).append((transaction, logs))
        for log, value in records:
            log.append(value, transaction)
        return transaction

    def commit(self, transactional_id: str, epoch: int, transaction: Open) -> None:
        """Commit the transaction."""
        self._check(transactional_id, epoch)
        for opened, logs in self._open.pop(transactional_id):
            assert opened is transaction
            self._close(opened, logs, committed=True)

    def _close(self, transaction: Open, logs: Sequence[Log[object]], *, committed: bool) -> None:
        transaction.committed = committed
        for log in logs:
            log.append(None, marker=True)

    def _check(self, transactional_id: str, epoch: int) -> None:
        if self._epochs.get(transactional_id) != epoch:
            raise FencedError(transactional_id)


class Producer:
    """Idempotent, without a delivery time-out: records arrive in order and once."""

    def __init__(self, broker: Broker, latency_us: tuple[int, int] = (300, 2_000)) -> None:
        self._broker = broker
        self._latency_us = latency_us
        self._queue: deque[_Send] = deque()
        self._last_due = 0
        self._sent_at = -1
        self.lose_next = False
        """Whether the next record fails permanently in the client, and later ones arrive
        (trace-1)."""
        self.late_us = 0
        """Additional delay of all records."""
        self.cut_off = False
        """Whether its process cannot reach the broker; then records wait."""
        self.allowed: int | None = None
        """After a kill: the number of waiting records that still arrive."""
        broker.producers.append(self)

    def send(
        self, log: Log[object], value: object, delivered: Callable[[int], None] | None = None
    ) -> None:
        """Send a record; it is in the log after a delay."""
        if self.allowed is not None:
            return
        if self.lose_next:
            self.lose_next = False
            return
        scheduler = self._broker.scheduler
        if not self._queue or self._sent_at != scheduler.now:
            # Records sent at the same time arrive together, as in a batch.
            self._sent_at = scheduler.now
            due = scheduler.now + scheduler.between(*self._latency_us) + self.late_us
            self._last_due = max(self._last_due, due)
            scheduler.at(self._last_due, self.pump)
        self._queue.append(_Send(self._last_due, log, value, delivered))

    def kill(self) -> None:
        """Kill the process: some records in flight arrive, the others never do."""
        self.allowed = self._broker.scheduler.rng.randint(0, len(self._queue))

    def flush(self) -> None:
        """Deliver everything that was sent, as a writer that is closed; the broker must be up."""
        self.pump(self._last_due)

    def pump(self, until: int | None = None) -> None:
        """Deliver all records that are due, or that are due until then."""
        now = self._broker.scheduler.now if until is None else until
        while self._queue and self._queue[0].due <= now and self._broker.up and not self.cut_off:
            if self.allowed is not None:
                if not self.allowed:
                    self._queue.clear()
                    return
                self.allowed -= 1
            _, log, value, delivered = self._queue.popleft()
            offset = log.append(value)
            if delivered is not None:
                delivered(offset)
