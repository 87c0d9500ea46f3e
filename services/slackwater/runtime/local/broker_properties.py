"""The configuration of the embedded broker: its listeners, its limits, and why each is as it is."""

from pathlib import Path
from typing import NamedTuple

from slackwater.model.limits import RECORD_BATCH_BYTES_MAX

HOST = "127.0.0.1"


class Ports(NamedTuple):
    """Where a broker listens; ``inside`` is for itself, where clients must prove who they are."""

    clients: int
    controller: int
    inside: int


def open_listeners(ports: Ports) -> list[tuple[str, object]]:
    """For clients that need not prove who they are."""
    return [
        ("listeners", f"CLIENTS://{HOST}:{ports.clients},CONTROLLER://{HOST}:{ports.controller}"),
        ("advertised.listeners", f"CLIENTS://{HOST}:{ports.clients}"),
        ("inter.broker.listener.name", "CLIENTS"),
        ("listener.security.protocol.map", "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ]


def closed_listeners(ports: Ports) -> list[tuple[str, object]]:
    """For clients that must, with a listener of the broker's own beside theirs."""
    brokers = f"CLIENTS://{HOST}:{ports.clients},INSIDE://{HOST}:{ports.inside}"
    return [
        ("listeners", f"{brokers},CONTROLLER://{HOST}:{ports.controller}"),
        ("advertised.listeners", brokers),
        ("inter.broker.listener.name", "INSIDE"),
    ]


def broker_properties(data_dir: Path, ports: Ports) -> list[tuple[str, object]]:
    """The broker's settings: one node, quick to start and to be missed, small in memory."""
    return [
        ("process.roles", "broker,controller"),
        ("node.id", 1),
        ("controller.quorum.voters", f"1@{HOST}:{ports.controller}"),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", data_dir / "logs"),
        # A killed broker may register again only when its old session has ended: 6.8 s until it
        # answers instead of 14.8 s. Below 3 s a busy machine fences brokers that live.
        ("broker.session.timeout.ms", 3_000),
        ("broker.heartbeat.interval.ms", 500),
        ("group.initial.rebalance.delay.ms", 0),  # else a user's consumer waits 3 s for others
        ("group.min.session.timeout.ms", 1_000),
        ("auto.create.topics.enable", "false"),  # a topic misspelt is an error, not a new topic
        ("default.replication.factor", 1),
        ("num.partitions", 1),
        ("offsets.topic.replication.factor", 1),
        ("offsets.topic.num.partitions", 4),
        ("transaction.state.log.replication.factor", 1),
        ("transaction.state.log.min.isr", 1),
        ("transaction.state.log.num.partitions", 4),
        # A root that died inside a transaction holds read_committed readers up until its time-out
        # is noticed; by default the broker looks every 10 s.
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", 1_000),
        ("share.coordinator.state.topic.replication.factor", 1),
        ("share.coordinator.state.topic.min.isr", 1),
        ("share.coordinator.state.topic.num.partitions", 1),
        ("message.max.bytes", RECORD_BATCH_BYTES_MAX),
        ("replica.fetch.max.bytes", RECORD_BATCH_BYTES_MAX),
        ("log.retention.check.interval.ms", 30_000),
        ("log.cleaner.threads", 1),
        # The default takes a quarter of the heap, and all of it is cleared for each log that is
        # compacted: with 16 MiB that was a tenth of what a busy broker did.
        ("log.cleaner.dedupe.buffer.size", 2 * 2**20),
        # The index files of a segment are this large from the beginning. Where the file system maps
        # large pieces at once (ext4 of newer kernels), the first entry in one of the default's 10
        # MiB takes 5 to 50 ms of CPU; 150 logs that had their first entries together stood still
        # for 3 to 13 s. With 1 MiB it takes 0.5 ms, and a segment ends at 350 MB.
        ("log.index.size.max.bytes", 2**20),
        ("num.network.threads", 2),
        ("num.io.threads", 4),
        ("background.threads", 2),
    ]
