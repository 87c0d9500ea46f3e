"""Input from an existing topic: each of its partitions is a stream of its own.

Kafka is the spool. A reading's position is its offset, and each record carries the offset at which
the input continues, so a restarted proxy resumes from its log without a disk. A boundary that
follows the clock is sent only for input read up to an end offset observed after it (trace-10): at a
cut point the end offsets of all partitions are requested, and the boundary is the time of the
request, sent once everything below these offsets has been read.

A partition that has never held a record is not waited for. Its source log follows the smallest
promise of the partitions that have held one, so that it delays no query; from its first record on
it has its own.

Readings are sent at cut points only, so between cut points the topic is read only when enough
messages for a batch are expected: an idle topic wakes the reader ten times a second, as does one
with a hundred readings a second. At the cut point the reader blocks for the broker's answer and
then for messages.

Rejected: one source log for all partitions, merged by arrival. That order would depend on the proxy
and not on the topic, so two proxies, or a restarted one, could not agree on ids.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from slackwater.model.deployment import TopicSpec
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.protocols.dpc.source.core import Arrived, Refused, SourceCore, SourceRules
from slackwater.proxy.json_input import GuardedReader, Parsed
from slackwater.proxy.quarantine import QuarantineEntry
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.runtime.logs.kafka import client_config
from slackwater.runtime.logs.topics import (
    confluent_consumer,
    ensure_topics,
    partition_count,
    topics_for,
)
from slackwater.runtime.logs.transport import Log, LogError

_log = logging.getLogger(__name__)
MESSAGES_MAX: Final = 50_000
ASK_TIMEOUT_S: Final = 5.0
TURN_US: Final = 2_000
RETRY_US: Final = 20_000
UNPACED_US: Final = 100_000
BATCH_MESSAGES: Final = 1_000
"""Messages that justify a read before the cut point. They are parsed in a few milliseconds, which
bounds the reader's lag at the cut point."""
WAIT_S_MAX: Final = 0.1
"""Maximum wait in a step; a stop is checked between steps."""
FETCH_WAIT_MS: Final = 100
FETCH_WAIT_MARKERS_MS: Final = 20
"""Fetch wait for topics with transactions. Messages end a fetch at once, but an end offset after a
transaction marker is reported only after the full wait. Other topics use the longer wait."""


