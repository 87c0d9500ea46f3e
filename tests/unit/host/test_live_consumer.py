"""The live consumer without a broker: owners of records, and positions of logs."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from tests.support.waiting import WAIT_S_MAX

from slackwater.host.faust_worker import LiveConsumer
from slackwater.runtime.logs.assigned import AssignedConsumer, Begin, RecordBatch
from slackwater.runtime.logs.cluster import cluster_of
from slackwater.runtime.logs.transport import Isolation, Log, NoAnswerError

A, B, C = ("a", 0), ("b", 0), ("b", 1)


def record_batch(offset: int) -> bytes:
    """Return one record as sent by a broker."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000)
    builder.append(0, 0, None, b"x", [])
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, offset)
    return bytes(batch)


class Network:
    """The broker's side for aiokafka: fetches, which wait until some log has more records."""

    _metadata_max_age_ms = 300_000

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.cluster = SimpleNamespace(
            leader_for_partition=lambda _: 1, broker_metadata=lambda _: object()
        )
        self.ends: dict[TopicPartition, int] = {}
        self.fetched: list[dict[TopicPartition, int]] = []
        """The logs requested by each fetch."""
        self.is_asked = asyncio.Event()
        self._appended = asyncio.Event()

    def append(self, *logs: Log) -> None:
        """Append one record each, at once."""
        for log in logs:
            self.ends[TopicPartition(*log)] += 1
        self._appended.set()

    def set_topics(self, topics: Sequence[str]) -> None: ...

    async def send(self, _node: int, request: Any) -> Any:
        asked = {
            TopicPartition(topic, partition): offset
            for topic, partitions in request.topics
            for partition, offset, _ in partitions
        }
        self.fetched.append(asked)
        self.is_asked.set()
        while not any(offset < self.ends[at] for at, offset in asked.items()):
            self._appended.clear()
            await self._appended.wait()
        answered = (
            (at, offset, record_batch(offset) if offset < self.ends[at] else b"")
            for at, offset in asked.items()
        )
        topics = [
            (at.topic, [(at.partition, 0, offset, offset, None, records)])
            for at, offset, records in answered
        ]
        return SimpleNamespace(API_VERSION=4, topics=topics)


