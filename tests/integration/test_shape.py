"""The drill ``shape``: a topic whose shape changes under load, on three brokers, with kills.

Partitions are added, the topic is deleted and made again, retention overtakes a paused proxy,
leaders move, a replica that was not in sync is elected, and a broker gets an older disk. Devices
have clocks that are an hour ahead and behind, and their messages get another schema. Every reading
is then in a stable result, in quarantine, or in a reported gap, as the sums show reading by reading
(``tests/support/ledger.py``); and nothing stable changes.

``SHAPE_SEED=7 .venv/bin/pytest -m drill tests/integration/test_shape.py`` repeats a run: the seed
determines the order of the faults, and which process is killed after each. ``-o log_cli=true
--log-cli-level=INFO`` shows the progress.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.brokers import BROKERS, LOSABLE, ThreeBrokers
from tests.support.ledger import Fates, NumberedSender
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec import decode_source
from slackwater.deployment.parse import load_deployment
from slackwater.formats.positions import split_position
from slackwater.model.kinds import KINDS
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow, pytest.mark.drill, pytest.mark.timeout(5_400)]

_log = logging.getLogger(__name__)
TOPIC = "shaped"
DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: shaped, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [mark]
    disorder: 5s
    expect_every: 1s
queries:
  sums: {from: [lab], window: {size: 1s}, aggregate: [count, sum], bound: 5s}
"""
WINDOW_US = 1_000_000
EVERY_S = 0.02
CONFIG = {"min.insync.replicas": "1"}
KILLED = tuple(KINDS)


