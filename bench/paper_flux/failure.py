"""Section 5.4, Figure 8: one of four machines is killed under load.

Four nodes on one machine, one controller, one topic of JSON readings; a query with a few parts in
two copies, windows of 100 ms, X = 2 s. A node is killed with all that it runs
(kill -9). The victim is the node that answers most parts; of those, if possible, one without the
proxy and without a replica of the orderer, as the paper's ingress is on a machine of its own. Then
it is started again.

*Throughput* is that of readings in first answers, by the time at which a consumer read them;
*latency* is that of first answers, less the usual one, by the time at which they would usually have
been read. In the paper the throughput is steady
for a quarter of a second and then falls while the state of the new copy is moved, for 0.94 s. Here
a new copy reads its state from the log while the other one answers, so the interruption is that of
the take-over, in the parts which the victim answered.

A window is wrong if its stable answers do not count exactly the readings of its 100 ms.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.live import QUERY, feeding
from bench.machines import machines
from bench.paper_flux.answers import First, PartAnswers
from tests.support.nodes import Nodes
from tests.support.waiting import eventually_async

from slackwater.model.names import RootName
from slackwater.runtime.service.state import read_root_states

STREAM: Final = "s1"
NODES: Final = ("n1", "n2", "n3", "n4")
WINDOW_S: Final = 0.1
BEFORE_S: Final = 5.0
AFTER_S: Final = 10.0
DUE_S: Final = 0.3
"""Compared are first answers of the victim's parts that would be read in this time after it."""
SETTLED_S: Final = 12.0
"""After a start: until answers are in time again."""
READY_S_MAX: Final = 480.0
FILE: Final = """
apiVersion: slackwater/v1
streams:
  {stream}: {{topic: {{name: in-{stream}, format: json}}, key: {{field: k}},
       time: {{field: t, unit: us}}, fields: [v], expect_every: 1s}}
queries:
  {query}: {{from: [{stream}], window: {{size: 100ms}}, aggregate: [count], bound: 2s,
       parts: {parts}, copies: 2}}
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Readings per second, their keys, and the parts of the query."""

    readings_per_s: int = 5_000
    keys: int = 10
    parts: int = 4


def victim_of(placed: dict[str, str], answering: dict[str, int]) -> tuple[str, list[int]]:
    """The node to kill, and the parts that it answers.

    ``placed``: node by process; ``answering``: parts by the process that answers them.
    """
    parts = {
        node: [part for process, part in answering.items() if placed[process] == node]
        for node in NODES
    }
    inputs = {node for process, node in placed.items() if not process.startswith("root/")}
    victim = min(NODES, key=lambda node: (not parts[node], node in inputs, -len(parts[node]), node))
    return victim, sorted(parts[victim])


async def run_on(nodes: Nodes, *names: str) -> dict[str, str]:
    """Wait until all fragments are ready, and on all of these nodes; return the node of each."""
    found: dict[str, str] = {}

    async def are_right() -> bool:
        found.clear()
        found.update(await nodes.places())
        return {*found.values()} == {*names}

    await eventually_async(are_right, f"everything runs on {', '.join(names)}", READY_S_MAX)
    return found


class Bench:
    """Four nodes under load, one of which is killed now and then."""

    def __init__(self, nodes: Nodes, answers: PartAnswers, load: Load) -> None:
        self._nodes, self._answers, self._load = nodes, answers, load

    async def kill_one(self) -> dict[str, Any]:
        """Kill a node, start it again; return the figures of this failure."""
        placed = await run_on(self._nodes, *NODES)
        victim, parts = victim_of(placed, await asyncio.to_thread(self._answering))
        await asyncio.sleep(BEFORE_S)
        at = time.time()
        self._nodes.kill(victim)
        await run_on(self._nodes, *self._nodes.processes)
        ready_s = time.time() - at
        await asyncio.sleep(max(0.0, at + AFTER_S + 2 - time.time()))
        found = self._figures(at, parts)
        found |= {"ran": sorted(name for name, node in placed.items() if node == victim)}
        self._nodes.start(victim)
        await run_on(self._nodes, *NODES)
        await asyncio.sleep(SETTLED_S)
        return found | {"ready_s": ready_s}

    def _answering(self) -> dict[str, int]:
        states = read_root_states(self._nodes.transport, QUERY, self._load.parts).values()
        parts = {state.fragment: state for state in states if state.term}
        found = {}
        for part in range(self._load.parts):
            state = parts[RootName(QUERY, part).process]
            found[RootName(QUERY, part, state.copy).process] = part
        return found

    def _figures(self, at: float, parts: list[int]) -> dict[str, Any]:
        middle = self._answers.usual_s(at - BEFORE_S, at)

        def expected(begin_s: float, end_s: float) -> list[First]:
            return self._answers.usually_seen(begin_s, end_s, middle)

        hit = [one for one in expected(at, at + DUE_S) if one.part in parts]
        later = [one for one in expected(at, at + AFTER_S) if one.part in parts]
        others = [one for one in expected(at, at + AFTER_S) if one.part not in parts]
        steps = round((BEFORE_S + AFTER_S) / WINDOW_S)
        edges = [at - BEFORE_S + n * WINDOW_S for n in range(steps)]
        due = [expected(edge, edge + WINDOW_S) for edge in edges]
        seen = [self._answers.seen(edge, edge + WINDOW_S) for edge in edges]
        return {
            "parts": parts,
            "usual_ms": middle * 1e3,
            "later_ms": sorted((one.late_s - middle) * 1e3 for one in hit),
            "latest_ms": max((one.late_s - middle) * 1e3 for one in later),
            "others_later_ms": max((o.late_s - middle for o in others), default=0.0) * 1e3,
            "tentative": sum(one.is_tentative for one in expected(at, at + AFTER_S)),
            "at_s": [round(edge - at, 3) for edge in edges],
            "later_max_ms": [
                max(((o.late_s - middle) * 1e3 for o in of), default=None) for of in due
            ],
            "per_s": [sum(one.counted for one in of) / WINDOW_S for of in seen],
        }

    def check(self, begin_s: float, end_s: float) -> list[str]:
        """Windows due then that are lost, doubled or wrong."""
        return self._answers.wrong(begin_s, end_s, round(self._load.readings_per_s * WINDOW_S))


async def measure(folder: Path, load: Load, kills: int) -> dict[str, Any]:
    """Start everything, kill nodes one after the other, and stop it."""
    file = FILE.format(stream=STREAM, query=QUERY, parts=load.parts)
    (folder / "d.yaml").write_text(file)
    async with machines(folder, NODES, {f"in-{STREAM}": 1}) as (bootstrap, nodes):
        with feeding(bootstrap, load.readings_per_s, (STREAM,), load.keys):
            await nodes.command("query", "apply", str(folder / "d.yaml"))
            await run_on(nodes, *NODES)
            answers = PartAnswers(nodes.transport, load.parts)
            answers.start()
            await eventually_async(lambda: len(answers.first) > 10, "it answers", 60)
            await asyncio.sleep(SETTLED_S)
            begin_s, bench = time.time(), Bench(nodes, answers, load)
            found = [await bench.kill_one() for _ in range(kills)]
            end_s = time.time() - 1.0
            await asyncio.sleep(5.0)
            return {"kills": found, "wrong": bench.check(begin_s, end_s)}


def run(load: Load, *, quick: bool = False) -> dict[str, Any]:
    """Kill five times, or once."""
    with tempfile.TemporaryDirectory(prefix="slackwater-flux-") as made:
        found = asyncio.run(measure(Path(made), load, 1 if quick else 5))
    return found | asdict(load) | {"nodes": len(NODES)}
