"""Streams read from a real MQTT broker: proxies and brokers killed, sessions, TLS, real data."""

from __future__ import annotations

import csv
import gzip
import json
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.integration.test_proxy_process import Stage, kill, now_us
from tests.support.mosquitto import Mosquitto, require
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.cli.send import GeneratedReadings, SendingSchedule
from slackwater.cli.send_mqtt import MqttPublisher
from slackwater.deployment.parse import load_deployment
from slackwater.judge.readers.files import read_stream
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.deployment import KeySpec, TimeSpec
from slackwater.model.names import Names
from slackwater.model.records import Kind
from slackwater.primitives.eventclock import WallClock
from slackwater.runtime.logs.kafka import KafkaTransport, read_to_end
from slackwater.runtime.logs.topics import ensure_topics, topics_for
from slackwater.runtime.security.authority import Authority
from slackwater.runtime.service.heartbeats import HeartbeatListener

LINE = bytes.maketrans(b"\n\0", b"xx")
"""mosquitto_pub reads one message per line, up to a NUL."""
ROOM = Path(__file__).parents[1] / "data" / "room_climate" / "node-1.csv.gz"

DEPLOYMENT = """
apiVersion: slackwater/v1
streams:
  counted:
    mqtt: {{broker: "{address}", topics: [counted/+], sequence: {{field: n}}, version: 5}}
    key: {{level: 2}}
    time: {{field: at, unit: us}}
    fields: [t]
    disorder: 1h
    expect_every: 1h
  uncounted:
    mqtt: {{broker: "{address}", topics: [uncounted/+], version: 3.1.1}}
    key: {{level: 2}}
    time: {{field: at, unit: us}}
    fields: [t]
    disorder: 1h
    expect_every: 1h
  sporadic:
    mqtt: {{broker: "{address}", topics: [sporadic/#], in_flight: 20}}
    key: {{value: all}}
    time: {{field: at, unit: us}}
    fields: [t]
    disorder: 10s
    sporadic: true
  climate:
    mqtt: {{broker: "{address}", topics: [climate/+], in_flight: 20}}
    key: {{field: node}}
    time: {{field: ts, unit: ms}}
    fields: [temperature]
    expect_every: 1h
queries:
  q:
    from: [counted, uncounted, sporadic, climate]
    window: {{size: 60s}}
    aggregate: [count]
    bound: 2s
"""


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    require()
    with EmbeddedBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@contextmanager
def deployed(folder: Path, kafka: EmbeddedBroker, text: str) -> Iterator[Stage]:
    """Return the deployment under a prefix, on the shared broker: separate registry and topics."""
    prefix = f"m{abs(hash(folder)) % 10**8}."
    names = Names(prefix)
    (folder / "d.yaml").write_text(f"prefix: {prefix}\n{text}")
    streams = load_deployment(folder / "d.yaml").streams
    transport = KafkaTransport(kafka.bootstrap, names)
    ensure_topics(kafka.bootstrap, topics_for(list(streams), [], names), WAIT_S_MAX)
    listener = HeartbeatListener(transport).start()
    made = Stage(kafka, folder, transport, listener)
    made.clock(WallClock())
    try:
        yield made
    finally:
        for process in made.processes:
            kill(process)
        listener.stop()


@pytest.fixture
def stage(tmp_path: Path, mosquitto: Mosquitto, kafka: EmbeddedBroker) -> Iterator[Stage]:
    with deployed(tmp_path, kafka, DEPLOYMENT.format(address=mosquitto.address)) as made:
        yield made


def columns(stage: Stage, stream: str) -> list[tuple[int, str, float]]:
    """Return (stime, key, value) of all accepted readings, in the order of their ids."""
    found: list[tuple[int, str, float]] = []
    for record in stage.accepted(stream):
        if record.columns is not None and record.readings:
            c = record.columns.load()
            keys = [c.keys[i] for i in c.key_index.tolist()]
            found += zip(c.stimes.tolist(), keys, c.values[0].tolist(), strict=True)
    return found


def quarantined(stage: Stage, stream: str) -> list[dict[str, Any]]:
    topic = stage.transport.names.quarantine(stream)
    return [orjson.loads(raw.value) for raw in read_to_end(stage.transport, (topic, 0))]


def numbered(first: int, count: int) -> list[bytes]:
    """Return readings whose value and counter is their number."""
    at = now_us()
    return [
        json.dumps({"at": at + i, "n": i, "t": i}).encode() for i in range(first, first + count)
    ]


