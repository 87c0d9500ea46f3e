"""``slackwater backfill``: runs files and topics through one query of the pipeline, and ends.

It is ``up`` with ``clock: data``, ``ingest``, and the end of both. The deployment is a copy of the
given one with the query and those that it reads, one replica of each stage, and a bound that no
input exceeds, so that all answers are exact at once. When all is read, all streams get the
watermark at which the last window of any of them ends. The rows are written as they are answered.

Files run on an embedded broker. A topic is read where it is, up to the end offsets at the start, so
the pipeline's own topics are then on its cluster, with a prefix of this run. They are deleted at
the end. Rejected: a copy of the topic on an embedded broker, which would be written and read once
more, and have other offsets in quarantine.
"""

from __future__ import annotations

import io
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import orjson
from ruamel.yaml import YAML

from slackwater.cli.backfill_check import check_history
from slackwater.cli.backfill_inputs import (
    BEGINNING,
    BackfillInputs,
    TopicExtent,
    first_us,
    in_order,
)
from slackwater.cli.backfill_progress import BackfillBar, Backfilled, lines_in
from slackwater.cli.common import emit, reach_kafka, warn
from slackwater.cli.ingest import check_stream
from slackwater.cli.tables import short_time
from slackwater.codec.results import format_time, parse_time
from slackwater.deployment.parse import load_deployment, parse_deployment
from slackwater.deployment.sites import check_all_here
from slackwater.formats.jsonfile import is_json
from slackwater.machine.paths import java_executable
from slackwater.machine.starting import StartLines, repeatedly
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed, EnvironmentProblem, UsageError
from slackwater.model.names import Names, ProxyName
from slackwater.model.records import Heartbeat
from slackwater.proxy.histories import end_of_history
from slackwater.proxy.quarantine import REASONS
from slackwater.proxy.sensors import hand_over, hand_over_end, inbox_of
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.topics import delete_topics, own_topics
from slackwater.runtime.logs.transport import LogError, Reader
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.security.private import make_data_directory, write_atomically
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.parts import ENDED, LAST_READING
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

BOUND: Final = "1h"
"""X of the copied queries: a file that is read an hour after the others is not waited for."""
RECORDS_A_POLL: Final = 20_000
POLL_S: Final = 0.2
JOB: Final = "history"


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """Options of the command line."""

    deployment: Path
    query: str
    inputs: BackfillInputs
    out: Path
    data_dir: Path | None = None
    bootstrap: str | None = None
    kafka_config: Path | None = None
    check: bool = False
    """Compare the results with a batch computation by the judge of rehearsals."""


def run_backfill(options: BackfillOptions) -> None:
    """Run the command.

    Raises:
        CheckFailed: a file was not read to its end, no reading is usable, or with ``check`` the
            results differ from the batch computation.
        EnvironmentProblem: there is no Java, or no topic, or its cluster does not answer.
        UsageError: the query, its streams and what they are to read do not fit.
    """
    inputs = options.inputs
    if options.check and inputs.topics:
        raise UsageError(
            f"--check reads files by itself, and no topics: leave it out for {min(inputs.topics)},"
            " or run its query with `slackwater up`, whose results `slackwater audit` compares"
        )
    prefix = f"backfill-{secrets.token_hex(4)}." if inputs.topics else ""
    content, deployment = _chosen(options, prefix)
    java_executable()  # before the files, which may be large
    streams = parse_deployment(content, str(options.deployment)).deployment.streams
    files = {name: in_order(streams[name], of) for name, of in inputs.files.items()}
    options = replace(options, inputs=replace(inputs, files=files))
    if not options.out.absolute().parent.is_dir():
        raise UsageError(f"--out {options.out}: there is no directory {options.out.parent}")
    extents: dict[str, TopicExtent] = {}
    cluster = None
    if inputs.topics:
        cluster = reach_kafka(options.bootstrap, options.kafka_config, role=Role.ADMIN)
        for stream in sorted(inputs.topics):
            topic = deployment.streams[stream].topic
            assert topic is not None
            extents[stream] = TopicExtent.of(cluster, topic.name)
    elif (options.bootstrap, options.kafka_config) != (None, None):
        raise UsageError(
            f"--bootstrap and --kafka-config name the cluster of a topic: add"
            f" --from STREAM={BEGINNING}, or leave them out"
        )
    given = options.data_dir
    directory = given or Path(tempfile.mkdtemp(prefix="slackwater-backfill-"))
    make_data_directory(directory)
    if (directory / "run.json").exists():
        raise UsageError(f"--data-dir {directory} has the data of another run: name a new folder")
    path = directory / "deployment.yaml"
    write_atomically(path, content)
    copied = load_deployment(path)
    until = [("--until", f"{stream}={extent.until}") for stream, extent in extents.items()]
    started = StackOptions(
        path,
        copied,
        directory,
        bootstrap=None if cluster is None else cluster.bootstrap,
        kafka_config=None if cluster is None else cluster.security.given,
        runs_long=True,
        proxy_options=tuple(word for option in until for word in option),
    )
    is_done = False
    try:
        stack = StackThread(started)
        try:
            lines = _Backfill(options, extents, stack, directory, copied).run()
        finally:
            stack.stop()
            if cluster is not None:
                _delete_topics(cluster, copied.names)
        is_done = True
    finally:
        if given is None:
            if is_done:
                shutil.rmtree(directory, ignore_errors=True)
            else:
                emit(f"logs are kept in {directory}")
    for line in lines:
        emit(line)


