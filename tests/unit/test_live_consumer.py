"""The live consumer without a broker: whose record it is, and where a log goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.subscription_state import SubscriptionState
from tests.waiting import WAIT_S_MAX

from slackwater.runtime.assigned import AssignedConsumer, Batch, Begin
from slackwater.runtime.cluster import cluster_of
from slackwater.runtime.faust_worker import LiveConsumer
from slackwater.runtime.transport import Isolation, Log, NoAnswerError

A, B, C = ("a", 0), ("b", 0), ("b", 1)


class Client:
    """What an aiokafka consumer does with assignments, over its own bookkeeping."""

    def __init__(self) -> None:
        self._subscription = SubscriptionState()
        self.at_the_broker: dict[TopicPartition, int] = {}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._subscription.assign_from_user(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._subscription.seek(partition, offset)

    async def getmany(self, **_bounds: int) -> dict[TopicPartition, list[Any]]:
        """The next record of each log."""
        found = {}
        for partition in self._subscription.assigned_partitions():
            state = self._subscription.subscription.assignment.state_value(partition)
            if state.position < self.at_the_broker.get(partition, 0):
                found[partition] = [SimpleNamespace(offset=state.position, value=b"x")]
                state.consumed_to(state.position + 1)
        return found


async def test_a_change_leaves_the_others_where_they_are() -> None:
    client = Client()
    consumer = AssignedConsumer(client)
    client.at_the_broker = {TopicPartition(*log): 100 for log in (A, B, C)}
    consumer.change({A: Begin(7, 0), B: Begin(0, 0)})
    assert consumer.positions() == {A: (7, -1), B: (0, -1)}
    await consumer.take()
    consumer.change({C: Begin(40, 1)}, [B])
    assert consumer.positions() == {A: (8, 7), C: (40, -1)}
    taken = {(batch.log, batch.since, batch.records[0].offset) for batch in await consumer.take()}
    assert taken == {(A, 0, 8), (C, 1, 40)}


async def test_a_log_that_begins_anew_has_handed_out_nothing_yet() -> None:
    client = Client()
    consumer = AssignedConsumer(client)
    client.at_the_broker = {TopicPartition(*A): 100}
    consumer.change({A: Begin(50, 0)})
    await consumer.take()
    consumer.change({A: Begin(3, 1)})
    assert consumer.positions() == {A: (3, -1)}
    (batch,) = await consumer.take()
    assert (batch.since, batch.records[0].offset) == (1, 3)
    consumer.change({}, [A])
    assert consumer.positions() == {}


async def test_any_order_of_changes_reads_each_log_from_its_beginning_on() -> None:
    """Against what it must be: a dictionary of positions."""
    rng, client = random.Random(11), Client()
    consumer, logs = AssignedConsumer(client), [("t", p) for p in range(6)]
    client.at_the_broker = {TopicPartition(*log): 1_000_000 for log in logs}
    expected: dict[Log, int] = {}
    for since in range(300):
        begin = {log: Begin(rng.randrange(1000), since) for log in rng.sample(logs, 2)}
        leave = [log for log in rng.sample(logs, 2) if log not in begin]
        consumer.change(begin, leave)
        for log in leave:
            expected.pop(log, None)
        expected |= {log: offset for log, (offset, _) in begin.items()}
        for batch in await consumer.take():
            assert batch.records[0].offset == expected[batch.log]
            expected[batch.log] += 1


class Live(LiveConsumer):
    """One whose clients are not asked: only what is handed over is looked at."""

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


def batch(log: Log, since: int, *offsets: int) -> Batch:
    return Batch(log, since, [SimpleNamespace(offset=offset, value=None) for offset in offsets])


async def test_what_was_fetched_before_a_removal_is_handed_to_nobody(live: Live) -> None:
    got: list[tuple[Log, int, bytes]] = []
    await live.add({A: 0, B: 5}, lambda *record: got.append(record))
    live.hand_over([batch(A, 0, 0), batch(B, 0, 5)])
    removing = asyncio.create_task(live.remove([A]))
    await asyncio.sleep(0)  # asked for, and the client does not know yet
    live.hand_over([batch(A, 0, 1), batch(B, 0, 6)])
    await removing
    live.hand_over([batch(A, 0, 2), batch(B, 0, 7)])
    assert got == [(A, 0, b""), (B, 5, b""), (B, 6, b""), (B, 7, b"")]


async def test_what_was_fetched_before_a_log_begins_anew_is_handed_to_nobody(live: Live) -> None:
    """It may lie behind the new beginning: it would come twice, or out of order."""
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
    for _ in range(2):  # once is enough
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
    """Else a process whose broker was away once would never read again."""
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


async def test_what_a_receiver_raises_is_told(live: Live, errors: list[Exception]) -> None:
    def receive(*_record: object) -> None:
        raise RuntimeError("no room")

    await live.add({A: 0}, receive)
    live.hand_over([batch(A, 0, 0)])
    assert [str(error) for error in errors] == ["no room"]


class Fetching:
    """A client that has one fetch to give."""

    def __init__(self, fetched: list[Batch]) -> None:
        self._fetched = [fetched]
        self.closed = False

    async def take(self) -> list[Batch]:
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
