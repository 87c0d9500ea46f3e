"""One topic of 16 partitions of JSON, by the number of children, end to end.

    python -m bench.children [--readings 6000000] [--sensors 1000] [--children 1,2,4]

A backlog of messages of about 100 bytes, one reading each, is written to 16 partitions by sensor;
`slackwater up` computes windows of a second with one replica. A fifth of it is there before the
start; the rest is written while the proxy is stopped (SIGSTOP), and is measured from the moment at
which it goes on until all is answered, so neither the start nor the writer counts. Each window is
compared with the readings sent. The CPU time of a stage, in ns a reading, gives the rate that one
core of it sustains. Orderers of one replica share a host under `up`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import psutil
from bench.idle import cpu_s
from bench.peers import workload
from bench.wakeups import kind_of
from confluent_kafka import Consumer, TopicPartition

from slackwater.codec.results import parse_time
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.process import spawn
from slackwater.model.names import Names
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics

PARTITIONS: Final = 16
PER_S: Final = 100_000
"""Readings a second of event time."""
KINDS: Final = ("broker", "aggregator's JVM", "aggregator", "proxy", "host")
MESSAGE: Final = (
    b'{"ts":%d,"sensor":"s%06d","value":%.2f,"unit":"celsius","site":"lab-7","number":%d}'
)
WAIT_S_MAX: Final = 600.0
WARM_SHARE: Final = 5
"""The first windows are not measured: one in so many."""

DEPLOYMENT: Final = """\
apiVersion: slackwater/v1
clock: data
streams:
  lab:
    topic: {{name: readings, format: json}}
    key: {{field: sensor}}
    time: {{field: ts, unit: ms}}
    fields: [value]
    expect_every: 1s
queries:
  windows:
    from: [lab]
    window: {{size: 1s}}
    aggregate: [count, sum, min, max]
    bound: 2s
    replicas: 1
    children: {children}
"""


def main() -> None:
    """Measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=6_000_000)
    parser.add_argument("--sensors", type=int, default=1_000)
    parser.add_argument("--children", default="1,2,4")
    options = parser.parse_args()
    print(f"| children | readings/s | {' | '.join(f'{name}, ns a reading' for name in KINDS)} |")
    print(f"|{'---|' * (2 + len(KINDS))}")
    for children in map(int, options.children.split(",")):
        rate, ns = measured(options.readings, options.sensors, children)
        shown = " | ".join(f"{ns[name]:.0f}" for name in KINDS)
        print(f"| {children} | {rate:,.0f} | {shown} |", flush=True)


