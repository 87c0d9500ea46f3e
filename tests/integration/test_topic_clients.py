"""The proxy's clients read the same bytes of a topic as a plain consumer, in the same order.

Transactions, aborted ones too, markers, tombstones, headers, every codec, fetches smaller than a
batch, holes left by compaction, and a broker that is killed and restarted.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.starting import make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.machine.broker import EmbeddedBroker
from slackwater.proxy.topic.client import Fetched, Notice, TopicClient, truncated_at
from slackwater.proxy.topic.objects import ConfluentClient
from slackwater.proxy.topic.opening import PARTITION_FETCH_BYTES, consumer_config
from slackwater.proxy.topic.queue import QueueClient
from slackwater.proxy.topicmemory import UNKNOWN_OFFSET
from slackwater.runtime.logs.cluster import cluster_of, confluent_client

pytestmark = [pytest.mark.slow]
Messages = list[tuple[int, bytes]]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENTS = pytest.mark.parametrize("make", [QueueClient, ConfluentClient])
SMALL_FETCH_BYTES = 500
SLEEPS = 8
SLEEP_S = 4.0
"""Longer than a broker's session of 3 s."""


@pytest.fixture(name="broker", scope="module")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def plainly_read(bootstrap: str, topic: str) -> Messages:
    """Return the messages that confluent-kafka's consumer reads up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Messages = []
    give_up = time.monotonic() + WAIT_S_MAX
    try:
        while True:
            assert time.monotonic() < give_up
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    found.append((message.offset() or 0, message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()


class ClientReader:
    """One of the proxy's clients, and its messages."""

    def __init__(
        self, make: Callable[..., TopicClient], bootstrap: str, topic: str, **config: Any
    ) -> None:
        of_proxy = consumer_config(cluster_of(bootstrap), "test", 20)
        self._client = make(topic, of_proxy | {k.replace("_", "."): v for k, v in config.items()})
        self._client.assign({0: 0})
        self.found: Messages = []
        self.position = 0

    def read_until(self, holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + WAIT_S_MAX
        while not holds():
            assert time.monotonic() < give_up, f"{len(self.found)} messages, to {self.position}"
            for one in self._client.read(0.1):
                if isinstance(one, Fetched):
                    self.found += zip(one.offsets.tolist(), list(one.values), strict=True)
                    self.position = self.found[-1][0] + 1
                elif one.kind == "end":
                    self.position = one.offset
                else:
                    assert one.kind == "error", one
            self._client.release()

    def close(self) -> None:
        self._client.close()


def end_of(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "plain"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S_MAX)
        return int(end)
    finally:
        consumer.close()


def fill(bootstrap: str, topic: str) -> None:
    """Write for each codec three transactions, the second one aborted, and messages in between."""
    for codec in CODECS:
        common = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
        plain, inside = (
            Producer(common),
            Producer(common | {"transactional.id": f"{topic}-{codec}"}),
        )
        inside.init_transactions(WAIT_S_MAX)
        for transaction in range(3):
            inside.begin_transaction()
            for i in range(500):
                inside.produce(
                    topic,
                    None if i % 50 == 0 else b'{"sensor":"%d","ts":%d}' % (i, transaction),
                    key=None if i % 7 == 0 else b"k%d" % (i % 40),
                    headers=[("h", b"x"), ("n", None)] if i % 3 == 0 else None,
                )
                if i % 4 == 0:
                    plain.produce(topic, b'{"plain":%d}' % i)
            assert plain.flush(WAIT_S_MAX) == 0
            assert inside.flush(WAIT_S_MAX) == 0
            if transaction == 1:
                inside.abort_transaction(WAIT_S_MAX)
            else:
                inside.commit_transaction(WAIT_S_MAX)


@pytest.fixture(name="mixed", scope="module")
def _mixed(broker: EmbeddedBroker) -> str:
    make_topics(broker.bootstrap, ["mixed"])
    fill(broker.bootstrap, "mixed")
    return "mixed"


@CLIENTS
@pytest.mark.parametrize("fetch_bytes", [16_842_752, SMALL_FETCH_BYTES])
def test_transactions_tombstones_headers_and_codecs_are_read_alike(
    broker: EmbeddedBroker, mixed: str, make: Callable[..., TopicClient], fetch_bytes: int
) -> None:
    wanted, end = plainly_read(broker.bootstrap, mixed), end_of(broker.bootstrap, mixed)
    assert len(wanted) == len(CODECS) * (2 * 500 + 3 * 125)
    assert end > 1 + wanted[-1][0], "the last one is a marker"
    reading = ClientReader(make, broker.bootstrap, mixed, max_partition_fetch_bytes=fetch_bytes)
    reading.read_until(lambda: reading.position >= end)
    reading.close()
    assert reading.found == wanted
    assert reading.position == end


@pytest.fixture(name="compacted", scope="module")
def _compacted(broker: EmbeddedBroker) -> tuple[str, int]:
    """Return a topic with holes, and the number of messages sent to it.

    Both clients read this one: the broker's cleaner runs only every 15 s.
    """
    topic = "compacted"
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "delete.retention.ms": "100",
    }
    make_topics(broker.bootstrap, [topic], config=config)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    sent = 0

    def has_holes() -> bool:
        nonlocal sent
        for _ in range(2_000):  # a segment ends at the next write after its time
            producer.produce(topic, b'{"ts":%d}' % sent, key=b"k%d" % (sent % (50 + sent % 977)))
            sent += 1
        assert producer.flush(WAIT_S_MAX) == 0
        return len(plainly_read(broker.bootstrap, topic)) < sent - 1_000

    eventually(has_holes, "compaction leaves holes")
    return topic, sent


