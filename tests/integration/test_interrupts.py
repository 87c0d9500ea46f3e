"""Ctrl-C at random moments of each command: no traceback, a documented exit code, nothing left.

The drill interrupts each command at moments that are spread over its start, its run and its end.
The short form interrupts commands that need no deployment, also while their modules are imported.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest
from tests.support.ports import free_port
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.cli.__main__ import INTERRUPTED

SLACKWATER: Final = Path(sys.executable).with_name("slackwater")
MARK: Final = "SLACKWATER_TEST_MARK"
SEED: Final = 49
MOMENTS: Final = int(os.environ.get("SLACKWATER_TEST_MOMENTS", "17"))
"""Of each of the commands of the drill: 17 commands make 289 in all."""
SHORT_MOMENTS: Final = 6
READINGS: Final = "ts,temperature,humidity\n" + "".join(
    f"{1_700_000_000_000 + 1_000 * n},{20 + n % 7},40\n" for n in range(1_800)
)
DEPLOYMENT: Final = """\
apiVersion: slackwater/v1
clock: wall
streams:
  room-1: {key: {value: hall}, time: {column: ts, unit: ms}, fields: [temperature], disorder: 100ms}
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    disorder: 100ms
    sporadic: true
queries:
  climate:
    {from: [room-1], window: {size: 2s}, aggregate: [count, avg], bound: 2s, replicas: 1}
  lab-seconds:
    {from: [lab], window: {size: 2s}, aggregate: [count], bound: 2s, replicas: 1}
"""
CREATED: Final = """\
CREATE OR REPLACE QUERY hall AS SELECT window_start, key, max(temperature)
FROM TUMBLE(TABLE lab, INTERVAL '2' SECOND) GROUP BY window_start, key
EMIT WITHIN INTERVAL '2' SECOND;
"""


@dataclass(frozen=True)
class Interrupted:
    """A command that was interrupted: when, its exit code, and all that it printed."""

    command: str
    at_s: float
    code: int
    printed: str


def interrupted(command: list[str], folder: Path, at_s: float) -> Interrupted:
    """Run a command, send Ctrl-C to all of its processes at a moment, and wait for its end.

    Fails if processes of the command are left.
    """
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [str(SLACKWATER), *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, MARK: mark},
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(at_s)  # ends early if the command does
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        printed, _ = process.communicate(timeout=WAIT_S_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)  # prints the stacks
        printed, _ = process.communicate(timeout=WAIT_S_MAX)
        pytest.fail(f"{command} did not end after Ctrl-C at {at_s:.2f} s:\n{printed[-6000:]}")
    eventually(lambda: not marked(mark), f"{command}: processes are left: {marked(mark)}")
    return Interrupted(" ".join(command), at_s, process.returncode, printed)


def marked(mark: str) -> list[str]:
    """Return the command lines of the processes that descend from a command."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:120])
    return found


def has_not_begun(printed: str) -> bool:
    """Whether the interpreter itself was interrupted, before it has called the entry point.

    That is in its first hundredths of a second; no code of a program runs yet.
    """
    has_begun = re.search(
        r"__main__\.py\", line \d+, in (main|__call__)|Exception (in|ignored)", printed
    )
    return "Traceback" in printed and not has_begun


