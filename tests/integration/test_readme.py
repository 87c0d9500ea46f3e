"""The README's commands, run unchanged and in its order, as by a user: a shell, a terminal.

Every code block of the page is run here or listed below by name; a new block fails the test until
it is. Replaced are the broker's port and the files that the page calls ``monday-1.csv`` and
``monday-2.csv.gz``. The output of commands without an end is read until it has the content that the
page shows; they are then interrupted with Ctrl-C.

`slackwater up` runs with a umask of 0: its files must nevertheless be private.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from ruamel.yaml import YAML
from tests.files import paths
from tests.integration.rehearsing import REHEARSED_S_MAX, ROOMS, Ran
from tests.waiting import WAIT_S_MAX
from tests.witness import Witness

from slackwater.client.follow import KINDS
from slackwater.deployment.parse import load_deployment
from slackwater.runtime.local.datadir import read_run

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXCEPTED = ("make demo", "make images", "docker compose", "127.0.0.1:9092")
"""For a developer's machine or containers: tests/integration/test_demo.py and tests/e2e."""
REPLAYED_S = 17 * 60
"""Seconds of each file; at 60 times the speed, until a second after the silence of the example."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str


BLOCKS = [
    Block(language, text)
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    if language and not any(name in text for name in EXCEPTED)
]


class Page:
    """The blocks of the page in their order; each is used once."""

    def __init__(self) -> None:
        self._left = list(BLOCKS)

    def take(self, language: str, containing: str) -> str:
        assert self._left, f"no block is left that has {containing}"
        block = self._left.pop(0)
        assert block.language == language, f"{block} is not run by this test"
        assert containing in block.text, f"{block} is not run by this test"
        return block.text

    def ends(self) -> None:
        assert self._left == []


def inline(beginning: str) -> str:
    """Return a command inside a sentence."""
    (found, *_) = re.findall(rf"`({re.escape(beginning)}[^`]*)`", README)
    return str(found)


class Shell:
    """A user's shell in a folder, with the venv on its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("SLACKWATER_")}
        bin_dir = str(Path(sys.executable).parent)
        self._env = kept | {"PATH": f"{bin_dir}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}

    def run(self, command: str, within_s: float = WAIT_S_MAX) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", command],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )

    @contextlib.contextmanager
    def started(self, *command: str, umask: int = -1) -> Iterator[Terminal]:
        """Run it in a terminal, in the background; Ctrl-C at the end."""
        ours, its = pty.openpty()
        process = subprocess.Popen(
            # A test run that was started in the background ignores Ctrl-C, and a child inherits
            # this.
            ["env", "--default-signal=INT", *command],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=its,
            start_new_session=True,
            umask=umask,
        )
        os.close(its)
        terminal = Terminal(process, ours)
        try:
            yield terminal
        finally:
            terminal.interrupt()
            os.close(ours)


class Terminal:
    """The output of a command so far, as lines."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._written = b""

    @property
    def shown(self) -> str:
        return self._written.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.shown.splitlines()[: self._written.count(b"\n")]

    def wait_for(self, holds: Callable[[list[str]], bool], within_s: float) -> list[str]:
        deadline = time.monotonic() + within_s
        while not holds(self.lines):
            assert time.monotonic() < deadline, f"waited in vain; it wrote:\n{self.shown[-3000:]}"
            if not self._read(0.2):
                assert holds(self.lines), f"it ended; it wrote:\n{self.shown[-3000:]}"
        return self.lines

    def interrupt(self) -> None:
        """Send Ctrl-C to all processes of a command, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        deadline = time.monotonic() + WAIT_S_MAX
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            pytest.fail(f"it did not end at Ctrl-C; it wrote:\n{self.shown[-3000:]}")

    def _read(self, within_s: float) -> bool:
        """Read the available output; return False at its end."""
        readable, _, _ = select.select([self._descriptor], [], [], within_s)
        if not readable:
            return True
        try:
            piece = os.read(self._descriptor, 65_536)
        except OSError:  # so a terminal ends
            return False
        self._written += piece
        return bool(piece)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    if shutil.which("kcat") is None:
        lacking = "kcat is missing: apt-get install kcat"
        if os.environ.get("CI"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    for name, room in (("monday-1.csv", "room-1"), ("monday-2.csv.gz", "room-2")):
        with gzip.open(ROOMS[room], "rt") as complete:
            header, *lines = complete.readlines()
        end = int(lines[0].split(",")[0]) + REPLAYED_S * 1000
        # Both from one node: a join pairs readings of equal keys.
        cut = [line.replace(",2,", ",1,", 1) for line in lines if int(line.split(",")[0]) < end]
        opened = gzip.open if name.endswith(".gz") else open
        with opened(tmp_path / name, "wt") as part:
            part.writelines([header, *cut])
    return Shell(tmp_path)


def merged(*texts: str) -> str:
    """Merge several snippets into one file, as a user does."""
    yaml = YAML(typ="safe")
    complete: dict[str, Any] = {}
    for text in texts:
        for name, value in yaml.load(text).items():
            complete[name] = (
                {**complete.get(name, {}), **value} if isinstance(value, dict) else value
            )
    return json.dumps(complete)  # which is YAML


def stable_rows(lines: list[str]) -> list[dict[str, Any]]:
    """Return the lines that are a stable row."""
    found = []
    for line in lines:
        with contextlib.suppress(orjson.JSONDecodeError):
            row = orjson.loads(line)
            if row["kind"] == "stable":
                assert {"window_start", "window_end", "key", "fields", "due_at"} <= row.keys()
                found.append(row)
    return found


def is_up(lines: list[str]) -> bool:
    return any(line.startswith("up: ") for line in lines)


def bootstrap_in(lines: list[str]) -> str:
    (found,) = [line.split()[1] for line in lines if line.startswith("bootstrap ")]
    return found


def rehearsed(shell: Shell, command: str) -> None:
    with Witness(shell.folder) as witness:
        done = shell.run(command, REHEARSED_S_MAX)
    report = orjson.loads((shell.folder / "report.json").read_bytes())
    lines = [orjson.loads(x) for x in (shell.folder / "results.jsonl").read_bytes().splitlines()]
    ran = Ran(done.returncode, done.stdout + done.stderr, report, lines, witness.stood_still)
    ran.agreed()
    assert {"stable", "tentative", "undo", "rec_done"} <= ran.kinds("climate")


def other_eyes(path: Path) -> list[Path]:
    """Return the files that others may read there, while processes write."""
    found = []
    for at in paths(path):
        with contextlib.suppress(FileNotFoundError):
            if not at.is_symlink() and at.stat().st_mode & 0o77:
                found.append(at)
    return found


def test_every_command_of_the_readme(shell: Shell) -> None:
    page, folder = Page(), shell.folder
    deployment = folder / "rooms.yaml"
    rooms, rehearsal = page.take("yaml", "apiVersion"), page.take("sh", "slackwater rehearse")
    deployment.write_text(rooms)

    rehearsed(shell, rehearsal)

    up = page.take("sh", "slackwater up")
    lab, produce = page.take("yaml", "lab-readings"), page.take("sh", "kcat -P")
    reading = [
        shell_of(page.take("sh", "kcat -C")),
        python_of(page.take("python", "confluent_kafka")),
        python_of(page.take("python", "slackwater.Client")),
    ]
    built_on, changing = page.take("yaml", "pairs"), page.take("sh", "slackwater query apply")
    page.ends()
    deployment.write_text(merged(rooms, lab))
    names = set(load_deployment(deployment).queries)

    # One start for steps 3 to 7; test_stack.py shows that a second one continues.
    with shell.started("bash", "-c", up, umask=0) as terminal:
        bootstrap = bootstrap_in(terminal.wait_for(is_up, WAIT_S_MAX))
        run = read_run(folder / ".slackwater")
        assert run is not None
        assert bootstrap == run.bootstrap
        port = bootstrap.rpartition(":")[2]
        uses(shell, produce.replace("PORT", port), [part(port) for part in reading], names)
        # test_rehearse_forms.py checks their results; here, all of it must run.
        deployment.write_text(merged(rooms, lab, built_on))
        changes_queries(shell, changing, set(load_deployment(deployment).queries) - names)
        assert other_eyes(folder / ".slackwater") == []
    assert terminal.process.returncode == 0, terminal.shown


def changes_queries(shell: Shell, commands: str, added: set[str]) -> None:
    """Run step 7: its commands one after the other, and check the registry."""
    done = shell.run(commands, 2 * WAIT_S_MAX)
    assert done.returncode == 0, done.stderr
    for name in added:
        assert f"query {name} runs; its event time starts at " in done.stdout
    assert "its inputs are kept for 30d: readings that are deleted before" in done.stdout
    reported = ["is paused", "is resumed", "is deleted; its results stay"]
    assert [what for what in reported if f"query worst {what}" not in done.stdout] == []
    there = "slackwater query list"
    shell.run(f"until ! {there} | grep -q worst; do sleep 0.2; done")
    assert "pairs" in shell.run(there).stdout


def shell_of(text: str) -> Callable[[str], list[str]]:
    return lambda port: ["bash", "-c", text.replace("PORT", port)]


def python_of(text: str) -> Callable[[str], list[str]]:
    return lambda port: [sys.executable, "-c", text.replace("PORT", port)]


def uses(shell: Shell, produce: str, reading: list[list[str]], names: set[str]) -> None:
    """Run steps 4 to 6 and the commands of the table on the running deployment."""
    ingest = inline("slackwater ingest room-1")
    for command in (ingest, ingest.replace("-1", "-2").replace(".csv", ".csv.gz")):
        done = shell.run(command)
        assert "is passed to proxy/room-" in done.stdout, done.stderr
    for command, watermark_made in (
        ("slackwater status", {"proxy/lab ", "root/climate.0 "}),
        ("slackwater query list", names),
        ("slackwater query show climate", {'"bound_us": 2000000'}),
        ("slackwater topics --deployment rooms.yaml", {"all topics of"}),
        ("slackwater doctor", {"ok   broker"}),
    ):
        done = shell.run(command)
        assert [what for what in watermark_made if what not in done.stdout] == [], done.stdout

    followed, kcat, consumer, client = (inline("slackwater results climate"), *reading)
    with contextlib.ExitStack() as stack:
        # kcat handles Ctrl-C and ends with 0, after which bash would go on without the trap.
        repeated = f"trap exit INT; while {produce.strip()}; do sleep 1; done"
        produced = stack.enter_context(shell.started("bash", "-c", repeated))
        results, rows, other, snippet, lab = (
            stack.enter_context(shell.started(*command))
            for command in (
                ["bash", "-c", followed],
                kcat,
                consumer,
                client,
                ["slackwater", "results", "lab-minutes", "--follow", "--kind", "stable"],
            )
        )
        rows.wait_for(lambda lines: bool(stable_rows(lines)), WAIT_S_MAX)
        other.wait_for(lambda lines: bool(stable_rows(lines)), WAIT_S_MAX)
        for terminal in (results, snippet):
            terminal.wait_for(
                lambda lines: any(line.startswith("stable ") for line in lines), WAIT_S_MAX
            )
        assert {line.split()[0] for line in snippet.lines} <= KINDS
        lab.wait_for(lambda lines: any(" m7 " in line for line in lines), WAIT_S_MAX)
        assert produced.process.poll() is None, produced.shown
