"""A ledger of readings: what was sent, and the one fate that each has by what others can read.

It shares no code with the pipeline: it sends readings with plain confluent-kafka, and reads results
and quarantine with a consumer of its own. The fate of a reading is one of three: it is in the
stable results, it is in quarantine, or it was sent in the time of a reported gap.

The value of a reading is a power of two, and each of a device's readings in one window has another
one. A sum therefore shows which readings it has, one by one: its binary digits. With a count that
is the number of these digits, none is in it twice.

``Fates`` raises where a reading has two fates, where a stable answer is repeated or has a reading
that was not sent, and where a stable answer comes before its window's end.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.support.starting import SENDS_ONCE
from tests.support.waiting import WAIT_S_MAX, eventually

DIGITS: Final = 50
"""Maximum readings of a device in one window: a double is exact below 2^53."""
HOUR_US: Final = 3_600_000_000
KEYS: Final = 5
OFF_CLOCK_EVERY: Final = 40
"""One reading in so many is of a device whose clock is an hour ahead, and one of one behind."""


@dataclass(frozen=True, slots=True)
class SentReading:
    """A reading as it was sent; ``sent_us`` is the time of now, ``at_us`` that of the device."""

    number: int
    key: str
    at_us: int
    sent_us: int
    partition: int
    digit: int
    schema: int = 0
    """Number of the schema by which it is written."""

    @property
    def message(self) -> bytes:
        """The JSON text. Every schema has the declared fields; the others differ, and the order."""
        found: dict[str, Any] = {"mote": self.key, "at": self.at_us, "mark": 2**self.digit}
        if self.schema % 2:
            found = {"battery": {"volts": 3.1, "mark": -1}, **dict(reversed(found.items()))}
        found |= {f"added_{n}": [n, None, "mote"] for n in range(self.schema)}
        return json.dumps(found | {"number": self.number}).encode()


class NumberedSender:
    """Sends numbered readings to a topic's partitions in turn, until it is stopped.

    A pause ends with a new producer: a broker that has lost a producer's last messages refuses
    its next ones.
    """

    def __init__(self, bootstrap: str, topic: str, random: Random, every_s: float) -> None:
        self.partitions = 1
        self.schema = 0
        self.readings: list[SentReading] = []
        self.delivered: set[int] = set()
        self._bootstrap, self._topic, self._every_s = bootstrap, topic, every_s
        self._random = random
        self._digits: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        assert self._thread is None
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Stop; all readings are delivered on return."""
        assert self._thread is not None
        self._stopping.set()
        self._thread.join()
        self._thread = None
        assert len(self.delivered) == len(self.readings), "Kafka has refused a reading"

    def await_more(self, readings: int) -> None:
        """Wait until so many more readings are delivered."""
        wanted = len(self.delivered) + readings
        eventually(lambda: len(self.delivered) >= wanted, f"{readings} more readings are delivered")

    def _run(self) -> None:
        client: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "topic.metadata.refresh.interval.ms": 1_000,
            "reconnect.backoff.max.ms": 500,
        }
        producer = Producer(client | SENDS_ONCE)
        while not self._stopping.wait(self._every_s):
            reading = self._next()
            self.readings.append(reading)
            self._send(producer, reading)
            producer.poll(0)
        producer.flush(WAIT_S_MAX)

    def _send(self, producer: Producer, reading: SentReading) -> None:
        until = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                producer.produce(
                    self._topic,
                    reading.message,
                    partition=reading.partition,
                    on_delivery=self._note_of(reading.number),
                )
            except KafkaException as error:
                code = error.args[0].code()
                if code != KafkaError._UNKNOWN_PARTITION or time.monotonic() > until:
                    raise
                producer.poll(0.1)  # it has not seen an added partition yet
            else:
                return

    def _note_of(self, number: int) -> Callable[[object, object], None]:
        def note(error: object, _message: object) -> None:
            if error is None:
                self.delivered.add(number)

        return note

    def _next(self) -> SentReading:
        number, sent_us = len(self.readings), time.time_ns() // 1_000
        key, at_us = f"m{self._random.randrange(KEYS)}", sent_us
        match number % OFF_CLOCK_EVERY:
            case 1:
                key, at_us = "ahead", sent_us + HOUR_US
            case 2:
                key, at_us = "behind", sent_us - HOUR_US
        self._digits[key] = digit = (self._digits.get(key, -1) + 1) % DIGITS
        partition = number % self.partitions
        return SentReading(number, key, at_us, sent_us, partition, digit, self.schema)


@dataclass(frozen=True, slots=True)
class ReportedGap:
    """A gap of the results: ``lost`` readings in event times from ``start_us`` to ``end_us``."""

    start_us: int
    end_us: int
    lost: int