@CLIENTS
def test_holes_of_compaction_are_passed(
    broker: EmbeddedBroker, compacted: tuple[str, int], make: Callable[..., TopicClient]
) -> None:
    topic, sent = compacted
    # The cleaner continues: comparisons are made with reads before and after.
    reading = ClientReader(make, broker.bootstrap, topic)
    before = plainly_read(broker.bootstrap, topic)
    reading.read_until(lambda: reading.position >= sent)
    reading.close()
    after = set(plainly_read(broker.bootstrap, topic))
    assert after <= set(reading.found) <= set(before) | after
    offsets = [offset for offset, _ in reading.found]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < sent


@CLIENTS
def test_a_broker_that_is_killed_and_comes_back_costs_no_message(
    broker: EmbeddedBroker, make: Callable[..., TopicClient]
) -> None:
    topic = f"killed-{make.__name__}"
    make_topics(broker.bootstrap, [topic])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    sent: list[bytes] = []

    def send(count: int) -> None:
        for _ in range(count):
            sent.append(b'{"ts":%d}' % len(sent))
            producer.produce(topic, sent[-1])
            producer.poll(0)
        assert producer.flush(WAIT_S_MAX) == 0

    send(60_000)
    reading = ClientReader(make, broker.bootstrap, topic)
    reading.read_until(lambda: len(reading.found) > 10_000)
    broker.kill()
    broker.start()
    send(20_000)
    reading.read_until(lambda: len(reading.found) >= len(sent))
    reading.close()
    assert reading.found == list(enumerate(sent))


