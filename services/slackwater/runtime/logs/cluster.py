"""The Kafka cluster that a client connects to: its address and its security settings.

Functions that create clients take a ``Cluster``, or the address of a cluster without security.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from slackwater.model.errors import UsageError
from slackwater.model.sites import UplinkSpec
from slackwater.runtime.security.credentials import PLAINTEXT, Role, Security
from slackwater.runtime.security.security_file import read_kafka_file


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kafka cluster and its security settings; its string form is the address."""

    bootstrap: str
    security: Security = field(default=PLAINTEXT, repr=False)

    def __str__(self) -> str:
        return self.bootstrap


Where = str | Cluster


def cluster_of(where: Where) -> Cluster:
    """Return the cluster; an address alone means a cluster without security (plaintext)."""
    return where if isinstance(where, Cluster) else Cluster(where)


RECOVERY: Final[dict[str, Any]] = {
    "metadata.recovery.strategy": "rebootstrap",
    "metadata.recovery.rebootstrap.trigger.ms": 2**31 - 1,
}
"""What a client does that reaches no broker that it knows: begin with ``bootstrap.servers``.

A broker alone in its cluster that was paused for longer than its session lists no brokers when it
goes on, not even itself. librdkafka then forgets it, and without this recovery never connects
again. Recovery after a time as well (by default five minutes) is off: it begins anew again and
again, with new threads, as long as no broker answers (decision 205)."""


def confluent_client(where: Where) -> dict[str, Any]:
    """Return the settings of every confluent-kafka client: addresses, security and recovery."""
    cluster = cluster_of(where)
    return {"bootstrap.servers": cluster.bootstrap} | RECOVERY | cluster.security.confluent()


def find_cluster(where: Where | None, config: Path | None, role: Role) -> Cluster:
    """Return the cluster given by an address, a security file, or both.

    An address takes precedence over the one in the file.

    Raises:
        UsageError: neither contains an address, or the file is invalid.
    """
    if config is None:
        if where is None:
            raise UsageError("Kafka's address is missing: give --bootstrap or a security file")
        return cluster_of(where)
    found = read_kafka_file(config, role)
    address = found.bootstrap if where is None else str(where)
    if address is None:
        raise UsageError(f"{config} has no Kafka address: add bootstrap.servers to it")
    return Cluster(address, found.security)


def find_centre(link: UplinkSpec) -> Cluster:
    """Return the Kafka of the centre, as a site reaches it (rule-37).

    Raises:
        UsageError: the file with the credentials is invalid.
    """
    config = None if link.kafka_config is None else Path(link.kafka_config)
    return find_cluster(link.centre, config, Role.UPLINK)
