"""The first messages of a topic as a sample of readings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from slackwater.cli.drafting.samples import ReadingSample, json_sample
from slackwater.formats.encodings import encoding_fault
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.names import Names
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.logs.transport import LogError, RawRecord, read_range

MESSAGES_MAX: Final = 1_000
ASK_S_MAX: Final = 5.0
_REGISTRY_BYTES: Final = 5
"""A zero byte and the id of a schema, before JSON or Avro."""


def topic_sample(cluster: Cluster, name: str, topic: str) -> ReadingSample:
    """Return the sample of a topic.

    Raises:
        UsageError: there is no such topic, it is empty, or its messages are no JSON.
        EnvironmentProblem: it cannot be read.
    """
    count = partition_counts(cluster, [topic]).get(topic)
    if not count:
        raise UsageError(f"{topic}: there is no such file, and no such topic at {cluster}")
    try:
        records = _records(cluster, topic, count)
    except LogError as error:
        raise EnvironmentProblem(f"topic {topic} cannot be read: {error}") from None
    if not records:
        raise UsageError(f"topic {topic} has no message: send some, then their form can be guessed")
    return sample_of(records, name, topic)


def sample_of(records: Sequence[RawRecord], name: str, topic: str) -> ReadingSample:
    """Return the sample of a topic's records.

    Raises:
        UsageError: the messages are no JSON; those of Avro are named.
    """
    values: list[Any] = []
    used: list[RawRecord] = []
    unreadable = 0
    for record in records:
        try:
            # Not as bytes, of which json takes other encodings than the proxy does.
            values.append(json.loads(_without_header(record.value).decode()))
            used.append(record)
        except ValueError:
            unreadable += 1
    if not values:
        framed = records[0].value.startswith((b"\0", b"\xc3\x01"))
        hint = "they look like Avro, whose stream is declared by hand (format: avro)"
        encoding = encoding_fault(records[0].value)
        reason = encoding or (hint if framed else "JSON and bare numbers can be guessed")
        raise UsageError(f"topic {topic}: its messages are no JSON: {reason}")
    found = json_sample(name, f"topic {topic}", values, unreadable)
    named = all(record.key for record in used) and _are_texts([record.key for record in used])
    stamps = [record.timestamp_ms * 1_000 for record in used]
    return replace(found, topic=topic, named_keys=named, stamps_us=stamps)


def _without_header(value: bytes) -> bytes:
    return value[_REGISTRY_BYTES:] if value.startswith(b"\0") else value


def _are_texts(keys: Sequence[bytes | None]) -> bool:
    try:
        return all((key or b"").decode().isprintable() for key in keys)
    except UnicodeDecodeError:
        return False


def _records(cluster: Cluster, topic: str, partitions: int) -> list[RawRecord]:
    """Return the first records of all partitions, in the order of their timestamps."""
    transport = KafkaTransport(cluster, Names())
    logs = [(topic, partition) for partition in range(partitions)]
    beginnings = transport.beginning_offsets(logs, timeout_s=ASK_S_MAX)
    ends = transport.end_offsets(logs, timeout_s=ASK_S_MAX)
    found: list[RawRecord] = []
    for log in logs:
        end = min(ends[log], beginnings[log] + MESSAGES_MAX)
        records = read_range(transport, log, beginnings[log], end, idle_s_max=ASK_S_MAX)
        found += islice(records, MESSAGES_MAX)
    return sorted(found, key=lambda record: record.timestamp_ms)[:MESSAGES_MAX]