class Shape:
    """The cluster, the running deployment, the sender and the ledger, and the faults."""

    def __init__(self, brokers: ThreeBrokers, stack: StackThread, random: Random) -> None:
        self.brokers, self.stack, self.random = brokers, stack, random
        self.sender = NumberedSender(brokers.bootstrap, TOPIC, Random(random.random()), EVERY_S)
        self.fates = Fates(brokers.bootstrap, "lab", "sums", WINDOW_US, self.sender.readings)
        self.began = time.monotonic()

    def note(self, what: str) -> None:
        fates = self.fates
        _log.info(
            "%.1f s, %s: %d sent, %d stable, %s in quarantine, gaps of %s",
            *(time.monotonic() - self.began, what, len(self.sender.readings), len(fates.stable)),
            *(dict(Counter(fates.refused.values())), [gap.lost for gap in fates.gaps]),
        )

    def settle(self, what: str) -> None:
        """Let each reading that was sent find its fate."""
        self.fates.await_all(what)
        self.note(what)

    # Faults. Each returns when it has taken effect.

    def partition_is_added(self) -> None:
        number = self.sender.partitions
        self.brokers.add_partition(TOPIC, number, self._replicas())
        self.sender.partitions = number + 1
        self.sender.await_more(2 * number)

    def topic_is_made_again(self) -> None:
        self.sender.pause()
        self.brokers.delete(TOPIC)
        self.make(self.random.randint(2, self.sender.partitions + 1))
        self.sender.resume()

    def retention_overtakes_the_proxy(self) -> None:
        assert self.stack.pause("proxy")
        try:
            self.sender.await_more(20 * self.sender.partitions)
            partition = self.random.randrange(self.sender.partitions)
            self.brokers.delete_records(TOPIC, partition, self._end(partition) - 5)
        finally:
            self.stack.resume("proxy")
        gaps = len(self.fates.gaps)

        def is_reported() -> bool:
            self.fates.read()
            return len(self.fates.gaps) > gaps

        eventually(is_reported, "the gap is reported")

    def leader_moves(self) -> None:
        partition = self._partition()
        leader = self.brokers.leaders(TOPIC)[partition]
        self.brokers.kill(leader)
        eventually(
            lambda: self.brokers.leaders(TOPIC).get(partition, leader) != leader,
            f"partition {partition} has another leader",
        )
        self.sender.await_more(20)
        self.brokers.start(leader)
        self._await_in_sync()

    def unclean_election_truncates(self) -> None:
        """A replica that lacks the last readings, which have been read, becomes the leader."""
        partition = self._partition()
        leader = self.brokers.leaders(TOPIC)[partition]
        other = self._other(leader)
        self._lag(other, partition)
        end = self._end(partition)
        self.brokers.kill(leader)
        self.brokers.start(other)
        self._loses(partition, end)
        self.brokers.start(leader)
        self._await_in_sync()

    def log_is_truncated_while_no_proxy_runs(self) -> None:
        """Likewise, and it is longer than the position again when the next proxy begins."""
        partition = self._partition()
        leader = self.brokers.leaders(TOPIC)[partition]
        other = self._other(leader)
        self._lag(other, partition)
        end = self._end(partition)
        assert self.stack.pause("proxy")
        try:
            self.brokers.kill(leader)
            self.brokers.start(other)
            self._loses(partition, end)
            eventually(lambda: self._end(partition) > end, "the log is longer than its position")
        finally:
            self.stack.kill("proxy")
        self.brokers.start(leader)
        self._await_in_sync()

    def broker_gets_an_older_disk(self) -> None:
        """The only replica in sync loses its last readings, which have been read."""
        partition = self._partition()
        broker = self.brokers.leaders(TOPIC)[partition]
        other = self._other(broker)
        self.brokers.kill(broker)
        self.brokers.copy_disk(broker)
        self.brokers.start(broker)
        self._await_in_sync()
        self._lag(other, partition)
        end = self._end(partition)
        self.brokers.kill(broker)
        # Its replicas of the deployment's own topics must be known to lag before it is back.
        eventually(
            lambda: all(self.brokers.in_sync(topic, 0) == {1} for topic in INTERNAL),
            "only one broker is in sync",
        )
        self.brokers.restore_disk(broker)
        self.brokers.start(broker)
        self._loses(partition, end)
        self.brokers.start(other)
        self._await_in_sync()

    def schema_changes(self) -> None:
        """Messages have further fields and another order; those on their way have the old one."""
        self.sender.schema += 1
        self.sender.await_more(2 * self.sender.partitions)

    def process_is_killed(self) -> None:
        kind = self.random.choice(KILLED)
        names = self.stack.kill(kind)
        self.note(f"killed {', '.join(names)}")

    # Their parts.

    def make(self, partitions: int) -> None:
        replicas = [self._replicas() for _ in range(partitions)]
        self.brokers.make(TOPIC, replicas, CONFIG)
        self.sender.partitions = partitions

    def _replicas(self) -> list[int]:
        return self.random.sample(LOSABLE, 2)

    def _partition(self) -> int:
        return self.random.randrange(self.sender.partitions)

    def _other(self, broker: int) -> int:
        return next(n for n in LOSABLE if n != broker)

    def _lag(self, broker: int, partition: int) -> None:
        """Kill a replica; the other one gets further readings, and all have been read."""
        self.brokers.kill(broker)
        eventually(
            lambda: self.brokers.in_sync(TOPIC, partition) == {self._other(broker)},
            "one replica is in sync",
        )
        self.sender.await_more(20 * self.sender.partitions)
        self._read_all()

    def _loses(self, partition: int, end: int) -> None:
        """Let the only replica that is there lead, without the last readings; send others."""
        for number in range(self.sender.partitions):
            self.brokers.elect_unclean(TOPIC, number)
        assert self._end(partition) < end, "the log is shorter"
        self.sender.resume()

    def _read_all(self) -> None:
        """Pause the sender, and wait until all that it has sent has been read.

        It is not stable yet: the watermark follows the readings.
        """
        self.sender.pause()
        transport = KafkaTransport(self.brokers.bootstrap)
        last = {reading.partition: reading.number for reading in self.sender.readings}

        def is_read(partition: int) -> bool:
            self.fates.read()
            if last.get(partition) in self.fates.refused:
                return True  # no record has the place of what is in quarantine
            *_, record = read_to_end(transport, (f"sw.source.lab.{partition}", 0))
            read, _ = split_position(decode_source(record.value).input_position)
            return read >= self._end(partition)

        for partition in range(self.sender.partitions):
            eventually(partial(is_read, partition), f"partition {partition} is read")

    def _end(self, partition: int) -> int:
        at, ends = TopicPartition(TOPIC, partition), list[int]()
        consumer = Consumer({"bootstrap.servers": self.brokers.bootstrap, "group.id": "ends"})

        def is_known() -> bool:
            try:
                ends.append(int(consumer.get_watermark_offsets(at, timeout=WAIT_S_MAX)[1]))
            except KafkaException:  # a broker does not know the partition, or its leader, yet
                return False
            return True

        try:
            eventually(is_known, f"the end of partition {partition} is known")
        finally:
            consumer.close()
        return ends[-1]

    def _await_in_sync(self) -> None:
        everyone = set(range(1, BROKERS + 1))
        eventually(
            lambda: (
                all(self.brokers.in_sync(topic, 0) == everyone for topic in INTERNAL)
                and all(
                    len(self.brokers.in_sync(TOPIC, number)) == 2
                    for number in range(self.sender.partitions)
                )
            ),
            "all replicas are in sync",
        )


