"""One step of the root as one Kafka transaction: the results in their order, then the state record.

A batch of the producer is a produce request of its own, and in a transaction they go one after the
other. So a batch stays open for each topic until it is full or the transaction ends: a hundred
corrected windows cost three requests. The alternative, to hand each record to the producer and let
it gather them, awaits a future for each of twenty thousand rows.

A transaction that follows the last one closely is refused at first, since the broker has not put
the markers of that one down yet. That takes it a millisecond or two, and aiokafka waits for 20 ms:
then each transaction takes 25 ms instead of 5, the answers of short windows are due meanwhile, and
so the next one follows closely again.

Nothing is committed before every record of the transaction is known to be in its log: a batch that
the broker refuses for good fails its own future only, and aiokafka commits what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.producer import sender as aiokafka_sender

from slackwater.codec.state_records import encode_root_state
from slackwater.fragments.results import Lines, ResultsWriter
from slackwater.model.names import Names, ResultKind
from slackwater.protocols.dpc.soutput.config import Commit

MARKERS_S: Final = 0.002
"""Retry interval of a transaction while the previous one's markers are not yet written."""

Delivery = asyncio.Future[Any]
"""Completes when the broker has accepted or rejected a batch."""


def follow_closely() -> None:
    """From now on; the library has a constant for it, and no setting."""
    aiokafka_sender.BACKOFF_OVERRIDE = MARKERS_S


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
        """Commit atomically; calls ``progress`` whenever a batch has been taken (rule-23)."""
        producer = self.producer
        await producer.begin_transaction()
        open_batches: dict[ResultKind, Any] = {}
        deliveries: list[Delivery] = []
        for kind, lines in self.results.lines(commit.transaction, emitted_at):
            full = await self._add(open_batches, kind, lines)
            if full:
                progress()
            deliveries += full
            await asyncio.sleep(0)
        for kind, batch in open_batches.items():
            deliveries.append(await self._send(kind, batch))
        progress()
        state = await producer.send(
            self.names.state(self.results.query),
            encode_root_state(commit.state),
            key=self.fragment.encode(),
            partition=self.results.part,
        )
        await asyncio.gather(*deliveries, state)
        await producer.commit_transaction()

    async def _add(
        self, open_batches: dict[ResultKind, Any], kind: ResultKind, lines: Lines
    ) -> list[Delivery]:
        """Put the lines into the topic's open batch; the deliveries of those that got full."""
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
        topic = self.names.results(self.results.query, kind)
        sent: Delivery = await self.producer.send_batch(batch, topic, partition=self.results.part)
        return sent
