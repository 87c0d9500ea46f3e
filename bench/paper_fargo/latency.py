"""Section 4.2.2: latency of a window's answer, while child nodes fail in one of its cuts.

Six sensors of 18,300 events/s, one topic of 64 partitions, a query with eight children, windows of
10 s, on four nodes of one machine; heartbeats, a controller and two copies of the root run all the
time. In the thesis they were switched off for the undisturbed figure.

A window of the thesis has ten cuts. Nodes are killed with all that they run (SIGKILL) at the end of
the third, of the sixth and shortly before the end of the last one, and started again when the
window is exact. The proxy is the thesis's sensor side, so its node is not killed. Of two victims,
each child keeps a replica, if that is possible.

*Latency* is from the end of the window, which is the time of its last event, until a consumer has
read the exact answer. *First* is until it has read any answer, which may be tentative.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import psutil
from bench.idle import cpu_s
from bench.machines import machines
from bench.paper_fargo.sensors import SENSORS
from tests.support.nodes import Nodes
from tests.support.waiting import eventually_async

from slackwater.codec.results import parse_result, parse_time
from slackwater.model.names import RESULT_KINDS, Names, OrdererName
from slackwater.runtime.logs.kafka import KafkaTransport

QUERY, STREAM, TOPIC = "fargo", "sensors", "events"
NODES: Final = ("n1", "n2", "n3", "n4")
PARTITIONS: Final = 64
CHILDREN: Final = 8
PER_S: Final = 18_300
WINDOW_S: Final = 10
CUTS: Final[Mapping[str, float]] = {"3": 3.0, "6": 6.0, "last": 9.9}
"""Seconds after the window's begin."""
READY_S_MAX: Final = 600.0
BEFORE: Final = 2
"""Undisturbed windows before each failure, everything being ready."""
LATENCY_MS_MAX: Final = 1_000.0
"""A window is undisturbed if it was answered so soon."""
FILE: Final = """
apiVersion: slackwater/v1
streams:
  {stream}:
    topic: {{name: {topic}, format: json}}
    key: {{field: sensorId}}
    time: {{field: timestamp, unit: iso}}
    fields: [value]
    expect_every: 1s
queries:
  {query}: {{from: [{stream}], window: {{size: {window}s}}, aggregate: [count, avg, min, max],
       bound: 2s, children: {children}, replicas: {replicas}, copies: 2}}
"""


@dataclass(slots=True)
class Window:
    """What a consumer has read of a window; times in s since its end."""

    first_s: float | None = None
    first_is_tentative: bool = False
    exact_s: float | None = None
    times_exact: int = 0


@dataclass
class Windows(threading.Thread):
    """Reads the results until the end of the program; windows by their end (s)."""

    transport: KafkaTransport
    of: dict[int, Window] = field(default_factory=dict)
    counted: Counter[int] = field(default_factory=Counter)
    """Events in stable rows, by end of the window."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Read."""
        reader = self.transport.reader(isolation="read_committed")
        reader.assign({(Names().results(QUERY, kind), 0): 0 for kind in RESULT_KINDS})
        while True:
            records = reader.poll(5_000, 0.02)
            now_s = time.time()
            for raw in records:
                self.take(parse_result(raw.value), now_s)

    def take(self, row: dict[str, Any], now_s: float) -> None:
        """Take a result, read at this time (s)."""
        if row["kind"] == "stable":
            self.counted[_end(row)] += row["fields"]["value"]["count"]
        elif row["kind"] == "boundary":
            end = _end(row)
            window = self.of.setdefault(end, Window())
            is_exact = row["label"] == "stable"
            if window.first_s is None:
                window.first_s, window.first_is_tentative = now_s - end, not is_exact
            if is_exact:
                window.exact_s = now_s - end if window.exact_s is None else window.exact_s
                window.times_exact += 1

    def is_exact(self, end: int) -> bool:
        """Whether the window has its exact answer."""
        return end in self.of and self.of[end].exact_s is not None

    def wrong(self, ends: Sequence[int], events: int) -> list[int]:
        """Those of the windows that do not have each event in exactly one exact answer."""
        return [end for end in ends if self.counted[end] != events or self.of[end].times_exact != 1]


def _end(row: dict[str, Any]) -> int:
    return parse_time(row["window_end"]) // 1_000_000


def victims_of(placed: Mapping[str, str], count: int) -> tuple[str, ...]:
    """The nodes to kill: without the proxy, with most replicas of orderers.

    ``placed``: node by process. Several leave each child a replica if any such nodes do.
    """
    proxy = placed[f"proxy/{STREAM}"]
    orderers = {name: node for name, node in placed.items() if name.startswith("orderer/")}
    have = Counter(orderers.values())

    def orphans(nodes: tuple[str, ...]) -> int:
        alive = {
            OrdererName.parse(name.removeprefix("orderer/")).child
            for name, at in orderers.items()
            if at not in nodes
        }
        return CHILDREN - len(alive)

    found = combinations(sorted({*placed.values()} - {proxy}), count)
    return min(found, key=lambda nodes: (orphans(nodes), -sum(have[node] for node in nodes)))


@contextmanager
def sensors(bootstrap: str, per_s: int) -> Iterator[None]:
    """Run the sensors for the block."""
    words = (bootstrap, TOPIC, str(PARTITIONS), str(per_s))
    process = subprocess.Popen([sys.executable, "-m", "bench.paper_fargo.sensors", *words])
    try:
        yield
        if process.poll() is not None:
            raise SystemExit(f"the sensors ended with {process.returncode}")
    finally:
        process.terminate()
        process.wait()


