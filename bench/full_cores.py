"""Both cores are full of other work: does a copy take over without a death, does a fragment move?

Four nodes on one machine with the query of Figure 8's experiment (`bench/paper_flux`): four parts
in two copies, windows of 100 ms, X = 2 s. A process for each core computes for nothing. Terms are
read from the state records as they are committed: a term that begins meanwhile is a take-over. What
it cost is the delay of first answers of its part in the second before and the two after it, less
the usual one under this load.

Run with ``python -m bench.full_cores [--minutes 10]``; prints Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from bench.live import QUERY, feeding
from bench.machines import machines
from bench.paper_flux.answers import PartAnswers
from bench.paper_flux.failure import FILE, NODES, SETTLED_S, STREAM, Load, run_on
from tests.support.nodes import Nodes
from tests.support.waiting import eventually_async

from slackwater.codec.state_records import decode_root_state
from slackwater.model.names import Names
from slackwater.runtime.logs.kafka import KafkaTransport

WINDOWS_PER_S: Final = 10
BEFORE_S, AFTER_S = 1.0, 2.0
TAKE_OVERS_MAX: Final = 3
COST_S_MAX: Final = 0.3
BURN: Final = "while True: pass"


class TakeOvers(threading.Thread):
    """Reads the state records of all parts: when each term of a part began."""

    def __init__(self, transport: KafkaTransport, parts: int) -> None:
        super().__init__(daemon=True)
        self._transport, self._parts = transport, parts
        self.begun: dict[tuple[int, int], float] = {}
        """Time of reading (s) by part and term."""

    def run(self) -> None:
        """Read until the end of the program."""
        reader = self._transport.reader(isolation="read_committed")
        reader.assign({(Names().state(QUERY), part): 0 for part in range(self._parts)})
        names = {f"root/{QUERY}.{part}".encode() for part in range(self._parts)}
        while True:
            for raw in reader.poll(5_000, 0.1):
                if raw.key in names and raw.value:
                    term = decode_root_state(raw.value).term
                    self.begun.setdefault((raw.partition, term), time.time())

    def taken_over(self, begin_s: float) -> list[tuple[int, float]]:
        """Part and time of each take-over since then."""
        return [(part, at) for (part, _), at in sorted(self.begun.items()) if at > begin_s]


@contextlib.contextmanager
def burning() -> Iterator[None]:
    """Keep every core busy."""
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait()


async def numbers_of(nodes: Nodes) -> dict[tuple[str, str], int]:
    """The placement number of each fragment: another one is another process."""
    frame = await nodes.frame()
    return {key: entry.number for key, entry in frame.state.placement.items()}


async def measure(folder: Path, seconds: float) -> bool:
    """Print what happened; return whether all limits were kept."""
    load = Load()
    (folder / "d.yaml").write_text(FILE.format(stream=STREAM, query=QUERY, parts=load.parts))
    async with machines(folder, NODES, {f"in-{STREAM}": 1}) as (bootstrap, nodes):
        with feeding(bootstrap, load.readings_per_s, (STREAM,)):
            await nodes.command("query", "apply", str(folder / "d.yaml"))
            await run_on(nodes, *NODES)
            answers, terms = (
                PartAnswers(nodes.transport, load.parts),
                TakeOvers(nodes.transport, load.parts),
            )
            answers.start()
            terms.start()
            await eventually_async(lambda: len(answers.first) > 10, "it answers", 60)
            await asyncio.sleep(SETTLED_S)
            before = await numbers_of(nodes)
            with burning():
                await asyncio.sleep(SETTLED_S)
                begin_s = time.time()
                await asyncio.sleep(seconds)
                end_s = time.time()
                loads = os.getloadavg()
            await asyncio.sleep(SETTLED_S)
            moved = {
                key
                for key, number in (await numbers_of(nodes)).items()
                if before.get(key) != number
            }
            usual_s = answers.usual_s(begin_s, end_s)
            costs = [
                max(
                    one.late_s - usual_s
                    for one in answers.seen(at - BEFORE_S, at + AFTER_S)
                    if one.part == part
                )
                for part, at in terms.taken_over(begin_s)
            ]
            wrong = answers.wrong(begin_s, end_s - 2, load.readings_per_s // WINDOWS_PER_S)
            due = answers.due(begin_s, end_s)
    late = [one.late_s * 1e3 for one in due]
    print(f"{seconds / 60:.0f} min, load {loads[0]:.1f}; {len(due)} first answers:", end=" ")
    print("p50 {:.0f}, p99 {:.0f}, ".format(*np.percentile(late, (50, 99))), end="")
    tentative = sum(one.is_tentative for one in due)
    print(f"latest {max(late):.0f} ms, {tentative} tentative, {len(wrong)} wrong")
    print("\n| take-overs without a death | the costliest (ms) | fragments moved |\n|---|---|---|")
    print(f"| {len(costs)} | {max(costs, default=0) * 1e3:.0f} | {len(moved)} |")
    return (
        len(costs) <= TAKE_OVERS_MAX
        and max(costs, default=0) < COST_S_MAX
        and not moved
        and not wrong
    )


def main() -> int:
    """Measure and print; 1 if a limit was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slackwater-full-") as made:
        return int(not asyncio.run(measure(Path(made), 60 * options.minutes)))


if __name__ == "__main__":
    sys.exit(main())
