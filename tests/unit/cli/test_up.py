"""``slackwater up`` is stopped before all processes have been started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.cli import up
from slackwater.model.errors import EnvironmentProblem


@pytest.fixture
def handlers() -> Iterator[None]:
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_does_not_wait_for_the_end_of_the_start(
    signum: signal.Signals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    emitted: list[str] = []

    class Starting:
        """Its broker does not respond for a long time."""

        stack = None

        def __init__(self, options: object) -> None:
            self.answered = threading.Event()

        def open(self) -> str:
            os.kill(os.getpid(), signum)
            assert not self.answered.wait(WAIT_S_MAX), "it is never set"
            emitted.append("waited")
            return "nowhere:1"

        def run(self, work: Coroutine[object, object, None]) -> None:
            asyncio.run(work)

        def start_up(self) -> None:
            emitted.append("started")

        def stop(self) -> None:
            os.kill(os.getpid(), signum)  # repeated signals have no effect
            emitted.append("stopped")

    checked = SimpleNamespace(warnings=(), deployment=None)
    monkeypatch.setattr(up, "check_deployment", lambda path, micro_batch, site: checked)
    monkeypatch.setattr(up, "warn_of", lambda deployment, folder, own_broker: None)
    monkeypatch.setattr(up, "StackThread", Starting)
    monkeypatch.setattr(up, "_watch", lambda *_: None)
    up.run_up(tmp_path / "deployment.yaml", tmp_path, None, None)
    assert emitted == ["stopped"]


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_refused_start_is_not_said_to_stop(
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the folder of another `up` the word would be about that one."""

    class Refused:
        stack = None

        def __init__(self, options: object) -> None:
            pass

        def open(self) -> str:
            if is_refused:
                raise EnvironmentProblem("another slackwater runs")
            raise KeyboardInterrupt

        def run(self, work: Coroutine[object, object, None]) -> None:
            asyncio.run(work)

        def stop(self) -> None:
            pass

    checked = SimpleNamespace(warnings=(), deployment=None)
    monkeypatch.setattr(up, "check_deployment", lambda path, micro_batch, site: checked)
    monkeypatch.setattr(up, "warn_of", lambda deployment, folder, own_broker: None)
    monkeypatch.setattr(up, "StackThread", Refused)
    refusal = pytest.raises(EnvironmentProblem) if is_refused else contextlib.nullcontext()
    with refusal:
        up.run_up(tmp_path / "deployment.yaml", tmp_path, None, None)
    assert capsys.readouterr().out == ("" if is_refused else "stopping\n")