def _delete_topics(cluster: Cluster, names: Names) -> None:
    """Delete all topics of this run, whose prefix no other deployment has."""
    try:
        delete_topics(cluster, own_topics(cluster, names))
    except EnvironmentProblem as error:
        warn(f"topics {names.prefix}* are left on {cluster}: {error}")


def _chosen(options: BackfillOptions, prefix: str = "") -> tuple[str, Deployment]:
    """Return the deployment file of the query and what it reads, and the given deployment."""
    given, inputs = load_deployment(options.deployment), options.inputs
    check_all_here(given, options.deployment, "history is computed with one")
    if options.query not in given.queries:
        known = ", ".join(given.queries) or "none"
        raise UsageError(f"there is no query {options.query}, only {known}")
    wanted, queries = [options.query], set[str]()
    while wanted:
        queries.add(name := wanted.pop())
        wanted += given.queries_of(given.queries[name])
    streams = list(given.source_streams(given.queries[options.query]))
    for stream in inputs.streams:
        _check_input(stream, given, inputs)
        if stream not in streams:
            raise UsageError(f"query {options.query} does not read stream {stream}")
    if missing := [stream for stream in streams if stream not in inputs.streams]:
        first = missing[0]
        what = "FILE" if given.streams[first].topic is None else BEGINNING
        raise UsageError(f"query {options.query} reads {first}: add --from {first}={what}")
    yaml = YAML()
    content = yaml.load(options.deployment)
    content["clock"] = "data"
    content.pop("http", None)
    if prefix:  # within the deployment's own prefix, to which its rights may be limited
        content["prefix"] = given.names.prefix + prefix
    for name in set(content["queries"]) - queries:
        del content["queries"][name]
    for name in set(content["streams"]) - {*streams}:
        del content["streams"][name]
    for name in streams:
        stream = content["streams"][name]
        stream.pop("ahead", None)  # nothing is compared with a clock
        if given.streams[name].http is not None:
            _read_from_files(stream, is_json(inputs.files[name][0]))
        if (topic := given.streams[name].topic) is not None:
            stream["topic"] |= {"from": "beginning", "proxies": 1}
            # Paths are relative to the given file.
            if topic.schemas is not None:
                stream["topic"]["schemas"] = str(Path(topic.schemas).resolve())
            if topic.registry is not None and topic.registry.credentials is not None:
                credentials = str(Path(topic.registry.credentials).resolve())
                stream["topic"]["registry"]["credentials"] = credentials
    for name in queries:
        content["queries"][name] |= {"replicas": 1, "bound": BOUND}
        content["queries"][name].pop("policy", None)
        for key in ("copies", "mergers"):
            content["queries"][name].pop(key, None)
    written = io.StringIO()
    yaml.dump(content, written)
    return written.getvalue(), given


def _read_from_files(stream: Any, reads_json: bool) -> None:
    """Declare a stream of http as one of files, in which JSON has fields and CSV has columns."""
    del stream["http"]
    is_to = {"column": "field", "columns": "fields"}
    if not reads_json:
        is_to = {field: column for column, field in is_to.items()}
    for part in (stream["key"], stream["time"]):
        for name in is_to.keys() & part.keys():
            part[is_to[name]] = part.pop(name)


def _check_input(stream: str, given: Deployment, inputs: BackfillInputs) -> None:
    """Refuse files for a stream that reads a topic, and the reverse."""
    spec = given.streams.get(stream)
    if spec is not None and spec.topic is not None:
        if stream in inputs.files:
            raise UsageError(
                f"stream {stream} is fed by topic {spec.topic.name}: write --from"
                f" {stream}={BEGINNING}, which reads what the topic holds"
            )
        return
    if spec is not None and spec.http is not None:
        if spec.time.from_ is not None:
            raise UsageError(
                f"stream {stream} has times of {spec.time.from_}, which a file has not: declare the"
                " column or field of a time in a copy of the file"
            )
    else:
        check_stream(stream, given.streams)
    if stream in inputs.topics:
        raise UsageError(f"stream {stream} reads no topic: write --from {stream}=FILE")