INTERNAL = ("sw.source.lab.0", "sw.results.sums.stable", "sw.registry")
"""Topics that show whether a broker follows."""


@dataclass(frozen=True, slots=True)
class Size:
    """How often each fault happens."""

    partitions_added: int
    made_again: int
    retention: int
    leaders_moved: int
    unclean: int
    unclean_unseen: int
    older_disks: int
    schemas_changed: int


def faults_of(shape: Shape, size: Size) -> list[Callable[[], None]]:
    """Return the faults in the order of the seed."""
    times = {
        shape.partition_is_added: size.partitions_added,
        shape.topic_is_made_again: size.made_again,
        shape.retention_overtakes_the_proxy: size.retention,
        shape.leader_moves: size.leaders_moved,
        shape.unclean_election_truncates: size.unclean,
        shape.log_is_truncated_while_no_proxy_runs: size.unclean_unseen,
        shape.broker_gets_an_older_disk: size.older_disks,
        shape.schema_changes: size.schemas_changed,
    }
    faults = [fault for fault, n in times.items() for _ in range(n)]
    shape.random.shuffle(faults)
    return faults


@pytest.fixture(name="shape")
def _shape(tmp_path: Path) -> Iterator[Shape]:
    seed = int(os.environ.get("SHAPE_SEED", time.time_ns() % 10**6))
    _log.info("SHAPE_SEED=%d", seed)
    with ThreeBrokers(tmp_path / "brokers") as brokers:
        path = tmp_path / "deployment.yaml"
        path.write_text(DEPLOYMENT)
        options = StackOptions(
            path, load_deployment(path), tmp_path / "data", bootstrap=brokers.bootstrap
        )
        stack = StackThread(options)
        shape = Shape(brokers, stack, Random(seed))
        try:
            shape.make(2)
            stack.open()
            stack.start_up()
            yield shape
        finally:
            shape.fates.close()
            stack.stop()


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(1, 1, 1, 1, 1, 1, 1, 1), id="short"),
        pytest.param(Size(5, 3, 2, 3, 2, 2, 2, 3), id="full"),
    ],
)
def test_each_reading_of_a_topic_whose_shape_changes_has_one_fate(shape: Shape, size: Size) -> None:
    shape.sender.resume()
    shape.sender.await_more(100)
    shape.settle("start")
    for fault in faults_of(shape, size):
        shape.note(fault.__name__)
        fault()
        if shape.random.random() < 0.7:
            shape.process_is_killed()
        shape.sender.await_more(100)
        shape.settle(fault.__name__)
    sent, fates = shape.sender.readings[:], shape.fates
    shape.settle("end")
    shape.sender.pause()
    fates.check_unchanged(shape.brokers.bootstrap)
    assert {"ahead", "late"} <= {*fates.refused.values()}
    _log.info("%d readings in gaps", len(fates.without(sent)))
