"""A topic of JSON that a stranger's producer writes: aggregated, missed when it stops, corrected.

The producer here is plain confluent-kafka and knows nothing of slackwater; the consumer is plain
too, and reads the three result topics with ``isolation.level=read_committed``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from slackwater.runtime.broker import EmbeddedBroker
from slackwater.runtime.deployment import load_deployment
from slackwater.runtime.stack import StackOptions, StackThread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
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
READ_S_MAX = 150.0


class Stranger:
    """Writes a reading every 20 ms to each partition, stamped by its own clock."""

    def __init__(self, bootstrap: str) -> None:
        # What it sends arrives once and in order, also when the broker dies.
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
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
        self._producer.flush(10)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for partition in range(PARTITIONS):
                at = int(time.time() * 1e6)
                reading = {"mote": f"m{partition}", "at": {"us": at}, "t": {"celsius": 21.5}}
                self._producer.produce("lab-readings", orjson.dumps(reading), partition=partition)
                self.sent[at // 1_000_000] = self.sent.get(at // 1_000_000, 0) + 1
            self._producer.poll(0)


class Results:
    """What a consumer of the three topics has seen."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "anybody",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        kinds = ("stable", "tentative", "corrections")
        self._consumer.assign(
            [TopicPartition(f"sw.results.lab-seconds.{kind}", 0, 0) for kind in kinds]
        )
        self.lines: list[dict[str, Any]] = []

    def read_until(self, holds: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + READ_S_MAX
        while not holds():
            assert time.monotonic() < give_up, f"waited in vain until {what}; {self.lines[-5:]}"
            for message in self._consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                self.lines.append(orjson.loads(value))

    def boundaries(self, label: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("label") == label]

    def counts(self) -> dict[int, int]:
        """Stable readings by the second they are of."""
        counts: dict[int, int] = {}
        for line in self.lines:
            if line["kind"] == "stable":
                second = int(_us(line["window_start"]) // 1_000_000)
                counts[second] = counts.get(second, 0) + line["fields"]["temperature"]["count"]
        return counts


def _us(text: str) -> int:
    from slackwater.codec.results import parse_time

    return parse_time(text)


@pytest.fixture(name="stack")
def _stack(tmp_path: Path) -> Iterator[StackThread]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("lab-readings", PARTITIONS, 1)]).values():
            future.result(20)
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
    stranger.stop()

    counts = results.counts()
    complete = [second for second in stranger.sent if min(counts) < second < max(counts)]
    assert len(complete) >= 6
    assert {s: counts[s] for s in complete} == {s: stranger.sent[s] for s in complete}
    seqs = [line["seq"] for line in results.lines]
    assert len(seqs) == len(set(seqs))
