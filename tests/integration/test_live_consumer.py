"""The live consumer on a real broker: logs are added and removed; the broker is killed."""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.waiting import WAIT_S_MAX, eventually_async

from slackwater.host.faust_worker import LiveConsumer
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.cluster import cluster_of, confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics
from slackwater.runtime.logs.transport import Log, PositionGoneError

_log = logging.getLogger(__name__)

CHANGES = 100
STEADY = [("steady", p) for p in range(4)]
COMING = [("coming", p) for p in range(8)]
OLD = 60
PERIOD_S = 0.005
WAKES_PER_S_MAX = 10
"""Two responses of the broker, and five polls of aiokafka's fetcher."""
STOOD_STILL_S = 1.0
"""A record of a log waits some tens of milliseconds while others are added and removed."""


@dataclass
class Got:
    """The records received from each log."""

    offsets: dict[Log, list[int]] = field(default_factory=dict)
    waited_s: float = 0.0
    """The longest time from a record's append until its reception."""
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, log: Log, offset: int, value: bytes) -> None:
        self.offsets.setdefault(log, []).append(offset)
        self.waited_s = max(self.waited_s, time.monotonic() - float(value))
        self._came.set()

    async def until(self, log: Log, offset: int) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            while self.offsets.get(log, [-1])[-1] < offset:
                self._came.clear()
                await self._came.wait()


@asynccontextmanager
async def running(bootstrap: str) -> AsyncIterator[tuple[LiveConsumer, asyncio.Queue[Exception]]]:
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    live = LiveConsumer("host/test", cluster_of(bootstrap), errors.put_nowait)
    await live.app.start()
    try:
        yield live, errors
    finally:
        await live.app.stop()


@pytest.fixture(name="broker", scope="module")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("live")) as broker:
        ensure_topics(
            broker.bootstrap,
            [TopicLayout("steady", len(STEADY), {}), TopicLayout("coming", len(COMING), {})],
            WAIT_S_MAX,
        )
        yield broker


class Pump:
    """Appends to logs at a steady rate, until stopped."""

    def __init__(self, bootstrap: str, logs: list[Log]) -> None:
        self._logs = logs
        self._writer = KafkaTransport(bootstrap).writer(print)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pump:
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            for log in self._logs:
                self._writer.append(*log, repr(time.monotonic()).encode())

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._writer.await_delivered(WAIT_S_MAX)

    def end(self, log: Log) -> int:
        return self._writer.delivered_to(*log) or 0


async def come_and_go(live: LiveConsumer, rng: random.Random) -> tuple[Got, Got]:
    """Add some logs, read them for a while, and remove them.

    Return the records until then and later.

    The later ones are compared at the end: no record may follow a removal.
    """
    offsets = {log: rng.randrange(OLD) for log in rng.sample(COMING, 2)}
    got = Got()
    await live.add(offsets, got)
    for log, offset in offsets.items():
        await got.until(log, offset + rng.randrange(1, OLD))
    await live.remove(offsets)
    for log, offset in offsets.items():
        assert got.offsets[log] == list(range(offset, offset + len(got.offsets[log])))
    return got, replace(got, offsets={log: list(seen) for log, seen in got.offsets.items()})


@pytest.mark.slow
async def test_logs_come_and_go_while_others_are_read(broker: EmbeddedBroker) -> None:
    rng, steady = random.Random(5), Got()
    async with running(broker.bootstrap) as (live, errors):
        with Pump(broker.bootstrap, [*STEADY, *COMING]) as pump:
            await live.add(dict.fromkeys(STEADY, 0), steady)
            # A position that a log does not have yet would count as deleted.
            await eventually_async(lambda: min(map(pump.end, COMING)) > OLD)
            await steady.until(STEADY[0], 2 * OLD)
            turns, waited_s = [], []
            for _ in range(CHANGES):
                steady.waited_s = 0.0
                turns.append(await come_and_go(live, rng))
                waited_s.append(steady.waited_s)
        for log in STEADY:
            await steady.until(log, pump.end(log) - 1)
    assert errors.empty()
    for log in STEADY:
        assert steady.offsets[log] == list(range(pump.end(log))), "once each, in order, none lost"
    for got, when_removed in turns:
        assert got.offsets == when_removed.offsets, "a record after the removal of its log"
    _log.info("%d changes: a record of the others waited %.3f s", CHANGES, max(waited_s))
    # A busy machine delays some of them, a change that stops the others delays all.
    assert statistics.median(waited_s) < STOOD_STILL_S


