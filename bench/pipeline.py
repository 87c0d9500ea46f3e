"""The whole pipeline on this machine: proxy log to stable result, at rising rates.

A generator in this process writes source logs as proxies do (columns of real-looking data, 1,000
keys, flushed at the cut points); broker, orderer, aggregator and root are real processes, one
replica of each, with the settings of `slackwater up`. The first minute is not measured: the JVMs
compile what runs often, and latency falls by a third. A rate is *sustained* if the last window of
its phase came no later than a second after its normal time. Latency is ``seen_at - due_at`` of each
window's first answer. At the end one stream falls silent for three times the bound, at 100,000
readings/s.

Run with ``python bench/pipeline.py [--rates 10000,100000] [--seconds 12]``; prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil

from slackwater.codec.source_records import encode_source
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.process import spawn
from slackwater.model.deployment import BUCKET_OF_WINDOWS_US
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.primitives.eventclock import WallClock
from slackwater.runtime.logs.kafka import KafkaTransport, start_incarnation
from slackwater.runtime.logs.topics import QueryTopics, ensure_topics, topics_for
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry

STREAMS = ("s1", "s2", "s3", "s4")
KEYS = tuple(f"sensor-{i:04d}" for i in range(1_000))
BUCKET_US = BUCKET_OF_WINDOWS_US
RECORD_READINGS_MAX = 10_000
BOUND_S = 2.0
WARM_RATE = 100_000
WARM_S = 60
SILENCE_RATE = 100_000

DEPLOYMENT = """
apiVersion: slackwater/v1
clock: wall
streams:
{streams}
queries:
  bench:
    from: [{names}]
    window: {{size: 1s}}
    aggregate: [count, sum, avg, min, max]
    bound: {bound}s
    replicas: 1
"""


class Generator:
    """One stream's proxy: at each cut point, the readings of the bucket that has ended."""

    def __init__(self, transport: KafkaTransport, stream: str, seed: int) -> None:
        self._stream = stream
        self._writer = transport.writer(sys.exit)
        self._log = (Names().source(stream), 0)
        self._rng = np.random.default_rng(seed)
        self._next_id = 0
        self._held: list[bytes] = []
        self.rate = 0
        self.silent = False
        self.sent = 0
        start = SourceRecord(Kind.START, stream, -1, 0, -1, -(2**62), -(2**62), -(2**62))
        self._inc = start_incarnation(
            transport, self._writer, self._log, lambda: encode_source(start)
        )
        self._values = self._rng.normal(21.0, 2.0, 1 << 18)
        self._keys = self._rng.integers(0, len(KEYS), 1 << 18, dtype=np.int32)

    def flush(self, start: int) -> None:
        """The bucket [start, start + BUCKET_US) has passed: write it, with its boundary."""
        count = self.rate * BUCKET_US // 1_000_000
        end = start + BUCKET_US
        cuts = [*range(0, count, RECORD_READINGS_MAX), count]
        for low, high in pairwise(cuts):
            self._held.append(self._record(start, low, high, count, end))
        if not count:
            record = SourceRecord(
                Kind.BOUNDARY, self._stream, self._inc, self._next_id, self._next_id - 1,
                end, end, end,
            )  # fmt: skip
            self._held.append(encode_source(record))
        self.sent += count
        if self.silent:
            return
        for value in self._held:
            self._writer.append(*self._log, value)
        self._held.clear()

    def _record(self, start: int, low: int, high: int, count: int, end: int) -> bytes:
        stimes = start + np.arange(low, high, dtype=np.int64) * BUCKET_US // count
        first = self._next_id
        self._next_id += high - low
        boundary = end if high == count else int(stimes[-1])
        columns = SourceColumns(
            stimes, self._keys[low:high], KEYS, ("temperature",), (self._values[low:high],)
        )
        return encode_source(
            SourceRecord(
                Kind.INSERTION, self._stream, self._inc, first, self._next_id - 1,
                boundary, int(stimes[0]), int(stimes[-1]), columns=columns,
            )
        )  # fmt: skip


@dataclass
class Seen:
    """The first answer and the stable answer of each window, by its end (s)."""

    first: dict[float, float] = field(default_factory=dict)
    stable: dict[float, float] = field(default_factory=dict)
    tentative: int = 0
    counted: int = 0


