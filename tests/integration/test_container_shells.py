"""The real processes of a deployment against Kafka in a container that is killed under them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.engine import KAFKA_IMAGE, KafkaContainer, require
from tests.integration.test_plain_topic import DEPLOYMENT, PARTITIONS, Results, Stranger

from slackwater.runtime.deployment import load_deployment
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.stack import StackOptions, StackThread
from slackwater.runtime.transport import read_to_end

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(420)]


@pytest.fixture(name="kafka")
def _kafka() -> Iterator[KafkaContainer]:
    require([KAFKA_IMAGE])
    container = KafkaContainer().start()
    try:
        yield container
    finally:
        container.discard()


@pytest.fixture(name="stack")
def _stack(kafka: KafkaContainer, tmp_path: Path) -> Iterator[StackThread]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("lab-readings", PARTITIONS, 1)])["lab-readings"].result(60)
    path = tmp_path / "deployment.yaml"
    path.write_text(DEPLOYMENT)
    stack = StackThread(
        StackOptions(path, load_deployment(path), tmp_path / "data", bootstrap=kafka.bootstrap)
    )
    try:
        stack.open()
        yield stack
    finally:
        stack.stop()


def quarantined(bootstrap: str) -> Counter[int]:
    """Refused readings by the second they are of."""
    records = read_to_end(KafkaTransport(bootstrap), ("sw.quarantine.lab", 0))
    return Counter(orjson.loads(record.value)["stime"] // 1_000_000 for record in records)


def test_a_broker_that_is_killed_loses_and_doubles_nothing(
    stack: StackThread, kafka: KafkaContainer
) -> None:
    stranger, results = Stranger(kafka.bootstrap), Results(kafka.bootstrap)
    stranger.start()
    stack.start_up()
    results.read_until(lambda: len(results.boundaries("stable")) >= 3, "three windows are stable")

    kafka.kill_and_start()
    killed = max(stranger.sent)
    results.read_until(
        lambda: max(results.counts(), default=0) > killed + 8, "windows after the kill are stable"
    )
    stranger.stop()

    counts, refused = results.counts(), quarantined(kafka.bootstrap)
    complete = [second for second in stranger.sent if min(counts) < second < max(counts)]
    assert len(complete) >= 8
    # Every reading is counted in its window or kept in quarantine (it came too late), once.
    answered = {second: counts.get(second, 0) + refused[second] for second in complete}
    assert answered == {second: stranger.sent[second] for second in complete}
    seqs = [line["seq"] for line in results.lines]
    assert sorted(seqs) == list(range(len(seqs)))
