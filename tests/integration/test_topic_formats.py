"""The same readings in every format of a topic: the same source logs.

At first a registry is unavailable, and the proxies are killed repeatedly while they read. The
results of all inputs are compared in test_every_input.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from tests.support.registry_stub import RegistryStub
from tests.support.starting import make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.codec import decode_source
from slackwater.codec.avro import fingerprint_of
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.names import Names
from slackwater.model.records import Kind, SourcePosition
from slackwater.primitives.eventclock import DataClock
from slackwater.protocols.dpc.sunion.cursor import SourceCursor
from slackwater.runtime.logs.cluster import confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ensure_topics, topics_for
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import Registry

pytestmark = [pytest.mark.slow]

ROOM = Path(__file__).parents[1] / "data" / "room_climate" / "node-1.csv.gz"
Row = dict[str, Any]
FIELDS = ("temperature", "humidity")
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "node", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        *({"name": name, "type": ["null", "double"]} for name in FIELDS),
    ],
}
NEWER = SCHEMA | {"fields": [{"name": "site", "type": "int"}, *reversed(SCHEMA["fields"])]}
"""The writer's later schema."""


def rows(n: int) -> list[Row]:
    with gzip.open(ROOM, "rt") as file:
        return [
            {"node": row["node"], "ts": int(row["ts"])} | {f: float(row[f]) for f in FIELDS}
            for row in islice(csv.DictReader(file), n)
        ]


def record(schema: Mapping[str, Any], row: Row) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, dict(schema), row | {"site": 7})
    return out.getvalue()


def as_messages(some: Sequence[Row], size: int) -> dict[str, list[bytes]]:
    """Return the readings in each format, up to ``size`` per message."""
    half, names = len(some) // 2, ("ts", *FIELDS)
    single = b"\xc3\x01" + fingerprint_of(SCHEMA)
    batches = [some[first : first + size] for first in range(0, len(some), size)]
    return {
        "json": [json.dumps(row).encode() for row in some],
        "json-array": [json.dumps(batch).encode() for batch in batches],
        "json-columns": [
            json.dumps({"node": "1"} | {n: [row[n] for row in batch] for n in names}).encode()
            for batch in batches
        ],
        "avro": [
            struct.pack(">bI", 0, 1) + record(SCHEMA, row) if i < half
            else struct.pack(">bI", 0, 2) + record(NEWER, row)
            for i, row in enumerate(some)
        ],
        "files": [single + record(SCHEMA, row) for row in some],
    }  # fmt: skip


def deployment(registry: str) -> str:
    """Return a stream and a query for each format."""
    topics = {
        form: f"{{name: in-{form}, format: {form}}}"
        for form in ("json", "json-array", "json-columns")
    }
    topics["avro"] = f'{{name: in-avro, format: avro, registry: "{registry}"}}'
    topics["files"] = "{name: in-files, format: avro, schemas: reading.avsc}"
    streams = "".join(
        f"  {name}:\n    topic: {topic}\n    key: {{field: node}}\n"
        f"    time: {{field: ts, unit: ms}}\n    fields: [{', '.join(FIELDS)}]\n"
        "    expect_every: 1h\n"
        for name, topic in topics.items()
    )
    queries = "".join(
        f"  of-{name}: {{from: [{name}], window: {{size: 1m}}, "
        "aggregate: [count, avg, min, max], bound: 5s, replicas: 1}\n"
        for name in topics
    )
    return f"apiVersion: slackwater/v1\nclock: data\nstreams:\n{streams}queries:\n{queries}"


FORMS = ("json", "json-array", "json-columns", "avro", "files")


def written(folder: Path, registry: str) -> Path:
    """Write the deployment file, and the file of the schema."""
    (folder / "reading.avsc").write_text(json.dumps(SCHEMA))
    path = folder / "d.yaml"
    path.write_text(deployment(registry))
    return path


def send(bootstrap: str, messages: Mapping[str, Sequence[bytes]]) -> None:
    producer = Producer(confluent_client(bootstrap) | {"enable.idempotence": True})
    for form, some in messages.items():
        for message in some:
            producer.produce(f"in-{form}", message, partition=0)
            producer.poll(0)
    assert producer.flush(WAIT_S_MAX) == 0