class Results(threading.Thread):
    """Reads the three result topics as a consumer."""

    def __init__(self, transport: KafkaTransport) -> None:
        super().__init__(daemon=True)
        self._reader = transport.reader(isolation="read_committed")
        self._reader.assign({(Names().results("bench", kind), 0): 0 for kind in RESULT_KINDS})
        self.seen = Seen()

    def run(self) -> None:
        """Run until the process ends."""
        while True:
            records = self._reader.poll(5_000, 0.005)
            now = time.time()  # read; the time to parse them is not part of the measurement
            for raw in records:
                if b'"kind":"boundary"' in raw.value:
                    self._take(json.loads(raw.value), now)
                elif b'"kind":"stable"' in raw.value:
                    self.seen.counted += json.loads(raw.value)["fields"]["temperature"]["count"]

    def _take(self, line: dict[str, str], now: float) -> None:
        due = datetime.fromisoformat(line["due_at"]).timestamp()
        late = now - due
        self.seen.first.setdefault(due, late)
        if line["label"] == "stable":
            self.seen.stable[due] = late
        else:
            self.seen.tentative += 1


class Usage:
    """CPU and memory of each process between two times."""

    def __init__(self, processes: dict[str, psutil.Process]) -> None:
        self._processes = processes
        self._at = time.monotonic()
        self._cpu = self._seconds()

    def _seconds(self) -> dict[str, float]:
        return {
            name: sum(sum(p.cpu_times()[:2]) for p in (process, *process.children(recursive=True)))
            for name, process in self._processes.items()
        }

    def read(self) -> dict[str, tuple[float, float]]:
        """Return cores and MB since the last call."""
        cpu, now = self._seconds(), time.monotonic()
        took = now - self._at
        answer = {
            name: (
                (cpu[name] - self._cpu[name]) / took,
                sum(p.memory_info().rss for p in (process, *process.children(recursive=True)))
                / 1e6,
            )
            for name, process in self._processes.items()
        }
        self._cpu, self._at = cpu, now
        return answer


class Stack:
    """Broker, orderer, aggregator, root: one of each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / "bench.yaml"
        stream = (
            "  {}: {{key: {{column: k}}, time: {{column: t, unit: us}}, fields: [temperature]}}"
        )
        path.write_text(
            DEPLOYMENT.format(
                streams="\n".join(stream.format(name) for name in STREAMS),
                names=", ".join(STREAMS),
                bound=BOUND_S,
            )
        )
        deployment = load_deployment(path)
        spec = deployment.queries["bench"]
        self.broker = EmbeddedBroker(folder / "broker", runs_long=True)
        self.broker.start()
        shape = QueryTopics("bench", spec.children, spec.replicas, spec.parts)
        ensure_topics(self.broker.bootstrap, topics_for(deployment.streams, [shape]))
        self.transport = KafkaTransport(self.broker.bootstrap)
        registry = Registry(self.transport)
        registry.publish_clock(WallClock())
        self.generators = [Generator(self.transport, s, i) for i, s in enumerate(STREAMS)]
        common = ["--deployment", str(path), "--bootstrap", self.broker.bootstrap]
        common += ["--data-dir", str(folder)]
        commands = {
            "aggregator": ["slackwater_spark.app", "0", "--fragments", "bench.0.a"],
            # A separate host for each, so that stages are measured separately.
            "orderer": ["slackwater.host", "0", "--fragments", "orderer/bench.0.a"],
            "root": ["slackwater.host", "1", "--fragments", "root/bench.0"],
        }
        listener = HeartbeatListener(self.transport).start()
        start_time = int(time.time() * 1e6) // 1_000_000 * 1_000_000
        registry.publish_queries(
            QueryDefinition(name="bench", generation=0, e0_us=start_time, w_us=BUCKET_US, spec=spec)
        )
        self.children = {}
        for name, (module, *rest) in commands.items():
            log = (folder / f"{name}.log").open("wb")
            self.children[name] = spawn([sys.executable, "-m", module, *rest, *common], stdout=log)
        names = ("aggregator/0", "orderer/bench.0.a", "root/bench.0")
        began = time.monotonic()
        while not all(listener.ready(name) for name in names):
            time.sleep(0.05)
            if time.monotonic() - began > 180:
                raise SystemExit(f"not ready; see {folder}")
        self.ready_s = time.monotonic() - began
        listener.stop()
        pids = {name: child.pid for name, child in self.children.items()}
        assert self.broker.pid is not None
        self.usage = Usage(
            {
                name: psutil.Process(pid)
                for name, pid in (pids | {"broker": self.broker.pid}).items()
            }
        )

    def check_alive(self) -> None:
        """Raise an error if a process has ended by itself."""
        for name, child in self.children.items():
            if child.poll() is not None:
                log = (self._folder / f"{name}.log").read_text()[-2_000:]
                raise SystemExit(f"{name} ended with {child.returncode}:\n{log}")

    def stop(self) -> None:
        """Stop everything that was started."""
        for child in self.children.values():
            child.terminate()
        for child in self.children.values():
            child.wait(10)
        self.broker.stop()


def run_phase(stack: Stack, rate: int, seconds: float, bucket: int) -> int:
    """Write at ``rate`` for ``seconds``; returns the next bucket's start."""
    for generator in stack.generators:
        generator.rate = rate // len(stack.generators)
    until = bucket + int(seconds * 1e6)
    while bucket < until:
        pause = (bucket + BUCKET_US) / 1e6 - time.time()
        if pause > 0:
            time.sleep(pause)
        for generator in stack.generators:
            generator.flush(bucket)
        bucket += BUCKET_US
    return bucket


