"""The supervisor: starts the processes of a deployment and keeps them running.

A process that has ended is restarted at once, since a restart is the normal recovery. There is a
back-off only if a process ends repeatedly. When the supervisor ends, or is killed, all processes
end (``machine.process``). Missing heartbeats cause no restart: the protocols handle a silent
process without ending it.

Each process has a task that starts it, waits for its end, and decides whether and when it is
restarted. A process may serve several *parts*: a proxy its streams, a host its fragments. A part
has a name as a process has, and can be killed and paused alone. A process is killed or paused by a
signal, a part by a line on the standard input of its process (``runtime.service.parts``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.forking import Template, reap_orphans
from slackwater.machine.kept_process import KeptProcess, ProcessEvent
from slackwater.machine.launchers import (
    BrokerLauncher,
    CommandLauncher,
    Launcher,
    ProcessSpec,
)
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.kinds import BROKER
from slackwater.runtime.security.private import make_private
from slackwater.runtime.service.back_off import matching
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import Life
from slackwater.runtime.service.parts import ADD, COMMAND_OF, REMOVE

_log = logging.getLogger(__name__)

EVENTS_MAX = 10_000
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_CHECK_S = 5.0
STOP_S_MAX = 4.0
"""A process is killed this long after SIGTERM. It stops within 2 s; the rest allows for load."""

BROKER_STOP_S_MAX = 15.0
"""Time for a broker to close its logs; a killed broker must check them at its next start."""


class Supervisor:
    """Starts processes and keeps them running; for one event loop."""

    def __init__(
        self,
        data_dir: Path,
        *,
        clock: SystemClock | None = None,
        on_event: Callable[[ProcessEvent], None] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._logs_dir = data_dir / "logs"
        make_private(self._logs_dir)
        self._clock = clock or SystemClock()
        self._on_event, self._on_change = on_event, on_change
        self._children: dict[str, KeptProcess] = {}
        self._parts: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._template = Template()
        self.events: deque[ProcessEvent] = deque(maxlen=EVENTS_MAX)
        self.on_death: Callable[[str, int], None] = lambda process, pid: None
        """Called with the name and the pid of a process that has ended, unless it was stopped."""

    def begin(self) -> None:
        """Import what processes need, in the background, so that each starts in little time."""
        self._template.begin()

    async def start(self, spec: ProcessSpec) -> None:
        """Start a process and keep it running; returns when it has been started once."""
        launcher = CommandLauncher(spec, self.log_path(spec.name), self._template)
        self._parts |= dict.fromkeys(spec.parts, spec.name)
        await self._keep(spec.name, spec.stop_order, STOP_S_MAX, launcher)

    async def move(
        self, part: str, kept: Callable[[Sequence[str]], ProcessSpec], to: ProcessSpec
    ) -> None:
        """Move a part: start process ``to``, and reduce its present process to ``kept``.

        ``kept`` makes the specification of the present process for given parts. It is called when
        ``to`` runs, since other parts may be moved meanwhile. The part is unavailable until the new
        process has started it. If the new process cannot be started, nothing changes.
        """
        was = self._parts[part]
        try:
            await self.start(to)
        except BaseException:
            self._parts[part] = was
            raise
        if was in self._children:
            self.serve(kept([each for each, of in self._parts.items() if of == was]))
        self.record(part, f"moved from {was} to {to.name}")

    def serve(self, spec: ProcessSpec) -> None:
        """Change the parts of a running process; those that it keeps are not interrupted."""
        for part in self.parts(spec.name):
            if part not in spec.parts:
                self._parts.pop(part, None)
        elsewhere = [p for p in spec.parts if self._parts.get(p, spec.name) != spec.name]
        assert not elsewhere, f"{elsewhere} would run twice"
        self._parts |= dict.fromkeys(spec.parts, spec.name)
        self._children[spec.name].serve(spec)
        self._changed()

    async def end(self, name: str) -> None:
        """Stop a process; it is not restarted."""
        await self._children[name].stop()
        del self._children[name]
        self._parts = {part: process for part, process in self._parts.items() if process != name}
        self._changed()

    async def start_broker(self, broker: EmbeddedBroker) -> None:
        """Start the embedded broker and keep it running; returns when it responds.

        It is stopped last. A failed first start raises; later starts are retried.
        """
        await self._keep(BROKER, 1_000, BROKER_STOP_S_MAX, BrokerLauncher(broker))

    async def watch_logs(self) -> None:
        """Keep the logs within their bound, and reap orphans; runs until it is cancelled."""
        while True:
            for name in list(self._children):
                rotate(self.log_path(name))
            reap_orphans()
            await asyncio.sleep(LOG_CHECK_S)

    def log_path(self, name: str) -> Path:
        """The log file of a process, or of the process of a part."""
        return self._logs_dir / f"{self._process(name).replace('/', '-')}.log"

    def names(self) -> list[str]:
        """Names of all processes kept running; a process with parts is replaced by its parts."""
        parts = [part for part, process in self._parts.items() if process in self._children]
        with_parts = {self._parts[part] for part in parts}
        return sorted([*(self._children.keys() - with_parts), *parts])

    def processes(self) -> list[str]:
        """Names of all processes that are kept running."""
        return sorted(self._children)

    def command(self, part: str, verb: str) -> None:
        """Send a command to a part, if its process runs."""
        child = self._children.get(self._process(part))
        if child is not None:
            child.command(f"{verb} {part}")

    def process_of(self, part: str) -> str | None:
        """Return the process that serves a part; None if there is no such part."""
        return self._parts.get(part)

    def parts(self, process: str) -> list[str]:
        """Return the parts of a process; the process itself if it has none."""
        return [part for part, of in self._parts.items() if of == process] or [process]

    def pids(self) -> dict[str, int]:
        """The pid of every process that runs now."""
        return {
            name: child.pid
            for name, child in sorted(self._children.items())
            if child.pid is not None
        }

    def last_exit(self, name: str) -> int | None:
        """The last return code of a process (or a part's process); None if it has not ended."""
        child = self._children.get(self._process(name))
        return None if child is None else child.last_exit

    def lives(self) -> dict[str, Life]:
        """Restarts and last exit of each process, by ``names``, for ``run.json``."""
        return {name: self._children[self._process(name)].life for name in self.names()}

    def matching(self, target: str) -> list[str]:
        """The processes and parts that a name matches; see ``placement.matching``."""
        return matching(target, {*self._children, *self._parts})

    def kill(self, target: str) -> list[str]:
        """Kill the targets (SIGKILL), which are then restarted; returns their names."""
        return self._signal(self.matching(target), signal.SIGKILL, "killed")

    def restart(self, target: str) -> list[str]:
        """End the targets as planned, and start them again; returns their names.

        A process ends by SIGTERM. A host removes a fragment, which may resign before (rule-27), and
        adds it again.
        """
        names = self.matching(target)
        processes = [name for name in names if name in self._children]
        reached = self._signal(processes, signal.SIGTERM, "stopped")
        for name in names:
            if name not in self._children and self._pid(name) is not None:
                self.record(name, "stopped")
                self.command(name, REMOVE)
                self.command(name, ADD)
                reached.append(name)
        return reached

    def pause(self, target: str, seconds: float | None = None) -> list[str]:
        """Pause the targets for some seconds (None: until ``resume``); returns their names."""
        names = self._signal(self.matching(target), signal.SIGSTOP, "paused")
        pids = {name: self._pid(name) for name in names}

        async def resume(after_s: float) -> None:
            await asyncio.sleep(after_s)
            still = [name for name, pid in pids.items() if self._pid(name) == pid]
            self._signal(still, signal.SIGCONT, "resumed")

        if seconds is not None:
            self._background(resume(seconds))
        return names

    def resume(self, target: str) -> list[str]:
        """Resume the targets (SIGCONT); returns their names."""
        return self._signal(self.matching(target), signal.SIGCONT, "resumed")

    def _process(self, name: str) -> str:
        return self._parts.get(name, name)

    def _pid(self, name: str) -> int | None:
        return self._children[self._process(name)].pid

    async def stop_all(self) -> None:
        """Stop everything, group by group in ascending ``stop_order``; bounded in time.

        Processes being started are stopped too; further starts are refused.
        """
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        orders = sorted({child.stop_order for child in self._children.values()})
        for order in orders:
            group = [child for child in self._children.values() if child.stop_order == order]
            await asyncio.gather(*(child.stop() for child in group))
        self._children.clear()
        self._parts.clear()
        reap_orphans()
        await asyncio.to_thread(self._template.end)
        self._changed()

    def record(self, process: str, event: str) -> ProcessEvent:
        """Record an event."""
        happened = ProcessEvent(self._clock.now_us(), process, event)
        self.events.append(happened)
        _log.info("%s: %s", process, event)
        if self._on_event is not None:
            self._on_event(happened)
        return happened

    async def _keep(
        self, name: str, stop_order: int, stop_s_max: float, launcher: Launcher
    ) -> None:
        if self._is_stopping:
            raise EnvironmentProblem(f"{name} is not started: everything is being stopped")
        assert name not in self._children, f"{name} runs already"
        child = KeptProcess(
            name,
            stop_order,
            stop_s_max,
            launcher,
            self.log_path(name),
            self.record,
            self._changed,
            lambda pid: self.on_death(name, pid),
        )
        self._children[name] = child
        try:
            await child.start()
        except BaseException:
            self._children.pop(name, None)
            raise

    def _signal(self, names: Iterable[str], signum: signal.Signals, event: str) -> list[str]:
        reached = []
        for name in names:
            process = self._children[self._process(name)]
            if process.pid is None:
                continue
            if name in self._children:
                process.signal(signum)
                self.record(name, event)
            else:
                self.record(name, event)  # before the command: the part may restart quickly
                process.command(f"{COMMAND_OF[signum]} {name}")
            reached.append(name)
        return reached

    def _background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


def rotate(log: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Rotate a log above its bound, keeping one older log; returns whether it was rotated.

    The log is copied and truncated, not renamed: the process keeps the file open (O_APPEND), and
    continues at the new beginning. A line written between copy and truncation is lost, which is
    accepted: without rotation the disk would fill up.
    """
    try:
        if log.stat().st_size <= bytes_max:
            return False
        older = log.with_suffix(".log.1")
        try:
            shutil.copy(log, older)
        except OSError as error:  # a full disk, which this log may have filled
            _log.warning("truncating %s without a copy: %s", log, error)
            older.unlink(missing_ok=True)
        os.truncate(log, 0)
    except FileNotFoundError:
        return False
    return True