def check(done: Interrupted, codes: set[int]) -> None:
    """Check one interruption; -2 is the end by the signal before Python handles it."""
    if has_not_begun(done.printed):
        return
    what = f"{done.command} at {done.at_s:.3f} s: code {done.code}\n{done.printed[-4000:]}"
    assert "Traceback" not in done.printed, what
    assert "Exception ignored" not in done.printed, what
    assert done.code in codes | {-signal.SIGINT}, what


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell starts what runs in the background with Ctrl-C ignored, and children inherit this.

    A handler is not inherited: it becomes the default.
    """
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rooms.yaml").write_text(DEPLOYMENT)
    (tmp_path / "one.yaml").write_text(
        DEPLOYMENT.split("  lab:")[0]
        + DEPLOYMENT[DEPLOYMENT.index("queries:") : DEPLOYMENT.index("  lab-seconds:")]
    )
    (tmp_path / "room-1.csv").write_text(READINGS)
    return tmp_path


Command = Callable[[Path], list[str]]
REHEARSE: Final = [
    "rehearse", "--deployment", "one.yaml", "--speed", "60", "--out", "results.jsonl",
    "--input", "room-1=room-1.csv",
]  # fmt: skip


def controller(_: Path) -> list[str]:
    address = f"127.0.0.1:{free_port()}"
    return ["controller", "--name", "c1", "--listen", address, "--data", "c1"]


@pytest.mark.parametrize(
    ("command", "longest_s", "codes"),
    [
        pytest.param(lambda _: ["status", "--watch"], 0.8, {3, INTERRUPTED}, id="status"),
        pytest.param(controller, 1.5, {0, INTERRUPTED}, id="controller"),
        pytest.param(lambda _: [*REHEARSE], 2.5, {INTERRUPTED}, id="rehearse"),
    ],
)
def test_a_command_that_begins_ends_at_ctrl_c(
    folder: Path, command: Command, longest_s: float, codes: set[int]
) -> None:
    choice = random.Random(SEED)
    for _ in range(SHORT_MOMENTS):
        check(interrupted(command(folder), folder, choice.uniform(0.02, longest_s)), codes)


@contextlib.contextmanager
def running(command: list[str], folder: Path, text: str) -> Iterator[None]:
    """Run a command in the background, from the line with ``text`` on."""
    with (folder / "running.log").open("w+") as log:
        process = subprocess.Popen(
            [str(SLACKWATER), *command],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            eventually(lambda: text in (folder / "running.log").read_text(), "it has started")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S_MAX)


@pytest.mark.drill
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("command", "longest_s", "codes"),
    [
        pytest.param(["up", "rooms.yaml"], 30, {0, INTERRUPTED}, id="up"),
        pytest.param(REHEARSE, 60, {0, INTERRUPTED}, id="rehearse"),
        pytest.param(["demo"], 60, {0, INTERRUPTED}, id="demo"),
    ],
)
def test_a_command_that_starts_everything_ends_at_ctrl_c(
    folder: Path, command: list[str], longest_s: float, codes: set[int]
) -> None:
    choice = random.Random(SEED)
    for _ in range(MOMENTS):
        check(interrupted(command, folder, choice.uniform(0.02, longest_s)), codes)


@pytest.mark.drill
@pytest.mark.timeout(7200)
def test_commands_beside_a_running_deployment_end_at_ctrl_c(folder: Path) -> None:
    with running(["up", "rooms.yaml"], folder, "processes are ready"):
        choice = random.Random(SEED)
        commands: list[tuple[list[str], float, set[int]]] = [
            (["status", "--watch"], 4, {0, INTERRUPTED}),
            (["results", "climate", "--follow"], 4, {0, INTERRUPTED}),
            (["watch", "climate"], 4, {0, INTERRUPTED}),
            (["ingest", "room-1=room-1.csv", "--as-now"], 1.5, {0, INTERRUPTED}),
            (["send", "lab", "--every", "100ms"], 4, {0, INTERRUPTED}),
            (["audit", "climate"], 20, {0, INTERRUPTED}),
            (["quarantine", "lab"], 1.5, {0, INTERRUPTED}),
            (["sql", "-e", "SELECT * FROM climate EMIT CHANGES"], 4, {0, INTERRUPTED}),
            (["sql", "--wait", "-e", CREATED], 8, {0, INTERRUPTED}),
            (["query", "pause", "climate"], 1.5, {0, INTERRUPTED}),
            (["query", "resume", "climate"], 1.5, {0, INTERRUPTED}),
            (["gateway", "--listen", f"127.0.0.1:{free_port()}"], 4, {0, INTERRUPTED}),
        ]
        for command, longest_s, codes in commands:
            for _ in range(MOMENTS):
                check(interrupted(command, folder, choice.uniform(0.02, longest_s)), codes)


@pytest.mark.drill
@pytest.mark.timeout(7200)
def test_controllers_and_nodes_end_at_ctrl_c(folder: Path, bootstrap: str) -> None:
    choice = random.Random(SEED)
    command = controller(folder)
    for _ in range(MOMENTS):
        check(interrupted(command, folder, choice.uniform(0.02, 4)), {0, INTERRUPTED})
    address = command[command.index("--listen") + 1]
    node = ["node", "--name", "n1", "--controllers", address,
            "--bootstrap", bootstrap, "--data-dir", "n1"]  # fmt: skip
    with running(command, folder, ""):
        for _ in range(MOMENTS):
            check(interrupted(node, folder, choice.uniform(0.02, 4)), {0, INTERRUPTED})
