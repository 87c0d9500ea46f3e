"""An external test: a producer of JSON, a consumer of three topics, and a judge.

It uses only confluent-kafka, and no code of slackwater: the guarantees must hold for programs
without its library.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.support.starting import SENDS_ONCE
from tests.support.waiting import WAIT_S_MAX

SIZE_US, SLIDE_US = 5_000_000, 1_000_000
MOTES = ("m0", "m1", "m2")
KINDS = ("stable", "tentative", "corrections")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_us() -> int:
    """Return the wall time, us."""
    return time.time_ns() // 1_000


def microseconds(text: str) -> int:
    """Parse `2016-03-15T08:47:28.545000Z` to microseconds."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


Way = str | dict[str, Any]
"""The broker's address, or a client's settings."""


def _settings(way: Way) -> dict[str, Any]:
    return {"bootstrap.servers": way} if isinstance(way, str) else way


class Stranger:
    """Writes a reading of each mote every 50 ms to a plain topic, stamped by its own clock."""

    def __init__(self, way: Way) -> None:
        # Long time-outs: the broker is down between `down` and `up`.
        patient = {**SENDS_ONCE, "message.timeout.ms": 1_800_000}
        self._producer = Producer(_settings(way) | patient)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: list[tuple[int, str, float]] = []

    def start(self) -> Stranger:
        """Start."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop when all is delivered."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S_MAX) == 0

    def _run(self) -> None:
        n = 0
        while not self._stop.wait(0.05):
            for mote in MOTES:
                n += 1
                at, value = time.time_ns() // 1000, 20 + n % 100 / 8
                reading = {"mote": mote, "at": at, "temperature": value}
                self._producer.produce("lab-readings", json.dumps(reading).encode())
                self.sent.append((at, mote, value))
            self._producer.poll(0)


class Listener:
    """Reads a query's three result topics in a thread, and keeps every record.

    It also keeps the time of reading: a result that waits for its commit is not an answer yet.

    It reads without a group. If the broker is away for longer than a session of 45 s, librdkafka's
    consumer of a group may never find its coordinator again (librdkafka issue 2944).
    """

    def __init__(self, way: Way, query: str = "climate") -> None:
        self._query = query
        self._consumer = Consumer(
            _settings(way)
            | {
                "group.id": f"client-{time.time_ns()}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.records: list[dict[str, Any]] = []

    def start(self) -> Listener:
        """Start."""
        self._thread.start()
        return self

    def stop(self) -> list[dict[str, Any]]:
        """Return all records read so far, as one sequence.

        A transaction can be read in one topic shortly before it can in the other two, so reading
        continues until nothing is missing below the last record read so far. If a record never
        arrives, the judge reports it.
        """
        last = max((int(record["seq"]) for record in self.records), default=-1)
        give_up = time.monotonic() + WAIT_S_MAX
        while (found := self._up_to(last)) and time.monotonic() < give_up:
            if len({int(record["seq"]) for record in found}) == last - int(found[0]["seq"]) + 1:
                break
            time.sleep(0.1)
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        return self._up_to(last)

    def _up_to(self, last: int) -> list[dict[str, Any]]:
        records = [record for record in list(self.records) if int(record["seq"]) <= last]
        return sorted(records, key=lambda record: int(record["seq"]))

    def wait(
        self, holds: Callable[[list[dict[str, Any]]], bool], what: str, within_s: float = WAIT_S_MAX
    ) -> None:
        """Wait until this holds for the records read."""
        give_up = time.monotonic() + within_s
        while not holds(self.records):
            assert time.monotonic() < give_up, f"not within {within_s} s: {what}"
            time.sleep(0.1)

    def wait_for_stable(self, event_us: int, within_s: float = WAIT_S_MAX) -> None:
        """Wait until all windows that end by this time have stable answers."""

        def reached(records: list[dict[str, Any]]) -> bool:
            return any(
                record.get("label") == "stable" and microseconds(record["window_end"]) >= event_us
                for record in records[-2_000:]
            )

        self.wait(reached, f"windows up to {EPOCH + timedelta(microseconds=event_us)}", within_s)

    def _partitions(self) -> list[TopicPartition]:
        """The partitions of the three topics, from their beginnings; none before all exist."""
        topics = [f"sw.results.{self._query}.{kind}" for kind in KINDS]
        known = [self._consumer.list_topics(name, timeout=30).topics[name] for name in topics]
        if not all(topic.partitions for topic in known):
            return []
        return [
            TopicPartition(topic.topic, partition, OFFSET_BEGINNING)
            for topic in known
            for partition in topic.partitions
        ]

    def _run(self) -> None:
        while not (partitions := self._partitions()):
            if self._stop.wait(0.2):
                return
        self._consumer.assign(partitions)
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, 0.05):
                value = message.value()
                if message.error() is None and value is not None:
                    seen = {"seen_us": time.time_ns() // 1000}
                    self.records.append(json.loads(value) | seen)


def _windows(boundary: dict[str, Any]) -> range:
    """Yield the starts of the windows that a boundary answers: one, or a run of empty ones."""
    first, n = microseconds(boundary["window_start"]), int(boundary["windows"])
    return range(first, first + n * SLIDE_US, SLIDE_US)


def judge(records: list[dict[str, Any]]) -> tuple[int, int]:
    """Check for missing, doubled and unrevoked answers.

    Return the counts of stable and undone ones.
    """
    seqs = [int(record["seq"]) for record in records]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), "a record is missing or there twice"
    stable: list[int] = []
    standing: set[int] = set()
    undone = 0
    for record in records:
        if record["kind"] == "boundary" and record["label"] == "tentative":
            windows = set(_windows(record))
            assert not windows & standing, "one tentative answer a window"
            assert not windows & set(stable[-200:]), "no tentative answer after the stable one"
            standing |= windows
        elif record["kind"] == "undo":
            first, last = microseconds(record["undo_from"]), microseconds(record["undo_to"])
            revoked = {window for window in standing if first <= window <= last}
            standing -= revoked
            undone += len(revoked)
        elif record["kind"] == "boundary":
            windows = set(_windows(record))
            assert not windows & standing, "a stable answer follows its UNDO"
            stable += _windows(record)
    assert stable == list(range(stable[0], stable[-1] + 1, SLIDE_US)), "a window is lost or doubled"
    assert not {window for window in standing if window <= stable[-1]}
    return len(stable), undone


def latencies_s(records: list[dict[str, Any]]) -> dict[int, float]:
    """Return the delays of first answers, as read after their commit, after their normal time."""
    first: dict[int, float] = {}
    for record in records:
        if record["kind"] == "boundary":
            due = microseconds(record["due_at"])
            first.setdefault(due, (record["seen_us"] - due) / 1e6)
    return first


def counted(
    records: list[dict[str, Any]], keys: Collection[str] = MOTES
) -> dict[tuple[int, str], dict[str, float]]:
    """Return the stable answers by window and mote, or other key."""
    return {
        (microseconds(record["window_start"]), record["key"]): record["fields"]["temperature"]
        for record in records
        if record["kind"] == "stable" and record["key"] in keys
    }


def expected(
    readings: list[tuple[int, str, float]], first: int, last: int
) -> dict[tuple[int, str], dict[str, float]]:
    """Return the answers for windows starting in [first, last], computed from the readings sent."""
    values: dict[tuple[int, str], list[float]] = {}
    for at, mote, value in readings:
        newest = at // SLIDE_US * SLIDE_US
        for start in range(newest, at - SIZE_US, -SLIDE_US):
            if first <= start <= last:
                values.setdefault((start, mote), []).append(value)
    return {
        window: {"count": len(v), "avg": sum(v) / len(v), "min": min(v), "max": max(v)}
        for window, v in values.items()
    }


def quarantined(bootstrap: str, topic: str) -> Counter[tuple[int, str, float]]:
    """Return the refused readings (late ones, for example), which are in no window."""
    emitted = (json.loads(each["payload"]) for each in messages(bootstrap, topic))
    return Counter((each["at"], each["mote"], each["temperature"]) for each in emitted)


def messages(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Return all messages of a topic with one partition, up to its present end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"messages-{time.time_ns()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[dict[str, Any]] = []
    give_up = time.monotonic() + WAIT_S_MAX
    try:
        while time.monotonic() < give_up:
            for message in consumer.consume(500, 0.5):
                if message.error() is not None:
                    return found  # the end of the topic
                value = message.value()
                assert value is not None
                found.append(json.loads(value))
        raise AssertionError(f"{topic} does not end")
    finally:
        consumer.close()