class Backlog:
    """The readings, and by window and sensor their number and sum."""

    def __init__(self, readings: int, sensors: int) -> None:
        self.windows = -(-readings // PER_S)
        self.start_ms = (int(time.time()) - 3_600 - self.windows) * 1_000
        numbers = np.arange(readings)
        self._ts = self.start_ms + numbers * 1_000 // PER_S
        self._of, self._values = numbers % sensors, (1_500 + numbers * 7_919 % 1_000) / 100
        at = (self._ts - self.start_ms) // 1_000 * sensors + self._of
        size, shape = self.windows * sensors, (self.windows, sensors)
        self.counts = np.bincount(at, minlength=size).reshape(shape)
        self.sums = np.bincount(at, self._values, size).reshape(shape)

    def write(self, bootstrap: str, windows: range) -> None:
        """Write the readings of these windows; after the last one, those that close it."""
        writer = workload.producer(bootstrap)
        part = slice(windows.start * PER_S, windows.stop * PER_S)
        numbers = range(windows.start * PER_S, windows.stop * PER_S)
        columns = (self._ts[part].tolist(), self._of[part].tolist(), self._values[part].tolist())
        for row in zip(*columns, numbers, strict=False):
            workload.put(writer, row[1] % PARTITIONS, MESSAGE % row)
        if windows.stop == self.windows:
            end_ms = int(self._ts[-1]) + workload.CLOSING_MS
            for partition in range(PARTITIONS):
                workload.put(writer, partition, MESSAGE % (end_ms, partition, 0.0, 0))
        writer.flush()


def measured(readings: int, sensors: int, children: int) -> tuple[float, dict[str, float]]:
    """Return the readings a second, and the CPU time of each kind of process in ns a reading."""
    backlog = Backlog(readings, sensors)
    first = max(backlog.windows // WARM_SHARE, 3)
    with tempfile.TemporaryDirectory(prefix="slackwater-children-") as name:
        folder = Path(name)
        with EmbeddedBroker(folder / "broker", heap_mib_max=1_024, runs_long=True) as broker:
            ensure_topics(broker.bootstrap, [TopicLayout(workload.TOPIC, PARTITIONS, {})])
            backlog.write(broker.bootstrap, range(first))
            path = folder / "deployment.yaml"
            path.write_text(DEPLOYMENT.format(children=children))
            command = [sys.executable, "-m", "slackwater.cli.app", "up", "--bootstrap"]
            command += [broker.bootstrap, "--deployment", str(path)]
            command += ["--data-dir", str(folder / "data")]
            with (folder / "output").open("wb") as out:
                up = spawn(command, stdout=out)
                try:
                    of = [psutil.Process(broker.pid), psutil.Process(up.pid)]
                    seen = Seen(broker.bootstrap, backlog.start_ms, of)
                    answered = seen.read_until(first - 2)
                    proxies = [p for p in seen.processes() if kind_of(p.cmdline()) == "proxy"]
                    for proxy in proxies:
                        proxy.suspend()
                    backlog.write(broker.bootstrap, range(first, backlog.windows))
                    began, before = time.monotonic(), dict(cpu_s(seen.processes()))
                    for proxy in proxies:
                        proxy.resume()
                    answered = seen.read_until(backlog.windows) - answered
                    took = time.monotonic() - began
                    after = dict(cpu_s(seen.processes()))
                finally:
                    up.terminate()
                    up.wait(60)
    seen.check(backlog.counts, backlog.sums)
    used = {name: after[name] - before.get(name, 0.0) for name in KINDS}
    per_reading = 1e9 / (answered * PER_S)
    return answered * PER_S / took, {name: spent * per_reading for name, spent in used.items()}


class Seen:
    """Reads the stable answers, and the CPU time of all processes."""

    def __init__(self, bootstrap: str, start_ms: int, processes: list[psutil.Process]) -> None:
        self._start_ms, self._up = start_ms, processes
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "seen",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(Names().results("windows", "stable"), 0, 0)])
        self._rows: dict[int, dict[int, dict[str, float]]] = defaultdict(dict)
        self._answered = 0

    def processes(self) -> list[psutil.Process]:
        """Return all processes."""
        return [p for top in self._up for p in (top, *top.children(recursive=True))]

    def read_until(self, windows: int) -> int:
        """Read until so many windows are answered; return their number."""
        give_up = time.monotonic() + WAIT_S_MAX
        while self._answered < windows:
            if time.monotonic() > give_up:
                raise SystemExit(f"{self._answered} of {windows} windows are answered")
            if not all(
                process.is_running() and process.status() != "zombie" for process in self._up
            ):
                raise SystemExit("a process has ended")
            for message in self._consumer.consume(10_000, 0.2):
                value = message.value()
                if message.error() is None and value is not None:
                    self._take(orjson.loads(value))
        return self._answered

    def _take(self, line: dict[str, Any]) -> None:
        window = (parse_time(line["window_start"]) // 1_000 - self._start_ms) // 1_000
        if line["kind"] == "stable":
            self._rows[window][int(line["key"][1:])] = line["fields"]["value"]
        elif line["kind"] == "boundary" and window >= 0:
            self._answered = max(self._answered, window + 1)

    def check(self, counts: Any, sums: Any) -> None:
        """Compare all windows; raise an error if one is wrong or lost."""
        for window, of in enumerate(counts):
            found = self._rows[window]
            for sensor in np.flatnonzero(of).tolist():
                row = found.get(sensor, {"count": 0, "sum": 0.0})
                if row["count"] != of[sensor] or abs(row["sum"] - sums[window][sensor]) > 1e-6:
                    raise SystemExit(f"window {window}, sensor {sensor}: {row}, not {of[sensor]}")


if __name__ == "__main__":
    main()