def test_killed_at_any_moment_nothing_is_lost_and_a_counter_prevents_doubles(
    stage: Stage, mosquitto: Mosquitto
) -> None:
    """The proxy is killed four times while devices publish; Mosquitto is restarted twice."""
    rounds, each = 4, 400
    chance = random.Random(18)
    streams = ("counted", "uncounted")

    def serve() -> subprocess.Popen[bytes]:
        return stage.proxy("counted", also=["uncounted"])

    process = serve()
    for stream in streams:
        eventually(lambda s=stream: stage.detail(s, "connected") == 1)  # type: ignore[misc]
    for at in range(rounds):
        publishers = [
            threading.Thread(
                target=mosquitto.publish, args=(f"{stream}/d{at % 3}", numbered(at * each, each))
            )
            for stream in streams
        ]
        for publisher in publishers:
            publisher.start()
        wanted = at * each + chance.randrange(each)
        eventually(lambda n=wanted: len(columns(stage, "counted")) >= n)  # type: ignore[misc]
        kill(process)
        for publisher in publishers:
            publisher.join()
        if at % 2 == 1:
            mosquitto.stop()
            mosquitto.start()
        process = serve()
    every = list(range(rounds * each))
    for stream in streams:
        eventually(
            lambda s=stream: len({v for _, _, v in columns(stage, s)}) == len(every),  # type: ignore[misc]
            f"all readings of {stream} have come",
        )
    assert sorted(value for _, _, value in columns(stage, "counted")) == every
    assert {value for _, _, value in columns(stage, "uncounted")} == set(every)
    assert sum(r.kind is Kind.START for _, _, r in stage.records("counted")) == rounds + 1
    assert stage.counts("counted") == {}
    process.terminate()
    assert process.wait(WAIT_S_MAX) == 0


def test_a_broker_that_is_restarted_is_found_again_and_a_proxy_keeps_the_session(
    stage: Stage, mosquitto: Mosquitto
) -> None:
    process = stage.proxy("counted")
    eventually(lambda: stage.detail("counted", "connected") == 1)
    mosquitto.stop()
    eventually(lambda: stage.detail("counted", "connected") == 0)
    mosquitto.start()
    mosquitto.publish("counted/a", numbered(0, 100))
    eventually(lambda: len(columns(stage, "counted")) == 100)
    assert stage.detail("counted", "sessions_lost") == 0
    process.terminate()
    process.wait(WAIT_S_MAX)
    mosquitto.publish("counted/a", numbered(100, 100))  # while the proxy is down
    stage.proxy("counted")
    eventually(lambda: len(columns(stage, "counted")) == 200)
    assert [value for _, _, value in columns(stage, "counted")] == list(range(200))


def test_real_readings_make_the_same_source_log_as_their_file(
    stage: Stage, mosquitto: Mosquitto
) -> None:
    """The same readings with the same ids: computations from them are the same bit for bit."""
    spec = load_deployment(stage.folder / "d.yaml").streams["climate"]
    of_file = replace(
        spec, mqtt=None, key=KeySpec(column="node"), time=TimeSpec(("ts",), unit="ms")
    )
    with gzip.open(ROOM, "rt", newline="") as file:
        lines = list(islice(file, 5_001))
    part = stage.folder / "part.csv"
    part.write_text("".join(lines), newline="")
    wanted = [(r.stime, r.key, r.values[0]) for r in read_stream(of_file, part).accepted]
    rows = list(csv.DictReader(lines))
    stage.proxy("climate")
    eventually(lambda: stage.detail("climate", "connected") == 1)
    mosquitto.publish("climate/1", [json.dumps(row).encode() for row in rows])
    eventually(lambda: stage.detail("climate", "readings") >= len(wanted))
    eventually(lambda: len(columns(stage, "climate")) >= len(wanted))
    assert columns(stage, "climate") == wanted


def test_generated_readings_of_send_arrive_each_once(stage: Stage) -> None:
    spec = load_deployment(stage.folder / "d.yaml").streams["counted"]
    stage.proxy("counted")
    eventually(lambda: stage.detail("counted", "connected") == 1)
    made = GeneratedReadings(spec, SendingSchedule(1_000.0), 3, now_us()).columns(0, 90)
    with MqttPublisher(spec, now_us()) as publisher:
        publisher.send(made)
        publisher.flush()
    eventually(lambda: len(columns(stage, "counted")) >= 90)
    wanted = zip(made["at"], made["$device"], made["t"], strict=True)
    assert sorted(columns(stage, "counted")) == sorted(wanted)
    assert quarantined(stage, "counted") == []