@dataclass(slots=True)
class _Partition:
    """One partition of the topic and its source log."""

    number: int
    log: SourceLog
    position: int = 0
    """Every message below this offset has been read."""
    begun: bool = False
    """Whether the partition has ever held a record."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """End offsets of the partitions, observed after the event clock showed ``event_us``."""

    event_us: int | None
    ends: dict[Log, int]


class TopicInput:
    """Input from a topic of JSON readings."""

    def __init__(self, context: InputContext, topic: TopicSpec) -> None:
        self._context = context
        self._topic = topic.name
        self._reader = GuardedReader(context.spec, context.dead_letters)
        spec = context.spec
        count = partition_count(context.cluster, topic.name)
        names = [f"{spec.name}.{p}" for p in range(count)]
        # The number of partitions is known only here, so the first proxy to start creates the logs.
        called = context.transport.names
        wanted = {called.source(name) for name in names}
        ensure_topics(
            context.cluster, [t for t in topics_for(names, [], called) if t.name in wanted]
        )
        self._partitions = [
            _Partition(p, SourceLog(context.transport, context.writer, self._rules(name), ""))
            for p, name in enumerate(names)
        ]
        for partition in self._partitions:
            partition.log.identity = f"topic:{topic.name}:{partition.number}"
        self._from = topic.from_
        self._has_markers = self._polls_for_markers = False
        """Whether ends lie beyond last messages; whether the consumer has the short fetch wait."""
        self._consumer = self._open(FETCH_WAIT_MS)
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="ends")
        self._asked: Future[_Ends] | None = None
        self._ask_at_us = 0
        self._come, self._come_since_us, self._read_at_us = 0, 0, 0
        """Messages since a time, and when the next read before a cut point is due."""
        self._gone = 0

    def _open(self, wait_ms: int) -> Consumer:
        own = confluent_consumer(
            self._context.cluster,
            group_id=self._context.transport.names.assigned_group,
            enable_partition_eof=True,
            queued_min_messages=200_000,
            fetch_wait_max_ms=wait_ms,
        )
        return Consumer(client_config | own)

    def _rules(self, name: str) -> SourceRules:
        spec = self._context.spec
        by_clock = spec.expect_every_us is None and self._context.deployment.clock == "wall"
        return SourceRules(
            log=name,
            fields=spec.field_names,
            disorder_us=spec.disorder_us,
            late="promise" if by_clock else "input",
            clock_boundaries=by_clock,
            learning=self._context.learning,
        )

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The source log of each partition."""
        return [partition.log for partition in self._partitions]

    def begin(self) -> None:
        """Take over the logs and seek to their positions."""
        context = self._context
        logs = [(self._topic, p.number) for p in self._partitions]
        begins = context.transport.beginning_offsets(logs)
        ends = context.transport.end_offsets(logs, isolation="read_committed")
        hints = context.spool.hints()
        for partition in self._partitions:
            log = partition.log
            log.begin(hints.get(log.name))
            at = (self._topic, partition.number)
            partition.begun = ends[at] > 0
            known = log.identity in log.scan.positions
            start = log.core.position if known else begins[at]
            if not known and self._from == "end":
                start = ends[at]
            if start < begins[at]:
                lost = begins[at] - start
                self._gone += lost
                log.core.lost(lost)
                _log.warning("%s:%d: %d messages were deleted before they were read", *at, lost)
                start = begins[at]
            log.core.position = partition.position = start
        self._assign()

    def _poll_for_markers(self) -> None:
        """Reopen the consumer with the fetch wait for topics with transactions."""
        self._consumer.close()
        self._consumer, self._polls_for_markers = self._open(FETCH_WAIT_MARKERS_MS), True
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign(
            [TopicPartition(self._topic, p.number, p.position) for p in self._partitions]
        )

    # Steps.

    def step(self, now_us: int) -> int:
        """Read available messages; at a cut point send boundaries for what has been read."""
        context = self._context
        if not context.quarantine.settle() or not all(log.has_room for log in self.logs):
            return now_us + RETRY_US
        if self._has_markers and not self._polls_for_markers:
            self._poll_for_markers()
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
            # The next step blocks for the answer or messages; this one blocked without a result.
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
        """At a cut point request the end offsets; flush once they have been read."""
        asked = self._asked
        if asked is None:
            if now_us >= self._ask_at_us:
                self._asked = self._asking.submit(self._ask, self._context.event_us(now_us))
            return
        if not asked.done():
            return
        try:
            ends = asked.result()
        except LogError:
            self._asked = None  # Kafka is unavailable: no boundary is sent
            self._ask_at_us = now_us + RETRY_US
            return
        if self._is_lagging(ends):
            return  # messages below the end offsets are outstanding
        self._asked = None
        for partition in self._partitions:
            partition.begun |= ends.ends[self._topic, partition.number] > 0
            if partition.begun:
                self._flush(partition, ends.event_us)
        self._flush_empty(ends.event_us)
        self._ask_at_us = self._next_ask_us(ends.event_us, now_us)

    def _is_lagging(self, ends: _Ends) -> bool:
        return any(p.position < ends.ends[self._topic, p.number] for p in self._partitions)

    def _next_ask_us(self, event_us: int | None, now_us: int) -> int:
        if event_us is None:
            return now_us + UNPACED_US
        grid = self._context.default_grid
        due = [p.log.core.next_flush_us(event_us, grid) for p in self._partitions]
        return self._context.wall_us(min(due))

    def _flush_empty(self, event_us: int | None) -> None:
        begun = [p.log.core.watermark for p in self._partitions if p.begun]
        follow = min(begun, default=None)
        for partition in self._partitions:
            if not partition.begun:
                self._flush(partition, event_us if not begun else None, follow)

    def _flush(
        self, partition: _Partition, clock_us: int | None, follow_us: int | None = None
    ) -> None:
        log = partition.log
        log.append(log.core.flush(log.inc, clock_us, follow_us))

    def _ask(self, event_us: int | None) -> _Ends:
        logs = [(self._topic, p.number) for p in self._partitions]
        ends = self._context.transport.end_offsets(
            logs, isolation="read_committed", timeout_s=ASK_TIMEOUT_S
        )
        return _Ends(event_us, ends)

    # Reading.

    def _read(self, now_us: int) -> int:
        """Read available messages, at a cut point wait for them; return their number."""
        messages = self._consumer.consume(MESSAGES_MAX, 0)
        if not messages and self._awaits_messages:
            first = self._consumer.poll(WAIT_S_MAX)
            messages = [] if first is None else [first, *self._consumer.consume(MESSAGES_MAX, 0)]
        if not messages:
            return 0
        by_partition: dict[int, list[Message]] = defaultdict(list)
        if len(self._partitions) == 1:
            by_partition[0] = messages
        else:
            for message in messages:
                by_partition[message.partition() or 0].append(message)
        for number, some in by_partition.items():
            self._take(self._partitions[number], some, now_us)
        return len(messages)

    @property
    def _awaits_messages(self) -> bool:
        """Whether the end offsets are known and not reached."""
        asked = self._asked
        if asked is None or not asked.done() or asked.exception() is not None:
            return False
        return self._is_lagging(asked.result())

    def _take(self, partition: _Partition, messages: list[Message], now_us: int) -> None:
        if any(map(Message.error, messages)):
            messages = self._without_events(partition, messages)
        if not messages:
            return
        values = [value or b"" for value in map(Message.value, messages)]
        first, last = messages[0].offset() or 0, messages[-1].offset() or 0
        if last - first == len(messages) - 1:
            offsets = np.arange(first, last + 1, dtype=np.int64)
        else:  # compaction and transactions leave holes in the offsets
            offsets = np.array([m.offset() for m in messages], np.int64)
        partition.begun = True
        partition.position = max(partition.position, last + 1)
        where = f"{self._topic}:{partition.number}"
        batch = _Batch(values, offsets, self._reader.parse(where, offsets, values))
        self._offer(partition, batch, now_us)

    def _without_events(self, partition: _Partition, messages: list[Message]) -> list[Message]:
        """Return the readings; handle end-of-partition events and errors."""
        kept = []
        for message in messages:
            error = message.error()
            if error is None:
                kept.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end(partition, kept, message.offset() or 0)
            elif error.code() in _MISSING:
                raise EnvironmentProblem(f"topic {self._topic} cannot be read: {error.str()}")
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise SlackwaterError(
                    f"{self._topic}:{partition.number} does not hold offset {partition.position}"
                    " any more: beginning again"
                )
            else:
                _log.warning("%s:%d: %s", self._topic, partition.number, error.str())
        return kept

    def _at_end(self, partition: _Partition, before: list[Message], end: int) -> None:
        """Advance to the partition's end; offsets after the last message may be markers."""
        last = max([partition.position, *((m.offset() or 0) + 1 for m in before[-1:])])
        self._has_markers |= end > last
        partition.position = max(partition.position, end)

    def _offer(self, partition: _Partition, batch: _Batch, now_us: int) -> None:
        context, core = self._context, partition.log.core
        future_us = context.future_from_us(now_us)
        where = f"{partition.number}:"
        entries = [
            QuarantineEntry(
                where + str(int(batch.offsets[bad.index])),
                bad.reason,
                bad.stime,
                bad.detail,
                batch.text(bad.index),
            )
            for bad in batch.parsed.bad
        ]
        for arrived, indices, watermark in batch.runs():
            for refused in core.offer(arrived, future_us):
                entries += batch.refused(where, refused, indices)
            if watermark is not None:
                core.advance_watermark(watermark)
        context.quarantine.put(entries, now_us)

    def detail(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        cores: list[SourceCore] = [p.log.core for p in self._partitions]
        return {
            "readings": sum(core.next_id for core in cores),
            "blank": 0,
            "spool_bytes": self._context.spool.bytes_held,
            "deleted_unread": self._gone,
            **self._context.quarantine.all_counts(),
        }

    def leave(self) -> None:
        """Do nothing: the log holds the position."""

    def close(self) -> None:
        """Close the consumer."""
        self._asking.shutdown(wait=False, cancel_futures=True)
        self._consumer.close()


_MISSING: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Messages of one partition and their parsed form."""

    values: Sequence[bytes]
    offsets: Any
    parsed: Parsed

    def text(self, index: int) -> str:
        return self.values[index].decode(errors="replace")

    def runs(self) -> list[tuple[Arrived, Any, int | None]]:
        """Return readings between explicit boundaries, with message indices and boundary."""
        parsed, end = self.parsed, int(self.offsets[-1]) + 1
        complete = Arrived(
            parsed.stimes,
            parsed.key_index,
            parsed.keys,
            parsed.values,
            self.offsets[parsed.indices] + 1,
            end,
        )
        if not parsed.boundaries:
            return [(complete, parsed.indices, None)]
        runs: list[tuple[Arrived, Any, int | None]] = []
        start = 0
        for index, watermark in parsed.boundaries:
            stop = int(np.searchsorted(parsed.indices, index))
            runs.append((complete.take(slice(start, stop)), parsed.indices[start:stop], watermark))
            start = stop
        runs.append((complete.take(slice(start, None)), parsed.indices[start:], None))
        return runs

    def refused(self, where: str, refused: Refused, indices: Any) -> list[QuarantineEntry]:
        entries = []
        for i in refused.indices.tolist():
            index = int(indices[i])
            at = int(np.searchsorted(self.parsed.indices, index))
            entries.append(
                QuarantineEntry(
                    where + str(int(self.offsets[index])),
                    refused.reason,
                    int(self.parsed.stimes[at]),
                    "",
                    self.text(index),
                )
            )
        return entries
