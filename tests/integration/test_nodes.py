"""Two nodes and two controllers as processes: a node is killed, comes back and is drained.

A sender writes readings all the time. Every window is compared with the sum of what was sent; of a
query without a window every reading is compared. The first test is short, since it needs no Spark.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.controllers import Cluster, controllers
from tests.counted import TOPIC, Sender, check_sums, sums
from tests.making import make_topics
from tests.waiting import eventually_async

from slackwater.controller.links import StateFrame
from slackwater.node.recorded import REGISTRATION, fragment_specs, process_of
from slackwater.runtime.local.broker import EmbeddedBroker
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.transport import Transport, read_to_end

FILE = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: ms}
    fields: [x]
    expect_every: 1s
queries:
  each: {from: [lab], window: {size: 1s}, aggregate: [sum], bound: 2s}
"""
CHAINED = """\
  wide: {from: [lab], window: {size: 2s}, aggregate: [sum], bound: 2s}
  waits: {from: [absent], window: {size: 1s}, aggregate: [sum], bound: 2s}
"""
ABSENT = """\
  absent:
    topic: {name: no-such-topic, format: json}
    key: {field: mote}
    time: {field: at, unit: ms}
    fields: [x]
    expect_every: 1s
queries:
"""
ROWS = "  rows: {from: [lab], where: x > 0, bound: 2s}\n"


@pytest.fixture(name="broker")
def _broker(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        make_topics(broker.bootstrap, [TOPIC])
        yield broker.bootstrap


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
            *("--controllers", self.controllers, "--bootstrap", self._bootstrap),
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
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    async def frame(self) -> StateFrame:
        return await self.cluster.state(next(iter(self.cluster.processes)))

    async def places(self, *ignored: str) -> dict[str, str]:
        """Where each fragment is ready; empty while one is not. ``ignored``: queries."""
        frame, found = await self.frame(), {}
        for spec in fragment_specs(frame.state):
            if spec.query in ignored or spec.fragment == "absent":
                continue
            entry = frame.state.placement.get((spec.query, spec.fragment))
            if entry is None or entry.number not in frame.nodes.ready:
                return {}
            found[process_of(spec.query, spec.fragment)] = entry.node
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


def readings(transport: Transport, query: str) -> list[float]:
    """The readings of a query without a window, in the order of its stable results."""
    log = (f"sw.results.{query}.stable", 0)
    rows = (
        json.loads(raw.value) for raw in read_to_end(transport, log, isolation="read_committed")
    )
    return [row["fields"]["x"] for row in rows if row["kind"] == "stable"]


async def test_the_fragments_of_a_killed_node_run_on_the_other_one(
    tmp_path: Path, broker: str
) -> None:
    async with controllers(tmp_path, "a", "b", relayed=False) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)

        async def answers_more() -> None:
            before = len(readings(nodes.transport, "rows"))
            await eventually_async(
                lambda: len(readings(nodes.transport, "rows")) > before + 50, "it answers on"
            )

        try:
            file = tmp_path / "d.yaml"
            file.write_text(FILE[: FILE.index("  each")] + ROWS)
            for name in ("n1", "n2"):
                nodes.start(name)
            await nodes.command("query", "apply", str(file))
            placed = await nodes.run_on("n1", "n2")
            assert placed["orderer/rows.0.a"] != placed["orderer/rows.0.b"]
            await answers_more()
            victim = placed["root/rows.0"]
            nodes.kill(victim)
            await nodes.run_on("n2" if victim == "n1" else "n1")
            nodes.cluster.kill("a")
            await answers_more()
        finally:
            nodes.stop_all()
            sender.stop()
        found = [int(x) for x in readings(nodes.transport, "rows")]
        assert found == [*range(found[0], found[-1] + 1)]


@pytest.mark.drill
async def test_what_controllers_place_runs_on_the_nodes_that_are_there(
    tmp_path: Path, broker: str
) -> None:
    async with controllers(tmp_path, "a", "b", relayed=False) as cluster:
        nodes, sender = Nodes(tmp_path, broker, cluster), Sender(broker)
        try:
            await _live_through_failures(nodes, tmp_path)
        finally:
            nodes.stop_all()
            sender.stop()
        check_sums(nodes.transport, sender, "each", 1)
        check_sums(nodes.transport, sender, "wide", 2)


async def _live_through_failures(nodes: Nodes, folder: Path) -> None:
    file = folder / "d.yaml"
    file.write_text(FILE)
    for name in ("n1", "n2"):
        nodes.start(name)
    await nodes.command("query", "apply", str(file))
    placed = await nodes.run_on("n1", "n2")
    assert placed["orderer/each.0.a"] != placed["orderer/each.0.b"]
    await nodes.answers_after("each", 1)

    # A second query beside one whose input does not exist; that one is told, and delays nobody.
    file.write_text(FILE.replace("queries:\n", ABSENT) + CHAINED)
    await nodes.command("query", "apply", str(file))
    placed = await nodes.run_on("n1", "n2", ignored="waits")
    assert "topic no-such-topic" in await nodes.command("node", "list", code=1)
    await nodes.command("query", "delete", "waits")
    await nodes.run_on("n1", "n2")
    assert "root/wide.0" in await nodes.command("node", "list")
    await nodes.answers_after("wide", 2)

    # The node of a root is killed, then a controller.
    victim = placed["root/each.0"]
    other = "n2" if victim == "n1" else "n1"
    nodes.kill(victim)
    await nodes.run_on(other)
    nodes.cluster.kill("a")
    await nodes.answers_after("each", 1)

    # It comes back and gets work; the other one is drained, and everything stops there.
    nodes.start(victim)
    await nodes.run_on("n1", "n2")
    drained = await nodes.command("node", "drain", other, "--wait")
    assert "runs nothing that is needed" in drained
    await nodes.run_on(victim)
    nodes.cluster.kill("b")  # no controller is there
    await nodes.answers_after("each", 1)
    for name in ("a", "b"):
        nodes.cluster.start(name)
    await nodes.cluster.agreed("a", "b")
    moved = await nodes.command("node", "move", f"{REGISTRATION}/each", "n9", code=2)
    assert "n9" in moved
    await nodes.command("query", "pause", "wide")
    await nodes.command("query", "resume", "wide")
    await nodes.run_on(victim)
    await nodes.answers_after("wide", 2)
