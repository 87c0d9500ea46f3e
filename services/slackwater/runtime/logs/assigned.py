"""A consumer whose logs change while it reads: added logs start at given offsets, others continue.

No consumer group: positions live in state records (rule-5), so nothing is committed, nothing is
balanced, and no start waits for a dead member's session. What is to be read is assigned.

aiokafka replaces the whole assignment at each ``assign``. All positions are dropped, what has been
fetched ahead is fetched again, and an answer that arrives in the same moment is taken for one that
is still under way: then nothing is fetched for 200 ms, of any log. So only the first logs are
assigned. Later ones are entered into the assignment that there is, and those that leave are taken
out of it; the others, and their fetches, are left alone. It happens in one step, without an
``await``: nothing can be handed out meanwhile. A record that was handed out before its log was
removed, or begun anew, is told by its ``since``: the caller numbers each beginning, and every batch
carries the number of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.errors import KafkaConnectionError, KafkaError, OffsetOutOfRangeError

from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.topics import aiokafka_consumer
from slackwater.runtime.logs.transport import (
    Isolation,
    Log,
    LogError,
    NoAnswerError,
    PositionGoneError,
)

TAKE_RECORDS_MAX: Final = 128
TAKE_MS_MAX: Final = 60_000
"""A bound, no interval: whoever takes is woken by records, not by the clock."""
FETCH_WAIT_MS_MAX: Final = 500
"""So long the broker holds a fetch while all logs are silent; a record ends the wait at once. A log
that is added while all are silent waits so long for its first fetch, no other is late by it."""
# aiokafka's own ``consumer_timeout_ms`` of 200 ms is left alone: so often it looks at its fetches,
# which mends whatever wake-up it has missed.
OPEN_S_MAX: Final = 60.0
OPEN_AGAIN_S: Final = 0.1


class Begin(NamedTuple):
    """Where a log is to be read from, and the number of this beginning."""

    offset: int
    since: int


class RecordBatch(NamedTuple):
    """Records of one log in their order, and the number of the beginning that they follow."""

    log: Log
    since: int
    records: Sequence[Any]


class AssignedConsumer:
    """An aiokafka consumer with explicit assignment. For one event loop."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._since: dict[Log, int] = {}
        self._handed: dict[Log, int] = {}

    @classmethod
    async def open(cls, cluster: Cluster, isolation: Isolation) -> AssignedConsumer:
        """Connect; a broker that is starting is waited for, ``NoAnswerError`` after a while."""
        give_up_at = time.monotonic() + OPEN_S_MAX
        while True:
            consumer = AIOKafkaConsumer(
                **aiokafka_consumer(
                    cluster,
                    isolation_level=isolation,
                    fetch_max_wait_ms=FETCH_WAIT_MS_MAX,
                )
            )
            try:
                await consumer.start()
            except KafkaConnectionError as error:
                await consumer.stop()
                if time.monotonic() > give_up_at:
                    raise NoAnswerError(f"{cluster}: no broker answers: {error}") from error
                await asyncio.sleep(OPEN_AGAIN_S)
            else:
                return cls(consumer)

    def change(self, begin: Mapping[Log, Begin], leave: Iterable[Log] = ()) -> None:
        """Read these logs from there on and those no more; all others go on where they are.

        Must not await: see the module's first lines.
        """
        leave = list(leave)
        for log in leave:
            self._since.pop(log, None)
        for log in [*leave, *begin]:
            self._handed.pop(log, None)
        partitions = {TopicPartition(*log): offset for log, (offset, _) in begin.items()}
        self._assign(partitions.keys(), {TopicPartition(*log) for log in leave} - partitions.keys())
        for partition, offset in partitions.items():
            self._consumer.seek(partition, offset)
        self._since |= {log: since for log, (_, since) in begin.items()}

    def _assign(self, begin: Set[TopicPartition], leave: Set[TopicPartition]) -> None:
        consumer, assignment = self._consumer, self._assignment
        if assignment is None:
            consumer.assign(list(begin))
            return
        for partition in leave & assignment.tps:
            # The state stays, without a position: an answer under way looks it up, and is dropped.
            assignment.state_value(partition).await_reset(None)
            consumer._fetcher._records.pop(partition, None)
        for partition in begin - assignment.tps:
            assignment._tp_state[partition] = TopicPartitionState(assignment)
        assignment._topic_partitions = (assignment.tps - leave).union(begin)
        consumer._client.set_topics([partition.topic for partition in assignment.tps])

    @property
    def _assignment(self) -> Any:
        subscription = self._consumer._subscription.subscription
        return None if subscription is None else subscription.assignment

    async def take(self) -> list[RecordBatch]:
        """Records that are there; waits for the first, up to ``TAKE_MS_MAX``.

        ``PositionGoneError`` when a log does not hold its position any more.
        """
        try:
            found = await self._consumer.getmany(
                timeout_ms=TAKE_MS_MAX, max_records=TAKE_RECORDS_MAX
            )
        except OffsetOutOfRangeError as error:
            ((topic, partition), offset), *_ = error.args[0].items()
            raise PositionGoneError(topic, partition, offset) from error
        except KafkaError as error:
            raise LogError(f"the live consumer cannot read on: {error!r}") from error
        batches = []
        for partition, records in found.items():
            log = (partition.topic, partition.partition)
            self._handed[log] = records[-1].offset
            batches.append(RecordBatch(log, self._since[log], records))
        return batches

    def positions(self) -> dict[Log, tuple[int, int]]:
        """Per log its position, and the last record below it that was handed out (-1: none).

        In a log of transactions the markers take offsets and are never handed out: only the
        client's own position passes them (trace-11).
        """
        assignment = self._assignment
        if assignment is None:
            return {}
        states = {tp: assignment.state_value(tp) for tp in assignment.tps}
        return {
            (tp.topic, tp.partition): (
                state.position,
                self._handed.get((tp.topic, tp.partition), -1),
            )
            for tp, state in states.items()
        }

    async def close(self) -> None:
        """Close the consumer."""
        await self._consumer.stop()