class Bench:
    """Four nodes under load, of which some are killed now and then."""

    def __init__(self, nodes: Nodes, windows: Windows) -> None:
        self._nodes, self._windows = nodes, windows

    async def settled(self) -> int:
        """Wait until all is ready and some windows were in time; return the next window's begin."""
        placed: dict[str, str] = {}

        async def is_ready() -> bool:
            placed.clear()
            placed.update(await self._nodes.places())
            return {*placed.values()} == {*NODES}

        await eventually_async(is_ready, "everything is ready", READY_S_MAX)
        since = time.time()

        def are_in_time() -> bool:
            last = int(time.time() - LATENCY_MS_MAX / 1e3) // WINDOW_S * WINDOW_S
            found = [self._windows.of.get(last - n * WINDOW_S, Window()) for n in range(BEFORE)]
            in_time = (
                one.exact_s is not None and one.exact_s * 1e3 < LATENCY_MS_MAX for one in found
            )
            return last - BEFORE * WINDOW_S > since and all(in_time)

        await eventually_async(are_in_time, "windows are in time", READY_S_MAX)
        return int(time.time()) // WINDOW_S * WINDOW_S + WINDOW_S

    async def undisturbed(self, count: int) -> list[Window]:
        """Return so many windows without a failure."""
        begin = await self.settled()
        ends = [begin + n * WINDOW_S for n in range(count)]
        await self._exact(ends[-1])
        return [self._windows.of[end] for end in ends]

    async def failure(self, killed: int, cut: str) -> Window:
        """Kill nodes in a cut of the next window, start them again; return this window."""
        begin = await self.settled()
        victims = victims_of(await self._nodes.places(), killed)
        await asyncio.sleep(max(0.0, begin + CUTS[cut] - time.time()))
        for victim in victims:
            self._nodes.kill(victim)
        await self._exact(begin + WINDOW_S)
        for victim in victims:
            self._nodes.start(victim)
        return self._windows.of[begin + WINDOW_S]

    async def _exact(self, end: int) -> None:
        await eventually_async(lambda: self._windows.is_exact(end), "it is exact", READY_S_MAX)


async def measure(
    folder: Path, replicas: int, times: int, per_s: int, failures: Sequence[tuple[int, str]]
) -> dict[str, Any]:
    """Start everything; each failure so many times; return the latencies (ms).

    ``cores``: CPU time of all processes over the undisturbed windows, by kind.
    """
    path = folder / "d.yaml"
    path.write_text(
        FILE.format(
            stream=STREAM,
            topic=TOPIC,
            query=QUERY,
            window=WINDOW_S,
            children=CHILDREN,
            replicas=replicas,
        )
    )
    async with machines(folder, NODES, {TOPIC: PARTITIONS}) as (bootstrap, nodes):
        with sensors(bootstrap, per_s):
            await nodes.command("query", "apply", str(path))
            windows = Windows(nodes.transport)
            windows.start()
            bench, rows, cores = Bench(nodes, windows), [], {}
            begun = await bench.settled()
            for killed, cut in ((0, "-"), *failures):
                before, since = cpu_s(everything()), time.monotonic()
                if killed:
                    found = [await bench.failure(killed, cut) for _ in range(times)]
                else:
                    found, spent = await bench.undisturbed(UNDISTURBED), cpu_s(everything())
                    took_s = time.monotonic() - since
                    cores = {kind: (spent[kind] - before.get(kind, 0)) / took_s for kind in spent}
                row = _row(replicas, killed, cut, found)
                print(row, flush=True)
                rows.append(row)
            last = await bench.settled() - WINDOW_S
            ends = range(begun + WINDOW_S, last, WINDOW_S)
            events = per_s * SENSORS * WINDOW_S
            return {
                "rows": rows,
                "cores": cores,
                "windows": len(ends),
                "wrong": windows.wrong(ends, events),
                "events": events,
            }


def _row(replicas: int, killed: int, cut: str, found: Sequence[Window]) -> dict[str, Any]:
    return {
        "replicas": replicas,
        "killed": killed,
        "cut": cut,
        "exact_ms": sorted(1e3 * one.exact_s for one in found if one.exact_s is not None),
        "first_ms": sorted(1e3 * one.first_s for one in found if one.first_s is not None),
        "tentative": sum(one.first_is_tentative for one in found),
    }


def everything() -> list[psutil.Process]:
    """Return all processes of the experiment: nodes, broker, controller, sensors."""
    return psutil.Process().children(recursive=True)


UNDISTURBED: Final = 6
"""Windows without a failure, in each part of the experiment."""
PARTS: Final[Mapping[str, tuple[int, Sequence[tuple[int, str]]]]] = {
    **{f"cut-{cut}": (2, ((1, cut), (2, cut))) for cut in CUTS},
    "alone": (1, ((1, "3"), (1, "last"))),
}
"""By name: the number of replicas, and (nodes killed, cut). With one replica nothing is left of a
child when its node dies."""


def run(part: str, times: int, per_s: int) -> dict[str, Any]:
    """Run one part of the experiment, each failure so many times."""
    replicas, failures = PARTS[part]
    with tempfile.TemporaryDirectory(prefix="slackwater-fargo-") as made:
        found = asyncio.run(measure(Path(made), replicas, times, per_s, failures))
    return found | {"per_s": per_s, "replicas": replicas}
