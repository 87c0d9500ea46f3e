"""The reader and the writer over a Kafka client with rare behaviour."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.support.waiting import WAIT_S_MAX

from slackwater.runtime.logs import kafka, kafka_writer
from slackwater.runtime.logs.kafka import LogReader
from slackwater.runtime.logs.kafka_writer import LogProducer, LogWriter
from slackwater.runtime.logs.transport import PositionGoneError, WriterFailedError


class Message:
    """A record, or an event of a partition."""

    def __init__(self, topic: str, offset: int, code: int | None = None) -> None:
        self._topic, self._offset = topic, offset
        self._error = None if code is None else KafkaError(code)

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def timestamp(self) -> tuple[int, int]:
        return 0, 0

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"x"


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Return the consumer's messages for its reader."""
    waiting: list[Message] = []

    def consume(count: int, _timeout_s: float) -> list[Message]:
        some = waiting[:count]
        del waiting[:count]
        return some

    consumer = SimpleNamespace(
        consume=consume,
        poll=lambda _timeout_s: None,
        incremental_assign=lambda _logs: None,
        incremental_unassign=lambda _logs: None,
        close=lambda: None,
    )
    monkeypatch.setattr(kafka, "Consumer", lambda _config: consumer)
    return waiting


def test_r15_each_position_that_is_gone_is_reported(messages: list[Message]) -> None:
    """An outage longer than the retention of all streams: the client reports each of them once."""
    reader = LogReader("nowhere:1")
    reader.assign({("s1", 0): 5, ("s2", 0): 7, ("s3", 0): 9})
    messages += [Message(s, -1001, KafkaError._AUTO_OFFSET_RESET) for s in ("s1", "s2")]
    messages += [Message("s3", 9)]
    assert [raw.topic for raw in reader.poll()] == ["s3"]
    gone = []
    for _ in range(2):
        with pytest.raises(PositionGoneError) as caught:
            reader.poll()
        gone.append((caught.value.log, caught.value.offset))
    assert gone == [(("s1", 0), 5), (("s2", 0), 7)]
    assert reader.poll() == []


def test_a_log_that_is_no_longer_read_is_not_reported(messages: list[Message]) -> None:
    reader = LogReader("nowhere:1")
    reader.assign({("s1", 0): 5, ("s2", 0): 7, ("s3", 0): 9})
    messages += [Message("s3", 9)]
    messages += [Message(s, -1001, KafkaError._AUTO_OFFSET_RESET) for s in ("s1", "s2")]
    reader.poll()
    reader.unassign([("s1", 0)])
    reader.assign({("s2", 0): 20})
    assert reader.poll() == []


class SlowProducer:
    """Accepts records; reports deliveries at the third poll after ``may_report``."""

    def __init__(self) -> None:
        self.may_report: Callable[[], bool] = lambda: False
        self._polls = 0
        self._reports: list[Callable[[None, Message], None]] = []

    def produce(self, *_: Any, on_delivery: Callable[[None, Message], None]) -> None:
        self._reports.append(on_delivery)

    def poll(self, _timeout_s: float) -> None:
        time.sleep(0.001)
        self._polls += self.may_report()
        if self._polls >= 3:
            reports, self._reports = self._reports, []
            for offset, report in enumerate(reports):
                report(None, Message("t", offset))

    def purge(self, **_: Any) -> None:
        pass


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> SlowProducer:
    made = SlowProducer()
    monkeypatch.setattr(kafka_writer, "Producer", lambda _config: made)
    return made


def sole_writer(
    on_fatal: Callable[[str], None] = lambda _why: None, in_flight_bytes_max: int = 2**26
) -> LogWriter:
    made = LogProducer("nowhere:1", {}, in_flight_bytes_max=in_flight_bytes_max)
    return made.sole_writer(on_fatal)


def test_a_writer_that_is_closed_takes_the_reports_of_what_is_in_flight(
    producer: SlowProducer,
) -> None:
    offsets: list[int] = []
    writer = sole_writer()
    writer.append("t", 0, b"a", on_delivery=offsets.append)
    writer.append("t", 0, b"b", on_delivery=offsets.append)
    producer.may_report = lambda: writer._closing
    writer.close(timeout_s=WAIT_S_MAX)
    assert offsets == [0, 1]
    assert writer.in_flight_bytes == 0


def test_a_writer_that_is_closed_waits_no_longer_than_its_time_out(producer: SlowProducer) -> None:
    writer = sole_writer()
    writer.append("t", 0, b"a")
    writer.close(timeout_s=0.05)
    assert writer.in_flight_bytes > 0


def test_an_error_in_a_delivery_callback_ends_the_writer(producer: SlowProducer) -> None:
    """Otherwise the thread for delivery reports would be gone, and appends would wait for ever."""
    failed, why = Event(), list[str]()

    def on_fatal(reason: str) -> None:
        why.append(reason)
        failed.set()

    def deaf(_offset: int) -> None:
        raise RuntimeError("the loop is closed")

    writer = sole_writer(on_fatal, 1)
    writer.append("t", 0, b"a", on_delivery=deaf)
    producer.may_report = lambda: True
    assert failed.wait(WAIT_S_MAX)
    assert "the loop is closed" in why[0]
    with pytest.raises(WriterFailedError):
        writer.append("t", 0, b"b")
    writer.close()


def test_r5_small_records_in_flight_are_bounded_by_what_each_takes_beside_its_payload(
    producer: SlowProducer,
) -> None:
    """A broker down for hours, boundaries of 40 bytes: 64 MiB of them are a GB in the client."""
    writer = sole_writer(in_flight_bytes_max=100_000)

    def watermark() -> None:
        for _ in range(5_000):
            writer.append("t", 0, bytes(40))

    appending = Thread(target=watermark, daemon=True)
    appending.start()
    while appending.is_alive() and not (full := writer.in_flight_bytes > 99_000):
        time.sleep(0.01)
    most = len(producer._reports)
    producer.may_report = lambda: True
    appending.join(WAIT_S_MAX)
    writer.close()
    assert full
    assert most <= 500