def percentiles(values: list[float]) -> str:
    """p50 / p95 / p99 / max in ms."""
    if not values:
        return "- | - | - | -"
    points = [*np.percentile(values, [50, 95, 99]), max(values)]
    return " | ".join(f"{1000 * p:.0f}" for p in points)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="10000,100000,250000,500000,1000000,2000000")
    parser.add_argument("--seconds", type=float, default=12.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
        print(f"logs in {folder} until the end", file=sys.stderr)
        stack = Stack(Path(folder))
        try:
            measure(stack, [int(r) for r in options.rates.split(",")], options.seconds)
        finally:
            stack.stop()


def measure(stack: Stack, rates: list[int], seconds: float) -> None:
    """All phases on one stack."""
    results = Results(stack.transport)
    results.start()
    print(f"stack ready after {stack.ready_s:.1f} s\n")
    bucket = int(time.time() * 1e6) // BUCKET_US * BUCKET_US
    bucket = run_phase(stack, 10_000, 6, bucket)  # what started late is corrected
    bucket = run_phase(stack, WARM_RATE, WARM_S, bucket)
    names = ["orderer", "aggregator", "root", "broker"]
    print(
        "| readings/s | p50 | p95 | p99 | max (ms) | tentative | sustained | "
        + " | ".join(f"{n} (cores, MB)" for n in names)
        + " |"
    )
    print("|" + "---|" * (7 + len(names)))
    for rate in rates:
        bucket = phase_row(stack, results, rate, seconds, bucket, names)
    silence(stack, results, bucket)


def phase_row(
    stack: Stack, results: Results, rate: int, seconds: float, bucket: int, names: list[str]
) -> int:
    """Return one line of the table; windows of the first two seconds are excluded."""
    stack.usage.read()
    begin, tentative = bucket / 1e6, results.seen.tentative
    bucket = run_phase(stack, rate, seconds, bucket)
    stack.check_alive()
    used = stack.usage.read()
    end = bucket / 1e6
    bucket = run_phase(stack, 10_000, 4, bucket)
    mine = {due: late for due, late in results.seen.first.items() if begin + 2 < due <= end}
    stable = {due: late for due, late in results.seen.stable.items() if begin + 2 < due <= end}
    expected = len([t for t in range(int(begin) + 3, int(end) + 1) if begin + 2 < t <= end])
    last = max(stable.values(), default=float("inf")) if len(stable) >= expected else float("inf")
    usage = " | ".join(f"{used[n][0]:.2f}, {used[n][1]:.0f}" for n in names)
    print(
        f"| {rate:,} | {percentiles(list(mine.values()))} | {results.seen.tentative - tentative} | "
        f"{'yes' if last < 1 else 'no'} | {usage} |",
        flush=True,
    )
    return bucket


def silence(stack: Stack, results: Results, bucket: int) -> None:
    """Disconnect one stream for three times the bound."""
    begin = bucket / 1e6
    tentative = results.seen.tentative
    stack.generators[0].silent = True
    bucket = run_phase(stack, SILENCE_RATE, 3 * BOUND_S, bucket)
    stack.generators[0].silent = False
    end = bucket / 1e6
    bucket = run_phase(stack, SILENCE_RATE, 5, bucket)
    complete = -bucket % 1_000_000
    run_phase(stack, 0, complete / 1e6 + 1.2, bucket)  # boundaries only, past the last window's end
    time.sleep(1)
    first = [late for due, late in results.seen.first.items() if begin < due <= end]
    stable = {due: late for due, late in results.seen.stable.items() if begin < due <= end}
    print(
        f"\nSilence of {3 * BOUND_S:.0f} s at {SILENCE_RATE:,} readings/s, X = {BOUND_S:.0f} s: "
        f"first answers (p50, p95, p99, max ms) {percentiles(first)}; "
        f"{results.seen.tentative - tentative} tentative, {len(stable)} of {len(first)} windows "
        f"stable, the last {max(stable.values(), default=0):.1f} s after its normal time"
    )
    sent = sum(generator.sent for generator in stack.generators)
    print(f"\nReadings sent {sent:,}, counted in stable results {results.seen.counted:,}")


if __name__ == "__main__":
    main()
