"""The same readings through every input: the same stable results, bit for bit.

Each input is one stream with its own query: a file, HTTP, MQTT, ``slackwater.Producer``, and a
topic in each format. They assign the same ids, so the sums are computed in the same order. In a
topic of three partitions each partition assigns ids of its own: there, averages are equal up to
rounding.
"""

from __future__ import annotations

import csv
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.test_topic_formats import (
    FIELDS,
    FORMS,
    NEWER,
    SCHEMA,
    Row,
    as_messages,
    deployment,
    rows,
    send,
)
from tests.support.mosquitto import Mosquitto
from tests.support.ports import free_port
from tests.support.registry_stub import RegistryStub
from tests.support.starting import SENDS_ONCE, make_topics
from tests.support.waiting import WAIT_S_MAX, eventually

import slackwater
from slackwater.cli.ingest import run_ingest
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.cluster import confluent_client
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import read_to_end
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

READINGS = 900
EQUAL = (*FORMS, "file", "mqtt", "posted", "python")
INPUTS = (*EQUAL, "divided")
PARTITIONS = 3
MINUTE_US = 60_000_000


def of_inputs(registry: str, mqtt: str, port: int) -> str:
    """Return the deployment of the formats, with a stream and a query for each other input."""
    inputs = {
        "file": "",
        "mqtt": f'    mqtt: {{broker: "{mqtt}", topics: [rooms/1]}}\n',
        "posted": "    http: {}\n",
        "python": "    http: {}\n",
        "divided": "    topic: {name: in-divided, format: json}\n",
    }
    streams = "".join(
        f"  {name}:\n{own}    key: {{{place}: node}}\n    time: {{{place}: ts, unit: ms}}\n"
        f"    fields: [{', '.join(FIELDS)}]\n    expect_every: 1h\n"
        for name, own in inputs.items()
        for place in ["column" if name == "file" else "field"]
    )
    queries = "".join(
        f"  of-{name}: {{from: [{name}], window: {{size: 1m}}, "
        "aggregate: [count, avg, min, max], bound: 5s, replicas: 1}\n"
        for name in inputs
    )
    of_formats, _, queries_of_formats = deployment(registry).partition("queries:\n")
    listener = f'http: {{listen: "127.0.0.1:{port}"}}\n'
    return f"{of_formats}{streams}{listener}queries:\n{queries_of_formats}{queries}"


def ingest(data: Path, some: Sequence[Row]) -> None:
    path = data.parent / "node-1.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["node", "ts", *FIELDS])
        writer.writeheader()
        writer.writerows(some)
    run_ingest(data, {"file": path}, None, None, as_now=False)


def post(url: str, some: Sequence[Row]) -> None:
    """Post in requests of a JSON array, and of one line per reading."""
    half = len(some) // 2
    lines = "\n".join(map(json.dumps, some[half:]))
    for kind, body in (("json", json.dumps(some[:half])), ("x-ndjson", lines)):
        headers = {"Content-Type": f"application/{kind}"}
        request = urllib.request.Request(f"{url}/streams/posted", body.encode(), headers)
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as response:
            assert json.load(response)["accepted"] == len(some) - half


def produce(url: str, some: Sequence[Row]) -> None:
    with slackwater.Producer("python", url=url, batch_readings=100) as producer:
        producer.send({name: [row[name] for row in some] for name in ("node", "ts", *FIELDS)})


def divide(bootstrap: str, some: Sequence[Row]) -> None:
    """Send to the partitions in turn."""
    producer = Producer(confluent_client(bootstrap) | SENDS_ONCE)
    for i, row in enumerate(some):
        producer.produce("in-divided", json.dumps(row), partition=i % PARTITIONS)
    assert producer.flush(WAIT_S_MAX) == 0


def stable(transport: KafkaTransport, name: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the figures of each window and key."""
    log = (f"sw.results.of-{name}.stable", 0)
    lines = [
        json.loads(raw.value) for raw in read_to_end(transport, log, isolation="read_committed")
    ]
    rows_ = [line for line in lines if line["kind"] == "stable"]
    found = {(row["window_start"], row["key"]): row["fields"] for row in rows_}
    assert len(found) == len(rows_), f"{name}: a window is answered twice"
    return found


@pytest.fixture(name="mosquitto")
def _mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    yield broker
    broker.stop()


def test_every_input_has_the_same_stable_results(tmp_path: Path, mosquitto: Mosquitto) -> None:
    some, port = rows(READINGS), free_port()
    url = f"http://127.0.0.1:{port}"
    with EmbeddedBroker(tmp_path / "broker") as broker, RegistryStub() as registry:
        for schema_id, schema in enumerate((SCHEMA, NEWER), 1):
            registry.register(schema_id, schema)
        make_topics(broker.bootstrap, [f"in-{form}" for form in FORMS])
        make_topics(broker.bootstrap, ["in-divided"], partitions=PARTITIONS)
        (tmp_path / "reading.avsc").write_text(json.dumps(SCHEMA))
        path, data = tmp_path / "d.yaml", tmp_path / "data"
        path.write_text(of_inputs(registry.url, mosquitto.address, port))
        send(broker.bootstrap, as_messages(some, 500))
        divide(broker.bootstrap, some)
        stack = StackThread(
            StackOptions(path, load_deployment(path), data, bootstrap=broker.bootstrap)
        )
        try:
            stack.open()
            stack.start_up()
            ready = stack.stack.listener.ready
            eventually(lambda: all(ready(f"proxy/{name}") for name in INPUTS), "all are served")
            ingest(data, some)
            mosquitto.publish("rooms/1", [json.dumps(row).encode() for row in some])
            post(url, some)
            produce(url, some)
            transport = KafkaTransport(broker.bootstrap)
            # The last reading of a partition closes the windows before it.
            last = some[-PARTITIONS]["ts"] * 1_000 // MINUTE_US
            windows = len({at for row in some if (at := row["ts"] * 1_000 // MINUTE_US) < last})
            for name in INPUTS:
                eventually(
                    lambda name=name: len(stable(transport, name)) >= windows,  # type: ignore[misc]
                    f"all windows of {name} but the last are stable",
                )
            # A file ends, and its last window with it; no other input says that it has ended.
            minutes = Counter(row["ts"] * 1_000 // MINUTE_US for row in some)
            eventually(
                lambda: len(stable(transport, "file")) == len(minutes),
                "the last window of the file is stable",
            )
            results = {name: stable(transport, name) for name in INPUTS}
        finally:
            stack.stop()
    assert sum(f["temperature"]["count"] for f in results["json"].values()) > READINGS - 20
    (ended,) = results["file"].keys() - results["json"].keys()
    assert ended == max(results["file"])
    assert results["file"].pop(ended)["temperature"]["count"] == minutes[max(minutes)]
    for name in EQUAL:
        assert results[name] == results["json"], name
    divided = results["divided"]
    assert len(divided) >= windows
    for place, fields in divided.items():
        for field, figures in fields.items():
            assert figures == pytest.approx(results["json"][place][field], rel=1e-12), place
