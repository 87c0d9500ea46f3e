"""A root with many children, with mergers and without: CPU time of each, and latency.

    python -m bench.mergers [--children 16] [--keys 1000] [--seconds 60] [--size 10] [--mergers 0,2]

This process writes the deltas of all children and replicas, at the end of each bucket, as
aggregators do. The root, and the mergers of each letter, are the product's hosts, each in a process
of its own. Latency is from a window's normal time until its boundary is read. With ``--kill`` all
mergers but one of each child are killed in the middle.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil

from slackwater.codec.delta_records import encode_delta
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.process import spawn
from slackwater.model.names import RESULT_KINDS, Names, replica_letter
from slackwater.model.records import DeltaRecord, Kind, Position
from slackwater.primitives.eventclock import WallClock
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import QueryTopics, deltas_partition, ensure_topics, topics_for
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import QueryDefinition, Registry

BUCKET_US = 250_000
REPLICAS = 2
WARM_S = 15


def main() -> None:
    """Print a row for each number of mergers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--children", type=int, default=16)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--mergers", default="0,2")
    parser.add_argument("--kill", action="store_true")
    of = parser.parse_args()
    print("| mergers | root, cores | mergers, cores | all, cores | p50 | p99, ms | tentative |")
    print("|---|---|---|---|---|---|---|")
    for mergers in map(int, of.mergers.split(",")):
        with tempfile.TemporaryDirectory(prefix="slackwater-mergers-") as folder:
            print(measured(Path(folder), of, mergers), flush=True)


def measured(folder: Path, of: argparse.Namespace, mergers: int) -> str:
    """Return a row."""
    streams = [f"s{n}" for n in range(of.children)]
    path = folder / "bench.yaml"
    path.write_text(_deployment(streams, of.size, mergers))
    deployment = load_deployment(path)
    spec = deployment.queries["bench"]
    broker = EmbeddedBroker(folder / "broker", runs_long=True)
    broker.start()
    started = []
    try:
        topics = QueryTopics("bench", of.children, REPLICAS, merging=mergers > 0)
        ensure_topics(broker.bootstrap, topics_for(deployment.streams, [topics]))
        transport = KafkaTransport(broker.bootstrap)
        registry = Registry(transport)
        registry.publish_clock(WallClock())
        size_us = of.size * 1_000_000
        start_us = (int(time.time() * 1e6) // size_us + 1) * size_us
        registry.publish_queries(QueryDefinition("bench", 0, start_us, BUCKET_US, spec))
        hosts = {"root": ["root/bench.0"]} | {
            replica_letter(copy): [
                f"merger/bench.{child}.{replica_letter(copy)}" for child in range(of.children)
            ]
            for copy in range(mergers)
        }
        for number, fragments in enumerate(hosts.values()):
            log = (folder / f"host-{number}.log").open("wb")
            command = [sys.executable, "-m", "slackwater.host", str(number), "--fragments"]
            command += [",".join(fragments), "--deployment", str(path)]
            command += ["--bootstrap", broker.bootstrap, "--data-dir", str(folder)]
            started.append(spawn(command, stdout=log))
        return _run(transport, of, mergers, start_us, [psutil.Process(p.pid) for p in started])
    finally:
        for process in started:
            process.kill()
        broker.stop()


def _run(
    transport: KafkaTransport,
    of: argparse.Namespace,
    mergers: int,
    start_us: int,
    hosts: list[psutil.Process],
) -> str:
    writer = transport.writer(sys.exit)
    topic = Names().deltas("bench", 0)
    logs = [(c, r) for c in range(of.children) for r in range(REPLICAS)]
    rng = np.random.default_rng(7)
    names = tuple(f"sensor-{key:05d}" for key in range(of.keys))
    figures = [rng.normal(20.0, 5.0, (1, of.keys)) for _ in range(5)]
    start = DeltaRecord(Kind.START, 0, 0, -1, 0, 0, 0, frontier=Position(start_us))
    delta = DeltaRecord(
        *(Kind.INSERTION, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, None, (), (), names, 7, ("v",)), *figures
    )
    for child, replica in logs:
        first = replace(start, child=child, replica=replica)
        for live in (False, True):
            at = deltas_partition(child, replica, REPLICAS, live=live)
            writer.append(topic, at, encode_delta(first), None)
    bucket, seq, cpu = start_us, 1, [0.0] * len(hosts)
    began_us = start_us + WARM_S * 1_000_000
    ends_us = began_us + of.seconds * 1_000_000
    is_measured = False
    while bucket < ends_us:
        end = bucket + BUCKET_US
        time.sleep(max(end / 1e6 - time.time(), 0))
        if not is_measured and end >= began_us:
            is_measured, cpu = True, [sum(p.cpu_times()[:2]) for p in hosts]
        if of.kill and mergers and end == began_us + of.seconds * 500_000:
            hosts[-1].kill()
        for child, replica in logs:
            each = replace(delta, child=child, replica=replica, seq=seq)
            each = replace(each, bucket_start=bucket, bucket_end=end)
            at = deltas_partition(child, replica, REPLICAS, live=False)
            writer.append(topic, at, encode_delta(each), None)
        bucket, seq = end, seq + 1
    used = [
        (sum(p.cpu_times()[:2]) - before) / of.seconds if p.is_running() else 0.0
        for p, before in zip(hosts, cpu, strict=True)
    ]
    time.sleep(2.0)
    late, tentative = _latencies(transport, began_us)
    p50, p99 = np.percentile(late, [50, 99]) if late else (0.0, 0.0)
    root, *others = used
    return (
        f"| {mergers} | {root:.3f} | {sum(others):.3f} | {sum(used):.3f} | {p50:.0f} | {p99:.0f} |"
        f" {tentative} of {len(late)} |"
    )


def _latencies(transport: KafkaTransport, since_us: int) -> tuple[list[float], int]:
    """Return the ms from each window's normal time to its answer, and the tentative answers."""
    late, tentative = [], 0
    for kind in RESULT_KINDS[:2]:
        log = (Names().results("bench", kind), 0)
        for raw in read_to_end(transport, log, isolation="read_committed"):
            line = json.loads(raw.value)
            if line["kind"] == "boundary":
                due, given = (datetime.fromisoformat(line[at]) for at in ("due_at", "emitted_at"))
                if due.timestamp() * 1e6 >= since_us:
                    late.append((given - due).total_seconds() * 1e3)
                    tentative += kind == "tentative"
    return late, tentative


def _deployment(streams: list[str], size: int, mergers: int) -> str:
    of_stream = "{key: {column: k}, time: {column: t, unit: us}, fields: [v], disorder: 0s}"
    lines = ["apiVersion: slackwater/v1", "streams:"]
    lines += [f"  {name}: {of_stream}" for name in streams]
    query = f"from: [{', '.join(streams)}], window: {{size: {size}s}}, bound: 2s"
    query += f", aggregate: [count, avg, min, max], children: {len(streams)}, mergers: {mergers}"
    return "\n".join([*lines, "queries:", f"  bench: {{{query}}}", ""])


if __name__ == "__main__":
    main()
