"""Commits of a root: fenced Kafka transactions through aiokafka's producer.

The part's transactional id is the fence: starting a producer aborts the open transaction of an
older copy, and the next commit of that copy fails. aiokafka is used because its fencing takes
15 ms, against a second in librdkafka (rule-27).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from slackwater.fragments.results import ResultsWriter
from slackwater.fragments.transactions import Transactions, follow_closely
from slackwater.model.names import Names, base_of, generation_of
from slackwater.model.records import RootState
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.connecting import probe_before_connect
from slackwater.runtime.logs.topics import aiokafka_producer
from slackwater.runtime.logs.transport import LogError, NoAnswerError
from slackwater.sessions.root import RootSession

BROKER_S_MAX: Final = 30.0
"""Time limit for a batch of a transaction, and for a producer's start. A killed broker is back
sooner. A longer wait is a hang in the client (observed under tenfold overload); a restart ends it.
"""
TRANSACTION_S_MAX: Final = 600
"""Time-out of a complete transaction, enforced by the broker, which allows 900 s by default. Rows
of ten figures are written at 100,000 a second, and a part has at most 5,000,000 keys
(``KeyTable``). If a copy dies and none replaces it, its open transaction blocks the part's readers
for this long. A restarted copy fences it at once."""
BATCH_BYTES_MAX: Final = 1 << 20


class PartCommitter:
    """Committer of one copy of a part; ``aggregate`` names the figures in its results."""

    def __init__(
        self, cluster: Cluster, names: Names, session: RootSession, aggregate: tuple[str, ...]
    ) -> None:
        self._cluster = cluster
        self._names = names
        self._session = session
        self._aggregate = aggregate
        self._transactions: Transactions | None = None
        self._started: list[AIOKafkaProducer] = []
        """Producers that may have open connections and tasks."""

    async def fence(self) -> None:
        """Fence older copies by starting and stopping a producer."""
        probe_before_connect()  # this producer starts before Faust does
        producer = self._producer()
        async with self._within_bound("a producer does not start"):
            await producer.start()
            await producer.stop()
        self._started.remove(producer)

    async def open(self) -> None:
        """Start the committing producer in the event loop that uses it."""
        follow_closely()
        producer = self._producer()
        async with self._within_bound("a producer does not start"):
            await producer.start()
        config = self._session.config
        results = ResultsWriter(
            base_of(config.query),
            config.part,
            config.fields,
            self._aggregate,
            self._session.core.keys,
            generation_of(config.query),
        )
        self._transactions = Transactions(producer, results, config.fragment, self._names)

    async def commit(self, commit: Commit, emitted_at: int) -> None:
        """Commit one transaction; each batch has a time limit."""
        assert self._transactions is not None, "transactions have not been opened"
        transaction = commit.transaction
        records = transaction.after.next_seq - transaction.before.next_seq
        loop = asyncio.get_running_loop()
        async with self._within_bound(
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
        async with self._within_bound("a state record is not committed"):
            await self._transactions.write_state(state)

    async def close(self) -> None:
        """Close the remaining producers within a time limit; never raises.

        A stopping producer waits for its batches, and a root often ends because these cannot be
        written. No caller may therefore wait for this; the next copy fences records in flight.
        """
        for producer in self._started:
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(BROKER_S_MAX):
                    await producer.stop()
        self._started.clear()

    def _producer(self) -> AIOKafkaProducer:
        config = self._session.config
        settings: dict[str, Any] = {
            "transactional_id": self._names.transactional_id(config.query, config.part),
            "max_batch_size": BATCH_BYTES_MAX,
            "transaction_timeout_ms": TRANSACTION_S_MAX * 1000,
        }
        producer = AIOKafkaProducer(**aiokafka_producer(self._cluster, **settings))
        self._started.append(producer)
        return producer

    @contextlib.asynccontextmanager
    async def _within_bound(self, what: str) -> AsyncIterator[asyncio.Timeout]:
        fragment = self._session.fragment
        try:
            async with asyncio.timeout(BROKER_S_MAX) as bound:
                yield bound
        except TimeoutError as error:
            message = f"{fragment}: {what}: no answer in {BROKER_S_MAX:g} s"
            raise NoAnswerError(message) from error
        except KafkaError as error:
            raise LogError(f"{fragment}: refused by the broker: {error!r}") from error
