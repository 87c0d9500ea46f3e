"""``slackwater send STREAM``: sends generated readings to a stream of a topic, of HTTP or of MQTT.

A generator in place of a device, so that a newcomer needs no producer of Kafka to see an answer.
The readings have the form that the stream declares, their times are those of the clock, and their
values a slow wave, or those of a file. With ``--silence`` the source is cut off: readings of that
time are sent after it, in their order, so that tentative answers become exact.
"""

from __future__ import annotations

import csv
import gzip
import math
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, get_args

from slackwater.cli.common import emit
from slackwater.cli.send_mqtt import DEVICE, MqttPublisher, topic_of
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.sites import check_here
from slackwater.machine.placed_proxies import running_streams
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.durations import parse_duration_us
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.mqtt import has_level
from slackwater.producer.producer import Producer
from slackwater.producer.sink import Format
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import is_running, read_run

RATE_MAX: Final = 100_000.0
"""GeneratedReadings per second."""
KEYS_MAX: Final = 10_000
SENT_AT_ONCE_MAX: Final = 10_000
TURN_S: Final = 0.02
"""Shortest time between two batches."""
WAVE_US: Final = 300_000_000
VALUES_MAX: Final = 1_000_000
"""Rows of a file of values; later ones are not used."""
NO_VALUES: Final[Mapping[str, Sequence[float | str | None]]] = MappingProxyType({})
UNIT_US: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


class Sender(Protocol):
    """What of ``slackwater.Producer`` is used."""

    def send(self, readings: Any) -> None:
        """Enqueue readings."""
        ...


@dataclass(frozen=True, slots=True)
class SendingSchedule:
    """When readings are sent. Times are us; ``silence`` counts from the first reading."""

    every_us: float
    for_us: int | None = None
    silence: tuple[int, int] | None = None

    @property
    def total(self) -> int | None:
        """Return the number of readings; None if they have no end."""
        return None if self.for_us is None else math.ceil(self.for_us / self.every_us)

    def is_silent(self, elapsed_us: int) -> bool:
        """Whether the source is cut off."""
        return self.silence is not None and self.silence[0] <= elapsed_us < self.silence[1]

    def due(self, elapsed_us: int) -> int:
        """Return the number of readings that have been measured so far."""
        measured = math.floor(elapsed_us / self.every_us) + 1
        return measured if self.total is None else min(measured, self.total)

    def at_us(self, number: int) -> int:
        """Return when a reading is measured, after the first one."""
        return round(number * self.every_us)


def parse_silence(text: str) -> tuple[int, int]:
    """Parse ``10s..20s``.

    Raises:
        UsageError: it has another form, or ends before it begins.
    """
    first, dots, last = text.partition("..")
    try:
        begin, end = parse_duration_us(first), parse_duration_us(last)
    except ValueError:
        begin = end = 0
    if not dots or end <= begin:
        raise UsageError(f"--silence {text!r}: write FROM..TO, as in 10s..20s")
    return begin, end


def read_values(spec: StreamSpec, file: Path) -> dict[str, list[float | str | None]]:
    """Read the columns of a CSV file (also ``.gz``) that have the names of the stream's fields.

    Raises:
        UsageError: the file cannot be read, has no rows, lacks a field, or has a text for a number.
    """
    found: dict[str, list[float | str | None]] = {field.source: [] for field in spec.fields}
    texts = {field.source for field in spec.fields if field.is_text}
    try:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            if missing := sorted(found.keys() - {*(rows.fieldnames or ())}):
                raise UsageError(f"{file} has no column {missing[0]}, a field of {spec.name}")
            for row, _ in zip(rows, range(VALUES_MAX), strict=False):
                for name, values in found.items():
                    text = row[name] or None
                    values.append(text if text is None or name in texts else float(text))
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    if not all(found.values()):
        raise UsageError(f"{file} has no rows")
    return found


class GeneratedReadings:
    """Makes the readings of a stream.

    Args:
        spec: the stream.
        schedule: when they are sent.
        keys: number of devices.
        begin_us: the time of the first reading.
        values: of fields, one for each reading, and from the first one again after the last.
    """

    def __init__(
        self,
        spec: StreamSpec,
        schedule: SendingSchedule,
        keys: int,
        begin_us: int,
        values: Mapping[str, Sequence[float | str | None]] = NO_VALUES,
    ) -> None:
        self._spec, self._schedule, self._keys, self._begin_us = spec, schedule, keys, begin_us
        self._values = values

    def columns(self, first: int, end: int) -> dict[str, Any]:
        """Return the readings with these numbers as columns by their declared names."""
        spec, numbers = self._spec, range(first, end)
        times = [self._begin_us + self._schedule.at_us(n) for n in numbers]
        found: dict[str, Any] = {}
        for name in spec.key.parts:
            found[name] = [f"device-{n % self._keys + 1}" for n in numbers]
        if spec.key.level is not None:
            found[DEVICE] = [f"device-{n % self._keys + 1}" for n in numbers]
        for name in spec.time.parts:
            found[name] = [self._time(us) for us in times]
        for i, field in enumerate(spec.fields):
            if given := self._values.get(field.source):
                found[field.source] = [given[n % len(given)] for n in numbers]
                continue
            wave = [math.sin(2 * math.pi * us / WAVE_US) for us in times]
            found[field.source] = (
                ["ok"] * len(times) if field.is_text else [round(20 + i + 2 * x, 3) for x in wave]
            )
        return found

    def _time(self, us: int) -> int | str:
        unit = self._spec.time.unit or ""
        if unit in UNIT_US:
            return us * 1_000 if unit == "ns" else int(us // UNIT_US[unit])
        return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="microseconds")


