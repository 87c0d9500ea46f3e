"""The configuration of the embedded broker: its listeners and limits, with reasons."""

from pathlib import Path
from typing import NamedTuple

from slackwater.model.limits import RECORD_BATCH_BYTES_MAX

HOST = "127.0.0.1"


class Ports(NamedTuple):
    """Ports of a broker; ``inside`` is used by the broker itself if clients must authenticate."""

    clients: int
    controller: int
    inside: int


def open_listeners(ports: Ports) -> list[tuple[str, object]]:
    """Return the listeners of a broker without authentication."""
    return [
        ("listeners", f"CLIENTS://{HOST}:{ports.clients},CONTROLLER://{HOST}:{ports.controller}"),
        ("advertised.listeners", f"CLIENTS://{HOST}:{ports.clients}"),
        ("inter.broker.listener.name", "CLIENTS"),
        ("listener.security.protocol.map", "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ]


def closed_listeners(ports: Ports) -> list[tuple[str, object]]:
    """Return the listeners of a broker with authentication, one of them for the broker itself."""
    brokers = f"CLIENTS://{HOST}:{ports.clients},INSIDE://{HOST}:{ports.inside}"
    return [
        ("listeners", f"{brokers},CONTROLLER://{HOST}:{ports.controller}"),
        ("advertised.listeners", brokers),
        ("inter.broker.listener.name", "INSIDE"),
    ]


def broker_properties(data_dir: Path, ports: Ports) -> list[tuple[str, object]]:
    """Return the settings of a single node that starts fast, fails over fast, and uses few MB."""
    return [
        ("process.roles", "broker,controller"),
        ("node.id", 1),
        ("controller.quorum.voters", f"1@{HOST}:{ports.controller}"),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", data_dir / "logs"),
        # A killed broker can register again only after its old session has expired: with 3 s it
        # answers after 6.8 s instead of 14.8 s. With less, Kafka's controller fences a live broker
        # on a busy machine.
        ("broker.session.timeout.ms", 3_000),
        ("broker.heartbeat.interval.ms", 500),
        ("group.initial.rebalance.delay.ms", 0),  # by default a new group waits 3 s for members
        ("group.min.session.timeout.ms", 1_000),
        ("auto.create.topics.enable", "false"),  # a misspelt topic is an error, not a new topic
        ("default.replication.factor", 1),
        ("num.partitions", 1),
        ("offsets.topic.replication.factor", 1),
        ("offsets.topic.num.partitions", 4),
        ("transaction.state.log.replication.factor", 1),
        ("transaction.state.log.min.isr", 1),
        ("transaction.state.log.num.partitions", 4),
        # A root that dies inside a transaction delays read_committed readers until the broker
        # finds that the transaction has timed out; by default it checks every 10 s.
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", 1_000),
        ("share.coordinator.state.topic.replication.factor", 1),
        ("share.coordinator.state.topic.min.isr", 1),
        ("share.coordinator.state.topic.num.partitions", 1),
        ("message.max.bytes", RECORD_BATCH_BYTES_MAX),
        ("replica.fetch.max.bytes", RECORD_BATCH_BYTES_MAX),
        ("log.retention.check.interval.ms", 30_000),
        ("log.cleaner.threads", 1),
        # The cleaner clears this whole buffer for each log that it compacts. The default is a
        # quarter of the heap; with 16 MiB this took a tenth of a busy broker's CPU.
        ("log.cleaner.dedupe.buffer.size", 2 * 2**20),
        # The index files of a segment are preallocated to this size. Where the file system uses
        # large folios (ext4 of newer kernels), the first entry of a file of the default 10 MiB
        # takes 5 to 50 ms of CPU, and 150 logs with their first entries at the same time stopped
        # for 3 to 13 s. With 1 MiB it takes 0.5 ms, and a segment ends at 350 MB.
        ("log.index.size.max.bytes", 2**20),
        ("num.network.threads", 2),
        ("num.io.threads", 4),
        ("background.threads", 2),
    ]
