"""The registrar and `slackwater topics`: a deployment whose processes are started elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.names import ProxyName
from slackwater.primitives.eventclock import WallClock
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_count
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import HeartbeatListener, HeartbeatSender
from slackwater.runtime.service.registry import QueryDefinition, Registry

DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    disorder: 1s
    sporadic: true
queries:
  climate: {from: [lab], window: {size: 1s}, aggregate: [avg], bound: BOUND}
"""


@pytest.fixture(name="own")
def _own(tmp_path: Path) -> Iterator[str]:
    """There is one registry per broker."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker.bootstrap


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    path = tmp_path / "deployment.yaml"
    path.write_text(DEPLOYMENT.replace("BOUND", "2s"))
    return path


def registrar(bootstrap: str, file: Path) -> subprocess.Popen[str]:
    where = ["--deployment", str(file), "--bootstrap", bootstrap, "--data-dir", str(file.parent)]
    return subprocess.Popen(
        [sys.executable, "-m", "slackwater.registrar", "0", *where],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"SLACKWATER_TRUNCATE_EVERY_S": "0.2"},
    )


def registered(bootstrap: str, process: subprocess.Popen[str]) -> QueryDefinition:
    """Return the registry at the time when the registrar reports ready; stop it.

    It registers once the proxy's heartbeats show that it has read its input, else after 30 s.
    """
    transport = KafkaTransport(bootstrap)
    listener = HeartbeatListener(transport).start()
    proxy = HeartbeatSender(bootstrap, ProxyName("lab").process, names=transport.names).start()
    proxy.update(ready=True)
    try:
        assert listener.wait_for(
            lambda view: (beat := view.latest("registrar/0")) is not None and beat.ready, WAIT_S_MAX
        )
        definition = Registry(transport).wait_for_query("climate", WAIT_S_MAX)
    finally:
        process.send_signal(signal.SIGTERM)
        _, emitted = process.communicate(timeout=WAIT_S_MAX)
        proxy.stop()
        listener.stop()
    assert process.returncode == 0, emitted
    return definition


@pytest.mark.slow
def test_a_second_start_finds_what_the_first_has_registered(own: str, file: Path) -> None:
    command = [sys.executable, "-m", "slackwater.cli.app", "topics", "--deployment", str(file)]
    for _ in range(2):
        subprocess.run(
            [*command, "--bootstrap", own, "--inputs", "3"], check=True, timeout=WAIT_S_MAX
        )
    assert partition_count(own, "lab-readings") == 3
    assert partition_count(own, "sw.ordered.climate.0") == 4

    begun_us = SystemClock().now_us()
    first = registered(own, registrar(own, file))
    assert Registry(KafkaTransport(own)).clock() == WallClock()
    # There are no readings: the event clock less the lateness.
    assert begun_us - 1_000_000 < first.e0_us < SystemClock().now_us()
    assert registered(own, registrar(own, file)) == first

    file.write_text(DEPLOYMENT.replace("BOUND", "3s"))
    process = registrar(own, file)
    _, emitted = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 2
    assert "query climate is registered with another definition" in emitted
