"""Commits of a root, and of others with a fence: Kafka transactions by aiokafka's producer.

All copies of a root's part have one transactional id. When a producer with this id starts, the
broker aborts the open transaction of an older copy, and the next commit of that copy fails: the
older copy is *fenced* (rule-27). aiokafka is used because fencing takes 15 ms with it, and a second
with librdkafka (decision 4).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from slackwater.codec.results import ResultHead
from slackwater.host.results import ResultsWriter
from slackwater.host.transactions import (
    FENCE_RETRY_MS,
    Transactions,
    connect,
    report_failures_once,
    settle_retries,
    shorten_marker_wait,
    start_connected,
)
from slackwater.model.names import RESULT_KINDS, Names, base_of, generation_of
from slackwater.model.records import RootState
from slackwater.model.row_fields import OfFields
from slackwater.protocols.dpc.soutput.config import Commit, RootConfig
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.connecting import probe_before_connect
from slackwater.runtime.logs.topics import aiokafka_producer
from slackwater.runtime.logs.transport import LogError, NoAnswerError
from slackwater.sessions.effects import CommitRecords

BROKER_S_MAX: Final = 30.0
"""Time limit for a batch of a transaction, and for a producer's start. A killed broker responds
again sooner. A longer wait means that the client hangs (observed under tenfold overload), which a
restart of the fragment ends."""
TRANSACTION_S_MAX: Final = 600
"""Time-out of a complete transaction, enforced by the broker, whose limit is 900 s by default. Rows
of ten figures are written at 100,000 a second, and a part has at most 5,000,000 keys
(``KeyTable``). If a copy dies and is not restarted, its open transaction blocks the part's readers
for this long. A restarted copy aborts it at once."""
BATCH_BYTES_MAX: Final = 1 << 20


class FencedProducers:
    """The producers with one transactional id, of which the last one that is opened can commit.

    ``fragment`` is named in errors; ``topics`` are those that it writes to.
    """

    def __init__(
        self, cluster: Cluster, fragment: str, transactional_id: str, topics: tuple[str, ...]
    ) -> None:
        self._cluster = cluster
        self._fragment = fragment
        self._transactional_id = transactional_id
        self._topics = topics
        self._connected: AIOKafkaProducer | None = None
        """The producer of the next ``open``, connected and not started."""
        self._started: list[AIOKafkaProducer] = []
        """Producers that may have open connections and tasks."""

    async def prepare(self) -> None:
        """Connect the producer of the next ``open``, which fences nobody before."""
        producer = self._producer()
        async with self.within_bound("a producer does not connect"):
            await connect(producer, self._topics)
        self._connected = producer

    async def open(self) -> AIOKafkaProducer:
        """Start the committing producer, which fences older ones."""
        probe_before_connect()  # this producer may start before Faust does
        shorten_marker_wait()
        producer, self._connected = self._connected, None
        async with self.within_bound("a producer does not start"):
            if producer is None:
                producer = self._producer()
                await producer.start()
            else:
                await start_connected(producer)
        settle_retries(producer)
        report_failures_once(producer)
        return producer

    async def close(self) -> None:
        """Close the remaining producers within a time limit; never raises.

        A stopping producer waits for its batches, and a fragment often ends because these cannot be
        written. Callers should therefore not wait for this; the next copy aborts the records in
        flight.
        """
        for producer in self._started:
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(BROKER_S_MAX):
                    await producer.stop()
        self._started.clear()

    def _producer(self) -> AIOKafkaProducer:
        settings: dict[str, Any] = {
            "transactional_id": self._transactional_id,
            "max_batch_size": BATCH_BYTES_MAX,
            "transaction_timeout_ms": TRANSACTION_S_MAX * 1000,
            "retry_backoff_ms": FENCE_RETRY_MS,
        }
        producer = AIOKafkaProducer(**aiokafka_producer(self._cluster, **settings))
        self._started.append(producer)
        return producer

    @contextlib.asynccontextmanager
    async def within_bound(self, what: str) -> AsyncIterator[asyncio.Timeout]:
        """Limit the time of a request; its failure is a ``LogError`` that names the fragment."""
        try:
            async with asyncio.timeout(BROKER_S_MAX) as bound:
                yield bound
        except TimeoutError as error:
            message = f"{self._fragment}: {what}: no answer in {BROKER_S_MAX:g} s"
            raise NoAnswerError(message) from error
        except KafkaError as error:
            raise LogError(f"{self._fragment}: refused by the broker: {error!r}") from error


class PartCommitter:
    """Commits the transactions of one copy of a part.

    ``aggregate`` names the figures of a row, and ``of_fields`` those of each field, if they differ.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        config: RootConfig,
        aggregate: tuple[str, ...],
        of_fields: OfFields = (),
    ) -> None:
        self._names = names
        self._fragment, query = config.fragment, config.query
        head = ResultHead(base_of(query), config.part, generation_of(query))
        self._results = ResultsWriter(head, config.fields, aggregate, of_fields)
        self._transactions: Transactions | None = None
        fence = names.transactional_id(query, config.part)
        topics = (names.state(query), *(names.results(query, kind) for kind in RESULT_KINDS))
        self._producers = FencedProducers(cluster, config.fragment, fence, topics)

    async def prepare(self) -> None:
        """Connect the producer of the next ``open``, which fences nobody before."""
        await self._producers.prepare()

    async def open(self) -> None:
        """Start the committing producer, which fences older copies."""
        producer = await self._producers.open()
        self._transactions = Transactions(producer, self._results, self._fragment, self._names)

    async def commit(self, commit: Commit | CommitRecords, emitted_at: int) -> None:
        """Commit one transaction; each of its batches has the time limit ``BROKER_S_MAX``.

        Raises:
            LogError: the transaction was not committed, or its outcome is unknown.
        """
        assert self._transactions is not None, "transactions have not been opened"
        assert isinstance(commit, Commit), "a root commits answers"
        transaction = commit.transaction
        records = transaction.after.next_seq - transaction.before.next_seq
        loop = asyncio.get_running_loop()
        async with self._producers.within_bound(
            f"a transaction of {records} records makes no progress"
        ) as bound:
            await self._transactions.write(
                commit,
                emitted_at,
                progress=lambda: bound.reschedule(loop.time() + BROKER_S_MAX),
            )

    async def claim(self, state: RootState) -> None:
        """Commit a state record without answers."""
        assert self._transactions is not None, "transactions have not been opened"
        async with self._producers.within_bound("a state record is not committed"):
            await self._transactions.write_state(state)

    async def close(self) -> None:
        """Close the remaining producers within a time limit; never raises."""
        await self._producers.close()
