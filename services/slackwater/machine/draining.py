"""Draining: moves the fragments of a host that uses too much memory to a new host.

The memory of a session is bounded (H of rule-12), and so are the records of a host that are in
flight or read ahead. A process that uses more has a leak, in a client library or by heap
fragmentation, which cannot be attributed to a fragment. A new process does not have it. The
supervisor's process therefore checks the memory of each host. If a host uses too much, it starts an
empty host, moves the fragments one after another, and ends the old host.

Fragments move one at a time into a running process. Each is unavailable for half a second, so its
answers stay within their bound, and the others continue. The alternative, a restart of the host,
stops all of them for as long as a process takes to start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import psutil

from slackwater.machine.layout import Launch, host_spec
from slackwater.machine.supervisor import Supervisor
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.kinds import HOST
from slackwater.runtime.service.heartbeats import HeartbeatListener

HOST_MIB_MAX: Final = 512
"""Allowance of a host without fragments: 100 for the process, 128 for records in flight, 64 for
records read ahead, 64 for records read recently (``RECENT_BYTES_MAX``; ``REMEMBERED_BYTES_MAX``
twice); the rest is a reserve."""
FRAGMENT_MIB_MAX: Final = 384
"""Allowance of each fragment: 256 for H, and the rest for the readings that a join retains."""
LOOK_S: Final = 5.0
BACK_S_MAX: Final = 60.0
"""Longest wait for the new host, and for a moved fragment before the next one is moved."""
AGAIN_S: Final = 600.0
"""Shortest time between two drainings: memory that grows faster is not a leak."""

Mib = Callable[[int], float]


def mib_of(pid: int) -> float:
    """Resident memory of a process; 0 if it has just ended."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / 2**20
    except psutil.Error:
        return 0.0


class Draining:
    """Drains hosts above their memory allowance; for the supervisor's event loop.

    Args:
        supervisor: keeps the hosts running.
        listener: receives the heartbeats of their fragments.
        launch: how hosts are started.
        mib_of: measures the memory of a process.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        listener: HeartbeatListener,
        launch: Launch,
        mib_of: Mib = mib_of,
    ) -> None:
        self._supervisor = supervisor
        self._listener = listener
        self._launch = launch
        self._mib_of = mib_of
        self._drained = 0
        self._not_before_s = 0.0

    async def run(self) -> None:
        """Check every ``LOOK_S``, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Drain the first host above its allowance."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._not_before_s:
            return
        for process, pid in self._supervisor.pids().items():
            if not process.startswith(f"{HOST}/"):
                continue
            mib, fragments = self._mib_of(pid), self._fragments(process)
            if mib > HOST_MIB_MAX + FRAGMENT_MIB_MAX * len(fragments):
                self._not_before_s = now_s + AGAIN_S
                self._supervisor.record(process, f"uses {mib:,.0f} MiB; moving its fragments")
                await self.drain(process)
                return

    async def drain(self, process: str) -> None:
        """Move the fragments of a host to a new one, and end the old host."""
        self._drained += 1
        new = f"{HOST}/new-{self._drained}"
        try:
            await self._supervisor.start(host_spec(new, (), self._launch))
        except (EnvironmentProblem, OSError) as error:
            self._supervisor.record(process, f"cannot be drained: {error}")
            return
        if not await self._comes(lambda: self._listener.ready(new)):
            self._supervisor.record(process, f"cannot be drained: {new} did not start")
            await self._supervisor.end(new)
            return
        for part in self._fragments(process):
            if self._supervisor.process_of(part) == process:
                await self._move(part, process, new)
        await self._supervisor.end(process)

    async def _move(self, part: str, process: str, new: str) -> None:
        kept = [each for each in self._fragments(process) if each != part]
        moved = [*self._fragments(new), part]
        self._supervisor.serve(host_spec(process, kept, self._launch))
        self._supervisor.serve(host_spec(new, moved, self._launch))
        if not await self._comes(lambda: self._is_at(part, new)):
            self._supervisor.record(part, f"did not start in {new} within {BACK_S_MAX:g} s")

    def _fragments(self, process: str) -> list[str]:
        return [part for part in self._supervisor.parts(process) if part != process]

    def _is_at(self, part: str, process: str) -> bool:
        beat = self._listener.latest(part)
        at = self._supervisor.pids().get(process)
        return beat is not None and beat.ready and beat.pid == at

    async def _comes(self, holds: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + BACK_S_MAX
        while not holds():
            if loop.time() > until_s:
                return False
            await asyncio.sleep(0.05)
        return True
