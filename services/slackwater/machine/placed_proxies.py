"""The processes of proxies that were placed on a machine, or of streams that were added to `up`.

Streams that are added together share a process. Adding a stream does not restart the others, except
that all streams over HTTP are in one process, which has the port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from slackwater.deployment.kinds import PROXY
from slackwater.deployment.stored import SUFFIX, read_stored, to_text
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch, proxy_spec
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.names import ProxyName, own_name
from slackwater.runtime.security.private import write_atomically

FILE: Final = f"added{SUFFIX}"


def added_streams(data_dir: Path, running: Collection[str]) -> dict[str, StreamSpec]:
    """Return the streams that queries have added to `up`, and whose proxies run.

    Args:
        data_dir: the data directory of `up`.
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
    """Keeps the placed proxies running; the names of their processes begin with ``prefix``."""

    def __init__(self, supervisor: Starter, launch: Launch, prefix: str) -> None:
        self._supervisor, self._launch, self._prefix = supervisor, launch, prefix
        self._processes: dict[str, list[str]] = {}
        self._count = 0

    async def settle(self, wanted: Iterable[str], over_http: Collection[str] = ()) -> None:
        """Run these proxies (``proxy/lab``), and no others; idempotent.

        ``over_http``: those of streams over HTTP.
        """
        wanted = [*wanted]
        served = {part for parts in self._processes.values() for part in parts}
        adds_http = bool({*wanted}.intersection(over_http) - served)
        for process, parts in list(self._processes.items()):
            kept = [part for part in parts if part in wanted]
            if adds_http and not {*kept}.isdisjoint(over_http):
                kept = []  # it has the port: its streams start again, with the added ones
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


class AddedProxies:
    """The proxies of streams that the deployment file of `up` lacks: queries have brought them.

    They read a file that is written from the queries' registrations.

    Args:
        supervisor: starts their processes.
        launch: the parameters of the command lines of `up`.
        declared: the names of the streams in the deployment file.
        data_dir: directory of the written file.
    """

    def __init__(
        self, supervisor: Starter, launch: Launch, declared: Set[str], data_dir: Path
    ) -> None:
        self._declared, self._file = declared, data_dir / FILE
        placed = replace(launch, deployment_path=self._file)
        self._proxies = PlacedProxies(supervisor, placed, "added")
        self._written: Deployment | None = None

    async def settle(self, deployment: Deployment) -> None:
        """Run the proxies of the deployment's added streams, and no others; idempotent."""
        added = [
            name.process
            for stream in deployment.streams.values()
            if stream.name not in self._declared
            for name in stream.proxy_names
        ]
        if added and deployment != self._written:
            write_atomically(self._file, to_text(deployment))
            self._written = deployment
        await self._proxies.settle(added)
