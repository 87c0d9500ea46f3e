"""Start and end of a process, in real processes: signals, errors, settings."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.model.errors import UsageError
from slackwater.runtime.service import settings as settings_module


def start(body: str, tmp_path: Path, **env: str) -> "subprocess.Popen[str]":
    program = "import asyncio, sys, threading, time\n" + textwrap.dedent(body)
    options = ["--deployment", "d.yaml", "--bootstrap", "127.0.0.1:1"]
    more = ["--data-dir", str(tmp_path)]
    return subprocess.Popen(
        [sys.executable, "-c", program, "some.0", *options, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | env,
    )


SYNC = """
from slackwater.runtime.service.entry import run
def main(context):
    print(context.process, flush=True)
    context.stopping.wait()
run("host", main)
"""
ASYNC = """
from slackwater.runtime.service.entry import run_async
async def main(context, stopping):
    print(context.process, flush=True)
    await stopping.wait()
run_async("host", main)
"""


@pytest.mark.parametrize("body", [SYNC, ASYNC])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_stopped_ends_with_0(body: str, signum: int, tmp_path: Path) -> None:
    with start(body, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "host/some.0\n"
        process.send_signal(signum)
        _, err = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 0
    assert "stopping" in err


def test_a_process_that_hangs_in_a_thread_ends_all_the_same(tmp_path: Path) -> None:
    body = """
    from slackwater.runtime.service.entry import run
    def main(context):
        threading.Thread(target=time.sleep, args=(600,)).start()
        print("up", flush=True)
        time.sleep(600)
    run("proxy", main)
    """
    with start(body, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 0
    assert "did not stop" in err


@pytest.mark.parametrize(
    ("raises", "code", "text"),
    [
        ("EnvironmentProblem('topic x does not exist')", 3, "topic x does not exist"),
        ("DeploymentError('d.yaml:3: unknown field')", 2, "d.yaml:3"),
        ("ZeroDivisionError('oops')", 1, "ZeroDivisionError"),
        ("ExceptionGroup('tasks', [EnvironmentProblem('no room')])", 3, "no room"),
    ],
)
def test_an_uncaught_error_is_one_line_and_an_exit_code(
    raises: str, code: int, text: str, tmp_path: Path
) -> None:
    body = f"""
    from slackwater.model.errors import *
    from slackwater.runtime.service.entry import run
    def main(context):
        raise {raises}
    run("host", main)
    """
    with start(body, tmp_path) as process:
        out, err = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == code
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "host/some.0" in err
    assert text in err


def test_fatal_ends_the_process_from_any_thread(tmp_path: Path) -> None:
    body = """
    from slackwater.runtime.service.entry import run
    def main(context):
        threading.Thread(target=context.fatal, args=("a record was refused",)).start()
        time.sleep(600)
    run("host", main)
    """
    with start(body, tmp_path) as process:
        _, err = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 1
    assert "a record was refused" in err


def test_a_wrong_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(SYNC, tmp_path, SLACKWATER_BROKER_HEAP_MIB_MAX="tiny") as process:
        _, err = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 2
    assert "SLACKWATER_BROKER_HEAP_MIB_MAX" in err
    monkeypatch.setenv("SLACKWATER_TRUNCATE_EVERY_S", "-1")
    settings_module.settings.cache_clear()
    with pytest.raises(UsageError, match="SLACKWATER_TRUNCATE_EVERY_S"):
        settings_module.settings()
    monkeypatch.delenv("SLACKWATER_TRUNCATE_EVERY_S")
    monkeypatch.setenv("SLACKWATER_BOOTSTRAP", "somewhere:9092")
    assert settings_module.settings().bootstrap == "somewhere:9092"
    settings_module.settings.cache_clear()
