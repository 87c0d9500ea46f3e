"""The exporter beside a deployment whose queries change: it reports those that there are."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.counted_sender import Sender
from tests.support.ports import free_port
from tests.support.shared_deployment import STREAM, SharedDeployment
from tests.support.waiting import eventually

from slackwater.control.control_object import DeleteQuery

pytestmark = [pytest.mark.slow]

STREAMS = f"apiVersion: slackwater/v1\nstreams:\n{STREAM.format(name='exported')}queries:\n"
EACH = "  all-rows: {from: [exported], bound: 2s, replicas: 1}\n"
HALVED = "  even-rows: {from: [exported], where: x % 2 = 0, copies: 1, bound: 2s, replicas: 1}\n"
OF_HALVED = ('query="even-rows"', "/even-rows.")


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


def stable_windows(query: str) -> str:
    return f'slackwater_windows_total{{label="stable",query="{query}"}}'


def test_queries_that_are_applied_changed_and_deleted_are_followed(
    shared: SharedDeployment, tmp_path: Path
) -> None:
    file = tmp_path / "d.yaml"
    shared.will_have("all-rows", "even-rows")

    def apply(*queries: str) -> None:
        file.write_text(STREAMS + "".join(queries))
        code, shown = shared.slackwater("query", "apply", str(file))
        assert code == 0, shown

    def counts(query: str) -> bool:
        return (exporter.value(stable_windows(query)) or 0.0) > 0

    apply(EACH)
    sender = Sender(shared.bootstrap, "exported-readings")
    exporter = Exporter(tmp_path, shared.bootstrap, file)
    try:
        eventually(lambda: counts("all-rows"), "windows of the first query are counted")

        apply(EACH, HALVED)
        eventually(lambda: counts("even-rows"), "windows of the applied query are counted")
        assert 'slackwater_process_ready{process="root/even-rows.0"}' in exporter.page()

        apply(EACH.replace("bound: 2s", "bound: 3s"), HALVED)
        bound = 'slackwater_bound_seconds{query="all-rows"}'
        eventually(lambda: exporter.value(bound) == 3.0, "the new generation's bound is shown")

        shared.request(DeleteQuery("even-rows"))
        eventually(
            lambda: exporter.is_without(*OF_HALVED),
            "nothing of the deleted query is shown",
            60,
        )
        eventually(lambda: not exporter.not_ready(), "no fragment of a replaced one is missed")
        assert counts("all-rows")
    finally:
        exporter.stop()
        sender.stop()