class Fates:
    """Reads the results of a query with the count and sum of ``mark``, and the quarantine."""

    def __init__(
        self, bootstrap: str, stream: str, query: str, window_us: int, sent: list[SentReading]
    ) -> None:
        """``sent`` grows; the windows are tumbling, of ``window_us``."""
        self._sent, self._window_us = sent, window_us
        self._stable_topic = f"sw.results.{query}.stable"
        self._kinds = {
            self._stable_topic: self._stable,
            f"sw.results.{query}.corrections": self._correction,
            f"sw.quarantine.{stream}": self._refused,
        }
        self._consumer = reader_of(bootstrap, self._kinds)
        self._by_window: dict[tuple[int, str], dict[int, int]] = {}
        """By the start of a window and key: the readings' numbers by their digits."""
        self._indexed = 0
        self._rows: dict[int, bytes] = {}
        """Text of each row and boundary by its offset."""
        self._answered: set[tuple[int, str]] = set()
        self.stable: set[int] = set()
        self.refused: dict[int, str] = {}
        self.stable_to_us = 0
        self.gaps: list[ReportedGap] = []

    def close(self) -> None:
        self._consumer.close()

    def read(self, wait_s: float = 0.2) -> None:
        """Read what has been written meanwhile."""
        for message in self._consumer.consume(5_000, wait_s):
            error = message.error()
            if error is not None:
                assert error.code() in _PASSING, error
                continue
            value, topic, offset = message.value(), message.topic(), message.offset()
            assert value is not None
            assert topic is not None
            assert offset is not None
            self._kinds[topic](json.loads(value), offset, value)

    def _stable(self, line: dict[str, Any], offset: int, text: bytes) -> None:
        self._rows[offset] = text
        start_us, end_us = us_of(line["window_start"]), us_of(line["window_end"])
        assert end_us <= us_of(line["emitted_at"]) + DISORDER_US, f"stable before its end: {line}"
        if line["kind"] == "boundary":
            assert start_us >= self.stable_to_us, f"a window is answered again: {line}"
            self.stable_to_us = end_us
            return
        window = start_us, line["key"]
        assert window not in self._answered, f"answered twice: {line}"
        self._answered.add(window)
        fields = line["fields"]["mark"]
        total = int(fields["sum"])
        digits = [digit for digit in range(total.bit_length()) if total >> digit & 1]
        sent = self._sent_in(window)
        assert sent.keys() >= {*digits}, f"{line} has readings that are not among {sent}"
        assert fields["count"] == len(digits), f"a reading counts twice: {line}, {sent}"
        numbers = {sent[digit] for digit in digits}
        refused = {number: self.refused[number] for number in numbers & self.refused.keys()}
        assert not refused, f"{line} has readings that are in quarantine: {refused}"
        self.stable |= numbers

    def _sent_in(self, window: tuple[int, str]) -> dict[int, int]:
        for reading in self._sent[self._indexed :]:
            start_us = reading.at_us // self._window_us * self._window_us
            by_digit = self._by_window.setdefault((start_us, reading.key), {})
            assert reading.digit not in by_digit, "too many readings in one window"
            by_digit[reading.digit] = reading.number
            self._indexed += 1
        return self._by_window.get(window, {})

    def _refused(self, entry: dict[str, Any], _offset: int, _text: bytes) -> None:
        number = int(json.loads(entry["payload"])["number"])
        assert number not in self.stable, f"in quarantine, and stable: {entry}"
        self.refused[number] = entry["reason"]  # a restarted proxy repeats entries

    def _correction(self, line: dict[str, Any], _offset: int, _text: bytes) -> None:
        if line["kind"] == "gap":
            gap = ReportedGap(us_of(line["gap_from"]), us_of(line["gap_to"]), line["lost"])
            self.gaps.append(gap)

    def without(self, readings: Iterable[SentReading]) -> list[SentReading]:
        """Return those that are neither stable nor in quarantine."""
        known = self.stable | self.refused.keys()
        return [reading for reading in readings if reading.number not in known]

    def in_a_gap(self, reading: SentReading) -> bool:
        """Whether a gap reports that readings of this time may be missing.

        A gap has the event times between two records of a source log; those of readings on the
        way may be earlier by the disorder, and later by the time that a proxy was behind.
        """
        return any(gap.start_us - DISORDER_US <= reading.sent_us < gap.end_us for gap in self.gaps)

    def await_all(self, what: str) -> None:
        """Wait until all readings sent so far have a fate."""
        sent = self._sent[:]
        until = time.monotonic() + WAIT_S_MAX
        while True:
            self.read()
            open_ = [one for one in self.without(sent) if not self._is_lost(one)]
            if not open_:
                return
            assert time.monotonic() < until, (
                f"{what}: {len(open_)} of {len(sent)} readings have no fate,"
                f" {open_[0]} to {open_[-1]}; by partition"
                f" {Counter(one.partition for one in open_)}; gaps {self.gaps}, stable to"
                f" {self.stable_to_us}, in quarantine {Counter(self.refused.values())}"
            )

    def _is_lost(self, reading: SentReading) -> bool:
        return self.stable_to_us > reading.sent_us + DISORDER_US and self.in_a_gap(reading)

    def check_unchanged(self, bootstrap: str) -> None:
        """Read the stable results again from their beginning: they are those read before."""
        again = dict(committed_in(bootstrap, self._stable_topic))
        changed = {at: text for at, text in self._rows.items() if again.get(at) != text}
        assert not changed, f"{len(changed)} stable answers have changed: {[*changed.values()][:3]}"


DISORDER_US: Final = 5_000_000
"""The ``disorder`` of the stream whose readings are counted."""
_PASSING: Final = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._TIMED_OUT,
)


def us_of(text: str) -> int:
    """Return a time of the results in microseconds."""
    at = datetime.fromisoformat(text)
    return int(at.timestamp()) * 1_000_000 + at.microsecond


def reader_of(bootstrap: str, topics: Iterable[str]) -> Consumer:
    """Return a consumer of partition 0 of these topics, from their beginnings."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ledger",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    return consumer


def committed_in(bootstrap: str, topic: str) -> list[tuple[int, bytes]]:
    """Return the offset and value of each committed record of the topic's only partition."""
    consumer, at = reader_of(bootstrap, [topic]), TopicPartition(topic, 0)
    try:
        _, end = consumer.get_watermark_offsets(at, timeout=WAIT_S_MAX)
        found: list[tuple[int, bytes]] = []

        def is_read() -> bool:
            found.extend(
                (message.offset() or 0, message.value() or b"")
                for message in consumer.consume(10_000, 0.5)
                if message.error() is None
            )
            return consumer.position([at])[0].offset >= end

        eventually(is_read, f"{topic} is read to offset {end}")
        return found
    finally:
        consumer.close()
