"""The commands of the page of alerts, run as typed: alerts arrive, are shown, and a notifier dies.

Replaced are the addresses of the receivers and the rule on streams; the deployment is
that of the tests of the page. The block with containers is for tests/e2e.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tests.integration.pages import Page, Shell, bootstrap_in, is_up
from tests.support.gateway_site import Reader
from tests.support.ports import free_port
from tests.support.waiting import TEST_S_MAX, WAIT_S_MAX, eventually
from tests.support.web_up import DEPLOYMENT, Sender
from tests.unit.notifier.test_notifier import Hook

from slackwater.runtime.service.datadir import read_run

pytestmark = [pytest.mark.slow]
HOWTO = (Path(__file__).parents[2] / "docs/howto/alerts.md").read_text()
ADDRESSES = ("http://127.0.0.1:9093", "http://127.0.0.1:8080/alerts")
"""Of Alertmanager and of the webhook."""


def rules(block: str) -> str:
    """Return the rules of the page for the streams of the tests."""
    found = YAML(typ="safe").load(block)["alerts"]
    found["mute"] |= {"stream": "room-2", "missing": "3s"}
    return f"alerts: {json.dumps(found)}\n"


@pytest.mark.timeout(TEST_S_MAX)
def test_alerts_are_sent_and_shown(tmp_path: Path) -> None:
    page, shell, port = Page(HOWTO, ("docker compose",)), Shell(tmp_path), free_port()
    (tmp_path / "rooms.yaml").write_text(DEPLOYMENT + rules(page.take("yaml", "alerts:")))
    look = page.take("sh", "slackwater alerts")
    page.take("text", "tentative  hot of climate")
    up, status = page.take("sh", "up rooms.yaml --notify"), page.take("sh", "status -v")
    page.ends()
    manager, hook = Hook(), Hook()
    for address, each in zip(ADDRESSES, (manager, hook), strict=True):
        assert address in up
        up = up.replace(address, f"http://127.0.0.1:{each.server.server_port}")

    def row() -> str:
        shown = shell.run(status).stdout.splitlines()
        return next((line for line in shown if line.strip().startswith("notifier ")), "")

    def states() -> list[str]:
        return [state for _, state, _ in hook.got]

    command = f"{up.rstrip()} --web 127.0.0.1:{port}"
    with shell.started("bash", "-c", command) as running:
        lines = running.wait_for(is_up, WAIT_S_MAX)
        assert any("the notifier, which sends alerts" in line for line in lines)
        with Sender(bootstrap_in(lines)) as sender:
            sender.temperature = 30.0
            eventually(lambda: len(hook.got) >= 2, "both rooms are hot")
            assert {*states()} == {"firing"}
            eventually(lambda: bool(manager.got), "both receivers get it")
            shown = shell.run(look).stdout
            assert "firing     hot of climate 'room-1'" in shown
            assert "webhook=delivers" in row()
            assert "alertmanager=delivers" in row()
            with Reader(port).events("/api/v1/stream") as events:
                pushed = json.loads(events.next("alerts")["data"])
            found = Reader(port).get("/api/v1/alerts")[1]
            assert {each["key"] for each in pushed["firing"]} == {"room-1", "room-2"}
            assert [each["alert"] for each in found["rules"]] == ["hot", "mute"]
            assert found["firing"][0]["sentence"].startswith("fires since ")

            run = read_run(tmp_path / ".slackwater")
            assert run is not None
            os.kill(run.processes["notifier"], signal.SIGKILL)
            hook.refuses = 1_000_000
            sender.temperature = 20.0
            eventually(lambda: "answered 503" in row(), "status has the error of the webhook")
            assert "alerts wait, for " in row()
            assert shell.run("slackwater status").returncode == 0, "the deployment is well"
            hook.refuses = 0
            eventually(lambda: states().count("ended") >= 2, "what has waited is sent")
            eventually(lambda: "webhook=delivers" in row(), "status has no error any more")
            keys = [key for key, _, _ in hook.got]
            assert len({*keys}) == 4, "each change, at least once"

            sender.cut("room-2")
            eventually(lambda: ("mute", "firing") in reported(port), "the stream is missing")
            sender.connect("room-2")
            eventually(lambda: ("mute", "ended") in reported(port), "and is back")
    for each in (hook, manager):
        each.server.shutdown()
        each.server.server_close()


def reported(port: int) -> list[tuple[str, str]]:
    """The alerts that stand or ended, as the API has them."""
    _, found = Reader(port).get("/api/v1/alerts")
    return [(each["alert"], each["state"]) for each in (*found["firing"], *found["ended"])]
