"""A topic changes while a deployment reads it: each reading has one fate.

Readings are numbered, and a query without a window has one stable row for each, so that they are
compared one by one. The topic gets a partition, is deleted and made again with more messages than
it had, and is away for a while. Another stream reads it with ``partitions: fixed``: its query is
tentative from the added partition on, until it is applied again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions
from tests.integration.test_plain_topic import Results
from tests.support.starting import SENDS_ONCE, asked, make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.cli.controls import reach_controllers
from slackwater.cli.query_changes import apply_queries
from slackwater.codec import decode_source
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.cluster import confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import delete_topics, partition_counts
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import Registry
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

TOPIC = "changing"
DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: changing, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [number]
    disorder: 5s  # a reading may be sent seconds before its partition is taken in
    expect_every: 1s
queries:
  rows: {from: [lab], bound: 2s}
"""
KEPT = """\
  kept:
    topic: {name: changing, format: json, partitions: fixed}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [number]
    disorder: 5s
    expect_every: 1s
"""
WITH_FIXED = DEPLOYMENT.replace("queries:\n", KEPT + "queries:\n") + (
    "  fixed: {from: [kept], bound: 2s, replicas: 1}\n"
)


class Sender:
    """Sends numbered readings with the present time, each to a partition of the test's choice."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.sent = 0

    def send(self, partitions: int, readings: int) -> None:
        """Send readings in turn to the topic's partitions, and wait until all are there."""
        producer = Producer(confluent_client(self.bootstrap) | SENDS_ONCE)
        for _ in range(readings):
            reading = {"mote": "m", "at": int(time.time() * 1e6), "number": self.sent}
            producer.produce(TOPIC, orjson.dumps(reading), partition=self.sent % partitions)
            self.sent += 1
        assert producer.flush(WAIT_S_MAX) == 0


class Changing:
    """The running deployment, its results, and the sender."""

    def __init__(self, stack: StackThread) -> None:
        self.bootstrap = stack.stack.bootstrap
        self.stack, self.sender = stack, Sender(self.bootstrap)
        self.results = Results(self.bootstrap, query="rows")
        self.partitions = 1

    def send(self, readings: int = 20) -> None:
        self.sender.send(self.partitions, readings)

    def numbers(self, results: Results | None = None) -> Counter[int]:
        """Return how many stable rows each reading has."""
        rows = (line for line in (results or self.results).lines if line["kind"] == "stable")
        return Counter(int(row["fields"]["number"]) for row in rows)

    def await_all(self, results: Results | None = None) -> None:
        """Let event time pass with further readings until all sent before are stable."""
        wanted = self.sender.sent

        def holds() -> bool:
            self.send(self.partitions)
            return len([n for n in self.numbers(results) if n < wanted]) == wanted

        (results or self.results).read_until(holds, f"{wanted} readings are stable")

    def apply_again(self) -> None:
        """Apply the query that has not taken in a partition; it becomes its next generation."""
        options = self.stack.stack.options
        reach = reach_controllers(None, None, None, options.data_dir)
        registry = Registry(KafkaTransport(self.bootstrap))
        for expected in (["fixed.g1"], []):
            found = apply_queries(reach, options.deployment, ["fixed"], "now", lambda: registry)
            assert found == expected
            eventually(lambda: registry.query("fixed.g1") is not None, "it is registered")

    def await_read(self) -> None:
        """Wait until the source logs have all readings."""
        transport = KafkaTransport(self.bootstrap)

        def read() -> int:
            logs = [(f"sw.source.lab.{p}", 0) for p in range(self.partitions)]
            records = (
                decode_source(raw.value) for log in logs for raw in read_to_end(transport, log)
            )
            return sum(record.readings for record in records)

        eventually(lambda: read() == self.sender.sent, "all readings are in the source logs")

    def make_again(self, partitions: int) -> None:
        delete_topics(self.bootstrap, [TOPIC])
        eventually(lambda: not partition_counts(self.bootstrap, [TOPIC]), "it is deleted")
        make_topics(self.bootstrap, [TOPIC], partitions)
        self.partitions = partitions

    def refused(self) -> list[str]:
        records = read_to_end(KafkaTransport(self.bootstrap), ("sw.quarantine.lab", 0))
        return [orjson.loads(record.value)["payload"] for record in records]


@pytest.fixture(name="changing")
def _changing(tmp_path: Path) -> Iterator[Changing]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [TOPIC])
        path = tmp_path / "deployment.yaml"
        path.write_text(WITH_FIXED)
        options = StackOptions(
            path, load_deployment(path), tmp_path / "data", bootstrap=broker.bootstrap
        )
        stack = StackThread(options)
        try:
            stack.open()
            stack.start_up()
            changing = Changing(stack)
            yield changing
            changing.results.close()
        finally:
            stack.stop()


def test_each_reading_of_a_topic_that_changes_has_one_fate(changing: Changing) -> None:
    changing.send()
    changing.await_all()

    # A partition is added.
    asked(
        changing.bootstrap,
        lambda client: client.create_partitions([NewPartitions(TOPIC, 2)])[TOPIC],
    )
    eventually(lambda: partition_counts(changing.bootstrap, [TOPIC]) == {TOPIC: 2}, "it is added")
    changing.partitions = 2
    changing.send()
    changing.await_all()
    changing.await_read()
    fixed = Results(changing.bootstrap, query="fixed")
    fixed.read_until(
        lambda: any(line["missing"] == ["kept"] for line in fixed.boundaries("tentative")),
        "the query that has not taken it in says so",
    )
    changing.apply_again()
    changing.await_all(fixed)
    fixed.close()

    # The topic is made again, longer than it was, with one partition more.
    changing.make_again(3)
    changing.send(2 * changing.sender.sent)
    changing.await_all()
    changing.await_read()

    # It is away for longer than X.
    tentative = len(changing.results.boundaries("tentative"))
    delete_topics(changing.bootstrap, [TOPIC])
    changing.results.read_until(
        lambda: len(changing.results.boundaries("tentative")) > tentative, "the stream is missing"
    )
    make_topics(changing.bootstrap, [TOPIC], 3)
    changing.send()
    changing.await_all()

    for results in (changing.results, fixed):
        assert {*changing.numbers(results).values()} == {1}, "no reading counts twice"
    assert changing.refused() == [], "and none is late"
    lost = [line["lost"] for line in changing.results.lines if line.get("lost")]
    assert lost, "the results say that the topic was another one"
