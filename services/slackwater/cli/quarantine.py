"""``slackwater quarantine STREAM``: which readings were refused, why, and the nearest repair."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from slackwater.cli.common import emit
from slackwater.deployment.parse import load_deployment
from slackwater.model.deployment import StreamSpec
from slackwater.model.errors import EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import Names, stream_of
from slackwater.model.records import Heartbeat
from slackwater.proxy.quarantine import REASONS
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.logs.transport import LogError
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import read_run
from slackwater.status.queries import moment
from slackwater.status.refused import OTHERS, RefusedGroup, advice, entries_of, grouped

FIRST_MIN: Final = 3
"""Refused readings from which a stream without a usable one is reported."""
KEYS_SHOWN: Final = 3
EXAMPLE_CHARS_MAX: Final = 200
ASK_S_MAX: Final = 5.0


def lines(stream: str, groups: list[RefusedGroup], spec: StreamSpec | None) -> list[str]:
    """Return the report."""
    total = sum(group.count for group in groups)
    if not total:
        return [f"nothing of {stream} is in quarantine"]
    shown = [f"{stream}: {total:,} reading{'s' * (total != 1)} in quarantine"]
    for group in groups:
        span = moment(group.last_at, SystemClock().now_us())
        if group.first_at != group.last_at:
            span = f"{moment(group.first_at, SystemClock().now_us())} to {span}"
        keys = ", ".join(list(group.keys)[:KEYS_SHOWN])
        more = " and others" if len(group.keys) > KEYS_SHOWN else ""
        of_keys = f", of {keys}{more}" if keys else ""
        of_fault = f"; {group.fault}" if group.fault == OTHERS else ""
        shown.append(f"{group.reason:<12} {group.count:>7,}  {span} UTC{of_keys}{of_fault}")
        text = advice(group, spec)
        shown += [f"  -> {text}"] if text else []
        payload = str(group.example.get("payload", ""))
        cut = "..." if len(payload) > EXAMPLE_CHARS_MAX else ""
        shown.append(
            f"  e.g. {group.example.get('position')}: {payload[:EXAMPLE_CHARS_MAX].strip()}{cut}"
        )
    return shown


def print_quarantine(
    cluster: Cluster, names: Names, directory: Path, stream: str, *, is_json: bool
) -> None:
    """Run the command ``quarantine``.

    Raises:
        UsageError: no such stream; the existing ones are listed.
        EnvironmentProblem: Kafka does not answer.
    """
    topic = names.quarantine(stream)
    if not partition_counts(cluster, [topic]):
        raise UsageError(f"there is no stream {stream}; there are: {_streams(cluster, names)}")
    try:
        groups = grouped(entries_of(KafkaTransport(cluster, names), topic))
    except LogError as error:
        raise EnvironmentProblem(f"{topic} cannot be read: {error}") from None
    spec = _spec(directory, cluster, stream)
    if is_json:
        emit(json.dumps([group.to_json(spec) for group in groups], indent=2), is_json=True)
        return
    for text in lines(stream, groups, spec):
        emit(text)


def refused_note(cluster: Cluster, names: Names, streams: Iterable[str]) -> str:
    """Return a sentence on what these streams have in quarantine; empty if it is nothing.

    The numbers are those of entries, a few of which may be repetitions.
    """
    topics = {names.quarantine(stream): stream for stream in streams}
    logs = [(topic, 0) for topic in partition_counts(cluster, list(topics))]
    transport = KafkaTransport(cluster, names)
    try:
        beginnings = transport.beginning_offsets(logs, timeout_s=ASK_S_MAX)
        ends = transport.end_offsets(logs, timeout_s=ASK_S_MAX)
    except LogError:
        return ""  # this client may not read it, and the note is not what was asked for
    counts = {topics[log[0]]: ends[log] - beginnings[log] for log in logs}
    found = {stream: n for stream, n in counts.items() if n}
    if not found:
        return ""
    of = ", ".join(f"{n:,} of {stream}" for stream, n in found.items())
    return f"readings in quarantine: {of}; `slackwater quarantine {next(iter(found))}` says why"


class FirstReadings:
    """Finds the streams of which no reading was usable so far; each is reported once."""

    def __init__(self) -> None:
        self._done: set[str] = set()

    def look(self, beats: Mapping[str, Heartbeat]) -> list[str]:
        """Return a line for each new one; ``beats`` are the latest heartbeats by process."""
        found = []
        for process, beat in sorted(beats.items()):
            if not (stream := stream_of(process)) or process in self._done:
                continue
            if beat.detail.get("readings"):
                self._done.add(process)
                continue
            counts = {reason: n for reason in REASONS if (n := beat.detail.get(reason, 0))}
            if (total := sum(counts.values())) >= FIRST_MIN:
                self._done.add(process)
                found.append(
                    f"stream {stream}: its first {total} readings are all in quarantine"
                    f" ({', '.join(counts)}); `slackwater quarantine {stream}` says why"
                )
        return found


def _streams(cluster: Cluster, names: Names) -> str:
    try:
        topics = Admin(cluster).list_topics(ASK_S_MAX)
    except KafkaException as error:
        raise EnvironmentProblem(f"no broker answers: {error}") from None
    prefix = names.quarantine("")
    found = sorted(topic.removeprefix(prefix) for topic in topics if topic.startswith(prefix))
    return ", ".join(found) or "none yet"


def _spec(directory: Path, cluster: Cluster, stream: str) -> StreamSpec | None:
    """Return the stream of the running deployment's file, for its unit; None if it is unknown."""
    try:
        run = read_run(directory)
        if run is None or run.bootstrap != cluster.bootstrap:
            return None
        return load_deployment(Path(run.deployment), site=run.site).streams.get(stream)
    except SlackwaterError:
        return None
