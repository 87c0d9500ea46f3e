"""`slackwater up` as run by a user, with topics as input and a consumer of its results.

Four streams, each a topic of JSON readings; one query with a window of a second. The feeder is not
part of the measurement: it stamps evenly over each second, so that a correct window counts exactly
a second's readings, and it keeps readings while the broker is down.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import psutil
from confluent_kafka import Producer

from slackwater.codec.results import parse_result, parse_time
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.logs.kafka import KafkaTransport

STREAMS: Final = ("s1", "s2", "s3", "s4")
QUERY: Final = "bench"
KEYS: Final = 10
READY_S_MAX: Final = 240.0

DEPLOYMENT: Final = """
apiVersion: slackwater/v1
clock: wall
streams:
{streams}
queries:
  {query}:
    from: [{names}]
    window: {{size: 1s}}
    aggregate: [count, avg, min, max]
    bound: 2s
    replicas: {replicas}
"""
STREAM: Final = (
    "  {name}: {{topic: {{name: in-{name}, format: json}}, key: {{field: k}},"
    " time: {{field: t, unit: us}}, fields: [v]{more}}}"
)


class Feeder(threading.Thread):
    """Stamps and sends ``per_s`` readings per second of each stream, evenly over each second."""

    def __init__(
        self, bootstrap: str, per_s: int, streams: Sequence[str] = STREAMS, keys: int = KEYS
    ) -> None:
        super().__init__(daemon=True)
        self.per_s = per_s
        self._keys = keys
        self._streams = streams
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 5,
                "queue.buffering.max.messages": 10_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Run until stopped."""
        second, sent = int(time.time()) + 1, 0
        while not self._ending.wait(0.01):
            due = min(self.per_s, int((time.time() - second) * self.per_s))
            for number in range(sent, due):
                stime = second * 1_000_000 + number * 1_000_000 // self.per_s
                self._send(stime, second * self.per_s + number)
            sent = max(sent, due)
            if sent == self.per_s:
                second, sent = second + 1, 0

    def _send(self, stime: int, number: int) -> None:
        reading = f'{{"k":"k{number % self._keys}","t":{stime},"v":{number % 100}.5}}'
        for name in self._streams:
            self._producer.produce(f"in-{name}", reading)
        self._producer.poll(0)

    def stop(self) -> None:
        """Stop; unsent readings are dropped."""
        self._ending.set()
        self.join()
        self._producer.purge()


@contextlib.contextmanager
def feeding(
    bootstrap: str, per_s: int, streams: Sequence[str] = STREAMS, keys: int = KEYS
) -> Iterator[Feeder]:
    """Run a feeder for the block."""
    feeder = Feeder(bootstrap, per_s, streams, keys)
    feeder.start()
    try:
        yield feeder
    finally:
        feeder.stop()


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """A window's stable answer: its normal time and the time of reading (s), and its count."""

    due_s: float
    seen_s: float
    counted: float

    @property
    def late_s(self) -> float:
        """Delay after its normal time."""
        return self.seen_s - self.due_s


@dataclass
class LiveAnswers(threading.Thread):
    """Reads the query's results until it is ended, else until the end of the program."""

    bootstrap: str
    query: str = QUERY
    stable: list[LiveAnswer] = field(default_factory=list)
    first_late_s: list[float] = field(default_factory=list)
    """Delay of each window's first answer, stable or not, after its normal time."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ending = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def end(self) -> None:
        """End the reading soon; do not wait."""
        self._ending.set()

    def run(self) -> None:
        """Read until ended."""
        reader = KafkaTransport(self.bootstrap).reader(isolation="read_committed")
        reader.assign({(Names().results(self.query, kind), 0): 0 for kind in RESULT_KINDS})
        counted: dict[str, float] = defaultdict(float)
        answered: set[str] = set()
        while not self._ending.is_set():
            records = reader.poll(5_000, 1.0)
            now_s = time.time()
            for raw in records:
                row = parse_result(raw.value)
                if row["kind"] == "stable":
                    counted[row["window_end"]] += row["fields"]["v"]["count"]
                elif row["kind"] == "boundary":
                    self._boundary(row, now_s, counted, answered)

    def _boundary(
        self, row: dict[str, Any], now_s: float, counted: dict[str, float], answered: set[str]
    ) -> None:
        due_s, end = parse_time(row["due_at"]) / 1e6, row["window_end"]
        if end not in answered:
            answered.add(end)
            self.first_late_s.append(now_s - due_s)
        if row["label"] == "stable":
            self.stable.append(LiveAnswer(due_s, now_s, counted.pop(end, 0)))


class Up:
    """`slackwater up` in a folder, on a fixed port.

    ``more``: declarations of the query's streams; ``unread``: other streams with theirs;
    ``queries``: lines of more queries; ``options``: of the command.
    """

    def __init__(
        self,
        folder: Path,
        replicas: int,
        *,
        more: str = "",
        unread: Mapping[str, str] | None = None,
        queries: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._file = folder / "deployment.yaml"
        declared = dict.fromkeys(STREAMS, more) | dict(unread or {})
        streams = "\n".join(STREAM.format(name=name, more=of) for name, of in declared.items())
        self._file.write_text(
            DEPLOYMENT.format(
                streams=streams, names=", ".join(STREAMS), query=QUERY, replicas=replicas
            )
            + queries
        )
        self._options = options
        self._output: IO[str] | None = None
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Run the command; do not wait."""
        self._output = (self.folder / "output").open("a")
        command = [sys.executable, "-m", "slackwater.cli.app", "up", "--port", str(self._port)]
        command += ["--deployment", str(self._file), "--data-dir", str(self.folder / "data")]
        command += self._options
        self.process = subprocess.Popen(
            command, stdout=self._output, stderr=self._output, text=True
        )

    def wait_ready(self, times: int = 1) -> None:
        """Wait until it has reported ready this many times."""
        assert self.process is not None
        deadline = time.monotonic() + READY_S_MAX
        while (self.folder / "output").read_text().count("\nup: ") < times:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"not ready:\n{(self.folder / 'output').read_text()[-2_000:]}")
            time.sleep(0.1)

    def processes(self) -> list[psutil.Process]:
        """Return it and all its descendants."""
        assert self.process is not None
        above = psutil.Process(self.process.pid)
        return [above, *above.children(recursive=True)]

    def kill(self) -> None:
        """`kill -9` all processes, like a power failure."""
        assert self.process is not None
        victims = self.processes()
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        self.process.wait()
        psutil.wait_procs(victims[1:], 10)

    def stop(self) -> None:
        """Stop it in order."""
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGINT)
            self.process.wait(60)
