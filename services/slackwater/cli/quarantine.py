"""``slackwater quarantine STREAM``: which readings were refused, why, and the nearest repair.

The entries of ``sw.quarantine.<stream>`` are grouped by reason. An entry may be written twice by a
proxy that restarts, so distinct positions are counted (trace-23). The advice is a guess from the
last example of each group: a time in 1970 has another unit than the declared one, a time that is
whole half hours from the clock is a local time, and a late reading needs a larger ``disorder``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
from confluent_kafka import KafkaException

from slackwater.cli.common import emit
from slackwater.codec.results import format_time, parse_time
from slackwater.deployment.parse import load_deployment
from slackwater.model.deployment import StreamSpec
from slackwater.model.durations import format_duration_us
from slackwater.model.errors import EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import Names, stream_of
from slackwater.model.records import Heartbeat
from slackwater.primitives.time_units import other_unit
from slackwater.proxy.quarantine import REASONS
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.logs.transport import LogError, Transport, read_range
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import read_run
from slackwater.status.queries import moment

ENTRIES_MAX: Final = 100_000
"""Entries that are read, the last ones."""
FIRST_MIN: Final = 3
"""Refused readings from which a stream without a usable one is reported."""
KEYS_MAX: Final = 1_000
"""Keys that are counted for each reason; the first ones."""
KEYS_SHOWN: Final = 3
EXAMPLE_CHARS_MAX: Final = 200
ASK_S_MAX: Final = 5.0
HALF_HOUR_US: Final = 1_800_000_000
LOCAL_US_MAX: Final = 28 * HALF_HOUR_US + 120_000_000
"""No zone is further from UTC than 14 hours."""
LOCAL_ERROR_US: Final = 120_000_000
DISORDER_US_MAX: Final = 3_600_000_000
"""A larger delay is no matter of ``disorder``."""

ADVICE: Final = {
    "before_start": "older than the start of every query that reads the stream: write history"
    " before the first `up`, or apply the query with --from beginning",
    "duplicate": "sent again by its device: nothing is lost",
    "superseded": "another spool of the stream had used its id: see docs/protocols/rules.md",
    "crash": "its parser ended: keep the message, and report it",
}


@dataclass(slots=True)
class RefusedGroup:
    """The entries with one reason. Times are us of wall time."""

    reason: str
    count: int = 0
    first_at: int | None = None
    last_at: int | None = None
    example: Mapping[str, Any] = field(default_factory=dict)
    """The last entry."""
    behind_us_max: int = 0
    """The largest delay of its readings: time of the refusal less event time."""
    keys: dict[str, int] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry."""
        self.count += 1
        self.example = entry
        at, stime = _time(entry.get("quarantined_at")), _time(entry.get("stime"))
        if at is not None:
            self.first_at = at if self.first_at is None else min(at, self.first_at)
            self.last_at = at if self.last_at is None else max(at, self.last_at)
            self.behind_us_max = max(self.behind_us_max, at - (at if stime is None else stime))
        key = entry.get("key")
        if isinstance(key, str) and (key in self.keys or len(self.keys) < KEYS_MAX):
            self.keys[key] = self.keys.get(key, 0) + 1

    def to_json(self, spec: StreamSpec | None) -> dict[str, Any]:
        """Return the JSON of ``--json``."""
        return {
            "reason": self.reason,
            "count": self.count,
            "first_at": _iso(self.first_at),
            "last_at": _iso(self.last_at),
            "keys": self.keys,
            "advice": advice(self, spec),
            "example": dict(self.example),
        }


def _iso(us: int | None) -> str | None:
    return None if us is None else format_time(us)


def grouped(values: Iterable[bytes | None]) -> list[RefusedGroup]:
    """Group the values of a quarantine topic by reason, the most frequent first.

    Values that are no entries are ignored: everyone who may write to the topic may write them.
    """
    groups: dict[str, RefusedGroup] = {}
    seen: set[tuple[str, str]] = set()
    for value in values:
        try:
            entry = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            continue
        if not isinstance(entry, dict):
            continue
        reason, position = str(entry.get("reason")), str(entry.get("position"))
        if (reason, position) not in seen:
            seen.add((reason, position))
            groups.setdefault(reason, RefusedGroup(reason)).add(entry)
    return sorted(groups.values(), key=lambda group: -group.count)


def advice(group: RefusedGroup, spec: StreamSpec | None) -> str:
    """Return what would have made the last entry a reading; empty if nothing can be guessed."""
    stime, at = _time(group.example.get("stime")), _time(group.example.get("quarantined_at"))
    if group.reason == "malformed":
        return f"cannot be read: {group.example.get('detail') or 'the message'}"
    if stime is not None and at is not None:
        unit = other_unit(stime, at, None if spec is None else spec.time.unit)
        if unit:
            return f"{moment(stime, None).partition('-')[0]}: {unit}"
        behind = at - stime
        hours = round(behind / HALF_HOUR_US)
        error_us = abs(behind - hours * HALF_HOUR_US)
        if hours and abs(behind) <= LOCAL_US_MAX and error_us <= LOCAL_ERROR_US:
            side = "behind" if hours > 0 else "ahead of"
            return (
                f"{abs(hours) / 2:g} h {side} the clock: are these local times?"
                " declare `time: {..., zone: Area/City}`"
            )
    if group.reason == "ahead":
        return f"the clock of the device is ahead: {group.example.get('detail') or 'correct it'}"
    if group.reason == "late" and 0 < group.behind_us_max <= DISORDER_US_MAX:
        tenths = -(-group.behind_us_max // 100_000) * 100_000
        return (
            f"the latest came {group.behind_us_max / 1e6:.1f} s after its time:"
            f" `disorder: {format_duration_us(tenths)}` would have taken it"
        )
    if group.reason == "late":
        return "older than readings before it: a stream takes readings in the order of their times"
    return ADVICE.get(group.reason, "")


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
        shown.append(f"{group.reason:<12} {group.count:>7,}  {span} UTC{of_keys}")
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
        groups = grouped(_values(KafkaTransport(cluster, names), topic))
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


def _values(transport: Transport, topic: str) -> Iterable[bytes | None]:
    log = (topic, 0)
    beginning = transport.beginning_offsets([log], timeout_s=ASK_S_MAX)[log]
    end = transport.end_offsets([log], timeout_s=ASK_S_MAX)[log]
    for record in read_range(
        transport, log, max(beginning, end - ENTRIES_MAX), end, idle_s_max=ASK_S_MAX
    ):
        yield record.value


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
        return load_deployment(Path(run.deployment)).streams.get(stream)
    except SlackwaterError:
        return None


def _time(text: Any) -> int | None:
    """Parse a time of an entry; also one outside the years of the calendar, as ``12us``."""
    if not isinstance(text, str):
        return None
    try:
        return int(text[:-2]) if text.endswith("us") else parse_time(text)
    except ValueError:
        return None
