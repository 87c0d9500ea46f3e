"""Starts the processes of a supervisor: commands, and the embedded broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.forking import Forked, Template
from slackwater.machine.process import spawn
from slackwater.runtime.security.private import append_to
from slackwater.runtime.service.parts import ADD, REMOVE


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process to keep running. It is stopped before those with a higher ``stop_order``.

    ``parts`` are the names of the parts of the process (``runtime.service.parts``); empty if it has
    none. ``fragments`` are those of an aggregator, which are not shown, killed or paused by
    themselves. With ``takes_commands`` both can be changed by commands on the standard input.
    """

    name: str
    command: tuple[str, ...]
    stop_order: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    fragments: tuple[str, ...] = ()
    takes_commands: bool = False

    @property
    def served(self) -> tuple[str, ...]:
        """All names that commands can add and remove."""
        return (*self.parts, *self.fragments)


class Launcher(Protocol):
    """Starts one process. ``launch`` may wait, for example until a broker answers."""

    async def launch(self) -> int:
        """Start the process and return its pid."""
        ...

    def reap(self) -> int | None:
        """Wait for the end of the process and return its code; None if it is not available."""
        ...

    def give_up(self) -> None:
        """Abort a launch that waits; the launch may raise, or end soon."""
        ...

    def command(self, line: str) -> None:
        """Send a command to the process, if it runs."""
        ...

    def serve(self, spec: ProcessSpec) -> None:
        """Set the parts that the process serves, now and after each start."""
        ...


class CommandLauncher:
    """Starts a command, or forks it from a template, and appends its output to a log."""

    def __init__(self, spec: ProcessSpec, log: Path, template: Template | None = None) -> None:
        self._spec, self._log = spec, log
        self._template = template or Template()  # one that was not begun forks nothing
        self._process: subprocess.Popen[bytes] | Forked | None = None

    async def launch(self) -> int:
        """Start the command and return its pid."""
        spec = self._spec
        env = os.environ | dict(spec.env)
        with append_to(self._log) as log:
            has_commands = spec.parts or spec.takes_commands
            stdin = subprocess.PIPE if has_commands else subprocess.DEVNULL
            spawning = asyncio.ensure_future(
                asyncio.to_thread(self._start, spec.command, stdin=stdin, stdout=log, env=env)
            )
            try:
                self._process = await asyncio.shield(spawning)
            except asyncio.CancelledError:
                # The thread continues. Without this the process would run unsupervised.
                _end(await spawning)
                raise
        self._notify(spec.served, self._spec.served)
        return self._process.pid

    def _start(
        self, command: Sequence[str], *, stdin: int, stdout: IO[bytes], env: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | Forked:
        forked = self._template.fork(command, stdin=stdin, stdout=stdout, env=env)
        return forked or spawn(command, stdin=stdin, stdout=stdout, env=env)

    def serve(self, spec: ProcessSpec) -> None:
        """Set the parts that the process serves.

        A running process gets commands on its standard input; a process that is being started gets
        them after its start. Later starts have the parts in the command line.
        """
        was, self._spec = self._spec, spec
        self._notify(was.served, spec.served)

    def _notify(self, was: Sequence[str], parts: Sequence[str]) -> None:
        for part in was:
            if part not in parts:
                self.command(f"{REMOVE} {part}")
        for part in parts:
            if part not in was:
                self.command(f"{ADD} {part}")

    def reap(self) -> int | None:
        """Wait for the end of the process and return its code; None if it was not started."""
        if self._process is None:
            return None
        if self._process.stdin is not None:
            self._process.stdin.close()
        return self._process.wait()

    def command(self, line: str) -> None:
        """Write a line to the standard input of the process."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended
                os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def give_up(self) -> None:
        """Do nothing: a command starts at once."""


def _end(process: subprocess.Popen[bytes] | Forked) -> None:
    """Kill a process and its children, which have a session of their own; wait for its end."""
    os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    process.wait()


class BrokerLauncher:
    """Starts the embedded broker, on the same port and data each time."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    async def launch(self) -> int:
        """Start the broker, wait until it answers, and return its pid."""
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
        """Do nothing: the broker takes no commands."""

    def serve(self, spec: ProcessSpec) -> None:
        """Do nothing: the broker has no parts."""
