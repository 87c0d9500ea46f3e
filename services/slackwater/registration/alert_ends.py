"""Ends the alerts that stand when their query is deleted.

A delivery ends the alerts of rules that were changed or removed. Of a deleted query nothing runs,
so whoever carries out the deletion writes the ends. It takes the fence of the delivery first: an
older copy that has not noticed the deletion can commit nothing behind the ends, and a new one does
not start, since the registry has the deletion. All ends and the position without rules are one
transaction, and records that are made again are equal, so this may be repeated after a crash, also
by several nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from confluent_kafka import KafkaException, Producer

from slackwater.delivery.evaluation import AlertEvaluator
from slackwater.delivery.records import (
    POSITION_KEY,
    DeliveryPosition,
    DeliveryRecord,
    decode_delivery,
)
from slackwater.delivery.rules import AlertRules
from slackwater.model.errors import EnvironmentProblem, MalformedRecordError
from slackwater.model.names import base_of
from slackwater.runtime.logs.cluster import confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.logs.transport import Log, LogError, Transport, read_to_end
from slackwater.runtime.service.registry import QueryDefinition

REASON: Final = "query deleted"
FENCE_S: Final = 30.0
"""Time limit for taking the fence, and for the transaction."""
Entries = Sequence[tuple[bytes, bytes]]


class Fence(Protocol):
    """The fence of a delivery, taken: older copies cannot commit any more."""

    def commit(self, log: Log, records: Entries) -> None:
        """Write keys and values in one transaction; ``LogError`` if that failed."""
        ...


class KafkaFence:
    """That of a transactional id; ``LogError`` if it cannot be taken."""

    def __init__(self, transport: KafkaTransport, transactional_id: str) -> None:
        settings = {"transactional.id": transactional_id, "log_level": 0}
        self._producer = Producer(confluent_client(transport.cluster) | settings)
        try:
            self._producer.init_transactions(FENCE_S)
        except KafkaException as error:
            raise LogError(f"{transactional_id}: cannot take the fence: {error}") from None

    def commit(self, log: Log, records: Entries) -> None:
        """Write keys and values in one transaction; ``LogError`` if that failed."""
        topic, partition = log
        try:
            self._producer.begin_transaction()
            for key, value in records:
                self._producer.produce(topic, value, key, partition)
            self._producer.commit_transaction(FENCE_S)
        except (KafkaException, BufferError) as error:
            raise LogError(f"{topic}: the ends of its alerts are not written: {error}") from None


class AlertEnds:
    """Ends the alerts of deleted queries, of each query once while it is deleted.

    ``there`` returns those of some topics that there are; ``take`` takes the fence with an id.
    """

    def __init__(
        self,
        transport: Transport,
        there: Callable[[Iterable[str]], Iterable[str]],
        take: Callable[[str], Fence],
    ) -> None:
        self._transport, self._there, self._take = transport, there, take
        self._ended: set[str] = set()

    @classmethod
    def of(cls, transport: KafkaTransport) -> AlertEnds:
        """Return that of a Kafka cluster."""
        return cls(
            transport,
            lambda topics: partition_counts(transport.cluster, {*topics}),
            lambda id_: KafkaFence(transport, id_),
        )

    def end(self, queries: Mapping[str, QueryDefinition]) -> list[str]:
        """End what stands of deleted queries, and return why that failed, to be tried again.

        ``queries``: all registered ones. A query of which a later generation runs goes on.
        """
        live = {base_of(name) for name, query in queries.items() if query.state != "deleted"}
        had = {base_of(name) for name, query in queries.items() if query.spec.delivers}
        self._ended -= live
        problems: list[str] = []
        for query in sorted(had - live - self._ended):
            try:
                self._end(query)
            except (LogError, EnvironmentProblem) as error:
                problems.append(str(error))
            else:
                self._ended.add(query)
        return problems

    def _end(self, query: str) -> None:
        names = self._transport.names
        log: Log = (names.alerts(query), 0)
        if log[0] not in {*self._there([log[0]])}:
            return
        if _has_no_rules(self._stored(log)):
            return  # it has been ended; a fence costs a second
        fence = self._take(names.delivery_id(query))
        stored = self._stored(log)
        evaluator = AlertEvaluator(AlertRules.none(query, REASON), _no_later, stored)
        ended = [(record.log_key, record.encode()) for record in evaluator.begin()]
        number = max((r.placement for r in stored if isinstance(r, DeliveryPosition)), default=-1)
        fence.commit(log, [*ended, (POSITION_KEY, evaluator.position(number).encode())])

    def _stored(self, log: Log) -> list[DeliveryRecord]:
        """Return the last record of each key."""
        last: dict[bytes | None, DeliveryRecord] = {}
        for raw in read_to_end(self._transport, log, isolation="read_committed"):
            try:
                last[raw.key] = decode_delivery(raw.value, log[0])
            except MalformedRecordError:
                continue  # the delivery has reported it
        return [*last.values()]


def _has_no_rules(stored: Iterable[DeliveryRecord]) -> bool:
    return any(isinstance(each, DeliveryPosition) and not each.rules for each in stored)


def _no_later(start: int, windows: int) -> int:
    raise AssertionError("without batches no window is looked for")