class Client:
    """An aiokafka consumer without a group: its own bookkeeping and fetches, without a network."""

    def __init__(self) -> None:
        self._subscription = SubscriptionState()
        self._client = Network()
        self._fetcher = Fetcher(
            self._client,
            self._subscription,
            auto_offset_reset="none",
            fetcher_timeout=10 * WAIT_S_MAX,  # it does not check for missed records by itself
        )

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._subscription.assign_from_user(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._fetcher.seek_to(partition, offset)

    async def getmany(self, *, max_records: int, **_bounds: int) -> dict[TopicPartition, list[Any]]:
        async with asyncio.timeout(WAIT_S_MAX):
            found = await self._fetcher.fetched_records((), 10 * WAIT_S_MAX, max_records)
            return dict(found)


@asynccontextmanager
async def reading(ends: Mapping[Log, int]) -> AsyncIterator[tuple[AssignedConsumer, Network]]:
    """Return a consumer of a broker whose logs end there."""
    client = Client()
    client._client.ends = {TopicPartition(*log): end for log, end in ends.items()}
    try:
        yield AssignedConsumer(client), client._client
    finally:
        await client._fetcher.close()


async def taken(consumer: AssignedConsumer, *logs: Log) -> dict[Log, tuple[int, int]]:
    """Return the next record of each of these logs: number of the beginning, and offset."""
    found: dict[Log, tuple[int, int]] = {}
    while not found.keys() >= set(logs):
        for batch in await consumer.take():
            found.setdefault(batch.log, (batch.since, batch.records[0].offset))
    return found


async def test_a_change_leaves_the_others_where_they_are() -> None:
    async with reading(dict.fromkeys((A, B, C), 100)) as (consumer, _):
        consumer.change({A: Begin(7, 0), B: Begin(0, 0)})
        assert consumer.positions() == {A: (7, -1), B: (0, -1)}
        assert await taken(consumer, A, B) == {A: (0, 7), B: (0, 0)}
        consumer.change({C: Begin(40, 1)}, [B])
        at, handed = consumer.positions()[A]
        assert at == handed + 1
        assert consumer.positions() == {A: (at, handed), C: (40, -1)}
        assert await taken(consumer, A, C) == {A: (0, at), C: (1, 40)}


async def test_a_change_that_meets_an_answer_takes_it_from_nobody() -> None:
    """The response has arrived, and the client has not processed it yet."""
    async with reading({A: 7, B: 0, C: 40}) as (consumer, network):
        consumer.change({A: Begin(7, 0), B: Begin(0, 0)})
        taking = asyncio.create_task(consumer.take())
        await network.is_asked.wait()
        network.append(A, B)
        consumer.change({C: Begin(40, 1)}, [B])
        (batch,) = await taking
        assert (batch.log, batch.since, batch.records[0].offset) == (A, 0, 7)
        network.append(C)
        assert await taken(consumer, C) == {C: (1, 40)}
        first, *later = network.fetched
        assert first == {TopicPartition(*A): 7, TopicPartition(*B): 0}
        assert {at for fetch in later for at in fetch} == {TopicPartition(*A), TopicPartition(*C)}
        assert {fetch.get(TopicPartition(*A), 8) for fetch in later} == {8}, "it is not read again"


async def test_a_fetch_that_waits_goes_on_through_changes() -> None:
    """A log is removed, and added again elsewhere, while its fetch is pending."""
    async with reading({A: 7, B: 5}) as (consumer, network):
        consumer.change({A: Begin(7, 0), B: Begin(5, 0)})
        taking = asyncio.create_task(consumer.take())
        await network.is_asked.wait()
        consumer.change({}, [B])
        consumer.change({B: Begin(2, 2)})
        network.append(A, B)
        found = {batch.log: batch for batch in await taking}
        assert found[A].records[0].offset == 7
        assert B not in found, "that response is of the earlier beginning"
        assert await taken(consumer, B) == {B: (2, 2)}


async def test_a_log_that_begins_anew_has_handed_out_nothing_yet() -> None:
    async with reading({A: 100}) as (consumer, _):
        consumer.change({A: Begin(50, 0)})
        await taken(consumer, A)
        consumer.change({A: Begin(3, 1)})
        assert consumer.positions() == {A: (3, -1)}
        assert await taken(consumer, A) == {A: (1, 3)}
        consumer.change({}, [A])
        assert consumer.positions() == {}


async def test_any_order_of_changes_reads_each_log_from_its_beginning_on() -> None:
    """Compared with a model: a dictionary of positions."""
    rng, logs = random.Random(11), [("t", p) for p in range(6)]
    async with reading(dict.fromkeys(logs, 1_000_000)) as (consumer, _):
        expected: dict[Log, int] = {}
        for since in range(300):
            begin = {log: Begin(rng.randrange(1000), since) for log in rng.sample(logs, 2)}
            leave = [log for log in rng.sample(logs, 2) if log not in begin]
            consumer.change(begin, leave)
            for log in leave:
                expected.pop(log, None)
            expected |= {log: offset for log, (offset, _) in begin.items()}
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            for batch in await consumer.take():
                for record in batch.records:
                    assert record.offset == expected[batch.log]
                    expected[batch.log] += 1


class Live(LiveConsumer):
    """A consumer whose clients are not used: only its output is checked."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.refuses = False
        self.changed: list[tuple[dict[Log, Begin], list[Log]]] = []

    async def _change(
        self, isolation: Isolation, begin: Mapping[Log, Begin], leave: Sequence[Log] = ()
    ) -> None:
        await asyncio.sleep(0)
        if self.refuses:
            raise NoAnswerError("no broker")
        self._clients.setdefault(isolation, asyncio.Future())
        self.changed.append((dict(begin), list(leave)))


@pytest.fixture(name="errors")
def _errors() -> list[Exception]:
    return []


@pytest.fixture(name="live")
def _live(errors: list[Exception]) -> Live:
    return Live("host/1", cluster_of("127.0.0.1:1"), errors.append)


def batch(log: Log, since: int, *offsets: int) -> RecordBatch:
    return RecordBatch(
        log, since, [SimpleNamespace(offset=offset, value=None) for offset in offsets]
    )


async def test_what_was_fetched_before_a_removal_is_handed_to_nobody(live: Live) -> None:
    got: list[tuple[Log, int, bytes]] = []
    await live.add({A: 0, B: 5}, lambda *record: got.append(record))
    live.hand_over([batch(A, 0, 0), batch(B, 0, 5)])
    removing = asyncio.create_task(live.remove([A]))
    await asyncio.sleep(0)  # requested, but not yet passed to the client
    live.hand_over([batch(A, 0, 1), batch(B, 0, 6)])
    await removing
    live.hand_over([batch(A, 0, 2), batch(B, 0, 7)])
    assert got == [(A, 0, b""), (B, 5, b""), (B, 6, b""), (B, 7, b"")]


async def test_what_was_fetched_before_a_log_begins_anew_is_handed_to_nobody(live: Live) -> None:
    """Its offset may be beyond the new position: it would be repeated, or out of order."""
    before: list[int] = []
    after: list[int] = []
    await live.add({A: 9}, lambda _log, offset, _value: before.append(offset))
    live.hand_over([batch(A, 0, 9, 10)])
    await live.add({A: 4}, lambda _log, offset, _value: after.append(offset))
    live.hand_over([batch(A, 0, 11), batch(A, 1, 4, 5)])
    assert (before, after) == ([9, 10], [4, 5])


async def test_a_log_whose_removal_failed_can_be_removed_again_and_is_handed_to_nobody(
    live: Live,
) -> None:
    got: list[int] = []
    await live.add({A: 0, B: 0}, lambda _log, offset, _value: got.append(offset))
    live.refuses = True
    with pytest.raises(NoAnswerError):
        await live.remove([A])
    live.hand_over([batch(A, 0, 0), batch(B, 0, 7)])
    assert got == [7]
    live.refuses = False
    for _ in range(2):  # once suffices
        await live.remove([A])
    assert [leave for _, leave in live.changed] == [[], [A]]


async def test_a_log_that_is_added_while_it_is_removed_is_read(live: Live) -> None:
    got: list[int] = []
    await live.add({A: 0}, lambda *_record: None)
    removing = asyncio.create_task(live.remove([A]))
    await asyncio.sleep(0)
    await live.add({A: 4}, lambda _log, offset, _value: got.append(offset))
    await removing
    (since,) = {begin[A].since for begin, _ in live.changed if begin and begin[A].offset == 4}
    live.hand_over([batch(A, since, 4)])
    assert got == [4]


async def test_a_client_that_could_not_be_opened_is_opened_again(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception]
) -> None:
    """Otherwise a process whose broker was once unavailable would never read again."""
    client, is_away = Fetching([]), True

    async def opened(*_where: object) -> Fetching:
        if is_away:
            raise NoAnswerError("no broker answers")
        return client

    monkeypatch.setattr(AssignedConsumer, "open", opened)
    live = LiveConsumer("host/1", cluster_of("127.0.0.1:1"), errors.append)
    monkeypatch.setattr(live, "_in_thread", lambda work: work)
    with pytest.raises(NoAnswerError):
        await live.add({A: 0}, lambda *_record: None)
    await live.remove([A])  # there is no client to tell
    is_away = False
    await live.add({A: 0}, lambda *_record: None)
    assert await live.positions() == {A: (5, 4)}


async def test_a_log_has_one_isolation(live: Live) -> None:
    await live.add({A: 0}, lambda *_record: None)
    with pytest.raises(ValueError, match="a:0 is read under read_uncommitted"):
        await live.add({A: 0}, lambda *_record: None, isolation="read_committed")
    await live.remove([A])
    await live.add({A: 0}, lambda *_record: None, isolation="read_committed")


async def test_an_error_of_a_receiver_is_reported(live: Live, errors: list[Exception]) -> None:
    def receive(*_record: object) -> None:
        raise RuntimeError("no room")

    await live.add({A: 0}, receive)
    live.hand_over([batch(A, 0, 0)])
    assert [str(error) for error in errors] == ["no room"]


class Fetching:
    """A client with one fetch to return."""

    def __init__(self, fetched: list[RecordBatch]) -> None:
        self._fetched = [fetched]
        self.closed = False

    async def take(self) -> list[RecordBatch]:
        if self._fetched:
            return self._fetched.pop()
        await asyncio.Event().wait()
        return []

    def change(self, *_change: Any) -> None: ...

    def positions(self) -> dict[Log, tuple[int, int]]:
        return {A: (5, 4)}

    async def close(self) -> None:
        self.closed = True


async def test_fausts_agent_hands_over_what_its_thread_has_fetched(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception]
) -> None:
    client, got = Fetching([batch(A, 0, 3, 4)]), asyncio.Queue[int]()

    async def opened(*_where: object) -> Fetching:
        return client

    monkeypatch.setattr(AssignedConsumer, "open", opened)
    live = LiveConsumer("host/1", cluster_of("127.0.0.1:1"), errors.append)
    await live.app.start()
    try:
        await live.add({A: 3}, lambda _log, offset, _value: got.put_nowait(offset))
        async with asyncio.timeout(WAIT_S_MAX):
            assert [await got.get(), await got.get()] == [3, 4]
        assert await live.positions() == {A: (5, 4)}
    finally:
        await live.app.stop()
    assert client.closed
    assert not errors
