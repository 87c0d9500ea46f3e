"""Pages as tests run them: their blocks in order, a user's shell, and terminals to read."""

from __future__ import annotations

import contextlib
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML
from tests.support.waiting import WAIT_S_MAX

ROOT = Path(__file__).parents[2]
CONTROLS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Sequences that a terminal interprets."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str


class Page:
    """The blocks of a page in their order; each is used once."""

    def __init__(self, text: str, excepted: Sequence[str] = ()) -> None:
        """``excepted``: parts of blocks that are left out."""
        self.text = text
        self._left = [
            Block(language, inside)
            for language, inside in re.findall(
                r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
            )
            if language and not any(name in inside for name in excepted)
        ]

    def take(self, language: str, containing: str) -> str:
        assert self._left, f"no block is left that has {containing}"
        block = self._left.pop(0)
        assert block.language == language, f"{block} is not run by this test"
        assert containing in block.text, f"{block} is not run by this test"
        return block.text

    def ends(self) -> None:
        assert self._left == []

    def inline(self, beginning: str) -> str:
        """Return a command inside a sentence."""
        (found, *_) = re.findall(rf"`({re.escape(beginning)}[^`]*)`", self.text)
        return str(found)


class Shell:
    """A user's shell in a folder, with the venv on its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("SLACKWATER_")}
        bin_dir = str(Path(sys.executable).parent)
        own = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        self._env = kept | own | {"TERM": "xterm-256color"}  # CI has a dumb one

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
        """All that was written, without colours and movements of the cursor."""
        return CONTROLS.sub("", self._written.decode(errors="replace"))

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


def new_shell(folder: Path) -> Shell:
    """Return a shell in a folder that has the repository's venv and its data; skip without kcat."""
    if shutil.which("kcat") is None:
        lacking = "kcat is missing: apt-get install kcat"
        if os.environ.get("CI"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    (folder / "tests").symlink_to(ROOT / "tests")
    return Shell(folder)


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


def is_up(lines: list[str]) -> bool:
    return any(line.startswith("up: ") for line in lines)


def bootstrap_in(lines: list[str]) -> str:
    (found,) = [line.split()[1] for line in lines if line.startswith("bootstrap ")]
    return found


def commands(block: str) -> list[str]:
    """Return the commands of a block without their comments."""
    lines = block.replace("\\\n", " ").splitlines()
    return [" ".join(line.partition("  #")[0].split()) for line in lines]


def has_shown(text: str, lines: list[str]) -> bool:
    return any(text in line for line in lines)


def shell_of(text: str) -> Callable[[str], list[str]]:
    return lambda port: ["bash", "-c", text.replace("PORT", port)]
