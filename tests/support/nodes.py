"""Nodes as processes, which controllers place fragments on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from tests.support.controllers import Cluster
from tests.support.counted_sender import sums
from tests.support.waiting import eventually_async

from slackwater.control.control_state import Wanted
from slackwater.control.recorded import fragment_specs, process_of
from slackwater.controller.links import StateFrame
from slackwater.runtime.logs.kafka import KafkaTransport


class Nodes:
    """Node processes by name."""

    def __init__(self, folder: Path, bootstrap: str, cluster: Cluster) -> None:
        self._folder, self._bootstrap, self.cluster = folder, bootstrap, cluster
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.transport = KafkaTransport(bootstrap)

    @property
    def controllers(self) -> str:
        return ",".join(str(self.cluster.address(name)) for name in self.cluster.ports)

    def start(self, name: str) -> None:
        command = [
            *(sys.executable, "-m", "slackwater.cli.app", "node", "--name", name),
            *("--controllers", self.cluster.addresses_for(name), "--bootstrap", self._bootstrap),
            *("--data-dir", str(self._folder / name)),
        ]
        with (self._folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """Kill -9 of the agent and all that it has started."""
        process = self.processes.pop(name)
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()
        process.wait()

    def stop_all(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait()

    async def command(self, *words: str, code: int = 0) -> str:
        """The output of a command that asks the controllers."""
        command = [sys.executable, "-m", "slackwater.cli.app", *words]
        env = os.environ | {"SLACKWATER_CONTROLLERS": self.controllers}
        done = await asyncio.to_thread(
            subprocess.run, command, env=env, capture_output=True, text=True, check=False
        )
        printed = done.stdout + done.stderr
        # A test makes no claim on the time of answers: `status` may say that they were late.
        reported = (" is OVERLOADED: ", " is LATE: ")
        is_late = words[0] == "status" and any(each in done.stderr for each in reported)
        assert done.returncode == (1 if is_late else code), printed
        return printed

    async def frame(self) -> StateFrame:
        return await self.cluster.state(next(iter(self.cluster.processes)))

    async def places(self, *ignored: str) -> dict[str, str]:
        """Where each fragment is ready; empty while one is not. ``ignored``: queries.

        A deletion that has been carried out is left out.
        """
        frame, found = await self.frame(), {}
        deleted = frame.state.queries_wanted(Wanted.DELETED)
        for spec in fragment_specs(frame.state):
            process = process_of(spec.query, spec.fragment)
            is_ignored = any(f"/{query}." in process for query in ignored)  # shared children, too
            if is_ignored or spec.query in ignored or spec.fragment == "absent":
                continue
            entry = frame.state.placement.get((spec.query, spec.fragment))
            if entry is None or entry.number not in frame.nodes.ready:
                return {}
            if spec.query not in deleted:
                found[process] = entry.node
        return found

    async def run_on(self, *nodes: str, ignored: str = "") -> dict[str, str]:
        """Wait until everything is ready, and each of these nodes has something; returns where."""
        found: dict[str, str] = {}

        async def are_right() -> bool:
            found.clear()
            found.update(await self.places(ignored))
            return set(found.values()) == {*nodes}

        await eventually_async(are_right, f"everything runs on {', '.join(nodes)}", 60)
        return found

    async def answers_after(self, query: str, size_s: int, count: int = 3) -> None:
        """Wait for so many more windows."""
        before = len(sums(self.transport, query, size_s))

        async def are_more() -> bool:
            found = await asyncio.to_thread(sums, self.transport, query, size_s)
            return len(found) >= before + count

        await eventually_async(are_more, f"{count} more windows of {query}", 60)