@pytest.mark.slow
async def test_logs_come_and_go_while_the_broker_is_dead(broker: EmbeddedBroker) -> None:
    transport, got, added = KafkaTransport(broker.bootstrap), Got(), Got()
    begin = transport.end_offsets([*STEADY, *COMING])
    async with running(broker.bootstrap) as (live, errors):
        await live.add({log: begin[log] for log in [*STEADY, COMING[0]]}, got)
        with Pump(broker.bootstrap, [*STEADY, *COMING]) as pump:
            await got.until(COMING[0], begin[COMING[0]] + 20)
            broker.kill()
            await live.remove([COMING[0]])
            await live.add({COMING[1]: begin[COMING[1]]}, added)
            until_removed = len(got.offsets[COMING[0]])
            await asyncio.to_thread(broker.start)
            await added.until(COMING[1], begin[COMING[1]] + 200)
        for log in STEADY:
            await got.until(log, pump.end(log) - 1)
        await added.until(COMING[1], pump.end(COMING[1]) - 1)
    assert errors.empty()
    for log in STEADY:
        assert got.offsets[log] == list(range(begin[log], pump.end(log)))
    assert added.offsets[COMING[1]] == list(range(begin[COMING[1]], pump.end(COMING[1])))
    assert len(got.offsets[COMING[0]]) == until_removed


async def test_a_log_of_transactions_beside_one_without(broker: EmbeddedBroker) -> None:
    """One returns committed records, the other does not wait for open transactions."""
    ensure_topics(
        broker.bootstrap, [TopicLayout("results", 1, {}), TopicLayout("source", 1, {})], WAIT_S_MAX
    )
    results, source = ("results", 0), ("source", 0)
    writer = Producer(confluent_client(broker.cluster) | {"transactional.id": "live"})
    writer.init_transactions(WAIT_S_MAX)
    for value, ends in [(b"1", writer.commit_transaction), (b"2", writer.abort_transaction)]:
        writer.begin_transaction()
        writer.produce("results", value, partition=0)
        writer.flush(WAIT_S_MAX)
        ends(WAIT_S_MAX)
    writer.begin_transaction()
    for topic in ("results", "source"):
        writer.produce(topic, b"3", partition=0)
    writer.flush(WAIT_S_MAX)
    committed, everything = Got(), Got()
    async with running(broker.bootstrap) as (live, errors), asyncio.timeout(WAIT_S_MAX):
        await live.add({results: 0}, committed, isolation="read_committed")
        await live.add({source: 0}, everything)
        await everything.until(source, 0)
        await committed.until(results, 0)
        while (await live.positions())[results] != (4, 0):  # noqa: ASYNC110 -- nothing tells of it
            await asyncio.sleep(0.01)
        assert committed.offsets[results] == [0]
        await asyncio.to_thread(writer.commit_transaction, WAIT_S_MAX)
        await committed.until(results, 4)
    assert committed.offsets[results] == [0, 4]
    assert errors.empty()


def wakes(thread: threading.Thread) -> int:
    """Return the number of times that the kernel has woken it from a voluntary wait."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
    return int(line.split()[1])


async def test_silent_logs_wake_it_as_seldom_as_the_broker_answers(broker: EmbeddedBroker) -> None:
    ends = KafkaTransport(broker.bootstrap).end_offsets([*STEADY, *COMING])
    async with running(broker.bootstrap) as (live, errors):
        await live.add(ends, Got())
        threads = [threading.main_thread(), live.app.consumer._thread._thread]
        per_s = WAKES_PER_S_MAX + 1.0
        give_up_s = time.monotonic() + WAIT_S_MAX
        # The first fetch must be sent, and a busy machine adds a wake-up.
        while per_s > WAKES_PER_S_MAX:
            assert time.monotonic() < give_up_s, f"{per_s:.1f} wake-ups a second"
            before, began_s = sum(map(wakes, threads)), time.monotonic()
            await asyncio.sleep(2.0)
            per_s = (sum(map(wakes, threads)) - before) / (time.monotonic() - began_s)
    assert errors.empty()


async def test_a_position_that_the_log_does_not_hold_is_an_error(broker: EmbeddedBroker) -> None:
    end = KafkaTransport(broker.bootstrap).end_offsets([STEADY[0]])[STEADY[0]]
    async with running(broker.bootstrap) as (live, errors), asyncio.timeout(WAIT_S_MAX):
        await live.add({STEADY[0]: end + 1_000}, Got())
        error = await errors.get()
    assert isinstance(error, PositionGoneError)
    assert error.log == STEADY[0]
    assert error.offset == end + 1_000
