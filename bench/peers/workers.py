"""The peers: their parameters, installation, start, kill, and the parsing of their rows.

Each is one worker process (with its child processes) that reads the topic ``readings`` and
publishes windows; restarted on the same folder it continues from its own checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from bench.peers.check import PeerAnswer, WindowFigures
from bench.peers.workload import TOPIC
from confluent_kafka import Consumer, TopicPartition

from slackwater.codec.results import parse_time
from slackwater.machine.paths import java_executable
from slackwater.machine.process import spawn
from slackwater.model.names import Names

HERE: Final = Path(__file__).parent
BUILD: Final = HERE / "build"
QUERY: Final = "windows"
SLACKWATER_TOPICS: Final = tuple(Names().results(QUERY, kind) for kind in ("stable", "tentative"))


@dataclass(frozen=True)
class Job:
    """Parameters of a worker's start."""

    bootstrap: str
    folder: Path
    grace_ms: int = 2_000
    """Time for which a window waits for late readings; slackwater's bound."""
    sources: bool = True
    """Partitions are sources, and event time is the present; else they are shares of the sensors,
    for a backlog."""
    format: str = "json"
    """Of the topic's messages; other formats and replicas are for slackwater alone."""
    replicas: int = 1


@dataclass(frozen=True)
class Peer:
    """A stream processor with its settings."""

    title: str
    settings: str
    command: Callable[[Job], list[str]]
    fetch: Callable[[], None] = lambda: None
    prepare: Callable[[Job], None] = lambda job: None
    topics: Sequence[str] = ("answers",)
    backlog_divisor: int = 1
    """Slow ones get a shorter backlog."""


class Worker:
    """A running peer."""

    def __init__(self, peer: Peer, job: Job) -> None:
        self._command = peer.command(job)
        self._out = job.folder / "output"
        peer.prepare(job)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; do not wait."""
        with self._out.open("ab") as out:
            self._process = spawn(self._command, stdout=out, cwd=HERE.parent.parent)

    def check_alive(self) -> None:
        """Raise an error if it has ended by itself."""
        assert self._process is not None
        if self._process.poll() is not None:
            tail = self._out.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"the worker has ended with {self._process.returncode}:\n{tail}")

    def processes(self) -> list[psutil.Process]:
        """Return it and all its descendants."""
        assert self._process is not None
        above = psutil.Process(self._process.pid)
        return [above, *above.children(recursive=True)]

    def kill(self) -> None:
        """`kill -9` it and all its descendants."""
        assert self._process is not None
        try:
            victims = self.processes()
        except psutil.NoSuchProcess:
            return
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        self._process.wait()
        psutil.wait_procs(victims[1:], 10)


@dataclass
class Seen(threading.Thread):
    """Reads a peer's rows, as a consumer of committed records.

    Rows are kept unparsed, with their times, until the answers are needed: parsing a row takes 15
    us, which would count as the peer's if both share the cores.
    """

    bootstrap: str
    topics: Sequence[str]

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ending = threading.Event()
        self._rows: deque[tuple[bytes, float]] = deque()
        self._parsed: list[PeerAnswer] = []
        self._parsing = threading.Lock()
        self.rows = 0
        """Number of rows so far, of any kind."""

    def __hash__(self) -> int:
        return id(self)

    @property
    def answers(self) -> list[PeerAnswer]:
        """The answers so far, in the order of reading."""
        with self._parsing:
            while self._rows:
                value, seen_s = self._rows.popleft()
                self._take(json.loads(value), seen_s)
        return self._parsed

    def run(self) -> None:
        """Run until stopped."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "seen",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0) for topic in self.topics])
        while not self._ending.is_set():
            messages = consumer.consume(10_000, 0.05)
            now_s = time.time()
            for message in messages:
                value = message.value()
                if message.error() is None and value is not None:
                    self._rows.append((value, now_s))
                    self.rows += 1
        consumer.close()

    def _take(self, row: dict[str, Any], now_s: float) -> None:
        if row.get("diff") == -1:
            return  # a withdrawal
        if "kind" not in row:
            place, figures = (row["sensor"], row["start"]), row
        elif row["kind"] in {"stable", "tentative"}:
            place = row["key"], parse_time(row["window_start"]) // 1_000
            figures = row["fields"]["value"]
        else:
            return
        found = WindowFigures(*(figures[name] for name in ("count", "avg", "min", "max")))
        self._parsed.append(PeerAnswer(place, found, now_s, row.get("kind") == "tentative"))

    def stop(self) -> None:
        """Stop."""
        self._ending.set()
        self.join()


def _maven(name: str) -> None:
    """Compile a peer in Java, and fetch its jars."""
    into = BUILD / name
    if (into / ".complete").exists():
        return
    subprocess.run(
        [
            *(os.environ.get("MVN", "mvn"), "--quiet", "--batch-mode", "-Dstyle.color=never"),
            *("--file", str(HERE / name / "pom.xml"), f"-Dinto={into}", "compile"),
            *("dependency:copy-dependencies", "-DincludeScope=runtime"),
            f"-DoutputDirectory={into / 'jars'}",
        ],
        check=True,
    )
    (into / ".complete").touch()


def _java(name: str, main: str, *flags: str) -> list[str]:
    into = BUILD / name
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [
        java_executable(),
        "-Xmx2g",
        level,
        *flags,
        "-cp",
        f"{into}/classes:{into}/jars/*",
        main,
    ]


