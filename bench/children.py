"""One topic of 16 partitions of JSON, by the number of children, end to end.

    python -m bench.children [--readings 6000000] [--sensors 1000] [--children 1,2,4]

A backlog of messages of about 100 bytes, one reading each, is written to 16 partitions by sensor;
`slackwater up` computes windows of a second with one replica. Each window is compared with the
readings sent. Rate and CPU time are those between the moments at which a fifth of the windows and
all of them are answered, so they do not contain the start. The CPU time of a stage, in ns a
reading, gives the rate that one core of it sustains; with children a stage is divided as far as it
consists of several processes or threads. Orderers of one replica share a host under `up`.
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
WAIT_S_MAX: Final = 600.0
WARM_SHARE: Final = 5
"""The first part of the windows is not measured."""

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


def fill(bootstrap: str, readings: int, sensors: int, start_ms: int) -> Any:
    """Write the backlog; return by window and sensor the number of readings, and the sum."""
    writer = workload.producer(bootstrap)
    numbers = np.arange(readings)
    ts = start_ms + numbers * 1_000 // PER_S
    of, values = numbers % sensors, (1_500 + numbers * 7_919 % 1_000) / 100
    message = (
        b'{"ts":%d,"sensor":"s%06d","value":%.2f,"unit":"celsius","site":"lab-7","sequence":%d}'
    )
    rows = zip(ts.tolist(), of.tolist(), values.tolist(), range(readings), strict=True)
    for row in rows:
        workload.put(writer, row[1] % PARTITIONS, message % row)
    for partition in range(PARTITIONS):
        end_ms = int(ts[-1]) + workload.CLOSING_MS
        workload.put(writer, partition, message % (end_ms, partition, 0.0, 0))
    writer.flush()
    windows = -(-readings // PER_S)
    at = (ts - start_ms) // 1_000 * sensors + of
    size = windows * sensors
    counts = np.bincount(at, minlength=size).reshape(windows, sensors)
    return counts, np.bincount(at, values, size).reshape(windows, sensors)


def measured(readings: int, sensors: int, children: int) -> tuple[float, dict[str, float]]:
    """Return the readings a second, and the CPU time of each kind of process in ns a reading."""
    start_ms = (int(time.time()) - 3_600) * 1_000 - readings * 1_000 // PER_S
    with tempfile.TemporaryDirectory(prefix="slackwater-children-") as name:
        folder = Path(name)
        with EmbeddedBroker(folder / "broker", heap_mib_max=1_024, runs_long=True) as broker:
            ensure_topics(broker.bootstrap, [TopicLayout(workload.TOPIC, PARTITIONS, {})])
            counts, sums = fill(broker.bootstrap, readings, sensors, start_ms)
            path = folder / "deployment.yaml"
            path.write_text(DEPLOYMENT.format(children=children))
            command = [sys.executable, "-m", "slackwater.cli.app", "up", "--bootstrap"]
            command += [broker.bootstrap, "--deployment", str(path)]
            command += ["--data-dir", str(folder / "data")]
            with (folder / "output").open("wb") as out:
                up = spawn(command, stdout=out)
                try:
                    of = [psutil.Process(broker.pid), psutil.Process(up.pid)]
                    seen = Seen(broker.bootstrap, start_ms, of)
                    before = seen.read_until(len(counts) // WARM_SHARE)
                    after = seen.read_until(len(counts))
                finally:
                    up.terminate()
                    up.wait(60)
    seen.check(counts, sums)
    windows = after[0] - before[0]
    used = {name: after[2][name] - before[2].get(name, 0.0) for name in KINDS}
    per_reading = 1e9 / (windows * PER_S)
    rate = windows * PER_S / (after[1] - before[1])
    return rate, {name: spent * per_reading for name, spent in used.items()}


class Seen:
    """Reads the stable answers, and the CPU time of all processes."""

    def __init__(self, bootstrap: str, start_ms: int, processes: list[psutil.Process]) -> None:
        self._start_ms, self._processes = start_ms, processes
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

    def read_until(self, windows: int) -> tuple[int, float, dict[str, float]]:
        """Read until so many windows are answered; return their number, the time, and CPU time."""
        give_up = time.monotonic() + WAIT_S_MAX
        while self._answered < windows:
            if time.monotonic() > give_up:
                raise SystemExit(f"{self._answered} of {windows} windows are answered")
            for message in self._consumer.consume(10_000, 0.2):
                value = message.value()
                if message.error() is None and value is not None:
                    self._take(orjson.loads(value))
        everyone = [p for top in self._processes for p in (top, *top.children(recursive=True))]
        return self._answered, time.monotonic(), dict(cpu_s(everyone))

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
