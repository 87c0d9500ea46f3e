"""The processes of proxies that were placed on a machine.

Streams that are added together share a process. Adding a stream does not restart the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from slackwater.model.names import ProxyName, own_name
from slackwater.runtime.local.launchers import ProcessSpec
from slackwater.runtime.local.layout import PROXY, Launch, proxy_spec


class Starter(Protocol):
    """What is used of a supervisor."""

    async def start(self, spec: ProcessSpec) -> None:
        """Start a process."""
        ...

    async def end(self, name: str) -> None:
        """End a process."""
        ...


class PlacedProxies:
    """Keeps the placed proxies running; the names of their processes begin with ``prefix``."""

    def __init__(self, supervisor: Starter, launch: Launch, prefix: str) -> None:
        self._supervisor, self._launch, self._prefix = supervisor, launch, prefix
        self._processes: dict[str, list[str]] = {}
        self._count = 0

    async def settle(self, wanted: Iterable[str]) -> None:
        """Run these proxies (``proxy/lab``), and no others; idempotent."""
        wanted = [*wanted]
        for process, parts in list(self._processes.items()):
            kept = [part for part in parts if part in wanted]
            if kept == parts:
                continue
            await self._supervisor.end(process)
            del self._processes[process]
            if kept:
                await self._start(process, kept)
        served = {part for parts in self._processes.values() for part in parts}
        if added := [part for part in wanted if part not in served]:
            process = f"{PROXY}/{self._prefix}-{self._count}"
            self._count += 1
            await self._start(process, added)

    async def _start(self, process: str, parts: list[str]) -> None:
        names = [ProxyName.parse(own_name(part)) for part in parts]
        await self._supervisor.start(proxy_spec(process, names, self._launch))
        self._processes[process] = parts
