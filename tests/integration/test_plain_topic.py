"""A JSON topic of an external producer: aggregated, missing when it stops, corrected.

The producer is plain confluent-kafka without code of slackwater; so is the consumer, which reads
the three result topics with ``isolation.level=read_committed``.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.starting import SENDS_ONCE, make_topics
from tests.support.waiting import WAIT_S_MAX

from slackwater.codec.results import parse_time
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.names import RESULT_KINDS, UNPREFIXED, Names
from slackwater.runtime.logs.cluster import Where, confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import Registry
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json, proxies: 2}
    key: {field: mote}
    time: {field: at.us, unit: us}
    fields: {temperature: t.celsius}
    disorder: 2s  # the producer of the test may be held up for a while
    expect_every: 1s
queries:
  lab-seconds:
    from: [lab]
    window: {size: 1s}
    aggregate: [count, avg]
    bound: 2s
    replicas: 1
"""
PARTITIONS = 2


class Stranger:
    """Writes a reading every 20 ms to each partition, stamped by its own clock."""

    def __init__(
        self,
        where: Where,
        topic: str = "lab-readings",
        *,
        partitions: int = PARTITIONS,
        every_s: float = 0.02,
    ) -> None:
        self._topic, self._partitions, self._every_s = topic, partitions, every_s
        self._producer = Producer(confluent_client(where) | SENDS_ONCE)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.sent: dict[int, int] = {}

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        self._producer.flush(WAIT_S_MAX)

    def received_twice(self, where: Where) -> dict[int, list[str]]:
        """Return the numbers of readings that the input topic has twice, and where."""
        places: dict[int, list[str]] = {}
        for partition in range(self._partitions):
            for record in read_to_end(KafkaTransport(where), (self._topic, partition)):
                number = orjson.loads(record.value)["number"]
                places.setdefault(number, []).append(f"{partition}:{record.offset}")
        return {number: found for number, found in places.items() if len(found) > 1}

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            for partition in range(self._partitions):
                at = int(time.time() * 1e6)
                reading = {"mote": f"m{partition}", "at": {"us": at}, "t": {"celsius": 21.5}}
                numbered = reading | {"number": sum(self.sent.values())}
                self._producer.produce(self._topic, orjson.dumps(numbered), partition=partition)
                self.sent[at // 1_000_000] = self.sent.get(at // 1_000_000, 0) + 1
            self._producer.poll(0)


class Results:
    """The records of a consumer of the three topics."""

    def __init__(self, where: Where, names: Names = UNPREFIXED, query: str = "lab-seconds") -> None:
        self._consumer = Consumer(
            confluent_client(where)
            | {
                "group.id": "anybody",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign(
            [TopicPartition(names.results(query, kind), 0, 0) for kind in RESULT_KINDS]
        )
        self.lines: list[dict[str, Any]] = []

    def close(self) -> None:
        self._consumer.close()

    def read_until(self, holds: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + WAIT_S_MAX
        while not holds():
            assert time.monotonic() < give_up, f"waited in vain until {what}; {self.lines[-5:]}"
            for message in self._consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                self.lines.append(orjson.loads(value))

    def complete(self) -> list[dict[str, Any]]:
        """Return all lines up to the last one read so far.

        A transaction can be read in one topic shortly before it can in the other two.
        """
        last = max(line["seq"] for line in self.lines)

        def seen() -> list[dict[str, Any]]:
            return [line for line in self.lines if line["seq"] <= last]

        self.read_until(lambda: len({line["seq"] for line in seen()}) > last, f"seq 0 to {last}")
        return seen()

    def boundaries(self, label: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("label") == label]

    def counts(self) -> dict[int, int]:
        """Return the number of stable readings by their second."""
        counts: dict[int, int] = {}
        for line in self.lines:
            if line["kind"] == "stable":
                # For a query without a window a line is a reading.
                second = int(parse_time(line.get("stime", line["window_start"])) // 1_000_000)
                figures = line["fields"]["temperature"]
                count = figures["count"] if isinstance(figures, dict) else 1
                counts[second] = counts.get(second, 0) + count
        return counts


def each_reading_is_counted_once(
    stranger: Stranger, results: Results, where: Where, *, seconds_min: int
) -> None:
    """Check that it is in its window, or in quarantine if late: a busy machine delays a producer.

    No line is missing, and none is repeated.
    """
    seqs = [line["seq"] for line in results.complete()]
    assert sorted(seqs) == list(range(len(seqs)))
    counts, refused = results.counts(), quarantined(where)
    complete = [second for second in stranger.sent if min(counts) < second < max(counts)]
    assert len(complete) >= seconds_min
    # A reading that Kafka has twice is two readings; this is not a mistake of what is tested here.
    twice = stranger.received_twice(where)
    assert not twice, f"the input topic has these readings twice: {twice}"
    answered = {second: counts.get(second, 0) + refused[second] for second in complete}
    sent = {second: stranger.sent[second] for second in complete}
    assert answered == sent, f"in quarantine: {refused}"


def nothing_is_due_before_all_is_ready(results: Results, where: Where) -> None:
    """Check that the start is no failure (trace-49), although readings came all the time."""
    (begin_us,) = Registry(KafkaTransport(where)).begins().values()
    dated = [line for line in results.complete() if "due_at" in line]
    before = [line for line in dated if parse_time(line["emitted_at"]) < begin_us]
    assert {line["kind"] for line in before} <= {"stable", "boundary"}
    assert {line.get("label", "stable") for line in before} <= {"stable"}
    due = [parse_time(line["due_at"]) for line in dated if line not in before]
    assert begin_us <= min(due) < max(due)


def quarantined(where: Where) -> Counter[int]:
    """Return refused readings by their second.

    A restarted proxy writes entries again, so they are distinguished by position (trace-23).
    """
    records = read_to_end(KafkaTransport(where), ("sw.quarantine.lab", 0))
    entries = [orjson.loads(record.value) for record in records]
    stimes = {entry["position"]: parse_time(entry["stime"]) for entry in entries}
    return Counter(int(stime // 1_000_000) for stime in stimes.values())


@pytest.fixture(name="stack")
def _stack(tmp_path: Path) -> Iterator[StackThread]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, ["lab-readings"], PARTITIONS)
        path = tmp_path / "deployment.yaml"
        path.write_text(DEPLOYMENT)
        stack = StackThread(
            StackOptions(path, load_deployment(path), tmp_path / "data", bootstrap=broker.bootstrap)
        )
        try:
            stack.open()
            yield stack
        finally:
            stack.stop()


# Its short form is the same over TLS, with kills: test_secured.py.
@pytest.mark.drill
def test_a_strangers_topic_is_aggregated_missed_and_corrected(stack: StackThread) -> None:
    bootstrap = stack.stack.bootstrap
    stranger, results = Stranger(bootstrap), Results(bootstrap)
    stranger.start()
    stack.start_up()
    results.read_until(lambda: len(results.boundaries("stable")) >= 3, "three windows are stable")

    stranger.stop()
    stopped = max(stranger.sent)
    before = len(results.boundaries("tentative"))
    results.read_until(
        lambda: len(results.boundaries("tentative")) > before + 2, "windows turn tentative"
    )
    assert all(line["missing"] == ["lab"] for line in results.boundaries("tentative")[-2:])

    stranger.start()
    results.read_until(
        lambda: (
            max(results.counts(), default=0) > stopped + 5
            and any(line["kind"] == "rec_done" for line in results.lines)
        ),
        "the silence is over and corrected",
    )
    assert {"proxy", "proxy/1"} <= stack.pids().keys(), "one for each partition"
    stack.kill("proxy/1")
    killed = max(stranger.sent)
    results.read_until(
        lambda: max(results.counts(), default=0) > killed + 2, "the killed proxy reads on"
    )
    stranger.stop()

    nothing_is_due_before_all_is_ready(results, bootstrap)
    each_reading_is_counted_once(stranger, results, bootstrap, seconds_min=6)
