"""Sections 3.2 and 5.2: what a fault costs that a second copy hides, and what a planned end costs.

Five nodes on one machine, one controller, one topic of JSON readings; a query of one part in two
copies and two replicas, windows of 100 ms, X = 1 s. The proxy, each replica with its
aggregation, and each copy are on a node of their own. A fault ends processes, not agents, so
each node starts again what it has lost, and nothing is placed elsewhere.

The *survival cases* of section 5.2 are the deaths of one copy of the producer, of one of the
consumer, and of one of each: of those of the consumer both the primary and the secondary. The
producer is a replica with its aggregation: both replicas work, so that they have no roles. All of
them are killed (SIGKILL), and stopped for two seconds (SIGSTOP).

*Later than usual* is the delay of first answers, less the median of the five seconds before: of
answers that would usually have been read in the 0.3 s after a fault, or until a second after a
planned end; ``latest`` is that of all until the next fault. Faults come at random moments of a
window, from a seed that is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from bench.live import QUERY, feeding
from bench.machines import machines
from bench.paper_flux.answers import PartAnswers
from tests.support.nodes import Nodes
from tests.support.waiting import eventually_async

from slackwater.model.names import RootName
from slackwater.runtime.service.state import read_root_states

STREAM: Final = "s1"
NODES: Final = ("n1", "n2", "n3", "n4", "n5")
PER_S: Final = 2_000
WINDOW_S: Final = 0.1
BEFORE_S: Final = 5.0
DUE_S: Final = 0.3
STOPPED_S: Final = 2.0
AFTER_S: Final = 1.0
"""Answers of this time after a planned end count as well."""
QUIET_S: Final = 3.0
"""Between two faults: no answer of this time was late."""
LATE_S_MAX: Final = 0.3
READY_S_MAX: Final = 480.0
FILE: Final = """
apiVersion: slackwater/v1
streams:
  {stream}: {{topic: {{name: in-{stream}, format: json}}, key: {{field: k}},
       time: {{field: t, unit: us}}, fields: [v], expect_every: 1s}}
queries:
  {query}: {{from: [{stream}], where: v > {above}, window: {{size: 100ms}}, aggregate: [count],
       bound: 1s, copies: 2}}
