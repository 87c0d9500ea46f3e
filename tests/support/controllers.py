"""Controller processes; relays between them, and from nodes to them, can be cut."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import free_port
from tests.support.relay import Relay
from tests.support.waiting import eventually_async

from slackwater.controller.address import Address
from slackwater.controller.client import connect
from slackwater.controller.links import LinkError, StateFrame

WAIT_S_MAX = 60.0


@dataclass
class Cluster:
    """Controllers by name."""

    folder: Path
    ports: dict[str, int]
    relays: dict[tuple[str, str], Relay]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def address(self, name: str) -> Address:
        return Address("127.0.0.1", self.ports[name])

    def addresses_for(self, node: str) -> str:
        """The value of ``--controllers`` of a node."""
        return ",".join(f"127.0.0.1:{self._port(node, name)}" for name in self.ports)

    def start(self, name: str) -> None:
        peers = ",".join(
            f"{other}=127.0.0.1:{self._port(name, other)}" for other in self.ports if other != name
        )
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    sys.executable, "-m", "slackwater.cli.app", "controller", "--name", name,
                    "--listen", str(self.address(name)), "--data", str(self.folder / name),
                    "--peers", peers,
                ],
                stdout=log, stderr=log, env=os.environ,
            )  # fmt: skip

    def _port(self, name: str, other: str) -> int:
        relay = self.relays.get((name, other))
        return self.ports[other] if relay is None else relay.port

    def kill(self, name: str) -> None:
        """Kill -9."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def cut(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self.relays[pair].cut()

    def split(self, *half: str) -> None:
        """Cut these controllers and nodes off from all others."""
        for (one, other), relay in self.relays.items():
            if (one in half) != (other in half):
                relay.cut()

    def heal(self) -> None:
        for relay in self.relays.values():
            relay.heal()

    async def state(self, name: str) -> StateFrame:
        async with connect([self.address(name)]) as client:
            return await client.state()

    async def agreed(self, *names: str) -> StateFrame:
        """Wait until these controllers have the same view and state."""
        wanted = tuple(sorted(names))
        deadline = asyncio.get_running_loop().time() + WAIT_S_MAX
        while asyncio.get_running_loop().time() < deadline:
            try:
                frames = [await self.state(name) for name in wanted]
            except LinkError:
                frames = []
            if frames and all(
                (f.members, f.view_number, f.state)
                == (wanted, frames[0].view_number, frames[0].state)
                for f in frames
            ):
                return frames[0]
            await asyncio.sleep(0.02)
        logs = "\n".join((self.folder / f"{name}.log").read_text() for name in names)
        raise AssertionError(f"no agreement of {names}: {frames}\n{logs}")


@asynccontextmanager
async def controllers(
    folder: Path,
    *names: str,
    relayed: bool = True,
    delay_s: float = 0.0,
    nodes: Sequence[str] = (),
) -> AsyncIterator[Cluster]:
    """Start controllers in one view; without relays no connection can be cut or delayed.

    ``nodes`` are connected to the controllers by relays, too.
    """
    assert relayed or not delay_s
    ports = {name: free_port() for name in names}
    pairs = [(a, b) for a in (*names, *nodes) for b in names if relayed and a != b]
    relays = {(a, b): Relay(ports[b], delay_s) for a, b in pairs}
    servers = [await asyncio.start_server(r.accept, "127.0.0.1", r.port) for r in relays.values()]
    cluster = Cluster(folder, ports, relays)
    try:
        for name in names:
            cluster.start(name)
        await cluster.agreed(*names)
        yield cluster
    finally:
        for name in list(cluster.processes):
            cluster.kill(name)
        for relay in relays.values():
            relay.cut()
        for server in servers:
            server.close()
        await eventually_async(lambda: not any(relay.writers for relay in relays.values()))
