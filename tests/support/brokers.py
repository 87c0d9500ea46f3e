"""Three embedded brokers as one Kafka cluster, whose faults a test chooses.

The first broker is also the only controller. Topics have three replicas and need two for a write.
A test's own topic has its replicas on the other two brokers and needs one, so that it can lose what
it has acknowledged: if the one that lacks the last messages is elected, or gets an older disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from confluent_kafka import (
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.support.starting import asked
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.machine.broker import EmbeddedBroker, answers
from slackwater.machine.broker_properties import HOST, Ports
from slackwater.runtime.logs.topics import partition_counts

BROKERS: Final = 3
LOSABLE: Final = (2, 3)
"""The brokers without a controller, which may both be away."""
_CLUSTER_ID: Final = "AGRyaWxsLXRocmVlLW5vZA"
_DONE_BEFORE: Final = (
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_PARTITIONS,
)


class MemberBroker(EmbeddedBroker):
    """One broker of the cluster; ``first`` is the one with the controller, or None for it."""

    def __init__(self, data_dir: Path, number: int, first: MemberBroker | None) -> None:
        super().__init__(data_dir, heap_mib_max=384)
        self._number, self._first = number, first

    def choose_ports(self) -> Ports:
        """Choose the ports, and keep them."""
        self._choose_ports()
        assert self._ports is not None
        return self._ports

    def _properties(self) -> list[tuple[str, object]]:
        assert self._ports is not None
        own: list[tuple[str, object]] = []
        if self._first is not None:
            assert self._first._ports is not None
            own = [
                ("process.roles", "broker"),
                ("listeners", f"CLIENTS://{HOST}:{self._ports.clients}"),
                ("controller.quorum.voters", f"1@{HOST}:{self._first._ports.controller}"),
            ]
        # Of a name that is set twice, the later value counts.
        return [
            *super()._properties(),
            *own,
            ("node.id", self._number),
            ("default.replication.factor", BROKERS),
            ("min.insync.replicas", 2),
            ("offsets.topic.replication.factor", BROKERS),
            ("transaction.state.log.replication.factor", BROKERS),
            ("transaction.state.log.min.isr", 2),
            ("share.coordinator.state.topic.replication.factor", BROKERS),
            ("share.coordinator.state.topic.min.isr", 2),
            ("replica.lag.time.max.ms", 10_000),
            ("auto.leader.rebalance.enable", "false"),
        ]

    def _cluster_id(self) -> str:
        return _CLUSTER_ID

    def _accepts_clients(self) -> bool:
        return answers(self.cluster, timeout_s=2.0)


class ThreeBrokers:
    """The cluster, with the requests by which a test changes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._members: dict[int, MemberBroker] = {}
        for n in range(1, BROKERS + 1):
            (folder / f"broker-{n}").mkdir(parents=True)
            member = MemberBroker(folder / f"broker-{n}", n, self._members.get(1))
            member.choose_ports()
            self._members[n] = member
        self.bootstrap = ",".join(member.bootstrap for member in self._members.values())

    def __enter__(self) -> ThreeBrokers:
        try:
            for member in self._members.values():
                member.start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kill_all()

    def _kill_all(self) -> None:
        for member in self._members.values():
            member.kill()

    # Brokers.

    def kill(self, number: int) -> None:
        """End a broker as a crash would."""
        self._members[number].kill()

    def start(self, number: int) -> None:
        """Start a broker, and wait until it answers."""
        self._members[number].start()

    def copy_disk(self, number: int) -> None:
        """Keep the present disk of a broker, which must not run."""
        kept = self._kept(number)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self._logs(number), kept)

    def restore_disk(self, number: int) -> None:
        """Put back the disk that was kept; the broker must not run."""
        shutil.rmtree(self._logs(number))
        shutil.copytree(self._kept(number), self._logs(number))

    def _logs(self, number: int) -> Path:
        member = self._members[number]
        assert not member.is_running()
        return member.data_dir / "logs"

    def _kept(self, number: int) -> Path:
        return self._folder / f"disk-{number}"

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 500})

    # Topics.

    def make(self, topic: str, replicas: Sequence[Sequence[int]], config: dict[str, str]) -> None:
        """Create a topic with these replicas for each partition, the first as its leader."""
        new = NewTopic(
            topic, len(replicas), replica_assignment=[*map(list, replicas)], config=config
        )
        self._request(lambda client: client.create_topics([new]).values())
        eventually(lambda: len(self.leaders(topic)) == len(replicas), f"{topic} has its partitions")

    def delete(self, topic: str) -> None:
        """Delete a topic; no broker knows it on return."""
        self._request(lambda client: client.delete_topics([topic]).values())
        eventually(lambda: not partition_counts(self.bootstrap, [topic]), f"{topic} is deleted")

    def add_partition(self, topic: str, number: int, replicas: Sequence[int]) -> None:
        """Add the partition with this number."""
        new = NewPartitions(topic, number + 1, [list(replicas)])
        self._request(lambda client: client.create_partitions([new]).values())
        eventually(lambda: len(self.leaders(topic)) == number + 1, f"partition {number} is there")

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition that has one."""
        return {number: leader for number, (leader, _) in self._partitions(topic).items()}

    def in_sync(self, topic: str, partition: int) -> set[int]:
        """Return the brokers whose replicas of the partition are in sync."""
        return self._partitions(topic).get(partition, (0, set()))[1]

    def _partitions(self, topic: str) -> dict[int, tuple[int, set[int]]]:
        client = self._client()
        described = client.describe_topics(TopicCollection([topic]))[topic]
        try:
            found = described.result(WAIT_S_MAX)
        except Exception:  # noqa: BLE001 -- without an answer it is asked again
            return {}
        return {
            p.id: (p.leader.id, {node.id for node in p.isr})
            for p in found.partitions
            if p.leader is not None and p.leader.id >= 0
        }

    def elect_unclean(self, topic: str, partition: int) -> None:
        """Let a replica that is not in sync lead the partition."""
        at = [TopicPartition(topic, partition)]
        client = self._client()

        def is_elected() -> bool:
            try:
                client.elect_leaders(ElectionType.UNCLEAN, at).result(WAIT_S_MAX)
            except KafkaException:
                return False  # the controllers are electing one of themselves
            # A broker that was killed leads until its session has timed out: no election is needed.
            running = {n for n, member in self._members.items() if member.is_running()}
            return self.leaders(topic).get(partition) in running

        eventually(is_elected, f"{topic}:{partition} has a leader that was not in sync")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete what lies before this offset, as retention does."""
        at = TopicPartition(topic, partition, before)
        asked(self.bootstrap, lambda client: client.delete_records([at])[at])

    def _request(self, request: Callable[[AdminClient], Iterable[Future[Any]]]) -> None:
        """Send a request until it is carried out; a repetition finds that it has been."""
        client = self._client()  # kept until the response: its end would end the request

        def is_done() -> bool:
            for future in request(client):
                try:
                    future.result(WAIT_S_MAX)
                except KafkaException as error:
                    if error.args[0].code() not in _DONE_BEFORE:
                        return False
            return True

        eventually(is_done, "the cluster carries out a request")