"""
EACH_ALONE: Final = (
    f"proxy/{STREAM}",
    f"orderer/{QUERY}.0.a",
    f"orderer/{QUERY}.0.b",
    f"root/{QUERY}.0.a",
    f"root/{QUERY}.0.b",
)
"""Each on a node of its own; an aggregator is placed with its orderer."""


class Scene:
    """The deployment, and what a fault needs of it."""

    def __init__(self, folder: Path, bootstrap: str, nodes: Nodes, drawn: random.Random) -> None:
        self._folder, self.nodes, self.random, self._changes = folder, nodes, drawn, 0
        self.bootstrap = bootstrap
        self.later: Coroutine[Any, Any, None] | None = None
        """What a fault leaves to be done when its answers have been counted."""

    async def arrange(self) -> None:
        """Wait until the controllers have placed these processes apart; else move one."""
        while True:
            placed = await self.placed()
            of = {process: placed[process] for process in EACH_ALONE}
            empty = sorted({*NODES} - {*of.values()})
            if not empty:
                return
            doubled = [each for each in EACH_ALONE if [*of.values()].count(of[each]) > 1]
            await self.nodes.command("node", "move", doubled[-1], empty[0])
            await self.runs(doubled[-1], empty[0])

    async def runs(self, process: str, node: str) -> None:
        """Wait until this process is ready on this node, and everything else, too."""

        async def is_there() -> bool:
            return (await self.nodes.places()).get(process) == node

        await eventually_async(is_there, f"{process} is ready on {node}", READY_S_MAX)

    def written(self) -> Path:
        """Write the deployment file; each time with another condition, and equal results."""
        self._changes += 1
        path = self._folder / "d.yaml"
        path.write_text(FILE.format(stream=STREAM, query=QUERY, above=-self._changes))
        return path

    async def placed(self) -> dict[str, str]:
        """Wait until everything is ready; return the node of each process."""
        found: dict[str, str] = {}

        async def is_ready() -> bool:
            found.clear()
            found.update(await self.nodes.places())
            return bool(found)

        await eventually_async(is_ready, "everything is ready", READY_S_MAX)
        return found

    async def copies(self) -> tuple[str, str]:
        """The process that answers, and the one that follows."""
        states = await asyncio.to_thread(read_root_states, self.nodes.transport, QUERY, 1)
        answering = max(states.values(), key=lambda state: state.term).copy
        first, second = (RootName(QUERY, 0, copy).process for copy in (answering, 1 - answering))
        return first, second

    def processes(self, node: str) -> list[psutil.Process]:
        """Hosts and aggregators of a node, with their children; not its agent, not its proxies."""
        agent = psutil.Process(self.nodes.processes[node].pid)
        found: list[psutil.Process] = []
        for child in agent.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends just now
                if {"slackwater.host", "slackwater_spark.app"} & {*child.cmdline()}:
                    found += [child, *child.children(recursive=True)]
        return found


Act = Callable[[Scene], Awaitable[float]]
"""Returns the time (s) of its begin, when a planned end is over, or stopped processes run again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Answers expected in ``due_s`` after it count; None: those until a second after its end."""

    title: str
    act: Act
    due_s: float | None = DUE_S


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _end(number: signal.Signals, *roles: str) -> Act:
    """End, or stop for a while, the processes of nodes with these roles."""

    async def act(scene: Scene) -> float:
        primary, secondary = await scene.copies()
        names = {"primary": primary, "secondary": secondary, "replica": f"orderer/{QUERY}.0.a"}
        placed = await scene.placed()
        processes = [each for role in roles for each in scene.processes(placed[names[role]])]
        await asyncio.sleep(scene.random.uniform(0.0, 2 * WINDOW_S))
        at = time.time()
        assert processes, "there is nothing to end"
        _send(processes, number)
        if number is signal.SIGSTOP:
            await asyncio.sleep(STOPPED_S)
            _send(processes, signal.SIGCONT)
        return at

    return act


async def _move(scene: Scene) -> float:
    """Move the copy that answers to the node of the proxy.

    Controllers even out nodes, so it may not stay there: it is over when the other copy answers.
    """
    primary, secondary = await scene.copies()
    placed = await scene.placed()
    at = time.time()
    await scene.nodes.command("node", "move", primary, placed[EACH_ALONE[0]])

    async def has_resigned() -> bool:
        return (await scene.copies())[0] == secondary

    await eventually_async(has_resigned, f"{secondary} answers", READY_S_MAX)
    await scene.placed()
    scene.later = scene.arrange()
    return at


async def _drain(scene: Scene) -> float:
    """Drain the node that answers; then stop it, start it, and move the copy back."""
    primary, _ = await scene.copies()
    node = (await scene.placed())[primary]
    at = time.time()
    await scene.nodes.command("node", "drain", node, "--wait")
    scene.later = _started_again(scene, node)
    return at


async def _terminate(scene: Scene) -> float:
    """End the agent of the node that answers with SIGTERM, as an init system does."""
    primary, _ = await scene.copies()
    node = (await scene.placed())[primary]
    at = time.time()
    process = scene.nodes.processes[node]
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.wait)
    scene.later = _started_again(scene, node)
    return at


async def _started_again(scene: Scene, node: str) -> None:
    process = scene.nodes.processes.pop(node)
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.wait)
    scene.nodes.start(node)
    await scene.arrange()


async def _change(scene: Scene) -> float:
    """Change the condition of the query, to one that all readings meet as well."""
    at = time.time()
    there = ("--wait", "--bootstrap", scene.bootstrap)
    await scene.nodes.command("query", "apply", str(scene.written()), *there)
    await scene.placed()
    return at


FAULTS: Final = (
    Fault("consumer's primary killed", _end(signal.SIGKILL, "primary")),
    Fault("consumer's secondary killed", _end(signal.SIGKILL, "secondary")),
    Fault("producer killed", _end(signal.SIGKILL, "replica")),
    Fault("producer and consumer's primary killed", _end(signal.SIGKILL, "replica", "primary")),
    Fault("producer and consumer's secondary killed", _end(signal.SIGKILL, "replica", "secondary")),
    Fault("consumer's primary stopped", _end(signal.SIGSTOP, "primary")),
    Fault("consumer's secondary stopped", _end(signal.SIGSTOP, "secondary")),
    Fault("producer stopped", _end(signal.SIGSTOP, "replica")),
    Fault("producer and consumer's primary stopped", _end(signal.SIGSTOP, "replica", "primary")),
    Fault(
        "producer and consumer's secondary stopped", _end(signal.SIGSTOP, "replica", "secondary")
    ),
    Fault("primary moved to another node", _move, None),
    Fault("its node drained", _drain, None),
    Fault("its node ended (SIGTERM)", _terminate, None),
    Fault("query changed", _change, None),
)


class Bench:
    """One fault after the other, as soon as answers are in time again."""

    def __init__(self, scene: Scene, answers: PartAnswers) -> None:
        self._scene, self._answers = scene, answers

    async def quiet(self, after_s: float = 0.0) -> None:
        """Wait until everything is ready, and answers due since then are in time for a while."""
        await self._scene.placed()

        def is_quiet() -> bool:
            now_s = time.time()
            begin_s = now_s - QUIET_S - LATE_S_MAX
            if begin_s < after_s:
                return False
            found = self._answers.due(begin_s, now_s - LATE_S_MAX)
            late = any(one.late_s > LATE_S_MAX or one.is_tentative for one in found)
            return len(found) > 0.9 * QUIET_S / WINDOW_S and not late

        await eventually_async(is_quiet, "answers are in time", READY_S_MAX)

    async def once(self, fault: Fault) -> dict[str, Any]:
        """Return the delays of this fault (ms, sorted), and how many answers were tentative."""
        await self.quiet()
        at = await fault.act(self._scene)
        end = at + fault.due_s if fault.due_s is not None else time.time() + AFTER_S
        await self.quiet(end)
        usual_s = self._answers.usual_s(at - BEFORE_S, at)
        hit = self._answers.usually_seen(at, end, usual_s)
        since = self._answers.usually_seen(at, time.time(), usual_s)
        if self._scene.later is not None:
            later, self._scene.later = self._scene.later, None
            await later
        return {
            "usual_ms": usual_s * 1e3,
            "later_ms": sorted((one.late_s - usual_s) * 1e3 for one in hit),
            "latest_ms": max(one.late_s - usual_s for one in since) * 1e3,
            "tentative": sum(one.is_tentative for one in since),
        }


async def measure(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Start everything; each fault so many times, in turn; stop it."""
    async with machines(folder, NODES, {f"in-{STREAM}": 1}) as (bootstrap, nodes):
        with feeding(bootstrap, PER_S, (STREAM,)) as feeder:
            scene = Scene(folder, bootstrap, nodes, random.Random(seed))
            await nodes.command("query", "apply", str(scene.written()))
            await scene.arrange()
            answers = PartAnswers(nodes.transport, 1)
            answers.start()
            bench, found = Bench(scene, answers), {}
            await bench.quiet()
            begin_s = time.time()
            for fault in FAULTS:
                found[fault.title] = [await bench.once(fault) for _ in range(times)]
                print(" | ".join(row(fault.title, found[fault.title])), flush=True)
            end_s = time.time() - 1.0
            await asyncio.sleep(5.0)
            wrong = answers.wrong(begin_s, end_s, round(feeder.per_s * WINDOW_S))
            return {"faults": found, "wrong": wrong}


def row(title: str, of: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the cells of a fault: how often, p50, p99 and latest (ms), tentative answers."""
    later = [value for one in of for value in one["later_ms"]]
    p50, p99 = np.percentile(later, [50, 99])
    latest, tentative = max(one["latest_ms"] for one in of), sum(one["tentative"] for one in of)
    return title, str(len(of)), f"{p50:.0f}", f"{p99:.0f}", f"{latest:.0f}", str(tentative)


def run(*, quick: bool = False, times: int = 30, seed: int = 0) -> dict[str, Any]:
    """Each fault thirty times, or once."""
    with tempfile.TemporaryDirectory(prefix="slackwater-flux-") as made:
        found = asyncio.run(measure(Path(made), 1 if quick else times, seed))
    return found | {"readings_per_s": PER_S, "nodes": len(NODES), "seed": seed}
