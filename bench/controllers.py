"""Three controllers on loopback: response times of operations, also after ``kill -9``.

``python bench/controllers.py`` prints one JSON line. Times are milliseconds at a client that is
already connected. Each controller synchronises its file to this disk before it responds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from tests.support.controllers import Cluster, controllers

from slackwater.control.control_object import JoinNode
from slackwater.controller.client import ControlClient, connect

OPERATIONS = 500
KILLS = 5


def cpu_s(cluster: Cluster) -> float:
    """CPU time of the three processes."""
    times = [psutil.Process(p.pid).cpu_times() for p in cluster.processes.values()]
    return sum(t.user + t.system for t in times)


async def timed_ms(client: ControlClient, n: int) -> float:
    began = time.perf_counter()
    frame = await client.request(JoinNode("n1", n))
    assert not frame.response.refusal
    return (time.perf_counter() - began) * 1000


async def after_kill_ms(cluster: Cluster, victims: tuple[str, ...], n: int) -> float:
    """Return the time from the kill to the response of an operation requested at once."""
    async with connect([cluster.address("a")]) as client:
        for name in victims:
            cluster.kill(name)
        taken = await timed_ms(client, n)
    for name in victims:
        cluster.start(name)
    await cluster.agreed("a", "b", "c")
    return taken


async def responses_ms(delay_s: float, operations: int) -> list[float]:
    """Return sorted response times, with this one-way latency between controllers."""
    with tempfile.TemporaryDirectory() as folder:
        running = controllers(Path(folder), "a", "b", "c", relayed=delay_s > 0, delay_s=delay_s)
        async with running as cluster, connect([cluster.address("a")]) as client:
            return sorted([await timed_ms(client, n) for n in range(operations)])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with controllers(Path(folder), "a", "b", "c", relayed=False) as cluster:
            async with connect([cluster.address("a")]) as client:
                before = cpu_s(cluster)
                times = sorted([await timed_ms(client, n) for n in range(OPERATIONS)])
                cpu = cpu_s(cluster) - before
            one = [await after_kill_ms(cluster, ("b",), n) for n in range(KILLS)]
            two = [await after_kill_ms(cluster, ("b", "c"), n) for n in range(KILLS)]
    result = {
        "response_p50_ms": round(statistics.median(times), 2),
        "response_p99_ms": round(times[int(len(times) * 0.99)], 2),
        "cpu_of_all_per_operation_ms": round(cpu * 1000 / OPERATIONS, 2),
        "one_of_three_killed_max_ms": round(max(one)),
        "two_of_three_killed_max_ms": round(max(two)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())
