"""CPU time of late readings of a topic: what the proxy spends to put each into quarantine.

    python -m bench.late [--readings 500000]

Parsed batches of 5,000 late readings go through the source core to the quarantine topic of an
embedded broker, as in the proxy of a topic; all CPU time of the process from the core on is
counted, so that of Kafka's client, too. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from slackwater.formats.guarded import reader_of
from slackwater.formats.messages import Messages
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec, TopicSpec
from slackwater.model.names import UNPREFIXED
from slackwater.protocols.dpc.source.core import SourceCore, SourceRules
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.topic.batch import Batch
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics

AT_ONCE: Final = 5_000
IN_MESSAGE: Final = 100
"""Readings of a message of an array, or of columns."""
MARK: Final = "@pLp4AYDATVapA4rAbqcY7w"
FORMATS: Final = ("json", "json-array", "json-columns")
LATER: Final = 2**60


def messages(form: str) -> list[bytes]:
    """Return the messages of a batch, in one of the formats."""
    readings = [
        {"mote": f"m{n % 1_000}", "at": 1_458_031_648_545 + n // 100, "temperature": n % 700 / 100}
        for n in range(AT_ONCE)
    ]
    if form == "json":
        return [json.dumps(reading | {"site": "lab-7"}).encode() for reading in readings]
    some = [readings[n : n + IN_MESSAGE] for n in range(0, AT_ONCE, IN_MESSAGE)]
    if form == "json-array":
        return [json.dumps(of).encode() for of in some]
    return [json.dumps({k: [one[k] for one in of] for k in of[0]}).encode() for of in some]


def batches(spec: StreamSpec, count: int) -> Iterator[Batch]:
    """Yield parsed batches with offsets of their own."""
    reader, sent = reader_of(spec), messages(spec.topic.format if spec.topic else "json")
    for n in range(count):
        values = Messages.of(sent)
        offsets = np.arange(n * len(sent), (n + 1) * len(sent), dtype=np.int64)
        yield Batch(values, offsets, reader.parse(values), reader.texts, MARK)


def measured(bootstrap: str, form: Any, count: int) -> tuple[float, int]:
    """Return the CPU time in us of each reading, and how many the quarantine has counted."""
    name = f"late-{form}"
    spec = StreamSpec(
        name,
        KeySpec(field="mote"),
        TimeSpec(field="at", unit="ms"),
        (FieldSpec("temperature", "temperature"),),
        topic=TopicSpec(name, format=form),
    )
    ensure_topics(bootstrap, [TopicLayout(UNPREFIXED.quarantine(name), 1, {})])
    quarantine = Quarantine(KafkaTransport(bootstrap).writer(sys.exit), name, UNPREFIXED)
    rules = SourceRules(name, ("temperature",), 0, "promise", clock_boundaries=True)
    core, spent = SourceCore(rules), 0.0
    core.watermark = LATER
    for batch in batches(spec, count // AT_ONCE):
        began = time.process_time()
        for arrived, indices, _ in batch.runs():
            for refused in core.offer(arrived):
                quarantine.put_columns(
                    batch.refused("0:", refused, indices), time.time_ns() // 1000
                )
        assert quarantine.settle(60.0)
        spent += time.process_time() - began
    return 1e6 * spent / count, quarantine.counts["late"]


def main() -> None:
    """Measure each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=500_000)
    options = parser.parse_args()
    print("| format | us of CPU a late reading | counted |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "b") as broker:
        for form in FORMATS:
            each, counted = measured(broker.bootstrap, form, options.readings)
            print(f"| {form} | {each:.2f} | {counted:,} |", flush=True)


if __name__ == "__main__":
    main()