def test_any_bytes_on_any_topic_end_in_a_reading_or_in_quarantine(
    stage: Stage, mosquitto: Mosquitto
) -> None:
    process = stage.proxy("sporadic")
    eventually(lambda: stage.detail("sporadic", "connected") == 1)
    chance = random.Random(7)
    rubbish = [chance.randbytes(chance.randrange(1, 60)).translate(LINE) for _ in range(200)]
    mosquitto.publish("sporadic/a/ä/\u2028", rubbish)
    long = json.dumps({"at": now_us(), "t": 1, "x": "y" * 2_000_000}).encode()
    (stage.folder / "long").write_bytes(long)
    mosquitto.publish_file("sporadic", stage.folder / "long")
    mosquitto.publish("sporadic/b", numbered(0, 10))
    eventually(lambda: len(columns(stage, "sporadic")) == 10)
    eventually(lambda: stage.counts("sporadic").get("malformed") == 201)
    entries = quarantined(stage, "sporadic")
    assert f"{len(long)} bytes" in entries[200]["detail"]
    assert entries[0]["position"].startswith("sporadic/a/ä/")
    assert process.poll() is None


def test_the_clock_moves_a_sporadic_stream_and_retained_messages_are_no_readings(
    stage: Stage, mosquitto: Mosquitto
) -> None:
    mosquitto.publish("sporadic/r", numbered(0, 1), "-r")
    stage.proxy("sporadic")
    before = now_us()
    eventually(lambda: stage.accepted("sporadic")[-1].boundary > before - 10_000_000)
    mosquitto.publish("sporadic/r", numbered(1, 1))
    eventually(lambda: [v for _, _, v in columns(stage, "sporadic")] == [1])
    assert stage.counts("sporadic") == {}


SECURED = """
apiVersion: slackwater/v1
streams:
  good: {{mqtt: {{broker: "localhost:{port}", topics: [good/+], username: proxy,
      password_file: {folder}/good.secret, tls: {{ca_file: {folder}/ca.pem,
      cert_file: {folder}/cert.pem, key_file: {folder}/key.pem}}}},
    key: {{level: 2}}, time: {{field: at, unit: us}}, fields: [t], expect_every: 1h}}
  wrong: {{mqtt: {{broker: "localhost:{port}", topics: [wrong/+], username: proxy,
      password_file: {folder}/wrong.secret, tls: {{ca_file: {folder}/ca.pem,
      cert_file: {folder}/cert.pem, key_file: {folder}/key.pem}}}},
    key: {{level: 2}}, time: {{field: at, unit: us}}, fields: [t], expect_every: 1h}}
  stranger: {{mqtt: {{broker: "localhost:{port}", topics: [stranger/+], username: proxy,
      password_file: {folder}/good.secret, tls: {{}}}},
    key: {{level: 2}}, time: {{field: at, unit: us}}, fields: [t], expect_every: 1h}}
queries:
  q: {{from: [good, wrong, stranger], window: {{size: 60s}}, aggregate: [count], bound: 2s}}
"""


def test_tls_a_client_certificate_and_a_password_from_a_file(
    tmp_path: Path, kafka: EmbeddedBroker
) -> None:
    authority = Authority("test")
    identity = authority.issue("localhost")
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "cert.pem").write_text(identity.chain_pem)
    (tmp_path / "key.pem").write_text(identity.key_pem)
    (tmp_path / "good.secret").write_text("right-secret\n")
    (tmp_path / "wrong.secret").write_text("another-secret\n")
    for secret in ("key.pem", "good.secret", "wrong.secret"):
        (tmp_path / secret).chmod(0o600)
    passwords = tmp_path / "passwords"
    passwords.write_text("proxy:right-secret\n")
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
    settings = [f"cafile {tmp_path}/ca.pem", f"certfile {tmp_path}/cert.pem"]
    settings += [f"keyfile {tmp_path}/key.pem", "require_certificate true"]
    settings += [f"password_file {passwords}"]
    mosquitto = Mosquitto(tmp_path / "mosquitto", settings, anonymous=False)
    mosquitto.start()
    try:
        text = SECURED.format(port=mosquitto.port, folder=tmp_path)
        with deployed(tmp_path, kafka, text) as stage:
            stage.proxy("good", also=["wrong", "stranger"])
            eventually(lambda: stage.detail("good", "connected") == 1)
            client = ["--cafile", f"{tmp_path}/ca.pem", "--cert", f"{tmp_path}/cert.pem"]
            client += ["--key", f"{tmp_path}/key.pem", "-u", "proxy", "-P", "right-secret"]
            mosquitto.publish("good/a", numbered(0, 50), *client, host="localhost")
            eventually(lambda: len(columns(stage, "good")) == 50)
            log = tmp_path / "good.log"
            eventually(lambda: "refused the connection: Not authorized" in log.read_text())
            eventually(lambda: "certificate verify failed" in log.read_text())
            assert stage.detail("wrong", "connected") == stage.detail("stranger", "connected") == 0
            assert "secret" not in log.read_text().replace(".secret", "")
    finally:
        mosquitto.stop()
