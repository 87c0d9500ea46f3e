"""CPU accounting of the kernel: CPU time that a process used, and time that it waited for a core.

The wait identifies processes that lack CPU. A process that uses 5 % of a core may be idle or
starved; if its threads were ready to run, without a core, for 0.9 s of a second, it is starved.
Linux counts the wait of every thread (/proc/PID/task/TID/schedstat). On other kernels the wait is 0
and only the use is known. The alternative, the load average, names no process and lags by a minute.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from slackwater.model.kinds import KINDS, PROCESSES
from slackwater.model.names import kind_of

WAITED_MIN: Final = 0.3
"""Wait in seconds per second, summed over the threads, from which on a process is starved. With two
thirds of the cores in use and no other load, the wait is 0.05."""
FULL_CORE_MIN: Final = 0.9
"""Use in cores from which on a process that can use only one core is starved."""
NANO: Final = 1e-9
_CHILDREN: Final = Path("/proc/thread-self/children")
"""Exists where the kernel lists the children of a thread."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds on a core, and seconds ready to run without one, over all threads of a process.

    Both count from the start of the process.
    """

    used_s: float = 0.0
    waited_s: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.used_s + other.used_s, self.waited_s + other.waited_s)


@dataclass(frozen=True, slots=True)
class CpuShare:
    """Average number of cores used, and of threads that wait for a core (both may exceed 1)."""

    used: float
    waited: float

    def phrase(self) -> str:
        """The share as a phrase that follows the name of a process."""
        used = f"used {self.used:.0%} of a core"
        if self.waited < WAITED_MIN:
            return used
        return f"{used} and waited for one {self.waited:.1f} s a second"


def is_starved(process: str, share: CpuShare) -> bool:
    """Whether a process or fragment with this share lacks CPU; Python's lock limits it to one core.

    A JVM can use several cores.
    """
    kind = kind_of(process)
    runs_in = PROCESSES.get(KINDS[kind].process if kind in KINDS else kind)
    one_thread = runs_in is not None and not runs_in.is_jvm
    return share.waited >= WAITED_MIN or (one_thread and share.used >= FULL_CORE_MIN)


@dataclass(frozen=True, slots=True)
class CpuLoad:
    """CPU load of the machine and of the processes over the ``lasted_s`` seconds before ``at_us``.

    ``busy`` is the share of all cores in use, ``stolen`` the share that the host of a virtual
    machine withheld (part of ``busy``). ``others`` is the share used by other programs.
    """

    at_us: int
    lasted_s: float
    busy: float
    stolen: float
    processes: Mapping[str, CpuShare]
    others: float = 0.0


def usage(*pids: int) -> Usage:
    """The sum over these processes; one that has ended counts as zero."""
    return sum((_usage(pid) for pid in pids), Usage())


def own_usage() -> Usage:
    """The usage of this process alone."""
    return usage(os.getpid())


def tree_usage(pid: int) -> Usage:
    """The usage of a process and all its descendants."""
    return usage(*_trees([pid])[pid])


class LoadMeter:
    """Measures the load between two calls; for one thread."""

    def __init__(self) -> None:
        self._at_s = time.monotonic()
        self._machine = psutil.cpu_times()
        self._before: dict[str, tuple[int, Usage]] = {}
        self._own = own_usage()

    @property
    def age_s(self) -> float:
        """Seconds since the last measurement."""
        return time.monotonic() - self._at_s

    def look(self, pids: Mapping[str, int], now_us: int) -> CpuLoad:
        """The load since the last measurement; ``processes`` omits those started since.

        ``pids`` has the pid of each process by name; ``now_us`` is the time of the result.
        """
        now_s, machine, trees = time.monotonic(), psutil.cpu_times(), _trees(pids.values())
        lasted_s = max(now_s - self._at_s, 1e-6)
        after = {name: (pid, usage(*trees[pid])) for name, pid in pids.items()}
        shares = {
            name: _share(self._before[name][1], used, lasted_s)
            for name, (pid, used) in after.items()
            if name in self._before and self._before[name][0] == pid
        }
        own = own_usage()
        ours_s = own.used_s - self._own.used_s + self._used_since(after)
        busy, stolen = _machine_share(self._machine, machine)
        others = max(0.0, busy - stolen - ours_s / lasted_s / (os.cpu_count() or 1))
        self._at_s, self._machine, self._before, self._own = now_s, machine, after, own
        return CpuLoad(now_us, lasted_s, busy, stolen, shares, others)

    def _used_since(self, after: Mapping[str, tuple[int, Usage]]) -> float:
        """Seconds on a core since the last measurement; all of those of a process started since."""
        total_s = 0.0
        for name, (pid, used) in after.items():
            before_pid, before = self._before.get(name, (0, Usage()))
            total_s += max(0.0, used.used_s - (before.used_s if before_pid == pid else 0.0))
        return total_s


class ThreadWait:
    """Measures how long the calling thread has waited for a core; for one thread.

    A measurement takes two microseconds: the file is opened once and stays open.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._is_counted = True

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def waited_us(self) -> int:
        """Microseconds since the thread began; 0 where the kernel does not count."""
        if self._file is None and self._is_counted:
            self._open()
        if self._file is None:
            return 0
        return int(os.pread(self._file, 100, 0).split()[1]) // 1000

    @staticmethod
    def used_us() -> int:
        """Microseconds that the calling thread has used; keeps the interpreter's lock."""
        return time.thread_time_ns() // 1000

    def _open(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:  # no Linux, or a kernel that counts nothing
            self._is_counted = False


class OwnCpu:
    """A process's own share, updated at most once in ``period_s``; for one thread."""

    def __init__(self, *, with_children: bool = False, period_s: float = 1.0) -> None:
        self._with_children = with_children
        self._period_s = period_s
        self._at_s = time.monotonic()
        self._before = self._measure()
        self._share: CpuShare | None = None

    def share(self) -> CpuShare | None:
        """The share over the last full period; None during the first."""
        now_s = time.monotonic()
        if (lasted_s := now_s - self._at_s) >= self._period_s:
            after = self._measure()
            self._share = _share(self._before, after, lasted_s)
            self._at_s, self._before = now_s, after
        return self._share

    def _measure(self) -> Usage:
        return tree_usage(os.getpid()) if self._with_children else own_usage()


def _usage(pid: int) -> Usage:
    try:
        times = psutil.Process(pid).cpu_times()
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except (psutil.Error, OSError):
        return Usage()
    return Usage(times.user + times.system, sum(map(_waited_s, tasks)))


def _waited_s(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[1]) * NANO
    except (OSError, ValueError, IndexError):  # the thread has ended, or the kernel counts nothing
        return 0.0


def _share(before: Usage, after: Usage, lasted_s: float) -> CpuShare:
    """The share, never negative: the wait of a thread that has ended is no longer counted."""
    used_s, waited_s = after.used_s - before.used_s, after.waited_s - before.waited_s
    return CpuShare(max(used_s, 0.0) / lasted_s, max(waited_s, 0.0) / lasted_s)


def _machine_share(before: Any, after: Any) -> tuple[float, float]:
    """Busy and stolen as shares of all cores, from two values of ``psutil.cpu_times``."""
    spent = dict(
        zip(after._fields, (b - a for a, b in zip(before, after, strict=True)), strict=True)
    )
    # The kernel counts a guest's time in user and nice as well.
    total = sum(seconds for name, seconds in spent.items() if not name.startswith("guest"))
    if total <= 0:
        return 0.0, 0.0
    idle = spent["idle"] + spent.get("iowait", 0.0)
    return max(0.0, 1 - idle / total), spent.get("steal", 0.0) / total


def _trees(roots: Iterable[int]) -> dict[int, list[int]]:
    """Each of these processes with its descendants, except those that have a tree of their own."""
    if not _CHILDREN.exists():
        return _scanned_trees(roots)
    wanted = frozenset(roots)
    return {root: _with_descendants(root, wanted) for root in wanted}


def _with_descendants(root: int, roots: frozenset[int]) -> list[int]:
    """A process and its descendants, from the kernel's list of each thread's child processes.

    A scan of the process table takes 10 ms with 65 processes, this 1 ms for a JVM.
    """
    found = [root]
    for pid in found:  # grows meanwhile
        found += [child for child in children_of(pid) if child not in roots]
    return found


def children_of(pid: int) -> list[int]:
    """The child processes of all threads of a process, zombies too; none if it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(OSError):  # the thread has ended
                found += map(int, (task / "children").read_text("ascii").split())
    return found


def _scanned_trees(roots: Iterable[int]) -> dict[int, list[int]]:
    """The same from one scan of the process table."""
    parents = {process.pid: process.info["ppid"] for process in psutil.process_iter(["ppid"])}
    trees: dict[int, list[int]] = {root: [root] for root in roots}
    for pid, parent in parents.items():
        above = parent
        while above and above not in trees:
            above = parents.get(above, 0)
        if above and pid not in trees:
            trees[above].append(pid)
    return trees
