"""A stream's topic, as the file declares it: its messages, its schemas, its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TopicFormat = Literal["json", "json-array", "json-columns", "avro", "number"]
TopicFrom = Literal["beginning", "end"]
TopicPartitions = Literal["watched", "fixed"]


@dataclass(frozen=True, slots=True)
class RegistrySpec:
    """The address of a schema registry, and the file with its credentials."""

    url: str
    credentials: str | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """An existing topic that a proxy reads; ``from_`` is the file's ``from``."""

    name: str
    format: TopicFormat = "json"
    from_: TopicFrom = "beginning"
    registry: RegistrySpec | None = None
    schemas: str | None = None
    """File or folder of Avro schemas."""
    proxies: int = 1
    """Number of proxies among which the partitions are divided; see ``ProxyName``."""
    partitions: TopicPartitions = "watched"
    """Whether a query takes in an added partition by itself, or as a new generation (rule-30)."""
    sequence: str | None = None
    """Path of the device's counter."""
