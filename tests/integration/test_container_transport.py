"""The shared transport suite on the official Kafka image, in a container."""

from collections.abc import Iterator

import pytest
from tests.contracts.transport import (
    CatchUpContract,
    TransportContract,
    World,
    drain,
    fill,
    no_failure,
)
from tests.integration.test_transport_contract import KafkaWorld
from tests.support.engine import KAFKA_IMAGE, KafkaContainer, require
from tests.support.waiting import WAIT_S_MAX

pytestmark = [pytest.mark.containers]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaContainer]:
    require([KAFKA_IMAGE])
    container = KafkaContainer().start()
    try:
        yield container
    finally:
        container.discard()


@pytest.fixture(scope="module")
def world(kafka: KafkaContainer) -> World:
    return KafkaWorld(kafka.bootstrap)


class TestTransport(TransportContract):
    """The shared suite."""


class TestCatchUp(CatchUpContract):
    """The shared suite of the catch-up reader."""


def test_a_container_killed_under_a_writer_and_a_reader_costs_no_record(
    kafka: KafkaContainer, world: World
) -> None:
    log = (world.create(), 0)
    writer, reader = world.transport.writer(no_failure), world.transport.reader()
    reader.assign({log: 0})
    wanted = [b"before-%d" % i for i in range(100)]
    fill(writer, log, wanted)
    kafka.kill_and_start()
    during = [b"during-%d" % i for i in range(100)]
    for value in during:
        writer.append(*log, value)
    writer.await_delivered(WAIT_S_MAX)
    assert [r.value for r in drain(reader, 200)] == wanted + during
    reader.close()
    writer.close()