@pytest.mark.drill
@pytest.mark.timeout(900)
@CLIENTS
def test_a_broker_that_sleeps_past_its_session_stops_no_client_for_good(
    broker: EmbeddedBroker, make: Callable[..., TopicClient]
) -> None:
    """When it goes on it lists no brokers for a moment; clients met that in 4 of 10 sleeps."""
    topic = f"asleep-{make.__name__}"
    make_topics(broker.bootstrap, [topic])
    producer = Producer(confluent_client(broker.bootstrap) | {"enable.idempotence": True})
    sent: list[bytes] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.02):
            sent.append(b'{"ts":%d}' % len(sent))
            producer.produce(topic, sent[-1])
            producer.poll(0)

    def is_past(at_s: float) -> bool:
        return time.monotonic() > at_s

    def has_read(count: int) -> bool:
        return len(reading.found) >= count

    sender = threading.Thread(target=send)
    sender.start()
    reading = ClientReader(make, broker.bootstrap, topic)
    try:
        for _ in range(SLEEPS):
            os.kill(broker.pid, signal.SIGSTOP)
            reading.read_until(partial(is_past, time.monotonic() + SLEEP_S))
            os.kill(broker.pid, signal.SIGCONT)
            reading.read_until(partial(has_read, len(sent) + 50))
    finally:
        os.kill(broker.pid, signal.SIGCONT)
        stop.set()
        sender.join()
    assert producer.flush(WAIT_S_MAX) == 0
    reading.read_until(lambda: len(reading.found) >= len(sent))
    reading.close()
    assert reading.found == list(enumerate(sent))


@CLIENTS
def test_a_client_that_is_paused_and_resumed_reads_each_message_once(
    broker: EmbeddedBroker, make: Callable[..., TopicClient]
) -> None:
    """Messages arrive all the time, so each pause drops some that were fetched and not read."""
    topic, rounds = f"paused-{make.__name__}", 100
    make_topics(broker.bootstrap, [topic])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    client = make(topic, consumer_config(cluster_of(broker.bootstrap), "test", 500))
    client.assign({0: 0})
    written, read = Written(producer, topic), Read()
    written.start()
    eventually(lambda: read.take(client) > 0, "the first messages")
    for _ in range(rounds):
        client.pause()
        eventually(written.more_than(written.delivered + 5), "more messages")
        known = written.delivered
        ends = client.resume(WAIT_S_MAX)
        assert ends is not None
        assert ends[0] >= known, "the end offset is not older than the request"
        eventually(partial(read.reaches, client, ends[0]), "all up to the end offset")
    written.stop()
    eventually(partial(read.reaches, client, written.delivered), "the rest")
    client.close()
    assert read.offsets == list(range(written.delivered))


