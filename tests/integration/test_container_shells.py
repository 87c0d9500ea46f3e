"""The real processes of a deployment against Kafka in a container that is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_plain_topic import (
    DEPLOYMENT,
    PARTITIONS,
    Results,
    Stranger,
    each_reading_is_counted_once,
)
from tests.support.engine import KAFKA_IMAGE, KafkaContainer, require
from tests.support.starting import make_topics

from slackwater.deployment.parse import load_deployment
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.containers, pytest.mark.slow]


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
    make_topics(kafka.bootstrap, ["lab-readings"], PARTITIONS)
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

    each_reading_is_counted_once(stranger, results, kafka.bootstrap, seconds_min=8)