class _Backfill:
    """One run: start, hand over the files, end the history, read the answers."""

    def __init__(
        self,
        options: BackfillOptions,
        extents: Mapping[str, TopicExtent],
        stack: StackThread,
        directory: Path,
        copied: Deployment,
    ) -> None:
        self._options, self._stack, self._directory = options, stack, directory
        self._copied = copied
        self._extents, self._files = extents, options.inputs.files
        self._clock = SystemClock()
        self._lines = StartLines(self._now_s())
        self._is_started = False
        self._seen = Backfilled()
        self._ended_at: dict[str, int] = {}
        """By stream, when its file was seen to be read (us)."""
        self._refused: dict[str, str] = {}

    def run(self) -> list[str]:
        """Run to the end; return the lines of the summary."""
        options = self._options
        with repeatedly(lambda: self._wait_for("Kafka")):
            self._stack.open()
        emit(self._lines.reached("Kafka", self._now_s()))
        with repeatedly(lambda: self._wait_for("topics, queries and the first processes")):
            self._stack.start_up()
        began = self._now_s()
        lines_of = [lines_in(file) for files in self._files.values() for file in files]
        lines_of += [extent.messages for extent in self._extents.values()]
        total = None if None in lines_of else sum(of or 0 for of in lines_of)
        bar = BackfillBar(options.query, total, self._clock, self._lines.last_s)
        with options.out.open("wb") as out, bar:
            self._hand_over(bar)
            definition = self._definition(bar)
            end_us = self._follow(definition, out, bar)
        seconds = self._now_s() - began
        summary = self._summary(definition, end_us, seconds)
        if not options.check:
            return summary
        for line in summary:
            emit(line)
        transport = self._stack.stack.transport
        counts = {stream: self._counts(stream) for stream in self._files}
        return [check_history(transport, self._copied, definition, self._files, counts)]

    # Lines.

    def _now_s(self) -> float:
        return self._clock.now_us() / 1e6

    def _wait_for(self, what: str) -> None:
        for line in self._lines.waiting(what, self._now_s()):
            emit(line)

    def _show(self, bar: BackfillBar) -> None:
        """Show the stages of the start that are ready now, and the progress."""
        if not self._is_started:
            ready = self._stack.ready()
            if self._seen.has_answers:  # they came through all stages; a heartbeat may be late
                ready = dict.fromkeys(ready, True)
            for line in self._lines.new(ready, self._now_s()):
                bar.reached(line)
            self._is_started = all(ready.values())
        bar.show(self._seen, self._lines.awaited)

    # Files.

    def _beat(self, stream: str) -> Heartbeat | None:
        return self._stack.stack.listener.latest(ProxyName(stream).process)

    def _look(self) -> bool:
        """Note which files and topics are read; return whether all are."""
        self._stack.check()
        for stream in self._options.inputs.streams:
            beat = self._beat(stream)
            if beat is not None:
                self._seen.readings[stream] = beat.detail.get("readings", 0)
                self._seen.last_us[stream] = beat.detail.get(LAST_READING, 0)
        for stream in self._files:
            inbox = inbox_of(self._directory, stream)
            refused = inbox / f"{JOB}.refused"
            if stream in self._ended_at:
                continue
            if refused.exists():
                self._refused[stream] = str(orjson.loads(refused.read_bytes())["refused"])
            if refused.exists() or (inbox / f"{JOB}.done").exists():
                self._ended_at[stream] = self._clock.now_us()
        beats = {stream: self._beat(stream) for stream in self._ended_at}
        files_are_read = len(beats) == len(self._files) and all(
            beat is not None and beat.at > self._ended_at[stream] for stream, beat in beats.items()
        )
        topics = [self._beat(stream) for stream in self._extents]
        return files_are_read and all(
            beat is not None and bool(beat.detail.get(ENDED)) for beat in topics
        )

    def _hand_over(self, bar: BackfillBar) -> None:
        """Hand over the files, and wait between the oldest one and all others until it is read.

        A query begins with the oldest reading that the logs have when it is registered, and that
        may be as soon as one of them has any.
        """
        streams = self._copied.streams
        by_age = sorted(self._files, key=lambda name: first_us(streams[name], self._files[name][0]))
        for number, stream in enumerate(by_age):
            file, *then = self._files[stream]
            hand_over(self._directory, stream, JOB, file, speed=None, as_now=False, then=then)
            while number == 0 and len(by_age) > 1:
                self._look()
                if self._seen.readings.get(stream) or stream in self._ended_at:
                    break
                self._show(bar)
                time.sleep(POLL_S)

    def _definition(self, bar: BackfillBar) -> QueryDefinition:
        """Wait until the query is registered, with its first reading; return its definition."""
        registry = Registry(self._stack.stack.transport)
        while True:
            are_read = self._look()
            found = registry.queries().get(self._options.query)
            if found is not None:
                return found
            if are_read and not any(self._seen.readings.values()):
                raise CheckFailed(
                    f"no reading can be used: {self._quarantined() or 'none is there'}"
                )
            self._show(bar)
            time.sleep(POLL_S)

    def _end(self) -> int:
        """End the history of all streams where the last of their windows ends; return where."""
        queries = Registry(self._stack.stack.transport).queries()
        readers = {name: (each.spec.sources, each.grid) for name, each in queries.items()}
        ends = [
            end_of_history(stream, last_us, readers)
            for stream, last_us in self._seen.last_us.items()
            if last_us
        ]
        end_us = max(end for end in ends if end is not None)
        for stream in self._options.inputs.streams:
            hand_over_end(self._directory, stream, f"{JOB}-end", end_us)
        return end_us

    # Answers.

    def _follow(self, definition: QueryDefinition, out: IO[bytes], bar: BackfillBar) -> int:
        """Write rows until all windows are answered; return the end of the history (us)."""
        grid, parts = definition.grid, range(definition.spec.parts)
        transport = self._stack.stack.transport
        topic = transport.names.results(self._options.query, "stable")
        self._seen.begin(definition.e0_us, parts)
        end_us = last_us = None
        with _reading(transport.reader(isolation="read_committed")) as reader:
            reader.assign({(topic, part): 0 for part in parts})
            while last_us is None or min(self._seen.answered_us.values()) < last_us:
                if end_us is None and self._look():
                    end_us = self._end()
                    last_us = (
                        grid.bucket_start(end_us)
                        if grid.window is None
                        else grid.window_end(grid.last_window_ending_by(end_us))
                    )
                    self._look()
                elif end_us is not None:
                    self._stack.check()
                try:
                    records = reader.poll(RECORDS_A_POLL, POLL_S)
                except LogError as error:
                    raise EnvironmentProblem(f"the results cannot be read: {error}") from error
                for raw in records:
                    if b'"kind":"boundary"' in raw.value:
                        self._note(raw.partition, orjson.loads(raw.value))
                    else:
                        out.write(raw.value + b"\n")
                self._show(bar)
        assert end_us is not None
        return end_us

    def _note(self, part: int, boundary: Mapping[str, Any]) -> None:
        seen = self._seen
        seen.answered_us[part] = parse_time(boundary["window_end"])
        seen.rows += boundary["keys"]
        seen.windows[part] += boundary["windows"]
        seen.lost.update(boundary.get("lost", {}))

    def _counts(self, stream: str) -> dict[str, int]:
        """Return how many readings of a stream are in quarantine, by reason."""
        detail = {} if (beat := self._beat(stream)) is None else beat.detail
        return {reason: detail.get(reason, 0) for reason in REASONS}

    def _quarantined(self) -> str:
        counts: Counter[str] = Counter()
        for stream in self._options.inputs.streams:
            counts.update(self._counts(stream))
        return ", ".join(f"{n:,} {reason}" for reason, n in counts.items() if n)

    def _summary(self, definition: QueryDefinition, end_us: int, seconds: float) -> list[str]:
        seen, query = self._seen, self._options.query
        readings = sum(seen.readings.values())
        what = "windows" if definition.spec.window is not None else "buckets of readings"
        span = " to ".join(short_time(format_time(us)) for us in (definition.e0_us, end_us))
        lines = [f"{query}: {seen.rows:,} rows in {max(seen.windows.values()):,} {what}, {span}"]
        if quarantined := self._quarantined():
            lines.append(f"quarantine: {quarantined}")
        lines.append(
            f"{readings:,} readings in {seconds:.1f} s, {readings / seconds:,.0f} readings/s;"
            f" rows in {self._options.out}"
        )
        faults = [f"stream {name}: {why}" for name, why in self._refused.items()]
        faults += [f"{n:,} readings of {name} were lost" for name, n in seen.lost.items() if n]
        for stream in self._options.inputs.streams:
            if older := self._counts(stream)["before_start"]:
                faults.append(f"{older:,} readings of {stream} are older than the query's start")
        if faults:
            for line in lines:
                emit(line)
            raise CheckFailed("; ".join(faults))
        return lines


@contextmanager
def _reading(reader: Reader) -> Iterator[Reader]:
    close: Callable[[], None] = reader.close
    try:
        yield reader
    finally:
        close()