def check(spec: StreamSpec) -> None:
    """Raise ``UsageError`` if readings of the stream cannot be generated; it says what to do."""
    name = spec.name
    if spec.topic is None and spec.http is None and spec.mqtt is None:
        raise UsageError(
            f"stream {name} reads files: `slackwater ingest {name}=FILE --as-now` sends one"
        )
    if spec.topic is not None and spec.topic.format not in get_args(Format):
        raise UsageError(f"stream {name}: messages of format {spec.topic.format} are not generated")
    sources = [*spec.key.parts, *spec.time.parts, *(field.source for field in spec.fields)]
    if nested := [each for each in sources if set(each) & set('.["')]:
        raise UsageError(f"stream {name}: {nested[0]} is not a plain name; these are not generated")
    topics = () if spec.mqtt is None else spec.mqtt.topics
    if topics and spec.key.level is not None and not has_level(topics[0], spec.key.level):
        raise UsageError(
            f"stream {name}: its key is level {spec.key.level} of a topic, which {topics[0]} lacks"
        )
    several = len(spec.key.parts) > 1 or len(spec.key.levels) > 1 or len(spec.time.parts) > 1
    if several or spec.time.format is not None or spec.key.from_ is not None:
        raise UsageError(
            f"stream {name}: keys and times of several parts, times of a `format`, and keys of"
            " records are not generated"
        )


def run_sender(
    sender: Sender,
    readings: GeneratedReadings,
    schedule: SendingSchedule,
    clock: SystemClock,
    stopped: threading.Event,
    begin_us: int,
) -> int:
    """Send until the end of the schedule or ``stopped``; return the number of readings sent."""
    sent, was_silent = 0, False
    while not stopped.is_set():
        elapsed_us = clock.now_us() - begin_us
        due = schedule.due(elapsed_us)
        if schedule.is_silent(elapsed_us):
            if not was_silent:
                was_silent = True
                assert schedule.silence is not None
                length_s = (schedule.silence[1] - schedule.silence[0]) / 1e6
                emit(f"silent for {length_s:g} s: readings are sent afterwards")
            stopped.wait(clock.seconds_until(begin_us + (schedule.silence or (0, 0))[1]))
            continue
        if was_silent:
            was_silent = False
            emit(f"sending again: {due - sent} readings of the silence")
        while sent < due:
            end = min(due, sent + SENT_AT_ONCE_MAX)
            sender.send(readings.columns(sent, end))
            sent = end
        if sent == schedule.total:
            break
        stopped.wait(max(TURN_S, clock.seconds_until(begin_us + schedule.at_us(sent))))
    return sent


def run_send(
    found: tuple[StreamSpec, Deployment],
    cluster: Cluster,
    schedule: SendingSchedule,
    keys: int,
    file: Path | None = None,
) -> None:
    """Run the command ``send``, until its end or Ctrl-C; ``found``: see ``find_stream``.

    ``file`` has the values of the readings.

    Raises:
        UsageError: the readings of the stream cannot be generated.
    """
    spec, deployment = found
    check(spec)
    values = NO_VALUES if file is None else read_values(spec, file)
    clock, stopped = SystemClock(), threading.Event()
    where, producer = _producer(spec, deployment, cluster, clock.now_us())
    with producer:
        emit(f"sending to {where}; Ctrl-C ends it")
        begin_us = clock.now_us()
        readings = GeneratedReadings(spec, schedule, keys, begin_us, values)
        with suppress(KeyboardInterrupt):  # the normal end without --for
            run_sender(producer, readings, schedule, clock, stopped, begin_us)
        producer.flush()
    counts = ", ".join(f"{n:,} {what}" for what, n in sorted(producer.counts.items()))
    emit(f"sent: {counts or 'nothing'}")


def _producer(
    spec: StreamSpec, deployment: Deployment, cluster: Cluster, now_us: int
) -> tuple[str, Producer | MqttPublisher]:
    """Return where the readings go, and what sends them."""
    if spec.mqtt is not None:
        topic = topic_of(spec.mqtt, spec.key.level, "device-1")
        return f"{topic} at MQTT broker {spec.mqtt.address}", MqttPublisher(spec, now_us)
    if spec.topic is not None:
        format_: Any = spec.topic.format
        return f"topic {spec.topic.name}", Producer(
            bootstrap=cluster.bootstrap,
            topic=spec.topic.name,
            format=format_,
            config=cluster.security.confluent(),
        )
    assert spec.http is not None
    return f"{deployment.http.url}{spec.name}", Producer(
        spec.name,
        url=deployment.http.url.removesuffix("/streams/"),
        token_file=spec.http.token_file,
        ca_file=deployment.http.certificate_file,
    )


def find_stream(
    stream: str, file: Path | None, data_dir: Path, site: str | None = None
) -> tuple[StreamSpec, Deployment]:
    """Find a stream in a deployment file, at a site of it or at the centre.

    Without a file it is that of the deployment that runs here.

    Raises:
        UsageError: there is no such stream, or no such site.
        EnvironmentProblem: no file is named, and no deployment runs here.
    """
    if file is None:
        run = read_run(data_dir)
        if run is None or not is_running(data_dir):
            raise EnvironmentProblem(
                f"no deployment runs from {data_dir}: start `slackwater up`, or name the file of"
                " one that runs elsewhere with --deployment"
            )
        deployment = load_deployment(Path(run.deployment), site=run.site)
        streams = {**deployment.streams, **running_streams(data_dir, run.lives)}
    else:
        deployment = load_deployment(file, site=site)
        streams = dict(deployment.streams)
    if stream not in streams:
        raise UsageError(f"there is no stream {stream}, only {', '.join(streams)}")
    check_here(streams[stream])
    return streams[stream], deployment