def _pip(name: str) -> None:
    """Install a peer in Python into a venv of its own."""
    venv = BUILD / name
    if (venv / ".complete").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet"]
    wanted = str(HERE / f"{name}.txt")
    subprocess.run([*pip, "--disable-pip-version-check", "-r", wanted], check=True)
    (venv / ".complete").touch()


def _streams(mode: str) -> Callable[[Job], list[str]]:
    return lambda job: [
        *_java("kafka_streams", "StreamsPeer"),
        *(job.bootstrap, str(job.folder / "state"), str(job.grace_ms)),
        *("rekey" if job.sources else "keyed", mode),
    ]


def _quix(mode: str) -> Callable[[Job], list[str]]:
    return lambda job: [
        *(str(BUILD / "quix/bin/python"), str(HERE / "quix_worker.py")),
        *(job.bootstrap, str(job.folder / "state"), str(job.grace_ms)),
        *("rekey" if job.sources else "keyed", mode),
    ]


def _pathway(job: Job) -> list[str]:
    return [
        *(str(BUILD / "pathway/bin/python"), str(HERE / "pathway_worker.py")),
        *(job.bootstrap, str(job.folder / "state"), str(job.grace_ms)),
    ]


def _flink(*, waits: bool) -> Callable[[Job], list[str]]:
    opens = [
        f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
        for package in ("lang", "net", "io", "nio", "util", "time", "text")
    ]
    return lambda job: [
        *_java("flink", "FlinkPeer", *opens),
        *(job.bootstrap, str(job.folder / "state"), str(job.grace_ms)),
        "0" if waits else str(job.grace_ms),
    ]


def _spark(job: Job) -> list[str]:
    return [
        *(sys.executable, "-m", "bench.peers.spark_worker"),
        *(job.bootstrap, str(job.folder / "state"), str(job.grace_ms)),
    ]


DEPLOYMENT: Final = """\
apiVersion: slackwater/v1
clock: {clock}
streams:
  readings:
    topic: {{name: {topic}, format: {format}}}
    key: {{field: sensor}}
    time: {{field: ts, unit: ms}}
    fields: [value]
    expect_every: 100ms
queries:
  {query}:
    from: [readings]
    window: {{size: 1s}}
    aggregate: [count, avg, min, max]
    bound: {bound_ms}ms
    replicas: {replicas}
"""


def _slackwater(job: Job) -> list[str]:
    return [
        *(sys.executable, "-m", "slackwater.cli.app", "up", "--bootstrap", job.bootstrap),
        *("--deployment", str(job.folder / "deployment.yaml")),
        *("--data-dir", str(job.folder / "data")),
    ]


def _prepare_slackwater(job: Job) -> None:
    file = job.folder / "deployment.yaml"
    clock = "wall" if job.sources else "data"
    text = DEPLOYMENT.format(
        clock=clock,
        topic=TOPIC,
        format=job.format,
        query=QUERY,
        bound_ms=job.grace_ms,
        replicas=job.replicas,
    )
    file.write_text(text)
    command = [sys.executable, "-m", "slackwater.cli.app", "topics"]
    command += ["--deployment", str(file), "--bootstrap", job.bootstrap]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


PEERS: Final = {
    "slackwater": Peer(
        "slackwater",
        "X = grace, `expect_every: 100ms`, one replica of each stage",
        _slackwater,
        prepare=_prepare_slackwater,
        topics=SLACKWATER_TOPICS,
    ),
    "streams": Peer(
        "Kafka Streams 4.3.1",
        "exactly_once_v2, 2 threads, event time from the reading, `ofSizeAndGrace`,"
        " `suppress(untilWindowCloses)`, static membership",
        _streams("final"),
        lambda: _maven("kafka_streams"),
    ),
    "streams-updates": Peer(
        "Kafka Streams 4.3.1, without suppress",
        "the same, but each commit publishes the windows that have changed",
        _streams("updates"),
        lambda: _maven("kafka_streams"),
    ),
    "flink": Peer(
        "Flink SQL 2.1.1",
        "mini-cluster, parallelism 2, watermark = event time - grace,"
        " `table.exec.source.idle-timeout` = grace, exactly-once checkpoints and sink, every 1 s",
        _flink(waits=False),
        lambda: _maven("flink"),
    ),
    "flink-waits": Peer(
        "Flink SQL 2.1.1, no idle time-out",
        "the same, but a silent source holds the watermark (Flink's default)",
        _flink(waits=True),
        lambda: _maven("flink"),
    ),
    "spark": Peer(
        "Spark Structured Streaming 4.1.1",
        "`local[2]`, `withWatermark` = grace, append mode, checkpoints, 2 shuffle partitions,"
        " default trigger; its Kafka sink is at-least-once",
        _spark,
    ),
    "quix": Peer(
        "Quix Streams 3.28.1",
        "exactly-once, commit interval 1 s, `tumbling_window(grace_ms).final()`, closed by key,"
        " static membership, a transactional id that stays",
        _quix("final"),
        lambda: _pip("quix"),
        backlog_divisor=10,
    ),
    "quix-updates": Peer(
        "Quix Streams 3.28.1, `current()`",
        "the same, but each reading publishes its window",
        _quix("updates"),
        lambda: _pip("quix"),
    ),
    "pathway": Peer(
        "Pathway 0.33.0",
        "one worker, `common_behavior(delay = 1 s + grace)`, commits every 100 ms, persistence in"
        " files; a late reading withdraws the window's answer and publishes another one",
        _pathway,
        lambda: _pip("pathway"),
    ),
}
