"""`docker compose up`, external readings, failures, `down`, and `up` again.

One stack for all steps: they depend on each other, and a start takes most of the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from tests.e2e.conftest import Compose
from tests.e2e.judging import (
    Listener,
    Stranger,
    counted,
    expected,
    judge,
    latencies_s,
    microseconds,
    now_us,
    quarantined,
)
from tests.e2e.machine import Machine
from tests.support.engine import ROOT, docker
from tests.support.waiting import eventually

import slackwater

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

X_S = 2.0
ALLOWED_S = 1.0
FAULT_WINDOWS = 5
"""First answers that must lack a stream before it is restored."""


def lacks(record: dict[str, Any], stream: str, since_us: int) -> bool:
    """Return whether it is a first answer without this stream, due since then."""
    return (
        record["kind"] == "boundary"
        and record["label"] == "tentative"
        and stream in record["missing"]
        and microseconds(record["due_at"]) >= since_us
    )


def await_lack(listener: Listener, stream: str, since_us: int) -> None:
    """Wait for answers without the stream, however long it takes: the fault lasts until then."""
    listener.wait(
        lambda records: sum(lacks(record, stream, since_us) for record in records) >= FAULT_WINDOWS,
        f"answers lack {stream}",
    )


def audit(compose: Compose) -> str:
    """Recompute the stable results from the source logs by the project's batch job."""
    command = [sys.executable, "-m", "slackwater.cli.app", "audit", "climate"]
    options = ["--deployment", "compose/deployment.yaml", "--bootstrap", compose.bootstrap]
    done = subprocess.run(
        [*command, *options],
        check=False,
        cwd=ROOT,
        env=os.environ | {"SLACKWATER_DATA_DIR": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_up_faults_down_and_up_again(compose: Compose) -> None:
    compose.up()
    machine = Machine().start()
    stranger, listener = Stranger(compose.bootstrap).start(), Listener(compose.bootstrap).start()
    listener.wait(
        lambda records: any(record.get("key") == "m0" for record in records), "results flow"
    )
    found, overview = compose.page.get("/api/v1/overview")
    assert (found, overview["kafka"]) == (200, True)
    assert [query["query"] for query in overview["queries"]] == ["climate"]
    assert {node["node"] for node in overview["nodes"]} == {"n1"}
    assert compose.page.get("/api/v1/overview", host="stranger.example")[0] == 421
    steady_from = now_us() + 2_000_000
    listener.wait_for_stable(steady_from + 3_000_000)

    # A copy of a stage is killed; the other one answers in its place.
    compose.signal("KILL", "host/1")
    listener.wait_for_stable(now_us() + 5_000_000)
    eventually(compose.all_run, "the orderer is back")

    # A sensor stops: its room is missing, then corrected.
    paused_at = now_us()
    docker("pause", compose.container("room-1"))
    await_lack(listener, "room-1", paused_at)
    docker("unpause", compose.container("room-1"))
    listener.wait_for_stable(now_us() + 3_000_000)

    # A site that is disconnected from Kafka.
    cut_at = now_us()
    docker("network", "disconnect", compose.network, compose.container("room-2"))
    await_lack(listener, "room-2", cut_at)
    docker("network", "connect", compose.network, compose.container("room-2"))
    listener.wait_for_stable(now_us() + 3_000_000)
    bounded_to = now_us()

    # The only node is killed: there are no answers until it has restarted, so this is outside the
    # bound.
    docker("kill", compose.container("node"))
    docker("start", compose.container("node"))
    listener.wait_for_stable(now_us() + 5_000_000)

    compose.down()
    assert compose.left() == [], "`down` leaves nothing"
    sent_before = len(stranger.sent)
    assert sent_before > 100
    compose.up()
    listener.wait_for_stable(now_us() + 5_000_000)
    stranger.stop()
    listener.wait_for_stable(now_us())
    records = listener.stop()

    stable, undone = judge(records)
    assert stable > 30
    assert undone > FAULT_WINDOWS

    machine.stop()
    machine.check_in_time(latencies_s(records), X_S + ALLOWED_S, steady_from, bounded_to)

    refused = quarantined(compose.bootstrap, "sw.quarantine.lab")
    used = [reading for reading in stranger.sent if not refused[reading]]
    exact = counted(records)
    first, last = steady_from // 1_000_000 * 1_000_000, max(window for window, _ in exact)
    wanted = expected(used, first, last)
    assert len(wanted) > 60
    for window, figures in wanted.items():
        assert exact[window] == pytest.approx(figures, rel=1e-12), window

    follow = slackwater.Client(compose.bootstrap).follow("climate", until_end=True)
    with follow:
        ours = sum(1 for _ in follow)
    assert ours >= len(records)
    assert follow.repeats == 0
    # The batch job runs without other load.
    services = compose.run("config", "--services").split()
    compose.run("stop", *(service for service in services if service != "kafka-1"))
    assert "0 lost, 0 doubled, 0 wrong" in audit(compose)
