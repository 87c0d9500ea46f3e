"""The shared transport suite on a real Kafka, and faults that the client must survive."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.contracts.transport import (
    CatchUpContract,
    TransportContract,
    World,
    drain,
    fill,
    no_failure,
)
from tests.support.starting import make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import Log, NoAnswerError, read_to_end


class KafkaWorld:
    """A ``World`` on a real broker; a transaction is written by a plain client."""

    def __init__(self, bootstrap: str) -> None:
        self.transport = KafkaTransport(bootstrap)
        self._bootstrap = bootstrap

    def create(self, partitions: int = 1, bytes_max: int = 16 * 2**20) -> str:
        topic = f"contract-{uuid.uuid4().hex[:12]}"
        make_topics(self._bootstrap, [topic], partitions, {"max.message.bytes": str(bytes_max)})
        return topic

    def transact(self, log: Log, values: Sequence[bytes], *, commit: bool) -> None:
        producer = self._begin(log, values)
        if commit:
            producer.commit_transaction(WAIT_S_MAX)
        else:
            producer.abort_transaction(WAIT_S_MAX)

    def open_transaction(self, log: Log, value: bytes) -> Callable[[], None]:
        producer = self._begin(log, [value])
        return lambda: producer.commit_transaction(WAIT_S_MAX)

    def _begin(self, log: Log, values: Sequence[bytes]) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "log_level": 0,
            }
        )
        producer.init_transactions(WAIT_S_MAX)
        producer.begin_transaction()
        for value in values:
            producer.produce(log[0], value, partition=log[1])
        assert producer.flush(WAIT_S_MAX) == 0
        return producer


@pytest.fixture(scope="module")
def world(bootstrap: str) -> World:
    return KafkaWorld(bootstrap)


class TestTransport(TransportContract):
    """The shared suite."""


class TestCatchUp(CatchUpContract):
    """The shared suite of the catch-up reader."""


def test_a_catch_up_reader_holds_no_more_than_its_prefetch(world: World) -> None:
    topic = world.create()
    writer = world.transport.writer(no_failure)
    fill(writer, (topic, 0), [bytes(100_000)] * 300)  # 30 MB

    def takes_s() -> float:
        reader = world.transport.reader(prefetch_kib_max=1024)
        reader.assign({(topic, 0): 0})
        started = time.monotonic()
        assert len(drain(reader, 300, records_max=5)) == 300
        reader.close()
        return time.monotonic() - started

    # A full prefetch queue pauses fetching only briefly: with the default of 1 s each it takes 29 s
    # and more, each time. A machine may be too busy for 25 s at times.
    eventually(lambda: takes_s() < 25, "it is read in less than 25 s")


def test_records_wait_for_each_other_where_a_reader_gathers(world: World) -> None:
    log = (world.create(), 0)
    writer = world.transport.writer(no_failure)
    reader = world.transport.reader(gather_ms=400)
    reader.assign({log: 0})
    answers, latest, written = 0, 0, 0
    began = due = time.monotonic()
    while latest < 100:
        assert time.monotonic() < began + WAIT_S_MAX
        records = reader.poll(1000, 0.02)
        answers, latest = answers + bool(records), latest + len(records)
        if written < 100 and time.monotonic() >= due:
            writer.append(*log, b"%d" % written)
            written, due = written + 1, due + 0.02
    # Of 2 s, if the machine is not busy: about 6, and not one for each record.
    assert answers <= (time.monotonic() - began) / 0.4 + 3
    writer.close()
    reader.close()


async def test_questions_whose_time_passes_do_no_harm(world: World) -> None:
    log = (world.create(), 0)
    answers = [
        await world.transport.end_offsets_async([log], timeout_s=0.0005 * (i % 4 + 1))
        for i in range(500)
    ]
    assert all(answer in (None, {log: 0}) for answer in answers), "a fast machine has all of them"
    assert await world.transport.end_offsets_async([log], timeout_s=WAIT_S_MAX) == {log: 0}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.mark.slow
def test_a_broker_killed_under_a_writer_and_a_reader_costs_no_record(
    own_broker: EmbeddedBroker,
) -> None:
    world = KafkaWorld(own_broker.bootstrap)
    topic = world.create()
    log = (topic, 0)
    writer = world.transport.writer(no_failure)
    reader = world.transport.reader()
    reader.assign({log: 0})
    fill(writer, log, [b"before-%d" % i for i in range(100)])
    own_broker.kill()
    for i in range(100):
        writer.append(*log, b"during-%d" % i)
    with pytest.raises(NoAnswerError):
        writer.await_delivered(0.2)
    with pytest.raises(NoAnswerError):
        world.transport.end_offsets([log], timeout_s=0.5)
    own_broker.start()
    writer.await_delivered(WAIT_S_MAX)
    wanted = [b"before-%d" % i for i in range(100)] + [b"during-%d" % i for i in range(100)]
    assert [r.value for r in drain(reader, 200)] == wanted
    assert [r.value for r in read_to_end(world.transport, log)] == wanted
    reader.close()
    writer.close()
