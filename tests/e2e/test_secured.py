"""The secured stack: access requires a password, and everything works as without one.

External programs have the two files that the stack created for them, one to write readings and one
to read results. A sensor is paused, the node is killed; the answers are complete and exact; and
no password is in Docker's description of a container, nor in a log.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from tests.e2e.conftest import Compose
from tests.e2e.judging import Listener, Stranger, judge, now_us
from tests.support.engine import ROOT, docker

from slackwater.machine.broker import why_no_answer
from slackwater.runtime.logs.cluster import Cluster, confluent_client
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.security.security_file import read_kafka_file

pytestmark = [pytest.mark.slow, pytest.mark.drill, pytest.mark.timeout(1800)]


def client(file: Path) -> dict[str, Any]:
    """Return librdkafka's settings from a file whose paths are relative to its folder."""
    lines = (line.split("=", 1) for line in file.read_text().splitlines())
    settings = dict(lines)
    return settings | {"ssl.ca.location": str(file.parent / settings["ssl.ca.location"])}


def client_of(file: Path, bootstrap: str) -> dict[str, Any]:
    """Return librdkafka's settings of a user of the stack, for the listener outside."""
    return confluent_client(Cluster(bootstrap, read_kafka_file(file, Role.GATEWAY).security))


def refusal(way: dict[str, Any], topic: str) -> KafkaError | None:
    """Return the reason why a client with these settings may not write there."""
    reported: list[KafkaError | None] = []
    producer = Producer(way | {"message.timeout.ms": 20_000, "log_level": 0})
    producer.produce(topic, b"forged", on_delivery=lambda error, _: reported.append(error))
    producer.flush(25)
    return reported[0]


def copied(secured: Compose, place: str, to: Path) -> Path:
    """Copy files of the stack, as an administrator of the host does."""
    secured.run("cp", f"secrets:/made/{place}", str(to / place))
    return to / place


def passwords(*places: Path) -> set[str]:
    found = set()
    for place in places:
        for file in place.glob("*.properties"):
            login = read_kafka_file(file, Role.CLIENT).security.login
            assert login is not None
            found.add(login.password)
    return found


def audit(secured: Compose, admin: Path) -> str:
    """Recompute the stable results from the source logs by the project's batch job."""
    command = [sys.executable, "-m", "slackwater.cli.app", "audit", "climate"]
    options = ["--deployment", "compose/deployment.yaml", "--bootstrap", secured.bootstrap]
    done = subprocess.run(
        [*command, *options, "--kafka-config", str(admin)],
        check=False,
        cwd=ROOT,
        env=os.environ | {"SLACKWATER_DATA_DIR": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_secured_stack_answers_whole_and_exact_and_only_who_may_ask(
    secured: Compose, tmp_path: Path
) -> None:
    secured.up()
    outside, admin = copied(secured, "outside", tmp_path), copied(secured, "admin", tmp_path)
    assert {file.stat().st_mode & 0o777 for file in outside.iterdir()} == {0o600}
    reads, writes = client(outside / "client.kcat"), client(outside / "producer.kcat")
    stranger, listener = Stranger(writes).start(), Listener(reads).start()
    listener.wait(
        lambda records: any(record.get("key") == "m0" for record in records), "results flow"
    )

    paused_at = now_us()
    docker("pause", secured.container("room-2"))
    listener.wait(
        lambda records: any(
            "room-2" in record["missing"]
            for record in records
            if record["kind"] == "boundary" and record["label"] == "tentative"
            if record["seen_us"] > paused_at
        ),
        "answers lack room-2",
    )
    docker("unpause", secured.container("room-2"))
    docker("kill", secured.container("node"))
    docker("start", secured.container("node"))
    listener.wait_for_stable(now_us() + 5_000_000)

    assert why_no_answer(secured.bootstrap, 5) is not None, "plaintext access is refused"
    forbidden = [(reads, "lab-readings"), (reads, "sw.results.climate.stable")]
    forbidden += [(writes, topic) for topic in ("sw.source.lab.0", "sw.results.climate.stable")]
    for way, topic in forbidden:
        error = refusal(way, topic)
        assert error is not None, topic
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, (topic, error)
    page = secured.page
    token = secured.run("exec", "-T", "gateway", "cat", "/kafka/tokens").split()[1]
    for given in ("", "Bearer ", f"Bearer {token}x"):
        assert page.get("/api/v1/overview", authorization=given)[0] == 401, given
    code, overview = page.get("/api/v1/overview", authorization=f"Bearer {token}")
    assert (code, [query["query"] for query in overview["queries"]]) == (200, ["climate"])
    secured.run("cp", "secrets:/made/gateway", str(tmp_path / "gateway"))
    found_by = client_of(tmp_path / "gateway" / "gateway.properties", secured.bootstrap)
    for topic in ("lab-readings", "sw.results.climate.stable", "sw.registry"):
        error = refusal(found_by, topic)
        assert error is not None, topic
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, (topic, error)
    shown = secured.run("exec", "-T", "node", "slackwater", "query", "list")
    assert "climate" in shown

    stranger.stop()
    listener.wait_for_stable(now_us())
    stable, undone = judge(listener.stop())
    assert stable > 10
    assert undone > 0

    seen = secured.run("logs", "--no-color") + docker("inspect", *secured.left())
    assert len(found := passwords(outside, admin)) == 3
    assert not [secret for secret in found if secret in seen]
    # The batch job runs without other load.
    services = secured.run("ps", "--services").split()
    secured.run("stop", *(service for service in services if service != "kafka-1"))
    assert "0 lost, 0 doubled, 0 wrong" in audit(secured, admin)
