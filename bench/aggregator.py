"""The aggregator alone: buckets into its ordered log, deltas out, on a real broker.

    python bench/aggregator.py [--rate 100] [--readings 10000] [--keys 1000] [--seconds 10]
        [--rounds 4] [--parts 1] [--fields 1] [--aggregate count] [--mode real-time|micro-batch]

With as many keys as readings each key has one reading, and its figures are copied, not folded.
Latency is from handing a bucket to our producer to having its delta in our consumer: two Kafka
hops and Spark in between. The first round pays for the JVM's compilers; the last one counts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from slackwater.codec import encode_ordered
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.model.records import Kind, OrderedRecord
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import QueryTopics, ensure_topics, topics_for
from slackwater.runtime.logs.transport import Reader, Writer
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry

ORDERED = ("sw.ordered.bench.0", 0)
DELTAS = ("sw.deltas.bench.0", 0)
DEPLOYMENT = """
apiVersion: slackwater/v1
clock: wall
streams:
  s: {key: {column: k}, time: {column: t, unit: us}, fields: [f0], disorder: 100ms}
queries:
  bench: {from: [s], window: {size: 1s}, aggregate: [count], bound: 2s}
"""


def bucket(seed: int, readings: int, keys: int, fields: int) -> bytes:
    """Return a bucket of realistic readings, grouped by key."""
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.integers(0, readings, keys - 1))
    cuts = np.arange(1, keys) if keys == readings else drawn
    return encode_ordered(
        OrderedRecord(
            kind=Kind.INSERTION,
            child=0,
            replica=0,
            inc=0,
            bucket_start=seed * 100,
            bucket_end=seed * 100 + 100,
            last_id=readings - 1,
            keys=tuple(f"mote-{i:06d}" for i in range(keys)),
            offsets=np.concatenate([[0.0], cuts, [readings]]).astype(np.float64),
            fields=tuple(f"f{at}" for at in range(fields)),
            values=tuple(rng.normal(20.0, 5.0, readings).round(2) for _ in range(fields)),
        )
    )


def measure(
    writer: Writer, reader: Reader, buckets: list[bytes], rate: float, count: int
) -> npt.NDArray[np.float64]:
    """Send at the rate, and return the latency of each, in ms."""
    sent: list[float] = []
    seen: list[float] = []

    def read() -> None:
        while len(seen) < count:
            records = reader.poll(1000, 1.0)
            now = time.perf_counter()
            seen.extend([now] * len(records))

    thread = threading.Thread(target=read)
    thread.start()
    begun = time.perf_counter()
    for i in range(count):
        time.sleep(max(0.0, begun + i / rate - time.perf_counter()))
        sent.append(time.perf_counter())
        writer.append(*ORDERED, buckets[i % len(buckets)])
    thread.join()
    latency_s: npt.NDArray[np.float64] = np.array(seen) - np.array(sent)
    return latency_s * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0, help="buckets a second")
    parser.add_argument("--readings", type=int, default=10_000, help="readings in a bucket")
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--fields", type=int, default=1)
    parser.add_argument("--aggregate", default="count", help="names, with commas")
    parser.add_argument("--mode", default="real-time", choices=("real-time", "micro-batch"))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        run(options, broker.bootstrap, Path(folder))


def run(options: argparse.Namespace, bootstrap: str, folder: Path) -> None:
    transport = KafkaTransport(bootstrap)
    ensure_topics(bootstrap, topics_for([], [QueryTopics("bench", 1, 1, options.parts)]))
    spec = QuerySpec(
        name="bench",
        sources=("s",),
        where=None,
        select=None,
        window=WindowSpec(1_000_000, 1_000_000),
        aggregate=tuple(options.aggregate.split(",")),
        bound_us=2_000_000,
        replicas=1,
        parts=options.parts,
    )
    Registry(transport).publish_queries(QueryDefinition("bench", 1, 0, 100_000, spec))
    writer = transport.writer(sys.exit)
    of_bucket = options.readings, options.keys, options.fields
    buckets = [bucket(seed, *of_bucket) for seed in range(16)]
    writer.append(*ORDERED, buckets[0])
    listener = HeartbeatListener(transport).start()
    begun = time.perf_counter()
    command = [sys.executable, "-m", "slackwater_spark.app", "0", "--fragments", "bench.0.a"]
    deployment = folder / "deployment.yaml"
    deployment.write_text(DEPLOYMENT)
    command += [
        "--deployment",
        str(deployment),
        "--bootstrap",
        bootstrap,
        "--data-dir",
        str(folder),
    ]
    process = subprocess.Popen([*command, "--mode", options.mode])
    try:
        while not listener.wait_for(lambda view: view.ready("aggregator/0", time.monotonic()), 1):
            if process.poll() is not None:
                raise SystemExit(f"the aggregator has ended with code {process.returncode}")
        print(f"ready after {time.perf_counter() - begun:.1f} s")
        reader = transport.reader()
        reader.assign({DELTAS: 0})
        while not reader.poll(1, 1.0):
            pass
        jvm = psutil.Process(process.pid).children()[0]
        cpu = jvm.cpu_times()
        print(f"first delta after {time.perf_counter() - begun:.1f} s,", end=" ")
        print(f"{cpu.user + cpu.system:.1f} s of CPU, {jvm.memory_info().rss / 2**20:.0f} MiB")
        for number in range(options.rounds):
            before, at = jvm.cpu_times(), time.perf_counter()
            count = int(options.rate * options.seconds)
            latency = measure(writer, reader, buckets, options.rate, count)
            after, took = jvm.cpu_times(), time.perf_counter() - at
            used = after.user + after.system - before.user - before.system
            p50, p95, p99 = np.percentile(latency, (50, 95, 99))
            print(
                f"round {number}: {count * options.readings / took:,.0f} readings/s,"
                f" p50 {p50:.1f} ms, p95 {p95:.1f}, p99 {p99:.1f}, max {latency.max():.1f},"
                f" CPU {used / took * 100:.0f} % of a core,"
                f" {used / count / options.keys * 1e6:.2f} us a key,"
                f" {jvm.memory_info().rss / 2**20:.0f} MiB",
                flush=True,
            )
    finally:
        process.terminate()
        process.wait()
        listener.stop()


if __name__ == "__main__":
    main()
