"""What the second copy of a part costs: CPU of all processes with one copy and with two, in turn.

`slackwater up` with one topic of columns and one query in many parts; windows of 100 ms, each
reading of a key that comes again when all others have come. The sender is a process of its own and
is not counted. Between two measurements everything is stopped: a deployment has one number of
copies from its start on, so that no later generation runs beside.

``cores``: CPU time of all processes, or of the hosts alone, divided by the time. A rate of 0 has
windows of a second of a stream without readings: a deployment at rest.

Run with ``python -m bench.copies [--rate 20000] [--keys 110000] [--parts 8] [--turns 2]``; prints
Markdown.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from bench.idle import cpu_s
from bench.live import Up
from bench.wakeups import kind_of

import slackwater
from slackwater.codec.results import parse_result, parse_time
from slackwater.model.names import Names
from slackwater.runtime.logs.kafka import KafkaTransport

STREAM: Final = "busy"
TICK_US: Final = 20_000
WARM_S: Final = 30.0
BOUNDARY: Final = b'"kind":"boundary"'
FILE: Final = """
apiVersion: slackwater/v1
streams:
  {stream}: {{topic: {{name: in-{stream}, format: json-columns}}, key: {{field: k}},
       time: {{field: t, unit: us}}, fields: [v], disorder: 100ms, {more}}}
queries:
"""
QUERY: Final = (
    "  q-{n}: {{from: [{stream}], window: {{size: {window}}}, aggregate: [count],"
    " bound: 2s, parts: {parts}, replicas: {replicas}, copies: {copies}}}\n"
)


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent, and what reads it."""

    per_s: int
    keys: int
    parts: int
    replicas: int
    queries: int

    def written(self, copies: int) -> str:
        """The deployment file."""
        more = "expect_every: 1s" if self.per_s else "sporadic: true"
        window = "100ms" if self.per_s else "1s"
        return FILE.format(stream=STREAM, more=more) + "".join(
            QUERY.format(
                n=n,
                stream=STREAM,
                window=window,
                parts=self.parts,
                replicas=self.replicas,
                copies=copies,
            )
            for n in range(self.queries)
        )


def send(bootstrap: str, per_s: int, keys: int) -> None:
    """Send columns every 20 ms until ended, stamped evenly over that time."""
    count = per_s * TICK_US // 1_000_000
    names = np.array([f"sensor-{n:06d}" for n in range(keys)])
    with slackwater.Producer(
        bootstrap=bootstrap, topic=f"in-{STREAM}", format="json-columns", linger_s=0.001
    ) as producer:
        tick, of = time.time_ns() // 1_000 // TICK_US + 1, np.arange(count)
        while True:
            time.sleep(max(0.0, (tick + 1) * TICK_US / 1e6 - time.time()))
            readings = {
                "k": names[(tick * count + of) % keys],
                "t": tick * TICK_US + of * TICK_US // count,
                "v": np.full(count, 1.5),
            }
            producer.send(readings)
            tick += 1


@dataclass
class Delays(threading.Thread):
    """Reads the answers of the first part of the first query until stopped."""

    bootstrap: str
    late_ms: list[float] = field(default_factory=list)
    """Of each answer: delay after its normal time, when it was read."""
    tentative: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ending = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Read; rows are not parsed."""
        transport = KafkaTransport(self.bootstrap)
        logs = [(Names().results("q-0", kind), 0) for kind in ("stable", "tentative")]
        reader = transport.reader(isolation="read_committed")
        reader.assign(transport.end_offsets(logs))
        while not self._ending.is_set():
            records = reader.poll(5_000, 0.2)
            now_s = time.time()
            for raw in records:
                if BOUNDARY in raw.value:
                    row = parse_result(raw.value)
                    self.late_ms.append(1e3 * now_s - parse_time(row["due_at"]) / 1e3)
                    self.tentative += row["label"] == "tentative"
        reader.close()

    def stop(self) -> None:
        """Stop."""
        self._ending.set()
        self.join()


def measure(load: Load, copies: int, seconds: float) -> dict[str, float]:
    """Start everything, let it run; return cores by kind of process, and delays of answers."""
    with tempfile.TemporaryDirectory(prefix="slackwater-copies-") as made:
        up = Up(Path(made), load.replicas)
        (Path(made) / "deployment.yaml").write_text(load.written(copies))
        up.start()
        sender = None
        try:
            up.wait_ready()
            if load.per_s:
                words = [str(word) for word in ("--send", up.bootstrap, load.per_s, load.keys)]
                sender = subprocess.Popen([sys.executable, "-m", "bench.copies", *words])
            time.sleep(WARM_S)
            delays = Delays(up.bootstrap)
            delays.start()
            before, began = cpu_s(up.processes()), time.monotonic()
            time.sleep(seconds)
            spent, took_s = cpu_s(up.processes()), time.monotonic() - began
            hosts = (each for each in up.processes() if kind_of(each.cmdline()) == "host")
            held_mb = sum(each.memory_info().rss for each in hosts) / 1e6
            delays.stop()
            if sender is not None and sender.poll() is not None:
                raise SystemExit(f"the sender ended with {sender.returncode}")
        finally:
            if sender is not None:
                sender.terminate()
                sender.wait()
            up.stop()
    of = {kind: (spent[kind] - before.get(kind, 0.0)) / took_s for kind in spent}
    p50, p99 = np.percentile(delays.late_ms or [np.nan], [50, 99])
    return {
        "all": sum(of.values()),
        "hosts": of["host"],
        "hosts, MB": held_mb,
        "broker": of["broker"],
        "p50 ms": p50,
        "p99 ms": p99,
        "answers": len(delays.late_ms),
        "tentative": delays.tentative,
    }


def main() -> None:
    """Measure with one copy and with two, in turn; print a row of each, and the difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=20_000, help="readings/s; 0: at rest")
    parser.add_argument("--keys", type=int, default=110_000)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--queries", type=int, default=1)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--send", nargs=3, metavar=("BOOTSTRAP", "RATE", "KEYS"))
    options = parser.parse_args()
    if options.send:
        send(options.send[0], int(options.send[1]), int(options.send[2]))
        return
    load = Load(options.rate, options.keys, options.parts, options.replicas, options.queries)
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(options.turns):
        for copies, of in found.items():
            of.append(measure(load, copies, options.seconds))
            if sum(map(len, found.values())) == 1:
                print(f"{load}\n\n| copies | {' | '.join(of[-1])} |\n|---{'|---' * len(of[-1])}|")
            values = (f"{value:.3f}" if value < 10 else f"{value:.0f}" for value in of[-1].values())
            print(f"| {copies} | {' | '.join(values)} |", flush=True)
    for name in ("all", "hosts", "hosts, MB"):
        one, two = (np.mean([each[name] for each in of]) for of in found.values())
        print(f"\nThe second copy, {name}: {two - one:+.3f}, {100 * (two / one - 1):+.1f} %")


if __name__ == "__main__":
    main()
