"""The supervisor: starts the processes of a deployment and keeps them running.

One machine's stand-in for node agents and controller. It restarts a process at once when it has
died (a restart is the normal path of recovery, not an exception), backs off only from one that
dies again and again, gives each start of a fragment a new placement number, and ends all of them
when it ends, also when it is killed itself (see ``runtime.process``). It restarts nothing because
of silence: whether a process that says nothing is dead is the protocols' question, and they answer
it without ending anybody.

Each process has a task of its own here, which is its whole life: start, wait for its end, decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.broker import EmbeddedBroker
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.placement import BackOff, PlacementNumbers, matching
from slackwater.runtime.process import spawn

_log = logging.getLogger(__name__)

events_max = 10_000
log_bytes_max = 10 * 1024 * 1024
log_check_s = 5.0
stop_s_max = 4.0
"""A process that was told to stop is killed after this; they promise 2 s, the rest is for load."""

broker_stop_s_max = 15.0
"""A broker closes its logs; after a kill it would have to check them at the next start."""

BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a process, for reports. ``wall_us`` since the epoch."""

    wall_us: int
    process: str
    event: str


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process to keep running. It is stopped before those with a higher ``stop_order``."""

    name: str
    command: tuple[str, ...]
    stop_order: int = 0
    placed: bool = True
    env: Mapping[str, str] = field(default_factory=dict)


class Launcher(Protocol):
    """How one process is started; ``launch`` may take its time (a broker that must answer)."""

    async def launch(self) -> int:
        """Start it and return its pid."""
        ...

    def reap(self) -> int | None:
        """Its return code once it has ended."""
        ...

    def give_up(self) -> None:
        """Nobody waits any more for a launch that takes its time; it may raise, or end soon."""
        ...


class Supervisor:
    """Keeps processes running; see the module's text. For one event loop."""

    def __init__(
        self,
        data_dir: Path,
        *,
        clock: SystemClock | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._logs_dir = data_dir / "logs"
        self._logs_dir.mkdir(parents=True, exist_ok=True)
        self._placements = PlacementNumbers(data_dir / "placements.json")
        self._clock = clock or SystemClock()
        self._on_event, self._on_change = on_event, on_change
        self._children: dict[str, _Child] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self.events: deque[Event] = deque(maxlen=events_max)

    async def start(self, spec: ProcessSpec) -> None:
        """Start a process and keep it running; returns when it has been started once."""
        launcher = _CommandLauncher(spec, self.log_path(spec.name), self._placements)
        await self._keep(spec.name, spec.stop_order, stop_s_max, launcher)

    def placed(self, numbers: Mapping[str, int]) -> None:
        """Fragments that were started from elsewhere, and under which number last."""
        for fragment, number in numbers.items():
            self._placements.at_least(fragment, number)

    async def start_broker(self, broker: EmbeddedBroker) -> None:
        """Start the embedded broker and keep it running; returns when it answers.

        It is stopped last. If the first start fails, so does this; a later one is repeated.
        """
        await self._keep(BROKER, 1_000, broker_stop_s_max, _BrokerLauncher(broker))

    async def watch_logs(self) -> None:
        """Keep the logs within their bound; runs until it is cancelled."""
        while True:
            for name in list(self._children):
                rotate(self.log_path(name))
            await asyncio.sleep(log_check_s)

    def log_path(self, name: str) -> Path:
        """Where a process's output goes."""
        return self._logs_dir / f"{name.replace('/', '-')}.log"

    def names(self) -> list[str]:
        """All processes that are kept running."""
        return sorted(self._children)

    def pids(self) -> dict[str, int]:
        """The pid of every process that runs now."""
        return {
            name: child.pid
            for name, child in sorted(self._children.items())
            if child.pid is not None
        }

    def last_exit(self, name: str) -> int | None:
        """The return code of a process's last end; None if it has not ended yet."""
        return self._children[name].last_exit

    def matching(self, target: str) -> list[str]:
        """The processes that a name means: one, all that begin with it, or all of a kind."""
        return matching(target, self._children)

    def kill(self, target: str) -> list[str]:
        """SIGKILL; they are started again like after any other death. Who was meant."""
        return self._signal(self.matching(target), signal.SIGKILL, "killed")

    def pause(self, target: str, seconds: float | None = None) -> list[str]:
        """SIGSTOP now, SIGCONT after so many seconds (None: at ``resume``). Who was meant."""
        names = self._signal(self.matching(target), signal.SIGSTOP, "paused")
        pids = {name: self._children[name].pid for name in names}

        async def resume(after_s: float) -> None:
            await asyncio.sleep(after_s)
            still = [name for name, pid in pids.items() if self._children[name].pid == pid]
            self._signal(still, signal.SIGCONT, "resumed")

        if seconds is not None:
            self._background(resume(seconds))
        return names

    def resume(self, target: str) -> list[str]:
        """SIGCONT. Who was meant."""
        return self._signal(self.matching(target), signal.SIGCONT, "resumed")

    async def stop_all(self) -> None:
        """Stop everything, group by group in the order given at the start; bounded in time.

        Also what is being started just now; whoever starts more in the meantime is refused.
        """
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        orders = sorted({child.stop_order for child in self._children.values()})
        for order in orders:
            group = [child for child in self._children.values() if child.stop_order == order]
            await asyncio.gather(*(child.stop() for child in group))
        self._children.clear()
        self._changed()

    def record(self, process: str, event: str) -> None:
        """Write an event down, as the supervisor does for its own."""
        happened = Event(self._clock.now_us(), process, event)
        self.events.append(happened)
        _log.info("%s: %s", process, event)
        if self._on_event is not None:
            self._on_event(happened)

    async def _keep(
        self, name: str, stop_order: int, stop_s_max: float, launcher: Launcher
    ) -> None:
        if self._is_stopping:
            raise EnvironmentProblem(f"{name} is not started: everything is being stopped")
        assert name not in self._children, f"{name} runs already"
        child = _Child(name, stop_order, stop_s_max, launcher, self.record, self._changed)
        self._children[name] = child
        try:
            await child.start()
        except BaseException:
            self._children.pop(name, None)
            raise

    def _signal(self, names: Iterable[str], signum: signal.Signals, event: str) -> list[str]:
        reached = []
        for name in names:
            if self._children[name].signal(signum):
                self.record(name, event)
                reached.append(name)
        return reached

    def _background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


class _Child:
    """One process over all its lives."""

    def __init__(
        self,
        name: str,
        stop_order: int,
        stop_s_max: float,
        launcher: Launcher,
        record: Callable[[str, str], None],
        changed: Callable[[], None],
    ) -> None:
        self.name, self.stop_order = name, stop_order
        self._stop_s_max = stop_s_max
        self.pid: int | None = None
        self.last_exit: int | None = None
        self._launcher = launcher
        self._record, self._changed = record, changed
        self._back_off = BackOff()
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it once; from then on it is kept running."""
        try:
            pid = await self._launch()
            self._life = asyncio.create_task(self._live(pid), name=f"keep {self.name}")
        finally:
            self._started.set()

    def signal(self, signum: signal.Signals) -> bool:
        """Signal it and what it has started (Spark's JVM); False if it does not run."""
        if self.pid is None:
            return False
        # A process that is asked to stop looks after its own children.
        for pid in [self.pid] if signum == signal.SIGTERM else _tree(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        return True

    async def stop(self) -> None:
        """SIGTERM, SIGKILL if that does not help in time, and no restart."""
        self._stopping.set()
        if self.pid is None:
            self._launcher.give_up()
        await self._started.wait()
        if self._life is None:
            return
        if self.signal(signal.SIGTERM):
            self.signal(signal.SIGCONT)  # a paused process heeds no SIGTERM
        done, _ = await asyncio.wait([self._life], timeout=self._stop_s_max)
        if not done:
            self._record(self.name, f"did not stop within {self._stop_s_max:g} s: killed")
            self.signal(signal.SIGKILL)
            await self._life

    async def _live(self, pid: int | None) -> None:
        while True:
            if pid is not None:
                await _ended(pid)
                self._reaped()
            if self._stopping.is_set():
                return
            wait_s = self._back_off.after_death(time.monotonic())
            if wait_s:
                self._record(self.name, f"starts again in {wait_s:g} s")
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
        pid = await self._launcher.launch()
        self.pid = pid
        self._record(self.name, f"started, pid {pid}")
        self._changed()
        if self._stopping.is_set():
            self.signal(signal.SIGKILL)  # told to stop while it was being started
        return pid

    def _reaped(self) -> None:
        if self.pid is not None:
            # What it has started must not outlive it: it would be a zombie of the next life.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.pid = None
        self.last_exit = self._launcher.reap()
        how = _how_it_ended(self.last_exit)
        self._record(self.name, how)
        self._changed()


class _CommandLauncher:
    """Starts a command, its output appended to a log."""

    def __init__(self, spec: ProcessSpec, log: Path, placements: PlacementNumbers) -> None:
        self._spec, self._log, self._placements = spec, log, placements
        self._process: subprocess.Popen[bytes] | None = None

    async def launch(self) -> int:
        """Start it with the next placement number."""
        command = self._spec.command
        if self._spec.placed:
            number = self._placements.next(self._spec.name)
            command = (*command, "--placement", str(number))
        env = os.environ | dict(self._spec.env)
        with self._log.open("ab") as log:
            self._process = await asyncio.to_thread(spawn, command, stdout=log, env=env)
        return self._process.pid

    def reap(self) -> int | None:
        """Its return code."""
        return None if self._process is None else self._process.wait()

    def give_up(self) -> None:
        """A command is started in no time."""


class _BrokerLauncher:
    """Starts the embedded broker, on the same port and data each time."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    async def launch(self) -> int:
        """Start it and wait until it answers."""
        await asyncio.to_thread(self._broker.start)
        return self._broker.pid

    def reap(self) -> int | None:
        """The broker keeps its return code to itself."""
        self._broker.stop()
        return None

    def give_up(self) -> None:
        """A broker that does not answer would be waited for for minutes."""
        self._broker.give_up()


async def _ended(pid: int) -> None:
    """Wait until the process has ended (it stays a zombie until it is reaped)."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(pid)
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _tree(pid: int) -> list[int]:
    """The process and all that it has started."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return [pid]


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        named = -code in set(signal.Signals)  # most real-time signals are not
        return f"ended by {signal.Signals(-code).name if named else f'signal {-code}'}"
    return f"ended with code {code}"


def rotate(log: Path, bytes_max: int = log_bytes_max) -> bool:
    """Keep one older log of the same bound beside it; whether it was turned over.

    Copied and cut, not renamed: the process holds the file open, and appends (O_APPEND) at the
    new beginning. A line written between copy and cut is lost; a full disk would lose more.
    """
    try:
        if log.stat().st_size <= bytes_max:
            return False
        older = log.with_suffix(".log.1")
        try:
            shutil.copyfile(log, older)
        except OSError as error:  # a full disk, which this log may have filled
            _log.warning("%s is cut without a copy: %s", log, error)
            older.unlink(missing_ok=True)
        os.truncate(log, 0)
    except FileNotFoundError:
        return False
    return True


def write_json(path: Path, content: object) -> None:
    """Write so that a reader finds the old content or the new, never half of it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(path)
