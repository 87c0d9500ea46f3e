"""Rate of a topic of JSON readings into records of a source log, including the consumer.

    python -m bench.json_input [MESSAGES]

Fills topics of an embedded broker, with each codec and over one and three partitions, then reads
each as the sensor proxy does, pinned to one core: fetch, parse, give ids, encode. Prints readings
per second of wall time and of CPU time (all threads of the process), and the share of each step,
for both clients of the proxy.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from slackwater.codec import encode_source
from slackwater.formats.json_input import JsonReader
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.proxy.topic.batch import Batch
from slackwater.proxy.topic.client import Fetched, TopicClient
from slackwater.proxy.topic.objects import ConfluentClient
from slackwater.proxy.topic.opening import consumer_config
from slackwater.proxy.topic.queue import QueueClient
from slackwater.runtime.logs.cluster import cluster_of
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics

SPEC: Final = StreamSpec(
    "lab",
    KeySpec(field="mote"),
    TimeSpec(field="at", unit="ms"),
    (FieldSpec("temperature", "temperature"),),
)
CODECS: Final = ("none", "lz4", "zstd")
PARTITIONS: Final = (1, 3)
CLIENTS: Final[dict[str, Callable[..., TopicClient]]] = {
    "places": QueueClient,
    "objects": ConfluentClient,
}
STEPS: Final = ("fetch", "parse", "core", "encode", "release")
ROUNDS: Final = 3


def main() -> None:
    """Fill, drain, print a row for each topic and client: the best of three rounds."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "b") as broker:
        print(f"{messages:,} messages; ns a reading by step\n")
        print("| codec | partitions | client | M/s wall | M/s CPU |", " | ".join(STEPS), "|")
        print("|---" * (5 + len(STEPS)) + "|")
        for codec in CODECS:
            for partitions in PARTITIONS:
                topic = f"bench-{codec}-{partitions}"
                ensure_topics(broker.bootstrap, [TopicLayout(topic, partitions, {})])
                fill(broker.bootstrap, topic, partitions, codec, messages)
                for client, make in CLIENTS.items():
                    some = messages if client == "places" else messages // 4
                    runs = [
                        drain(broker.bootstrap, topic, partitions, make, some)
                        for _ in range(ROUNDS)
                    ]
                    print(row(codec, partitions, client, some, runs), flush=True)


def row(codec: str, partitions: int, client: str, n: int, runs: list[dict[str, float]]) -> str:
    """Return one line of the table."""
    best = min(runs, key=lambda spent: spent["cpu"])
    rates = f"{n / best['wall'] / 1e6:.2f} | {n / best['cpu'] / 1e6:.2f}"
    steps = " | ".join(f"{best[step] / n * 1e9:.0f}" for step in STEPS)
    return f"| {codec} | {partitions} | {client} | {rates} | {steps} |"


def fill(bootstrap: str, topic: str, partitions: int, codec: str, messages: int) -> None:
    """Write the readings, to the partitions in turn."""
    config = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "compression.type": codec}
    producer = Producer({"bootstrap.servers": bootstrap} | config)
    for i in range(messages):
        reading = (i % 1000, 1458031648545 + i // 100, 20 + i % 700 / 100)
        value = b'{"mote":"m%d","at":%d,"temperature":%.2f}' % reading
        producer.produce(topic, value, partition=i % partitions)
        if i % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def drain(
    bootstrap: str, topic: str, partitions: int, make: Callable[..., TopicClient], messages: int
) -> dict[str, float]:
    """Return the seconds of each step, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # inherited by the threads of the client that is opened
    try:
        client = make(topic, consumer_config(cluster_of(bootstrap), "bench", 100))
        client.assign(dict.fromkeys(range(partitions), 0))
        spent = _drain(client, partitions, messages)
        client.close()
        return spent
    finally:
        os.sched_setaffinity(0, cores)


def _drain(client: TopicClient, partitions: int, messages: int) -> dict[str, float]:
    reader = JsonReader(SPEC)
    reader.parse([b'{"mote":"m","at":1,"temperature":1}'])
    rules = SourceRules("lab", ("temperature",), 0, "promise", clock_boundaries=True)
    cores = [SourceCore(rules) for _ in range(partitions)]
    spent = dict.fromkeys(STEPS, 0.0)
    read = 0
    began, cpu_began = time.perf_counter(), time.process_time()

    def passed(step: str, since: float) -> float:
        now = time.perf_counter()
        spent[step] += now - since
        return now

    while read < messages:
        at = time.perf_counter()
        found = client.read(1.0)
        at = passed("fetch", at)
        for one in found:
            if not isinstance(one, Fetched):
                continue
            parsed = reader.parse(one.values)
            at = passed("parse", at)
            core = cores[one.partition]
            for arrived, _, _ in Batch(one.values, one.offsets, parsed, lambda _: str).runs():
                assert not core.offer(arrived)
            records = core.flush(1) if core.is_full else ()
            at = passed("core", at)
            for record in records:
                encode_source(record)
            at = passed("encode", at)
            read += len(parsed.indices)
        client.release()
        passed("release", at)
    spent["wall"], spent["cpu"] = time.perf_counter() - began, time.process_time() - cpu_began
    assert sum(core.next_id + core.waiting for core in cores) == read, "a reading was lost"
    return {step: seconds * messages / read for step, seconds in spent.items()}


if __name__ == "__main__":
    main()
