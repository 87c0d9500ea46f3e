"""``up --web``: the gateway is one of the deployment's processes."""

from __future__ import annotations

import json
import os
import signal
import socket
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from tests.support.waiting import eventually
from tests.support.web_up import WITHOUT_SPARK, Up, running_up

from slackwater.runtime.service.priority import NICENESS

pytestmark = [pytest.mark.slow]


def reached(up: Up) -> bool:
    """Whether the page answers."""
    try:
        return up.get("/")[0] == 200
    except OSError:
        return False


def test_up_serves_the_page_and_keeps_the_gateway_running(tmp_path: Path) -> None:
    with running_up(tmp_path, WITHOUT_SPARK) as (up, _):
        assert f"the page is at {up.url}" in up.printed.splitlines()
        assert " s: the gateway, which serves the page" in up.printed
        found, overview = up.get("/api/v1/overview")
        assert (found, overview["kafka"]) == (200, True)
        assert [query["query"] for query in overview["queries"]] == ["climate"]
        assert [each["name"] for each in overview["controllers"]] == ["up"], "it is asked"
        with up.events("/api/v1/stream?query=climate") as events:
            ends: list[str] = []
            last: dict[str, str] = {}
            while len(ends) < 3:
                last = events.next("change")
                change = json.loads(last["data"])
                ends += [change["window_end"]] if change["kind"] == "answer" else []

        code, shown = up.slackwater("status", "--json")
        rows = {row["process"]: row for row in json.loads(shown[shown.index("{") :])["processes"]}
        assert (code, rows["gateway"]["state"], rows["gateway"]["restarts"]) == (0, "ready", 0)

        was = up.pid("gateway")
        assert was is not None
        assert psutil.Process(was).nice() >= NICENESS, "it works behind the pipeline"
        os.kill(was, signal.SIGKILL)
        eventually(lambda: up.pid("gateway") not in {was, None} and reached(up), "it is back")
        assert "gateway: ended by SIGKILL" in up.printed
        with up.events("/api/v1/stream?query=climate", last_event_id=last["id"]) as events:
            first = events.next("snapshot", "change")
            assert first["event"] == "change", "it goes on after the last one"
            seqs = [int(each["id"].partition(":")[2]) for each in (last, first)]
            seqs += [int(events.next("change")["id"].partition(":")[2]) for _ in range(3)]
            # An answer has a reading of each stream, and a boundary.
            assert all(0 < later - earlier <= 3 for earlier, later in pairwise(seqs)), seqs
        code, shown = up.slackwater("status", "--json")
        rows = {row["process"]: row for row in json.loads(shown[shown.index("{") :])["processes"]}
        assert (code, rows["gateway"]["state"], rows["gateway"]["restarts"]) == (0, "ready", 1)

        assert up.stop() == 0
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", up.port)), "nothing listens any more"
