"""Which processes of a rehearsal are away, and when they are back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.machine.kept_process import ProcessEvent
from slackwater.model.deployment import Deployment
from slackwater.rehearsal import local
from slackwater.rehearsal.local import LocalStage


class Thread:
    """A stack whose events a test sets; no process has a heartbeat."""

    def __init__(self, *_: object, **__: object) -> None:
        self.happened: list[ProcessEvent] = []
        listener = SimpleNamespace(latest=lambda name: None)
        supervisor = SimpleNamespace(parts=lambda process: [process])
        self.stack = SimpleNamespace(listener=listener, supervisor=supervisor)

    def events(self) -> list[ProcessEvent]:
        return self.happened

    def pids(self) -> dict[str, int]:
        return {}


def test_a_gateway_that_was_started_again_is_back_without_a_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "StackThread", Thread)
    deployment = Deployment("wall", {}, {})
    plan: Any = SimpleNamespace(deployment=deployment, paths={}, end=0, limit=None, faults=())
    stage = LocalStage(plan, tmp_path / "d.yaml", tmp_path / "data")
    thread: Any = stage._thread
    for process in ("gateway", "root/q.0"):
        thread.happened.append(ProcessEvent(1, process, "ended by SIGKILL"))
    stage.check()
    assert stage.away() == ["gateway", "root/q.0"]
    for process in ("gateway", "root/q.0"):
        thread.happened.append(ProcessEvent(2, process, "started, pid 7"))
    stage.check()
    assert stage.away() == ["root/q.0"]
