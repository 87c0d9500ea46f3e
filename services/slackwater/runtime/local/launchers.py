"""How the processes that a supervisor keeps are started: from a command, or as the broker is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slackwater.runtime.local.broker import EmbeddedBroker
from slackwater.runtime.local.process import spawn
from slackwater.runtime.security.private import append_to
from slackwater.runtime.service.parts import ADD, REMOVE


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process to keep running. It is stopped before those with a higher ``stop_order``.

    ``parts`` are the names of the parts that it serves, if it is not a process of one name.
    ``takes_commands``: commands on its standard input may change its parts.
    """

    name: str
    command: tuple[str, ...]
    stop_order: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    takes_commands: bool = False


class Launcher(Protocol):
    """How one process is started; ``launch`` may take its time (a broker that must answer)."""

    async def launch(self) -> int:
        """Start it and return its pid."""
        ...

    def reap(self) -> int | None:
        """Its return code once it has ended."""
        ...

    def give_up(self) -> None:
        """Abort a long launch; it may raise, or end soon."""
        ...

    def command(self, line: str) -> None:
        """Send a command to the process, if it runs."""
        ...

    def serve(self, spec: ProcessSpec) -> None:
        """Let the process serve these parts, now and after each start."""
        ...


class CommandLauncher:
    """Starts a command, its output appended to a log."""

    def __init__(self, spec: ProcessSpec, log: Path) -> None:
        self._spec, self._log = spec, log
        self._process: subprocess.Popen[bytes] | None = None

    async def launch(self) -> int:
        """Start it."""
        spec = self._spec
        env = os.environ | dict(spec.env)
        with append_to(self._log) as log:
            is_reported = spec.parts or spec.takes_commands
            stdin = subprocess.PIPE if is_reported else subprocess.DEVNULL
            self._process = await asyncio.to_thread(
                spawn, spec.command, stdin=stdin, stdout=log, env=env
            )
        self._notify(spec.parts, self._spec.parts)
        return self._process.pid

    def serve(self, spec: ProcessSpec) -> None:
        """Let it serve these parts: from its next start on by its command, now by commands.

        One that is just being started is told when it has been.
        """
        was, self._spec = self._spec, spec
        self._notify(was.parts, spec.parts)

    def _notify(self, was: Sequence[str], parts: Sequence[str]) -> None:
        for part in was:
            if part not in parts:
                self.command(f"{REMOVE} {part}")
        for part in parts:
            if part not in was:
                self.command(f"{ADD} {part}")

    def reap(self) -> int | None:
        """Its return code."""
        if self._process is None:
            return None
        if self._process.stdin is not None:
            self._process.stdin.close()
        return self._process.wait()

    def command(self, line: str) -> None:
        """A line on its standard input."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has just ended, or has been reaped
                os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def give_up(self) -> None:
        """Do nothing: a command starts at once."""


class BrokerLauncher:
    """Starts the embedded broker, on the same port and data each time."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    async def launch(self) -> int:
        """Start it and wait until it answers."""
        await asyncio.to_thread(self._broker.start)
        return self._broker.pid

    def reap(self) -> int | None:
        """Stop the broker; its return code is not available."""
        self._broker.stop()
        return None

    def give_up(self) -> None:
        """Abort a start that waits for the broker's response, which may take minutes."""
        self._broker.give_up()

    def command(self, line: str) -> None:
        """It has no parts."""

    def serve(self, spec: ProcessSpec) -> None:
        """It has no parts."""
