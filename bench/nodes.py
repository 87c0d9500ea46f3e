"""Three nodes under load: all controllers are away, a node is killed, and each is drained in turn.

Four topics get readings as columns; one query runs, with windows of a second, 2 replicas, X = 2 s.
All three controllers are killed, and started again a minute later: no answer depends on them. The
node of the root is killed with all its processes (kill -9), started again, and then every node is
drained, stopped and started again, one after the other.

``agreed``: from the start of the controllers until they have one view and all is ready.
``ready``: from the kill until all fragments are ready on the other two nodes; the target is 8 s.
``drained``: from the request until nothing is left on the node and all is ready elsewhere.
Lateness is that of first answers, after their normal time, in the phase. A window is wrong if it
does not count exactly a second's readings.

Run with ``python -m bench.nodes [--rate 3000]``; prints Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.changes import STREAM, ColumnFeeder, percentiles
from bench.live import QUERY, STREAMS, LiveAnswers
from tests.support.controllers import controllers
from tests.support.nodes import Nodes
from tests.support.starting import make_topics
from tests.support.waiting import eventually_async

from slackwater.machine.broker import EmbeddedBroker

NAMES: Final = ("n1", "n2", "n3")
STEADY_S: Final = 20.0
AWAY_S: Final = 60.0
SETTLED_S: Final = 12.0
"""After a start: until the node has work again, and answers are in time."""


def written(folder: Path) -> Path:
    """The deployment file."""
    streams = "\n".join(STREAM.format(name=name) for name in STREAMS)
    path = folder / "d.yaml"
    path.write_text(
        f"apiVersion: slackwater/v1\nstreams:\n{streams}\nqueries:\n"
        f"  {QUERY}: {{from: [{', '.join(STREAMS)}], window: {{size: 1s}}, aggregate: [count],"
        " bound: 2s}\n"
    )
    return path


async def settled(nodes: Nodes) -> None:
    """Wait until all is ready, and has been for a while."""
    await nodes.run_on(*nodes.processes)
    await asyncio.sleep(SETTLED_S)


async def measure(nodes: Nodes, answers: LiveAnswers) -> None:
    """All phases; prints a row of each."""
    begun = 0

    def row(phase: str, took_s: float | None) -> None:
        nonlocal begun
        late = answers.first_late_s[begun:]
        begun += len(late)
        shown = "" if took_s is None else f"{took_s:.1f}"
        print(f"| {phase} | {shown} | {len(late)} | {percentiles(late)} |", flush=True)

    print("| phase | agreed, ready or drained s | windows | first answers p50 / p99 / latest ms |")
    print("|---|---|---|---|")
    begun = len(answers.first_late_s)
    await asyncio.sleep(STEADY_S)
    row("undisturbed", None)
    for name in tuple(nodes.cluster.processes):
        nodes.cluster.kill(name)
    await asyncio.sleep(AWAY_S)
    row("no controller", None)
    since = time.monotonic()
    for name in nodes.cluster.ports:
        nodes.cluster.start(name)
    await nodes.cluster.agreed(*nodes.cluster.ports)
    await nodes.run_on(*nodes.processes)
    took_s = time.monotonic() - since
    await asyncio.sleep(SETTLED_S)
    row("controllers started", took_s)
    victim = (await nodes.places())[f"root/{QUERY}.0"]
    since = time.monotonic()
    nodes.kill(victim)
    await nodes.run_on(*nodes.processes)
    took_s = time.monotonic() - since
    await asyncio.sleep(SETTLED_S)
    row(f"{victim} killed, with the root", took_s)
    nodes.start(victim)
    await settled(nodes)
    row(f"{victim} started", None)
    for name in NAMES:
        had_root = (await nodes.places()).get(f"root/{QUERY}.0") == name
        since = time.monotonic()
        await nodes.command("node", "drain", name, "--wait")
        took_s = time.monotonic() - since
        process = nodes.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait)
        nodes.start(name)
        await settled(nodes)
        row(f"{name} drained, stopped, started{', with the root' if had_root else ''}", took_s)


def check(feeder: ColumnFeeder, answers: LiveAnswers) -> int:
    """Print and return the number of wrong windows."""
    found = answers.stable[2:]  # the first ones began before the feeder
    wrong = [each.counted for each in found if each.counted != feeder.each_second]
    due = [each.due_s for each in found]
    gaps, doubled = sum(b - a > 1.5 for a, b in pairwise(due)), len(due) - len({*due})
    print(f"\n{len(found)} windows: {len(wrong)} wrong, {gaps} gaps, {doubled} doubled")
    return len(wrong) + gaps + doubled


@asynccontextmanager
async def under_load(
    folder: Path, rate: int, *names: str
) -> AsyncIterator[tuple[EmbeddedBroker, Nodes, ColumnFeeder, LiveAnswers]]:
    """Run three controllers, these nodes and the query; it answers, and all is ready."""
    with EmbeddedBroker(folder / "broker") as broker:
        make_topics(broker.bootstrap, [f"in-{name}" for name in STREAMS])
        async with controllers(folder, "a", "b", "c", relayed=False) as cluster:
            nodes = Nodes(folder, broker.bootstrap, cluster)
            feeder = ColumnFeeder(broker.bootstrap, rate)
            feeder.start()
            try:
                for name in names:
                    nodes.start(name)
                await nodes.command("query", "apply", str(written(folder)))
                await settled(nodes)
                answers = LiveAnswers(broker.bootstrap)
                answers.start()
                await eventually_async(lambda: len(answers.stable) > 3, "it answers")
                print(f"{feeder.each_second} readings/s\n")
                yield broker, nodes, feeder, answers
            finally:
                nodes.stop_all()
                feeder.stop()


async def run(folder: Path, rate: int) -> int:
    """Start everything, measure, and stop it."""
    async with under_load(folder, rate, *NAMES) as (_, nodes, feeder, answers):
        await measure(nodes, answers)
    return check(feeder, answers)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=3_000, help="readings/s of all streams")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slackwater-nodes-") as made:
        return int(asyncio.run(run(Path(made), options.rate)) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
