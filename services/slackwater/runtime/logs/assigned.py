"""A consumer whose logs change while it reads: added logs start at given offsets, others continue.

Logs are assigned; there is no consumer group. Positions are kept in state records (rule-5), so
nothing is committed or rebalanced, and no start waits for the session of a dead member to expire.

aiokafka replaces the whole assignment at each ``assign``. It drops all positions, fetches
prefetched records again, and treats an answer that arrives at the same moment as still pending:
nothing is then fetched for 200 ms, from any log. Therefore only the first logs are assigned in this
way. Later ones are added to the active assignment, and removed logs are deleted from it; the other
logs and their fetches are not affected. A change is one step without ``await``, so no record is
returned during it. A record that was returned before its log was removed or restarted is recognised
by its ``since``: the caller numbers each start of a log, and every batch has the number of its
start.
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
"""Longest wait of ``take``; records end it at once."""
FETCH_WAIT_MS_MAX: Final = 500
"""How long the broker holds a fetch while all logs are silent. A record ends the wait at once. A
log that is added while all others are silent may wait that long for its first fetch."""
# aiokafka's ``consumer_timeout_ms`` of 200 ms is unchanged: it is the interval of a check that
# recovers from a missed wake-up.
OPEN_S_MAX: Final = 60.0
OPEN_AGAIN_S: Final = 0.1


class Begin(NamedTuple):
    """The offset at which reading of a log starts, and the number of this start."""

    offset: int
    since: int


class RecordBatch(NamedTuple):
    """Records of one log in order, and the number of the start that they belong to."""

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
        """Connect; waits for a starting broker for a bounded time, then ``NoAnswerError``."""
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
        """Start reading logs at the given positions and stop reading others; the rest continue.

        Must not await: see the module's docstring.
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
            # The state stays, without a position: a pending answer finds it and is dropped.
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
        """Return available records; waits for the first, at most ``TAKE_MS_MAX``.

        Raises ``PositionGoneError`` when retention has removed the position in a log.
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
        """Return per log the position and the offset of the last returned record (-1: none).

        Transaction markers take offsets and are never returned: only the client's position passes
        them (trace-11).
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
