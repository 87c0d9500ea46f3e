"""Input from an existing topic: each of its partitions has a source log of its own.

Kafka is the spool. A reading's position is its offset, and each record has the offset at which the
input continues, so a restarted proxy resumes from its log without a disk. If messages have several
readings, a record may end within a message: its position then also has the next element
(``positions``). A boundary that follows the clock is sent only for input read up to an end offset
observed after it (trace-10): at a cut point the end offsets of all partitions are requested, and
the boundary is the time of the request, sent once everything below these offsets has been read. A
boundary that follows from the readings alone needs no end offset: at a cut point the readings so
far are sent, and nothing is requested.

A partition that has never had a record is not waited for. Its source log follows the smallest
watermark of the partitions that have had one, so that it delays no query; from its first record on
it has its own watermark. Only the end offset shows that a partition is empty. While there are
partitions of both kinds, end offsets are therefore requested and reached, whatever boundaries
follow.

Readings are sent at cut points only. Between cut points the topic is read only when enough messages
for a batch are expected: an idle topic wakes the reader at each cut point, as does one with a
hundred readings per second, which is fetched at cut points only (``fetching``). If end offsets are
requested, the reader blocks at the cut point for the broker's response and then for messages.

A topic may be divided among several proxies by partition. The heartbeats of the others report the
watermark that a proxy's empty partitions may follow.

With end offsets (``bounded``) the topic is read up to them, for a history that ends.

Rejected: one source log for all partitions, merged by arrival. That order would depend on the proxy
and not on the topic, so two proxies, or a restarted one, could not agree on ids.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

import numpy as np

from slackwater.formats.avro.books import OpenBook, open_book
from slackwater.formats.carried import without_carried_key
from slackwater.formats.elements import without_first
from slackwater.formats.guarded import GuardedReader
from slackwater.formats.messages import NotYetReadableError
from slackwater.model.deployment import TopicSpec
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.records import NO_EPOCH
from slackwater.protocols.dpc.source.core import SourceCore
from slackwater.proxy.rules import follows_clock, live_rules
from slackwater.proxy.shell import InputContext
from slackwater.proxy.skipped import with_counter
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.topic.batch import Batch
from slackwater.proxy.topic.bounded import ALL, LOOK_EVERY_US, Bounded
from slackwater.proxy.topic.client import Fetched, Notice, TopicClient, truncated_at
from slackwater.proxy.topic.fetching import Fetching
from slackwater.proxy.topic.opening import open_client
from slackwater.proxy.topic.partition import Partition, identity_of
from slackwater.proxy.topic.records import of_records, wanted_of
from slackwater.proxy.topic.source_logs import decided_partitions, take_over
from slackwater.proxy.topic.watched import TopicChangedError, WatchedTopic
from slackwater.proxy.topicmemory import UNKNOWN_OFFSET
from slackwater.runtime.logs.cluster import cluster_of
from slackwater.runtime.logs.transport import Log, LogError, Transport
from slackwater.runtime.service.parts import (
    MADE_AGAIN,
    PARTITION_TO,
    PARTITIONS,
    PARTITIONS_SHOWN,
    PROXIES,
    TRUNCATED,
    WATERMARK,
)

_log = logging.getLogger(__name__)
ASK_TIMEOUT_S: Final = 5.0
TURN_US: Final = 2_000
RETRY_US: Final = 20_000
UNPACED_US: Final = 100_000
BATCH_MESSAGES: Final = 1_000
"""Messages that justify a read before the cut point. They are parsed in a few milliseconds, which
bounds the reader's lag at the cut point."""
WAIT_S_MAX: Final = 0.1
"""Maximum wait in a step; a stop is checked between steps."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """End offsets of the partitions, observed after the event clock showed ``event_us``.

    ``read``: the partitions' positions before. An end below its position shows a truncation; an end
    may be below the position of now, since messages are read while it is requested.
    """

    event_us: int | None
    read: dict[int, int]
    ends: dict[Log, int]


def progress(watermarks: Mapping[int, int]) -> dict[str, int]:
    """Return heartbeat details that show which of several partitions are behind."""
    known = sorted((at, number) for number, at in watermarks.items() if at > NEVER)
    if len(known) < 2:
        return {}
    shown = {*known[:PARTITIONS_SHOWN], known[-1]}
    return {f"{PARTITION_TO}{number}": at for at, number in sorted(shown)}


class TopicInput:
    """Input from an existing topic, in any of its formats."""

    def __init__(self, context: InputContext, topic: TopicSpec, bounded: Bounded = ALL) -> None:
        self._context, self._bounded = context, bounded
        self._topic, self._proxies, self._from = topic.name, topic.proxies, topic.from_
        self._book = open_book(topic, context.clock.monotonic_us)
        spec = context.spec
        self._reader = _reader_of(context, self._book)
        self._wanted = wanted_of(spec)
        self._readable_at_us = 0
        """Time of the next attempt to read the next message; see ``NotYetReadableError``."""
        self._by_clock = follows_clock(context)
        assert context.topics is not None
        self._watched = WatchedTopic(context.topics, topic.name, context.cluster)
        count = self._count = decided_partitions(context, self._watched)
        self._all = [*map(self._partition, range(context.name.share, count, topic.proxies))]
        self._partitions = [partition for partition in self._all if partition.is_present]
        self._by_number = {partition.number: partition for partition in self._partitions}
        self._has_markers = False
        """Whether ends lie beyond the last messages, because of transaction markers."""
        self._client = Fetching(self._open, len(self._partitions))
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="ends")
        self._asked: Future[_Ends] | None = None
        self._ask_at_us = 0
        self._come, self._come_since_us, self._read_at_us = 0, 0, 0
        """Messages since a time, and when the next read before a cut point is due."""
        self._gone = 0
        self._memory = context.topic_memory

    def _partition(self, number: int) -> Partition:
        context, topic = self._context, self._watched.state
        rules = live_rules(context, f"{context.spec.name}.{number}", self._count)
        identity = identity_of(self._topic, number, topic.id)
        log = SourceLog(context.transport, context.writer, rules, identity)
        return Partition(number, log, is_present=number < topic.partitions)

    def _open(self, wait_ms: int) -> TopicClient:
        group = self._context.transport.names.assigned_group
        where = cluster_of(self._context.cluster)
        return open_client(where, self._topic, group, wait_ms, self._wanted)

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The source log of each partition that this proxy writes."""
        return [partition.log for partition in self._all]

    def begin(self) -> None:
        """Take over the logs and seek to their positions.

        The earlier writer reads on until it is superseded, so an extent of the topic that was
        observed before that may end below a position in its log: it would pass for a truncation,
        and messages would be read twice.
        """
        context = self._context
        later = take_over(self.logs, context, self._watched)
        self._all = [partition for partition in self._all if partition.log not in later]
        self._partitions = [partition for partition in self._all if partition.is_present]
        logs = [(self._topic, p.number) for p in self._partitions]
        begins = context.transport.beginning_offsets(logs)
        ends = context.transport.end_offsets(logs, isolation="read_committed")
        for partition in self._all:  # one that the topic lacks now is empty: the rest of it is lost
            at = self._topic, partition.number
            extent = begins.get(at, 0), ends.get(at, 0)
            self._gone += partition.seek(at[0], extent, self._from == "end", self._memory)
        self._client.assign(self._positions, self._epochs)
        self._watched.follow(self._client.metadata_count)

    @property
    def _positions(self) -> dict[int, int]:
        return {p.number: p.position for p in self._partitions}

    @property
    def _epochs(self) -> dict[int, int]:
        return {p.number: p.epoch for p in self._partitions if p.epoch != NO_EPOCH}

    # Steps.

    def step(self, now_us: int) -> int:
        """Read available messages; at a cut point send boundaries for what has been read."""
        context = self._context
        self._watched.look()
        if now_us < self._readable_at_us:
            return self._readable_at_us
        if not context.quarantine.settle() or not all(log.has_room for log in self.logs):
            return now_us + RETRY_US
        if self._bounded.has_ended(self._partitions):
            self._bounded.end(self._all, lambda partition: self._flush(partition, None))
            return now_us + LOOK_EVERY_US
        if self._by_clock and self._has_markers and not self._client.polls_for_markers:
            self._client.poll_for_markers(self._positions, self._epochs)
        if self._client.is_paused and now_us >= self._ask_at_us:
            self._resume(now_us)
        asked = self._asked
        if asked is not None and not asked.done():
            wait([asked], WAIT_S_MAX)
        read = self._read(now_us)
        if not context.quarantine.settle():
            return now_us + RETRY_US
        for partition in self._partitions:
            if partition.log.core.is_full:
                self._flush(partition, None)
        self._advance_watermark(now_us)
        if self._asked is not None:
            self._come += read
            # The next step blocks for the end offsets or messages; this one blocked in vain.
            return now_us + TURN_US if self._asked is asked and not read else now_us
        return self._wake_us(now_us, read)

    def _wake_us(self, now_us: int, read: int) -> int:
        """Return when the next step is due; ``read`` is the number of messages of this step."""
        self._come += read
        if read >= BATCH_MESSAGES:
            return now_us  # a backlog
        if now_us > self._come_since_us:
            # Estimate: the next messages arrive at the rate of the last ones.
            took_us = now_us - self._come_since_us
            self._read_at_us = now_us + BATCH_MESSAGES * took_us // max(1, self._come)
            self._come, self._come_since_us = 0, now_us
        return max(now_us, min(self._read_at_us, self._ask_at_us))

    def _advance_watermark(self, now_us: int) -> None:
        """At a cut point flush; if end offsets are needed, first request and reach them."""
        asked = self._asked
        if asked is None:
            if now_us < self._ask_at_us:
                return
            event_us = self._context.event_us(now_us)
            if not self._needs_ends:
                self._flush_all(event_us, now_us)
                return
            asked = self._asked = self._asking.submit(
                _ask, self._context.transport, self._topic, self._bounded, event_us, self._positions
            )
            wait([asked], WAIT_S_MAX)
        if not asked.done():
            return
        try:
            ends = asked.result()
        except LogError:
            ends = None  # Kafka is unavailable: no boundary is sent
        if ends is None or not all(self._note_end(p, ends, now_us) for p in self._partitions):
            self._asked = None
            self._ask_at_us = now_us + RETRY_US
            return
        if self._is_lagging(ends):
            return  # messages below the end offsets are outstanding
        self._asked = None
        for partition in self._partitions:
            partition.begun |= ends.ends[self._topic, partition.number] > 0
        self._flush_all(ends.event_us, now_us)

    def _note_end(self, partition: Partition, ends: _Ends, now_us: int) -> bool:
        read, end = ends.read[partition.number], ends.ends[self._topic, partition.number]
        return partition.note_end(read, end, now_us, self._memory)

    def _resume(self, now_us: int) -> None:
        """Fetch up to the end offsets, which the resumed client observes after the clock."""
        event_us, read = self._context.event_us(now_us), self._positions
        ends = self._client.resume(WAIT_S_MAX)
        if ends is not None:
            by_log = {(self._topic, number): end for number, end in ends.items()}
            self._asked = Future()
            self._asked.set_result(_Ends(event_us, read, self._bounded.cut(by_log)))

    @property
    def _needs_ends(self) -> bool:
        """Whether watermarks follow the clock or, for empty partitions, other partitions."""
        if self._by_clock or all(partition.begun for partition in self._all):
            return self._by_clock
        return self._watermark() is not None

    def _flush_all(self, event_us: int | None, now_us: int) -> None:
        """Flush all partitions, and set the next cut point."""
        for partition in self._partitions:
            if partition.begun:
                self._flush(partition, event_us)
        self._flush_empty(event_us)
        self._ask_at_us = self._next_ask_us(event_us, now_us)
        if not self._has_markers:
            self._client.pause_until(now_us, self._ask_at_us)

    def _is_lagging(self, ends: _Ends) -> bool:
        return any(p.position < ends.ends[self._topic, p.number] for p in self._partitions)

    def _next_ask_us(self, event_us: int | None, now_us: int) -> int:
        if event_us is None:
            return now_us + UNPACED_US
        grid = self._context.default_grid
        due = [p.log.core.next_flush_us(event_us, grid) for p in self._all]
        return self._context.wall_us(min(due))

    def _flush_empty(self, event_us: int | None) -> None:
        follow = self._watermark()
        for partition in self._all:
            if not partition.begun:
                self._flush(partition, event_us if follow is None else None, follow)

    def _watermark(self) -> int | None:
        """Return the watermark for empty partitions; None if all partitions are empty.

        The other proxies' watermarks are as old as their heartbeats, so they are used only by a
        proxy without one of its own.
        """
        begun = [p.log.core.watermark for p in self._partitions if p.begun]
        return min(begun) if begun else self._context.watermark_elsewhere()

    def _flush(
        self, partition: Partition, clock_us: int | None, follow_us: int | None = None
    ) -> None:
        log = partition.log
        records = log.core.flush(log.inc, clock_us, follow_us)
        log.append(records)
        if records:
            self._memory.truncated.pop(log.identity, None)

    # Reading.

    def _read(self, now_us: int) -> int:
        """Read available messages, at a cut point wait for them; return their number."""
        found = self._client.read(WAIT_S_MAX if self._awaits_messages else 0)
        read = 0
        try:
            if found and not self._watched.is_confirmed and not self._watched.confirm():
                self._await_readable(now_us + RETRY_US)  # fetched again
                return 0
            for one in found:
                partition = self._by_number[one.partition]
                if isinstance(one, Notice):
                    self._note(partition, one)
                else:
                    self._take(partition, self._bounded.kept(one), now_us)
                    self._bounded.pass_over(partition, one)
                    read += len(one.values)
        except NotYetReadableError as why:
            self._await_readable(now_us + why.wait_us)
        finally:
            self._client.release()
        return read

    def _await_readable(self, until_us: int) -> None:
        """Send the readings so far; the next message is not readable yet."""
        self._readable_at_us = until_us
        if self._context.quarantine.settle():
            for partition in self._partitions:
                if partition.log.core.waiting:
                    self._flush(partition, None)
        self._client.assign(self._positions, self._epochs)

    @property
    def _awaits_messages(self) -> bool:
        """Whether the end offsets are known and not reached."""
        asked = self._asked
        if asked is None or not asked.done() or asked.exception() is not None:
            return False
        return self._is_lagging(asked.result())

    def _take(self, partition: Partition, fetched: Fetched, now_us: int) -> None:
        where = f"{self._topic}:{partition.number}"
        # librdkafka has returned messages twice after a seek or a resumption (its issue 4637).
        repeated = int(np.searchsorted(fetched.offsets, partition.position))
        if repeated:
            _log.warning("%s: %d messages arrived a second time and are skipped", where, repeated)
        offsets, values = fetched.offsets[repeated:], fetched.values[repeated:]
        if not len(offsets):
            return
        mark = self._watched.state.mark
        where += mark  # a message of another id is another message
        taken = partition.elements_taken if int(offsets[0]) == partition.position else 0
        partition.begun = True
        # Also the epoch of the readings that wait: it is that of a later message.
        partition.log.core.input_epoch = fetched.epoch
        for start, end in self._reader.slices(values):
            if start and partition.log.core.is_full and self._context.quarantine.settle():
                self._flush(partition, None)
            parsed = self._reader.parse(where, offsets[start:end], values[start:end])
            parsed = of_records(parsed, fetched, repeated + start, repeated + end)
            parsed = parsed if start else without_first(parsed, taken)
            batch = Batch(values[start:end], offsets[start:end], parsed, self._reader.texts, mark)
            partition.advance(int(offsets[end - 1]) + 1, fetched.epoch)
            self._offer(partition, batch, now_us)

    def _note(self, partition: Partition, notice: Notice) -> None:
        """Handle the end of a partition, or an error."""
        match notice.kind:
            case "end":
                # Offsets between the last message and the end may be markers.
                if notice.offset > partition.position:
                    self._has_markers = True
                    partition.advance(notice.offset)
            case "missing":
                self._watched.confirm()
                raise EnvironmentProblem(f"topic {self._topic} cannot be read: {notice.text}")
            case "gone":
                where, offset = f"{self._topic}:{partition.number}", truncated_at(notice)
                # Kafka may no longer have the messages that are not in the source log yet.
                if partition.log.core.waiting and self._context.quarantine.settle():
                    self._flush(partition, None)
                is_new = partition.note_truncation(offset, self._memory)
                if is_new and offset != UNKNOWN_OFFSET:
                    raise TopicChangedError(f"{where} was truncated to {offset}")
                raise SlackwaterError(
                    f"{where} no longer has offset {partition.position}: restarting the stream"
                )
            case "error":
                _log.warning("%s:%d: %s", self._topic, partition.number, notice.text)

    def _offer(self, partition: Partition, batch: Batch, now_us: int) -> None:
        context, core = self._context, partition.log.core
        compared_us = context.compared_us(now_us)
        where = f"{partition.number}:"
        entries = batch.malformed(where)
        for arrived, indices, boundary in batch.runs():
            for refused in context.offer(core, arrived, now_us, lambda: batch.values[-1]):
                entries += batch.refused(where, refused, indices)
            if boundary is not None and not core.advance_watermark(boundary[1], compared_us):
                entries.append(batch.boundary_ahead(where, boundary))
        context.quarantine.put(entries, now_us, partition.log.inc)
        context.not_finite += batch.parsed.not_finite

    def detail(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        cores: list[SourceCore] = [p.log.core for p in self._all]
        begun = [p.log.core.watermark for p in self._partitions if p.begun]
        several = {PROXIES: self._proxies} if self._proxies > 1 else {}
        if several and begun:
            several[WATERMARK] = min(begun)
        return progress({p.number: p.log.core.watermark for p in self._all}) | {
            **several,
            "readings": sum(core.next_id for core in cores),
            "blank": 0,
            "spool_bytes": self._context.spool.bytes_held,
            "deleted_unread": self._gone,
            PARTITIONS: self._count,
            MADE_AGAIN: self._memory.changes["made again"],
            TRUNCATED: self._memory.changes["truncated"],
            **self._bounded.detail(self._partitions),
            **self._context.counts(),
        }

    def leave(self) -> None:
        """Do nothing: the log holds the position."""

    def close(self) -> None:
        """Close the client."""
        self._asking.shutdown(wait=False, cancel_futures=True)
        self._watched.close()
        self._client.close()
        if self._book is not None:
            self._book.close()


def _reader_of(context: InputContext, book: OpenBook | None) -> GuardedReader:
    spec = without_carried_key(with_counter(context.spec))
    return GuardedReader(spec, context.dead_letters, book)


def _ask(
    transport: Transport, topic: str, bounded: Bounded, event_us: int | None, read: dict[int, int]
) -> _Ends:
    """Return the end offsets of the partitions, as far as they are to be read."""
    logs = [(topic, number) for number in read]
    ends = transport.end_offsets(logs, isolation="read_committed", timeout_s=ASK_TIMEOUT_S)
    return _Ends(event_us, read, bounded.cut(ends))
