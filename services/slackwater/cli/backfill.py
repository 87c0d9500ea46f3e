"""``slackwater backfill``: runs the files of one query through the real pipeline, and ends.

It is ``up`` with ``clock: data``, ``ingest``, and the end of both. The deployment is a copy of the
given one with the query and those that it reads, one replica of each stage, and a bound that no
file exceeds, so that all answers are exact at once. When every file is read, all streams get the
watermark at which the last window of any of them ends. The rows are written as they are answered.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import orjson
from ruamel.yaml import YAML

from slackwater.cli.backfill_progress import BackfillBar, Backfilled, lines_in
from slackwater.cli.common import emit
from slackwater.cli.ingest import check_stream
from slackwater.cli.tables import short_time
from slackwater.codec.results import format_time, parse_time
from slackwater.deployment.parse import load_deployment
from slackwater.formats.csvfile import CsvFile
from slackwater.machine.paths import java_executable
from slackwater.machine.stack import StackOptions
from slackwater.machine.stack_thread import StackThread
from slackwater.machine.starting import StartLines
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed, EnvironmentProblem, UsageError
from slackwater.model.records import Heartbeat
from slackwater.proxy.histories import end_of_history
from slackwater.proxy.quarantine import REASONS
from slackwater.proxy.sensors import hand_over, hand_over_end, inbox_of
from slackwater.runtime.logs.transport import LogError, Reader
from slackwater.runtime.security.private import make_data_directory, write_atomically
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.parts import LAST_READING
from slackwater.runtime.service.registry import QueryDefinition, Registry

BOUND: Final = "1h"
"""X of the copied queries: a file that is read an hour after the others is not waited for."""
RECORDS_A_POLL: Final = 20_000
POLL_S: Final = 0.2
JOB: Final = "history"


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """Options of the command line; ``files`` by stream."""

    deployment: Path
    query: str
    files: Mapping[str, Path]
    out: Path
    data_dir: Path | None = None


def run_backfill(options: BackfillOptions) -> None:
    """Run the command.

    Raises:
        CheckFailed: a file was not read to its end, or has no usable reading.
        EnvironmentProblem: there is no Java.
        UsageError: the query, its streams and the files do not fit.
    """
    content, deployment = _chosen(options)
    java_executable()  # before the files, which may be large
    for stream, file in options.files.items():
        CsvFile(deployment.streams[stream], file).verify()
    if not options.out.absolute().parent.is_dir():
        raise UsageError(f"--out {options.out}: there is no directory {options.out.parent}")
    given = options.data_dir
    directory = given or Path(tempfile.mkdtemp(prefix="slackwater-backfill-"))
    make_data_directory(directory)
    if (directory / "run.json").exists():
        raise UsageError(f"--data-dir {directory} has the data of another run: name a new folder")
    path = directory / "deployment.yaml"
    write_atomically(path, content)
    is_done = False
    try:
        stack = StackThread(StackOptions(path, load_deployment(path), directory, runs_long=True))
        try:
            lines = _Backfill(options, stack, directory).run()
        finally:
            stack.stop()
        is_done = True
    finally:
        if given is None:
            if is_done:
                shutil.rmtree(directory, ignore_errors=True)
            else:
                emit(f"logs are kept in {directory}")
    for line in lines:
        emit(line)


def _chosen(options: BackfillOptions) -> tuple[str, Deployment]:
    """Return the deployment file of the query and what it reads, and the given deployment."""
    given = load_deployment(options.deployment)
    if options.query not in given.queries:
        known = ", ".join(given.queries) or "none"
        raise UsageError(f"there is no query {options.query}, only {known}")
    wanted, queries = [options.query], set[str]()
    while wanted:
        queries.add(name := wanted.pop())
        wanted += given.queries_of(given.queries[name])
    streams = list(given.source_streams(given.queries[options.query]))
    for stream in options.files:
        check_stream(stream, given.streams)
        if stream not in streams:
            raise UsageError(f"query {options.query} does not read stream {stream}")
    if missing := [stream for stream in streams if stream not in options.files]:
        raise UsageError(f"query {options.query} reads {missing[0]}: add --from {missing[0]}=FILE")
    yaml = YAML()
    content = yaml.load(options.deployment)
    content["clock"] = "data"
    for name in set(content["queries"]) - queries:
        del content["queries"][name]
    for name in set(content["streams"]) - {*streams}:
        del content["streams"][name]
    for name in streams:
        content["streams"][name].pop("ahead", None)  # nothing is compared with a clock
    for name in queries:
        content["queries"][name] |= {"replicas": 1, "bound": BOUND}
        content["queries"][name].pop("policy", None)
    written = io.StringIO()
    yaml.dump(content, written)
    return written.getvalue(), given


class _Backfill:
    """One run: start, hand over the files, end the history, read the answers."""

    def __init__(self, options: BackfillOptions, stack: StackThread, directory: Path) -> None:
        self._options, self._stack, self._directory = options, stack, directory
        self._clock = SystemClock()
        self._seen = Backfilled()
        self._ended_at: dict[str, int] = {}
        """By stream, when its file was seen to be read (us)."""
        self._refused: dict[str, str] = {}

    def run(self) -> list[str]:
        """Run to the end; return the lines of the summary."""
        options = self._options
        began = self._clock.now_us() / 1e6
        lines = StartLines(began)
        self._stack.open()
        emit(lines.reached("Kafka", self._clock.now_us() / 1e6))
        self._stack.start_up()
        emit(lines.reached("the first processes", self._clock.now_us() / 1e6))
        began = self._clock.now_us() / 1e6
        for stream, file in options.files.items():
            hand_over(self._directory, stream, JOB, file, speed=None, as_now=False)
        lines_of = [lines_in(file) for file in options.files.values()]
        total = None if None in lines_of else sum(of or 0 for of in lines_of)
        bar = BackfillBar(options.query, total, self._clock)
        with options.out.open("wb") as out, bar:
            definition = self._definition(bar)
            end_us = self._follow(definition, out, bar)
        seconds = self._clock.now_us() / 1e6 - began
        return self._summary(definition, end_us, seconds)

    # Files.

    def _beat(self, stream: str) -> Heartbeat | None:
        return self._stack.stack.listener.latest(f"proxy/{stream}")

    def _look(self) -> bool:
        """Note which files are read; return whether all are."""
        self._stack.check()
        for stream in self._options.files:
            beat = self._beat(stream)
            if beat is not None:
                self._seen.readings[stream] = beat.detail.get("readings", 0)
                self._seen.last_us[stream] = beat.detail.get(LAST_READING, 0)
            inbox = inbox_of(self._directory, stream)
            refused = inbox / f"{JOB}.refused"
            if stream in self._ended_at:
                continue
            if refused.exists():
                self._refused[stream] = str(orjson.loads(refused.read_bytes())["refused"])
            if refused.exists() or (inbox / f"{JOB}.done").exists():
                self._ended_at[stream] = self._clock.now_us()
        beats = {stream: self._beat(stream) for stream in self._ended_at}
        return len(beats) == len(self._options.files) and all(
            beat is not None and beat.at > self._ended_at[stream] for stream, beat in beats.items()
        )

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
            bar.show(self._seen)
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
        for stream in self._options.files:
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
                bar.show(self._seen)
        assert end_us is not None
        return end_us

    def _note(self, part: int, boundary: Mapping[str, Any]) -> None:
        seen = self._seen
        seen.answered_us[part] = parse_time(boundary["window_end"])
        seen.rows += boundary["keys"]
        seen.windows[part] += boundary["windows"]
        seen.lost.update(boundary.get("lost", {}))

    def _quarantined(self) -> str:
        counts: Counter[str] = Counter()
        for stream in self._options.files:
            detail = {} if (beat := self._beat(stream)) is None else beat.detail
            counts.update({reason: detail.get(reason, 0) for reason in REASONS})
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
        faults = [f"{self._options.files[name]}: {why}" for name, why in self._refused.items()]
        faults += [f"{n:,} readings of {name} were lost" for name, n in seen.lost.items() if n]
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
