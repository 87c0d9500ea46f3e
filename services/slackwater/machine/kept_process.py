"""One process of a supervisor over all its restarts: start, end, back-off, and what is reported."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from slackwater.machine.launchers import Launcher, ProcessSpec
from slackwater.machine.logtail import failure_excerpt, last_error
from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.security.private import append_to
from slackwater.runtime.service.back_off import BackOff
from slackwater.runtime.service.datadir import Life
from slackwater.runtime.service.log import OneLineFormatter

_log = logging.getLogger(__name__)

POLL_END_S = 0.2
"""Interval at which the end of a process is polled if there is no file descriptor for it."""


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    """An event in the life of a process, for reports; ``wall_us`` is since the epoch."""

    wall_us: int
    process: str
    event: str


class KeptProcess:
    """One process over all its restarts."""

    def __init__(
        self,
        name: str,
        stop_order: int,
        stop_s_max: float,
        launcher: Launcher,
        log: Path,
        record: Callable[[str, str], ProcessEvent],
        changed: Callable[[], None],
        died: Callable[[int], None],
    ) -> None:
        self.name, self.stop_order = name, stop_order
        self.life = Life()
        self._log, self._log_from = log, 0
        self._stop_s_max = stop_s_max
        self._kill_requested = False
        self.pid: int | None = None
        self.last_exit: int | None = None
        self._launcher = launcher
        self._record, self._changed, self._died = record, changed, died
        self._back_off = BackOff()
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process; from then on it is kept running."""
        try:
            pid = await self._launch()
            self._life = asyncio.create_task(self._live(pid), name=f"keep {self.name}")
            self._life.add_done_callback(self._report_defect)
        finally:
            self._started.set()

    def command(self, line: str) -> None:
        """Send a command to the process."""
        self._launcher.command(line)

    def serve(self, spec: ProcessSpec) -> None:
        """Set the parts that the process serves."""
        self._launcher.serve(spec)

    def signal(self, signum: signal.Signals) -> bool:
        """Signal the process and its descendants (Spark's JVM); False if it does not run."""
        if self.pid is None:
            return False
        self._kill_requested |= signum in {signal.SIGKILL, signal.SIGTERM}
        # On SIGTERM a process stops its own children.
        for pid in [self.pid] if signum == signal.SIGTERM else _tree(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        return True

    async def stop(self) -> None:
        """Stop the process without a restart: SIGTERM, then SIGKILL after the time limit."""
        self._stopping.set()
        if self.pid is None:
            self._launcher.give_up()
        await self._started.wait()
        if self._life is None:
            return
        if self.signal(signal.SIGTERM):
            self.signal(signal.SIGCONT)  # a paused process does not handle SIGTERM
        done, _ = await asyncio.wait([self._life], timeout=self._stop_s_max)
        if not done:
            self._record(self.name, f"did not stop within {self._stop_s_max:g} s: killed")
            self.signal(signal.SIGKILL)
            await self._life

    def _report_defect(self, life: asyncio.Task[None]) -> None:
        if not life.cancelled() and (error := life.exception()) is not None:
            _log.critical("%s is no longer kept running", self.name, exc_info=error)

    async def _live(self, pid: int | None) -> None:
        while True:
            if pid is not None:
                await _ended(pid)
                self._reaped()
            if self._stopping.is_set():
                return
            wait_s = self._back_off.after_death(time.monotonic())
            if wait_s:
                self._record(self.name, f"restarts in {wait_s:g} s")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stopping.wait()
                    return
            try:
                pid = await self._launch()
            except (EnvironmentProblem, OSError) as error:
                self._record(self.name, f"cannot be started: {error}")
                pid = None

    async def _launch(self) -> int:
        self._log_from = self._log.stat().st_size if self._log.exists() else 0
        pid = await self._launcher.launch()
        self.pid, self._kill_requested = pid, False
        self._record(self.name, f"started, pid {pid}")
        self._changed()
        if self._stopping.is_set():
            self.signal(signal.SIGKILL)  # stopped while it was being started
        return pid

    def _reaped(self) -> None:
        if self.pid is not None:
            # Its children must not outlive it: they would write beside the restarted process.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            if not self._stopping.is_set():
                self._died(self.pid)
        self.pid = None
        self.last_exit = self._launcher.reap()
        ended = self._record(self.name, _how_it_ended(self.last_exit))
        if not self._stopping.is_set():
            self._note_death(ended.wall_us)
        self._changed()

    def _note_death(self, wall_us: int) -> None:
        """Record a death for ``status``; a death by signal is also written to the process's log."""
        code = self.last_exit
        error = None if self._kill_requested else last_error(self._log, self._log_from)
        self.life = Life(
            restarts=self.life.restarts + 1,
            last_exit=exit_name(code),
            last_exit_at_us=wall_us,
            last_error=error,
        )
        if code is not None and code < 0 and not self._kill_requested:
            excerpt = failure_excerpt(self._log, self._log_from) or "no log line since its start"
            _log.error("%s %s: %s", self.name, _how_it_ended(code), excerpt)
            with contextlib.suppress(OSError), append_to(self._log) as log:
                log.write(_own_line(self.name, f"{_how_it_ended(code)}; restarting"))


async def _ended(pid: int) -> None:
    """Wait until the process has ended (it stays a zombie until it is reaped)."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:  # too many open files
        _log.warning("the end of process %d is polled: %s", pid, error)
        while not _has_ended(pid):  # noqa: ASYNC110 -- nothing reports its end
            await asyncio.sleep(POLL_END_S)
        return
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _has_ended(pid: int) -> bool:
    """Whether the child process has ended; it stays a zombie."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _tree(pid: int) -> list[int]:
    """The process and its descendants."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return [pid]


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "ended"
    return f"ended {'by' if code < 0 else 'with'} {exit_name(code)}"


def exit_name(code: int | None) -> str:
    """Return a return code, or the name of the signal that has ended the process."""
    if code is None:
        return "unknown"
    if code >= 0:
        return f"code {code}"
    named = -code in set(signal.Signals)  # most real-time signals have no name
    return signal.Signals(-code).name if named else f"signal {-code}"


def _own_line(process: str, message: str) -> bytes:
    """A line in the format of the process's own log."""
    record = logging.LogRecord(__name__, logging.CRITICAL, "", 0, message, None, None)
    return f"{OneLineFormatter(process).format(record)}\n".encode()
