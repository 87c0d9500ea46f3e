"""Alerts in the Alertmanager of Debian: one alert from tentative to confirmed, then resolved."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.memory import MemoryBroker
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.unit.delivery.test_notices import record
from tests.unit.notifier.test_notifier import TOPIC, write

from slackwater.notifier.app import Notifier, receiver

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="apt-get install prometheus-alertmanager"),
]
CONFIG = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"


@pytest.fixture(name="url")
def _url(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    config = tmp_path / "alertmanager.yml"
    config.write_text(CONFIG)
    assert PROGRAM is not None
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={config}",
                f"--storage.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def alerts(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts") as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def test_one_alert_from_tentative_to_confirmed(url: str, tmp_path: Path) -> None:
    broker = MemoryBroker()
    broker.create_topic(TOPIC, 1)
    of = Notifier(
        broker,
        lambda: [TOPIC],
        tmp_path / "notifier.json",
        alertmanager=receiver("alertmanager", f"{url}/api/v2/alerts"),
    )
    of.open()
    of.turn()

    def annotated(tentative: str) -> bool:
        of.turn()  # it starts meanwhile, and is tried again until then
        return [a["annotations"]["tentative"] for a in alerts(url)] == [tentative]

    write(broker, record("firing", tentative=True))
    eventually(lambda: _answers(of, url) and annotated("true"), "the tentative alert is there")
    write(broker, record("firing"), record("confirmed", tentative=True))
    eventually(lambda: annotated("false"), "it is the same alert, and exact")
    (alert,) = alerts(url)
    assert alert["labels"] == {"alertname": "hot", "query": "climate", "key": "room"}
    assert alert["annotations"]["summary"] == "hot room t_avg 27.5"
    write(broker, record("ended"))

    def is_resolved() -> bool:
        of.turn()
        return alerts(url) == []

    eventually(is_resolved, "it is resolved")


def _answers(of: Notifier, url: str) -> bool:
    of.turn()
    try:
        alerts(url)
    except OSError:
        return False
    return True
