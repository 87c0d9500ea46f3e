"""The processes of the proxies on one machine.

Streams that are added together share a process, and the proxies that share a topic have a process
for each share. Adding a stream does not restart the others, except that all streams over HTTP are
in one process, which has the port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, Protocol

from slackwater.deployment.stored import SUFFIX, read_stored
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch, proxy_process, proxy_spec
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.names import PROXY, ProxyName, own_name

FILE: Final = f"node{SUFFIX}"
"""The file in a data directory in which the processes of the machine find the deployment."""


def running_streams(data_dir: Path, running: Collection[str]) -> dict[str, StreamSpec]:
    """Return the streams whose proxies run on a machine, also those that queries have added.

    Args:
        data_dir: the machine's data directory.
        running: the names of the proxies that run (``proxy/lab``); others are ignored.
    """
    file = data_dir / FILE
    if not file.exists():
        return {}
    streams = read_stored(file).streams.values()
    return {
        each.name: each
        for each in streams
        if any(name.process in running for name in each.proxy_names)
    }


class Starter(Protocol):
    """What is used of a supervisor."""

    async def start(self, spec: ProcessSpec) -> None:
        """Start a process."""
        ...

    async def end(self, name: str) -> None:
        """End a process."""
        ...


class PlacedProxies:
    """Keeps the placed proxies running.

    Args:
        supervisor: starts their processes.
        launch: the parameters of their command lines.
        node: begins the names of the processes (``proxy/n1-0``). It is empty under `slackwater up`:
            the first process is ``proxy``, and later ones are ``proxy/added-0`` and so on.
    """

    def __init__(self, supervisor: Starter, launch: Launch, node: str) -> None:
        self._supervisor, self._launch, self._node = supervisor, launch, node
        self._processes: dict[str, list[str]] = {}
        self._used: set[str] = set()

    async def settle(self, wanted: Iterable[str], deployment: Deployment) -> None:
        """Run these proxies (``proxy/lab``), and no others; idempotent.

        ``deployment`` has their streams.
        """
        wanted = [*wanted]
        served = {part for parts in self._processes.values() for part in parts}
        over_http = {part for part in wanted if _is_over_http(part, deployment)}
        adds_http = bool(over_http - served)
        for process, parts in list(self._processes.items()):
            kept = [part for part in parts if part in wanted]
            if adds_http:  # what has the port starts again, with the added streams
                kept = [part for part in kept if part not in over_http]
            if kept == parts:
                continue
            await self._supervisor.end(process)
            del self._processes[process]
            if kept:
                await self._start(process, kept, deployment)
        served = {part for parts in self._processes.values() for part in parts}
        shares: dict[int, list[str]] = {}
        for part in wanted:
            if part not in served:
                shares.setdefault(ProxyName.parse(own_name(part)).share, []).append(part)
        for share, parts in sorted(shares.items()):
            await self._start(self._unused(share), parts, deployment)

    def _unused(self, share: int) -> str:
        """Return the name of a new process."""
        name = proxy_process(share)
        if not self._node and name not in self._used:
            return name
        names = (f"{PROXY}/{self._node or 'added'}-{n}" for n in range(len(self._used) + 1))
        return next(name for name in names if name not in self._used)

    async def _start(self, process: str, parts: list[str], deployment: Deployment) -> None:
        names = [ProxyName.parse(own_name(part)) for part in parts]
        self._used.add(process)
        await self._supervisor.start(proxy_spec(process, names, deployment, self._launch))
        self._processes[process] = parts


def _is_over_http(part: str, deployment: Deployment) -> bool:
    stream = deployment.streams.get(ProxyName.parse(own_name(part)).stream)
    return stream is not None and stream.http is not None