@contextmanager
def proxies(path: Path, bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one process for all streams; kill it at the end of the block."""
    command = [sys.executable, "-m", "slackwater.proxy", *FORMS, "--deployment", str(path)]
    command += ["--bootstrap", bootstrap, "--data-dir", str(path.parent / "data")]
    with (path.parent / "proxies.log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


class SourceLogs:
    """The records of the source logs that readers accept."""

    def __init__(self, bootstrap: str) -> None:
        self._transport = KafkaTransport(bootstrap)

    def readings(self, form: str) -> list[tuple[int, str, tuple[float, ...]]]:
        """Return (time, key, values) in the order of the ids, which have no gap."""
        cursor = SourceCursor(SourcePosition(0, 0, 0, -(2**62)), strict=True)
        found: list[tuple[int, str, tuple[float, ...]]] = []
        for raw in read_to_end(self._transport, (f"sw.source.{form}.0", 0)):
            one = decode_source(raw.value)
            if not cursor.offer(raw.offset, one) or one.kind is Kind.START or not one.readings:
                continue
            assert one.first_id == len(found)
            assert one.columns is not None
            columns = one.columns.load()
            keys = [columns.keys[i] for i in columns.key_index.tolist()]
            values = zip(*(column.tolist() for column in columns.values), strict=True)
            found += list(zip(columns.stimes.tolist(), keys, values, strict=True))
        return found

    def starts(self, form: str) -> int:
        raw = read_to_end(self._transport, (f"sw.source.{form}.0", 0))
        return sum(decode_source(one.value).kind is Kind.START for one in raw)

    def quarantined(self, form: str) -> int:
        return sum(1 for _ in read_to_end(self._transport, (f"sw.quarantine.{form}", 0)))


READINGS = 36_000
MESSAGE_READINGS = 10_007
"""More than a record of a source log may have, so that records end within messages."""
KILLS = 3


def test_killed_proxies_log_each_reading_once_in_every_format(tmp_path: Path) -> None:
    some = rows(READINGS)
    wanted = [(r["ts"] * 1_000, r["node"], tuple(r[f] for f in FIELDS)) for r in some]
    messages = as_messages(some, MESSAGE_READINGS)
    with EmbeddedBroker(tmp_path / "broker") as broker, RegistryStub(fails_with=503) as registry:
        for schema_id, schema in enumerate((SCHEMA, NEWER), 1):
            registry.register(schema_id, schema)
        bootstrap, path = broker.bootstrap, written(tmp_path, registry.url)
        ensure_topics(bootstrap, topics_for([], [], Names()), WAIT_S_MAX)
        make_topics(bootstrap, [f"in-{form}" for form in FORMS])
        Registry(KafkaTransport(bootstrap)).publish_clock(DataClock())
        logs = SourceLogs(bootstrap)
        parts = [
            {form: each[i * len(each) // KILLS : (i + 1) * len(each) // KILLS]
             for form, each in messages.items()}
            for i in range(KILLS)
        ]  # fmt: skip
        before = 0
        for starts, part in enumerate(parts, 1):
            with proxies(path, bootstrap):
                send(bootstrap, part)
                eventually(_all_started(logs, starts), "each stream has its start record")
                eventually(_grown(logs, before), "some of it is read")
            before = len(logs.readings("json-array"))
        with proxies(path, bootstrap):
            others = [form for form in FORMS if form != "avro"]
            eventually(lambda: all(len(logs.readings(f)) >= READINGS for f in others))
            assert logs.readings("avro") == [], "its registry is unavailable"
            assert registry.asked
            registry.fails_with = None
            eventually(lambda: len(logs.readings("avro")) >= READINGS, "the registry is back")
        for form in FORMS:
            assert logs.readings(form) == wanted, form
            assert logs.starts(form) == KILLS + 1
            assert logs.quarantined(form) == 0


def _grown(logs: SourceLogs, before: int) -> Callable[[], bool]:
    return lambda: len(logs.readings("json-array")) > before


def _all_started(logs: SourceLogs, count: int) -> Callable[[], bool]:
    return lambda: all(logs.starts(form) == count for form in FORMS)
