"""A Kafka cluster as a client sees it: where it answers, and how to get in.

Whoever makes a client takes a ``Cluster``; an address alone stands for one without security.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from slackwater.model.errors import UsageError
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
    """An address alone is a cluster in plaintext."""
    return where if isinstance(where, Cluster) else Cluster(where)


def find_cluster(where: Where | None, config: Path | None, role: Role) -> Cluster:
    """The cluster of an address and a file; the file may hold the address too."""
    if config is None:
        if where is None:
            raise UsageError("neither an address nor a file says where Kafka is")
        return cluster_of(where)
    found = read_kafka_file(config, role)
    address = found.bootstrap if where is None else str(where)
    if address is None:
        raise UsageError(f"{config} does not say where Kafka is: add bootstrap.servers to it")
    return Cluster(address, found.security)