class Read:
    """The offsets that a client has returned."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def reaches(self, client: TopicClient, end: int) -> bool:
        """Read once; return whether all messages below this offset have been read."""
        return self.take(client) >= end

    def take(self, client: TopicClient) -> int:
        """Read once; return the position behind the last message."""
        for one in client.read(0.05):
            if isinstance(one, Fetched):
                self.offsets += one.offsets.tolist()
        client.release()
        return self.offsets[-1] + 1 if self.offsets else 0


class Written(threading.Thread):
    """Writes a few messages per millisecond until stopped."""

    def __init__(self, producer: Producer, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic = producer, topic
        self._ending = threading.Event()
        self.delivered = 0

    def run(self) -> None:
        while not self._ending.wait(0.001):
            self._producer.produce(self._topic, b"{}", on_delivery=self._count)
            self._producer.poll(0)

    def more_than(self, count: int) -> Callable[[], bool]:
        """Return whether more than these have been acknowledged, as a condition."""
        return lambda: self.delivered > count

    def _count(self, error: KafkaError | None, _message: Message) -> None:
        assert error is None
        self.delivered += 1

    def stop(self) -> None:
        self._ending.set()
        self.join()
        assert self._producer.flush(WAIT_S_MAX) == 0


@CLIENTS
def test_partitions_of_a_backlog_come_by_turns(
    broker: EmbeddedBroker, make: Callable[..., TopicClient]
) -> None:
    topic, value, count = f"backlog-{make.__name__}", b"x" * 1_000, 9_000
    make_topics(broker.bootstrap, [topic], 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for _ in range(count):
        for partition in range(2):
            producer.produce(topic, value, partition=partition)
    assert producer.flush(WAIT_S_MAX) == 0
    client = make(topic, consumer_config(cluster_of(broker.bootstrap), "test", 20))
    skews: list[int] = []
    for _attempt in range(20):
        client.assign({0: 0, 1: 0})
        skews.append(len(value) * skew(in_their_order(client, 2 * count)))
        if skews[-1] <= 3 * PARTITION_FETCH_BYTES:
            break  # else a busy machine, where one was read before the other was requested
    client.close()
    assert min(skews) <= 3 * PARTITION_FETCH_BYTES, skews


def in_their_order(client: TopicClient, messages: int) -> list[int]:
    """Return the partition of each message, in the order of arrival."""
    arrived: list[int] = []
    give_up = time.monotonic() + WAIT_S_MAX
    while len(arrived) < messages:
        assert time.monotonic() < give_up, f"{len(arrived)} read"
        for one in client.read(0.1):
            if isinstance(one, Fetched):
                arrived += [one.partition] * len(one.values)
        client.release()
    return arrived


def skew(arrived: Sequence[int]) -> int:
    """Return the maximum number of messages by which one of two partitions is ahead."""
    return max(abs(ahead) for ahead in accumulate(1 - 2 * number for number in arrived))


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_a_new_client_tells_where_a_longer_log_was_truncated_since_its_position(
    tmp_path: Path,
) -> None:
    """The directory of a partition is replaced by a copy with the first 100 of 200 messages.

    150 others are written then. A client that is given the position only reads on behind 100 of
    them; one that is given the epoch of the last message that was read tells the offset, 100.
    """
    topic, broker = "older", EmbeddedBroker(tmp_path / "broker")
    with broker:
        make_topics(broker.bootstrap, [topic])
        _write(broker, topic, 100)
        broker.stop()
        of_topic = broker.data_dir / "logs" / f"{topic}-0"
        shutil.copytree(of_topic, tmp_path / "kept")
        broker.start()
        _write(broker, topic, 100)
        read = _first(broker, topic, {0: 199}, {}, QueueClient)
        assert isinstance(read, Fetched)
        assert read.epoch > 0, "the broker was restarted"
        broker.stop()
        shutil.rmtree(of_topic)
        shutil.copytree(tmp_path / "kept", of_topic)
        broker.start()
        _write(broker, topic, 150)
        for make in (QueueClient, ConfluentClient):
            found = _first(broker, topic, {0: 200}, {}, make)
            assert isinstance(found, Fetched)
            assert (found.offsets[0], found.epoch > read.epoch) == (200, True)
            reported = _first(broker, topic, {0: 200}, {0: read.epoch}, make)
            assert isinstance(reported, Notice)
            assert (reported.kind, truncated_at(reported)) == ("gone", 100)
            later = _first(broker, topic, {0: 200}, {0: found.epoch}, make)
            assert isinstance(later, Fetched), "the epoch of a message after the truncation"
            unknown = _first(broker, topic, {0: 200}, {0: 1_000}, make)
            assert isinstance(unknown, Notice)
            assert (unknown.kind, truncated_at(unknown)) == ("gone", UNKNOWN_OFFSET)


def _write(broker: EmbeddedBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(count):
        producer.produce(topic, b"{}", partition=0)
    assert producer.flush(WAIT_S_MAX) == 0


def _first(
    broker: EmbeddedBroker,
    topic: str,
    positions: dict[int, int],
    epochs: dict[int, int],
    make: Callable[..., TopicClient],
) -> Fetched | Notice:
    """Return what a new client returns first."""
    client = make(topic, consumer_config(cluster_of(broker.bootstrap), "test", 20))
    client.assign(positions, epochs)
    give_up = time.monotonic() + WAIT_S_MAX
    try:
        while True:
            assert time.monotonic() < give_up
            found = [one for one in client.read(0.1) if not _is_error(one)]
            if found:
                return found[0]
            client.release()
    finally:
        client.release()
        client.close()


def _is_error(one: Fetched | Notice) -> bool:
    """Whether it is an error that the client retries, such as of a connection."""
    return isinstance(one, Notice) and one.kind == "error"
