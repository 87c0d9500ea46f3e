"""Writes one step of a root as one Kafka transaction: the results in order, then the state record.

Each producer batch is a produce request of its own, and the requests of a transaction are sent one
after the other. One batch per topic therefore stays open until it is full or the transaction ends:
a hundred corrected windows take three requests. The alternative, one ``send`` for each record,
would await a future for each of up to 20,000 rows.

The broker rejects a transaction that starts before the markers of the previous one are written,
which takes one or two milliseconds. aiokafka then waits for 20 ms by default, so a transaction
would take 25 ms instead of 5. If windows are short, some become due in that time, so every
transaction would follow the previous one at once and wait. ``shorten_marker_wait`` reduces it.

The transaction is committed only after every record has been acknowledged. If the broker rejects a
batch permanently, only the future of that batch fails, and aiokafka would commit the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.producer import sender as aiokafka_sender

from slackwater.codec.state_records import encode_root_state
from slackwater.host.results import Lines, ResultsWriter
from slackwater.model.names import Names, ResultKind
from slackwater.model.records import RootState
from slackwater.protocols.dpc.soutput.config import Commit

MARKERS_S: Final = 0.002
"""Retry interval of a transaction while the previous one's markers are not yet written."""
FENCE_RETRY_MS: Final = 10
"""Retry interval of a producer that starts. A transaction of the older copy is open if that was
killed in its middle; the broker then aborts it, and rejects the fence meanwhile."""
RETRY_S: Final = 0.2
WORK_S_MAX: Final = 0.005
"""Longest work on a transaction's lines between two turns of the host's sessions. A pause after
each window took 10 s for 600 windows where the host had a tenth of a core."""

Delivery = asyncio.Future[Any]
"""Completes when the broker has acknowledged or rejected a batch."""


def shorten_marker_wait() -> None:
    """Set aiokafka's retry interval for transactions; a constant of the library, not a setting."""
    aiokafka_sender.BACKOFF_OVERRIDE = MARKERS_S


async def connect(producer: AIOKafkaProducer, topics: Iterable[str]) -> None:
    """Do all of a producer's start but the last step, in which it fences.

    It then knows the leaders of ``topics`` and its transaction coordinator, and is connected to
    them (decision 201).
    """
    client = producer.client
    await client.bootstrap()
    of = await asyncio.gather(*(producer.partitions_for(topic) for topic in topics))
    leaders = {
        client.cluster.leader_for_partition(TopicPartition(topic, partition))
        for topic, partitions in zip(topics, of, strict=True)
        for partition in partitions
    }
    await asyncio.gather(*(client.ready(leader) for leader in leaders if leader is not None))
    await producer._sender._find_coordinator(
        CoordinationType.TRANSACTION, producer._txn_manager.transactional_id
    )


async def start_connected(producer: AIOKafkaProducer) -> None:
    """Start a producer that ``connect`` has connected; it fences older ones."""
    await producer._sender.start()


def settle_retries(producer: AIOKafkaProducer) -> None:
    """Retry as other clients do, once the producer has started: a broker may be away for long."""
    producer._sender._retry_backoff = RETRY_S


def report_failures_once(producer: AIOKafkaProducer) -> None:
    """Let the failure of a transaction be raised by the call that finds it, and by nothing else.

    aiokafka also sets it as the result of a future that nobody awaits if the transaction fails
    before its commit. asyncio then logs a traceback for each copy that is fenced.
    """
    manager = producer._txn_manager
    for name in ("fatal_error", "error_transaction"):
        setattr(manager, name, partial(_fail, manager, getattr(manager, name)))


def _fail(manager: Any, fail: Callable[[BaseException], None], error: BaseException) -> None:
    fail(error)
    _consume(manager.wait_for_transaction_end())


def _consume(future: asyncio.Future[Any]) -> None:
    """Mark the failure of a future as known."""
    if not future.cancelled():
        future.exception()


@dataclass(frozen=True, slots=True)
class Transactions:
    """Writes a part's transactions through a producer that was started for them."""

    producer: AIOKafkaProducer
    results: ResultsWriter
    fragment: str
    names: Names

    async def write(
        self, commit: Commit, emitted_at: int, progress: Callable[[], None] = lambda: None
    ) -> None:
        """Write and commit a transaction (rule-23).

        Args:
            commit: the transaction and the root's state record.
            emitted_at: wall time (us) written to the results.
            progress: called whenever the producer has accepted a batch.
        """
        producer, loop = self.producer, asyncio.get_running_loop()
        await producer.begin_transaction()
        worked_from_s = loop.time()
        open_batches: dict[ResultKind, Any] = {}
        deliveries: list[Delivery] = []
        for kind, lines in self.results.lines(commit, emitted_at):
            full = await self._add(open_batches, kind, lines)
            if full:
                progress()
            deliveries += full
            if loop.time() - worked_from_s >= WORK_S_MAX:
                await asyncio.sleep(0)
                worked_from_s = loop.time()
        for kind, batch in open_batches.items():
            deliveries.append(await self._send(kind, batch))
        progress()
        await self._end(commit.state, deliveries)

    async def write_state(self, state: RootState) -> None:
        """Commit a state record alone."""
        await self.producer.begin_transaction()
        await self._end(state, [])

    async def _end(self, state: RootState, deliveries: Sequence[Delivery]) -> None:
        """Add the state record to the open transaction and commit it."""
        sent = await self.producer.send(
            self.names.state(self.results.head.query),
            encode_root_state(state),
            key=self.fragment.encode(),
            partition=self.results.head.part,
        )
        await asyncio.gather(*deliveries, _known(sent))
        await self.producer.commit_transaction()

    async def _add(
        self, open_batches: dict[ResultKind, Any], kind: ResultKind, lines: Lines
    ) -> list[Delivery]:
        """Add lines to a topic's open batch; return the deliveries of batches that became full."""
        full: list[Delivery] = []
        if kind not in open_batches:
            open_batches[kind] = self.producer.create_batch()
        for key, value in lines:
            if open_batches[kind].append(key=key, value=value, timestamp=None) is None:
                full.append(await self._send(kind, open_batches[kind]))
                open_batches[kind] = self.producer.create_batch()
                open_batches[kind].append(key=key, value=value, timestamp=None)
        return full

    async def _send(self, kind: ResultKind, batch: Any) -> Delivery:
        head = self.results.head
        topic = self.names.results(head.query, kind)
        return _known(await self.producer.send_batch(batch, topic, partition=head.part))


def _known(delivery: Delivery) -> Delivery:
    """Mark its failure as known: that of another one may have ended the transaction before."""
    delivery.add_done_callback(_consume)
    return delivery
