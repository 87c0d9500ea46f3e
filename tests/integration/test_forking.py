"""Processes that are forked from a template: as if they had been started."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from tests.support.children import running_children
from tests.support.waiting import eventually

from slackwater.machine.forking import Forked, Template, reap_orphans
from slackwater.machine.launchers import CommandLauncher, ProcessSpec

PROGRAM = "tests.support.forkable"


@pytest.fixture(name="template")
def _template() -> Iterator[Template]:
    template = Template({PROGRAM: PROGRAM})
    template.begin()
    yield template
    template.end()


def command(*words: str) -> tuple[str, ...]:
    return sys.executable, "-m", PROGRAM, *words


def fork(
    template: Template,
    log: Path,
    *words: str,
    env: Mapping[str, str] = os.environ,
    stdin: int = subprocess.DEVNULL,
) -> Forked | None:
    with log.open("wb") as shown:
        return template.fork(command(*words), stdin=stdin, stdout=shown, env=env)


def test_it_has_its_arguments_environment_input_and_output_and_a_session_of_its_own(
    template: Template, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    env = os.environ | {"SHOWN": "yes"}
    process = fork(template, log, "show", "a b", env=env, stdin=subprocess.PIPE)
    assert process is not None
    assert process.stdin is not None
    process.stdin.write(b"from above")
    process.stdin.close()
    assert process.wait() == 0
    shown = f"{['show', 'a b']} yes {os.getpid()} True\nfrom above\n"
    assert log.read_text() == shown


@pytest.mark.parametrize(
    ("words", "code"), [(("exit", "3"), 3), (("raise",), 1), (("die",), -signal.SIGKILL)]
)
def test_its_end_is_that_of_the_program(
    template: Template, tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    process = fork(template, tmp_path / "log", *words)
    assert process is not None
    assert process.wait() == code
    assert ("ValueError: it raises" in (tmp_path / "log").read_text()) == (words == ("raise",))


def test_its_command_line_is_found_by_the_tools(template: Template, tmp_path: Path) -> None:
    process = fork(template, tmp_path / "log", "sleep", "well")
    assert process is not None
    shown = f"{sys.executable} -m {PROGRAM} sleep well"
    of_all = [" ".join(child.cmdline()).strip() for child in running_children()]
    assert f"{sys.executable} -m slackwater.machine.template" in of_all
    eventually(lambda: " ".join(psutil.Process(process.pid).cmdline()).strip() == shown)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_it_outlives_the_template_and_the_next_one_is_started(
    template: Template, tmp_path: Path
) -> None:
    first = fork(template, tmp_path / "log", "sleep")
    assert first is not None
    (own,) = [
        child
        for child in running_children()
        if child.pid != first.pid and "slackwater.machine.template" in " ".join(child.cmdline())
    ]
    own.kill()
    assert fork(template, tmp_path / "log", "exit", "0") is None
    assert psutil.Process(first.pid).is_running()
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL


async def test_what_cannot_be_forked_is_started(template: Template, tmp_path: Path) -> None:
    other = ProcessSpec("other", (sys.executable, "-c", "print(1)"))
    launcher = CommandLauncher(other, tmp_path / "other.log", template)
    await launcher.launch()
    assert launcher.reap() == 0
    assert (tmp_path / "other.log").read_text() == "1\n"
    assert fork(template, tmp_path / "log", "sleep", env={"PYTHONPATH": "elsewhere"}) is None
    assert fork(template, tmp_path / "log", "sleep", env={"LONG": "x" * 200_000}) is None


def test_on_a_system_that_cannot_do_it_processes_are_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(_: int) -> int:
        raise PermissionError(errno.EPERM, "forbidden")

    monkeypatch.setattr(os, "pidfd_open", forbidden)
    template = Template({PROGRAM: PROGRAM})
    template.begin()
    assert fork(template, tmp_path / "log", "exit", "0") is None
    template.end()


def test_it_ends_with_who_asked_for_it_even_if_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "from slackwater.machine.forking import Template\n"
        f"template = Template({{{PROGRAM!r}: {PROGRAM!r}}})\n"
        "template.begin()\n"
        f"command = (sys.executable, '-m', {PROGRAM!r}, 'sleep')\n"
        "process = template.fork(\n"
        "    command, stdin=subprocess.DEVNULL, stdout=sys.stdout, env=dict(os.environ))\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        process = psutil.Process(int(asking.stdout.readline()))
        assert process.ppid() == asking.pid
        asking.kill()
    eventually(lambda: not process.is_running(), "it has ended")


def test_children_that_a_killed_process_leaves_are_reaped(
    template: Template, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = fork(template, log, "child")
    assert process is not None
    eventually(lambda: log.read_text().endswith("\n"), "it has a child")
    child = psutil.Process(int(log.read_text()))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    child.kill()

    def is_reaped() -> bool:
        reap_orphans()
        return not child.is_running()

    eventually(is_reaped, "it is reaped")
