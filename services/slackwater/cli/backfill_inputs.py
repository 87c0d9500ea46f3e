"""What ``slackwater backfill`` reads: files of streams, in the order of their times, and topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.formats.readingsfile import open_readings
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import UsageError
from slackwater.model.limits import FOREVER
from slackwater.proxy.replay import PIECE_BYTES_PACED, Replay
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_count

BEGINNING: Final = "beginning"
"""Stands for the topic of a stream, from its beginning to its present end."""


@dataclass(frozen=True, slots=True)
class BackfillInputs:
    """The files of streams, and the streams whose topics are read."""

    files: Mapping[str, tuple[Path, ...]]
    topics: frozenset[str] = frozenset()

    @property
    def streams(self) -> tuple[str, ...]:
        """All streams."""
        return (*self.files, *sorted(self.topics))


def parse_inputs(values: Iterable[str]) -> BackfillInputs:
    """Parse ``STREAM=FILE``, ``STREAM=PATTERN`` and ``STREAM=beginning``.

    A pattern has ``*``, ``?`` or ``[...]``; a file of exactly that name comes first. Several of one
    stream are read together.

    Raises:
        UsageError: one has another form, no file fits a pattern, or a file is named twice.
    """
    files: dict[str, list[Path]] = {}
    topics: set[str] = set()
    for value in values:
        stream, equals, path = value.partition("=")
        if not stream or not equals or not path:
            raise UsageError(f"--from {value!r}: write --from STREAM=FILE or STREAM={BEGINNING}")
        if path == BEGINNING:
            topics.add(stream)
            continue
        known = files.setdefault(stream, [])
        for file in _named(stream, path):
            if file in known:
                raise UsageError(f"--from {stream}={file} is given twice")
            known.append(file)
    if both := sorted(topics & files.keys()):
        raise UsageError(
            f"--from {both[0]}={BEGINNING} and --from {both[0]}={files[both[0]][0]}: a stream reads"
            " a topic or files"
        )
    return BackfillInputs({stream: (*of,) for stream, of in files.items()}, frozenset(topics))


def _named(stream: str, text: str) -> list[Path]:
    path = Path(text)
    if path.exists() or not any(mark in text for mark in "*?["):
        return [path]
    found = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    if not found:
        raise UsageError(f"--from {stream}={text}: no file has such a name")
    return found


def in_order(spec: StreamSpec, files: Sequence[Path]) -> tuple[Path, ...]:
    """Return a stream's files in the order of their first readings; checks each file's columns.

    Raises:
        SlackwaterError: a file cannot be read, or lacks a column.
    """
    for file in files:
        open_readings(spec, file).verify()
    if len(files) == 1:
        return (*files,)
    return (*sorted(files, key=lambda file: first_us(spec, file)),)


def first_us(spec: StreamSpec, file: Path) -> int:
    """Return the time of a file's first reading; of one without readings the largest there is."""
    first = Replay(spec, file, piece_bytes=PIECE_BYTES_PACED).due_us(1)
    return FOREVER if first is None else first


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """What a topic held when it was looked at: the end offset of each partition, and messages."""

    ends: tuple[int, ...]
    messages: int

    @classmethod
    def of(cls, cluster: Cluster, topic: str) -> TopicExtent:
        """Look at a topic; ``EnvironmentProblem`` if it does not exist or has no answer."""
        logs = [(topic, number) for number in range(partition_count(cluster, topic))]
        transport = KafkaTransport(cluster)
        begins = transport.beginning_offsets(logs)
        ends = transport.end_offsets(logs, isolation="read_committed")
        messages = sum(ends[log] - begins[log] for log in logs)
        return cls(tuple(ends[log] for log in logs), messages)

    @property
    def until(self) -> str:
        """The value of the proxy's option ``--until``."""
        return ",".join(map(str, self.ends))
