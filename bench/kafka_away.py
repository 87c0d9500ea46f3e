"""Kafka is away for a minute: controllers accept operations, and nodes execute them on its return.

Three controllers and two nodes run a query with windows of 1 s, 2 replicas, X = 2 s. The broker is
suspended (SIGSTOP). Then a third node joins, a second query is applied, and one of the first two
nodes is drained. ``accepted``: from the connection to a controller until its response, as the
commands do it; a command also starts Python, which takes half a second of a core, while the new
node starts hosts and Spark. After a minute the broker is resumed (SIGCONT).

``done``: from its return until all fragments of both queries are ready, and the drained node has
none. No node may be suspected meanwhile: their liveness does not depend on Kafka. The targets are
1 s for each operation and 10 s until all is done. A window is wrong if it does not count exactly a
second's readings.

Run with ``python -m bench.kafka_away [--rate 3000] [--away 60]``; prints Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.changes import ADDED
from bench.live import STREAMS
from bench.nodes import check, under_load, written
from tests.support.nodes import Nodes
from tests.support.waiting import eventually_async

from slackwater.cli.controls import reach_controllers
from slackwater.cli.query_changes import apply_queries, queries_of, request
from slackwater.control.control_object import DrainNode

LATER: Final = "later"
ANSWERS_S: Final = 10.0
LOOK_S: Final = 0.5


def append(path: Path, text: str) -> None:
    """Append to a file."""
    with path.open("a") as file:
        file.write(text)


async def operate(nodes: Nodes, path: Path) -> None:
    """Join, apply and drain while Kafka is away; prints how long each took."""
    took_s: dict[str, float] = {}
    since = time.monotonic()
    nodes.start("n3")

    async def is_there() -> bool:
        return "n3" in (await nodes.frame()).state.nodes

    await eventually_async(is_there, "n3 has joined")
    took_s["n3 joins, from the start of its process"] = time.monotonic() - since
    reach = reach_controllers(nodes.controllers, None, None, None)
    deployment, _ = queries_of(path, [])
    for name, operate_on in (
        ("query apply: accepted", lambda: apply_queries(reach, deployment, [LATER], "now")),
        ("node drain: accepted", lambda: request(reach, DrainNode("n1"))),
    ):
        since = time.monotonic()
        await asyncio.to_thread(operate_on)
        took_s[name] = time.monotonic() - since
    print("\n| while Kafka is away | s |\n|---|---|")  # after the commands' own lines
    for name, each_s in took_s.items():
        print(f"| {name} | {each_s:.2f} |", flush=True)


async def suspected(nodes: Nodes, until_s: float) -> set[str]:
    """Return the nodes that a controller has suspected until a time."""
    found: set[str] = set()
    while time.monotonic() < until_s:
        for controller in nodes.cluster.processes:
            frame = await nodes.cluster.state(controller)
            found |= {*frame.state.nodes} - {name for name, _ in frame.nodes.standings}
        await asyncio.sleep(LOOK_S)
    return found


async def run(folder: Path, rate: int, away_s: float) -> int:
    """Start everything, suspend the broker, measure, and stop it."""
    async with under_load(folder, rate, "n1", "n2") as (broker, nodes, feeder, answers):
        path = written(folder)
        added = ADDED.format(name=LATER, sources=", ".join(STREAMS), above=0)
        await asyncio.to_thread(append, path, added)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            until_s = time.monotonic() + away_s
            watch = asyncio.create_task(suspected(nodes, until_s))
            await operate(nodes, path)
            lost = await watch
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        since = time.monotonic()
        await nodes.run_on("n2", "n3")
        print(f"| done after its return | {time.monotonic() - since:.1f} |\n")
        print(f"suspected: {', '.join(sorted(lost)) or 'none'}")
        await asyncio.sleep(ANSWERS_S)
    return check(feeder, answers) + len(lost)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=3_000, help="readings/s of all streams")
    parser.add_argument("--away", type=float, default=60.0, help="seconds without Kafka")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slackwater-away-") as made:
        return int(asyncio.run(run(Path(made), options.rate, options.away)) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
