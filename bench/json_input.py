"""How fast a topic of JSON readings becomes records of a source log, the consumer included.

    python bench/json_input.py [MESSAGES]

Fills a topic of an embedded broker, then reads it as the sensor proxy does: consume, parse, give
ids, encode. Prints readings per second of wall time and of CPU time (all threads of the process:
what one core could do), and the share of each step.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from slackwater.codec import encode_source
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec
from slackwater.protocols.dpc.source.core import Arrived, SourceCore, SourceRules
from slackwater.proxy.json_input import JsonReader
from slackwater.runtime.local.broker import EmbeddedBroker
from slackwater.runtime.logs.topics import TopicLayout, confluent_consumer, ensure_topics

TOPIC = "bench-readings"
SPEC = StreamSpec(
    "lab",
    KeySpec(field="mote"),
    TimeSpec(field="at", unit="ms"),
    (FieldSpec("temperature", "temperature"),),
)


def fill(bootstrap: str, messages: int) -> float:
    """Write the readings; the mean length of a message."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    size = 0
    for i in range(messages):
        value = b'{"mote":"m%d","at":%d,"temperature":%.2f}' % (
            i % 1000,
            1458031648545 + i // 100,
            20 + i % 700 / 100,
        )
        size += len(value)
        producer.produce(TOPIC, value)
        if i % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return size / messages


def drain(bootstrap: str, messages: int) -> dict[str, float]:
    """Seconds of each step."""
    consumer = Consumer(confluent_consumer(bootstrap, queued_min_messages=200_000))
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    reader = JsonReader(SPEC)
    core = SourceCore(SourceRules("lab", ("temperature",), 0, "input", clock_boundaries=False))
    spent = dict.fromkeys(("consume", "values", "parse", "core", "encode"), 0.0)
    bytes_out = read = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    while read < messages:
        t0 = time.perf_counter()
        some = consumer.consume(50_000, 1.0)
        t1 = time.perf_counter()
        values = [value or b"" for value in map(Message.value, some)]
        first = some[0].offset() if some else 0
        t2 = time.perf_counter()
        parsed = reader.parse(values)
        t3 = time.perf_counter()
        read += len(values)
        offsets = np.arange(len(values), dtype=np.int64) + (first or 0)
        core.offer(
            Arrived(
                parsed.stimes,
                parsed.key_index,
                parsed.keys,
                parsed.values,
                offsets + 1,
                read,
            )
        )
        records = core.flush(1) if core.is_full else ()
        t4 = time.perf_counter()
        bytes_out += sum(len(encode_source(record)) for record in records)
        t5 = time.perf_counter()
        for step, seconds in zip(spent, (t1 - t0, t2 - t1, t3 - t2, t4 - t3, t5 - t4), strict=True):
            spent[step] += seconds
    spent["wall"], spent["cpu"] = time.perf_counter() - began, time.process_time() - cpu_began
    assert core.next_id + core.waiting == messages, "a reading was lost"
    consumer.close()
    return spent


def main() -> None:
    """Fill, drain three times, print the best."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        ensure_topics(broker.bootstrap, [TopicLayout(TOPIC, 1, {})])
        size = fill(broker.bootstrap, messages)
        runs = [drain(broker.bootstrap, messages) for _ in range(3)]
    best = min(runs, key=lambda spent: spent["cpu"])
    print(f"{messages} messages of {size:.0f} bytes")
    print(f"{messages / best['wall']:,.0f} readings/s of wall time")
    print(f"{messages / best['cpu']:,.0f} readings/s of CPU time, librdkafka's threads included")
    for step in ("consume", "values", "parse", "core", "encode"):
        print(f"  {step:8} {best[step] / messages * 1e9:6.0f} ns a reading")


if __name__ == "__main__":
    main()
