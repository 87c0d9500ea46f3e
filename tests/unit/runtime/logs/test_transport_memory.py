"""The broker in memory: the shared suite, and its additional functions."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from tests.contracts.transport import CatchUpContract, TransportContract, World, no_failure
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX

from slackwater.runtime.logs.transport import Log, NoAnswerError


class MemoryWorld:
    """A ``World`` in memory."""

    def __init__(self) -> None:
        self.transport = MemoryBroker(lambda: time.time_ns() // 1_000_000)
        self._topics = 0

    def create(self, partitions: int = 1, bytes_max: int = 16 * 2**20) -> str:
        self._topics += 1
        topic = f"topic-{self._topics}"
        self.transport.create_topic(topic, partitions, bytes_max=bytes_max)
        return topic

    def transact(self, log: Log, values: Sequence[bytes], *, commit: bool) -> None:
        transaction = self.transport.transaction()
        for value in values:
            transaction.append(*log, value)
        if commit:
            transaction.commit()
        else:
            transaction.abort()

    def open_transaction(self, log: Log, value: bytes) -> Callable[[], None]:
        transaction = self.transport.transaction()
        transaction.append(*log, value)
        return transaction.commit


@pytest.fixture
def world() -> World:
    return MemoryWorld()


class TestTransport(TransportContract):
    """The shared suite."""


class TestCatchUp(CatchUpContract):
    """The shared suite of the catch-up reader."""


def test_while_the_broker_is_away_appends_wait_and_questions_have_no_answer() -> None:
    broker = MemoryBroker()
    broker.create_topic("t")
    writer, reader = broker.writer(no_failure), broker.reader()
    reader.assign({("t", 0): 0})
    broker.go_away()
    offsets: list[int] = []
    writer.append("t", 0, b"waits", on_delivery=offsets.append)
    assert offsets == []
    assert writer.in_flight_bytes == 5
    with pytest.raises(NoAnswerError):
        writer.await_delivered(0.01)
    with pytest.raises(NoAnswerError):
        broker.end_offsets([("t", 0)], timeout_s=0.01)
    assert asyncio.run(broker.end_offsets_async([("t", 0)], timeout_s=0.01)) is None
    assert reader.poll(10, 0.01) == []
    broker.come_back()
    assert offsets == [0]
    assert [r.value for r in reader.poll()] == [b"waits"]


def test_a_reader_in_another_thread_is_woken() -> None:
    broker = MemoryBroker()
    broker.create_topic("t")
    reader = broker.reader()
    reader.assign({("t", 0): 0})
    values: list[bytes] = []

    def read() -> None:
        values.extend(record.value for record in reader.poll(10, WAIT_S_MAX))

    thread = threading.Thread(target=read)
    thread.start()
    broker.writer(no_failure).append("t", 0, b"here")
    thread.join(WAIT_S_MAX)
    assert values == [b"here"]


def test_a_transaction_that_raises_is_aborted() -> None:
    broker = MemoryBroker()
    broker.create_topic("t")

    def fail_half_way() -> None:
        with broker.transaction() as transaction:
            transaction.append("t", 0, b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert broker.end_offsets([("t", 0)]) == {("t", 0): 2}
    reader = broker.reader(isolation="read_committed")
    reader.assign({("t", 0): 0})
    assert reader.poll() == []
    assert reader.position(("t", 0)) == 2
