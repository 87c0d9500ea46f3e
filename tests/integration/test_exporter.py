"""The exporter beside a deployment whose queries change: it reports those that there are."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_query_changes import STREAMS, Up
from tests.support.counted_sender import TOPIC, Sender
from tests.support.ports import free_port
from tests.support.starting import make_topics
from tests.support.waiting import eventually

from slackwater.machine.broker import EmbeddedBroker

pytestmark = [pytest.mark.slow]

EACH = "  first: {from: [lab], bound: 2s, replicas: 1}\n"
HALVED = "  second: {from: [lab], where: x % 2 = 0, bound: 2s, replicas: 1}\n"
OF_SECOND = ('query="second"', "/second.")


class Exporter:
    """An exporter as a process, and its page."""

    def __init__(self, folder: Path, bootstrap: str, deployment: Path) -> None:
        self._port = free_port()
        command = [sys.executable, "-m", "slackwater.exporter", "0", "--bootstrap", bootstrap]
        command += ["--deployment", str(deployment), "--data-dir", str(folder / "exporter")]
        command += ["--listen", f"127.0.0.1:{self._port}"]
        with (folder / "exporter.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def page(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def value(self, metric: str) -> float | None:
        lines = (line.rpartition(" ") for line in self.page().splitlines())
        return next((float(value) for name, _, value in lines if name == metric), None)

    def is_without(self, *texts: str) -> bool:
        page = self.page()
        return bool(page) and not any(text in page for text in texts)

    def not_ready(self) -> list[str]:
        lines = self.page().splitlines()
        return [n for n in lines if n.startswith("slackwater_process_ready") and n.endswith(" 0.0")]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture(name="broker")
def _broker(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [TOPIC])
        yield broker.bootstrap


def stable_windows(query: str) -> str:
    return f'slackwater_windows_total{{label="stable",query="{query}"}}'


def test_queries_that_are_applied_changed_and_deleted_are_followed(
    tmp_path: Path, broker: str
) -> None:
    sender = Sender(broker)
    up = Up(tmp_path, broker, STREAMS + EACH)
    exporter = Exporter(tmp_path, broker, up.path)

    def counts(query: str) -> bool:
        return (exporter.value(stable_windows(query)) or 0.0) > 0

    try:
        up.wait_accepts()
        eventually(lambda: counts("first"), "windows of the file's query are counted")

        later = tmp_path / "later.yaml"
        later.write_text(STREAMS + EACH + HALVED)
        up.command("query", "apply", str(later))
        eventually(lambda: counts("second"), "windows of the applied query are counted")
        assert 'slackwater_process_ready{process="root/second.0"}' in exporter.page()

        later.write_text(STREAMS + EACH.replace("bound: 2s", "bound: 3s") + HALVED)
        up.command("query", "apply", str(later))
        bound = 'slackwater_bound_seconds{query="first"}'
        eventually(lambda: exporter.value(bound) == 3.0, "the new generation's bound is shown")

        up.command("query", "delete", "second")
        eventually(
            lambda: exporter.is_without(*OF_SECOND),
            "nothing of the deleted query is shown",
            60,
        )
        eventually(lambda: not exporter.not_ready(), "no fragment of a replaced one is missed")
        assert counts("first")
    finally:
        exporter.stop()
        up.stop()
        sender.stop()
