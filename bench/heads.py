"""A root of a window of a day starts: from S, and from a head.

    python -m bench.heads [--keys 120] [--bucket-s 10]

Deltas of a day, of one child and two replicas, are in a real broker. Roots of a window of 24 hours
that slides by a minute run one after the other in one event loop: one reads from S and stores heads
meanwhile, the next one starts from them. `started`: it has its panes, if there are some, and reads.
`ready`: it answers, has read all there is, and has given the answer that was due, of a window of
1,440 panes. Until it has started, a task that is due each millisecond measures how long others wait
for the loop.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from slackwater.codec import encode_delta, encode_root_state
from slackwater.host.committer import PartCommitter
from slackwater.host.decoding import decode
from slackwater.host.driven import Driven
from slackwater.host.driver import Driver
from slackwater.host.wake_signal import WakeSignal
from slackwater.machine.broker import EmbeddedBroker
from slackwater.model.deployment import WindowSpec
from slackwater.model.names import Names
from slackwater.model.records import DeltaRecord, Kind, Position
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.line import LineName, Schedule
from slackwater.protocols.dpc.soutput.config import DeltaLog, RootConfig, initial_state
from slackwater.runtime.logs.incarnation import append_and_wait
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import QueryTopics, ensure_topics, topics_for
from slackwater.sessions.root import RootSession

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 24 * 60 * MINUTE_US
REPLICAS: Final = 2
TOPIC: Final = "sw.deltas.bench.0"
NEVER_US: Final = 1 << 60
WAIT_S_MAX: Final = 600.0


class NoPeers:
    """Heartbeats of nobody."""

    def update(self, **_: Any) -> None: ...

    def last_heartbeat(self, *_: Any) -> None: ...

    def claimed(self, *_: Any) -> None: ...

    def returned(self, *_: Any) -> None: ...


class LoopWait:
    """Measures how late a task begins that is due each millisecond."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def run(self) -> None:
        """Measure, until cancelled."""
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            self.late_ms.append((time.perf_counter() - due) * 1e3)

    def taken(self) -> str:
        """Return the figures since the last call."""
        late, self.late_ms = np.array(self.late_ms or [0.0]), []
        p50, p99 = np.percentile(late, (50, 99))
        return f"p50 {p50:.1f} p99 {p99:.1f} max {late.max():.0f} ms"


def deltas(replica: int, start_us: int, keys: int, bucket_us: int) -> Iterator[bytes]:
    """Yield the deltas of a day."""
    names = tuple(f"mote-{number:06d}" for number in range(keys))
    rng = np.random.default_rng(7)
    first = DeltaRecord(
        Kind.START, 0, replica, -1, start_us, start_us, 0, frontier=Position(start_us)
    )
    yield encode_delta(first)
    columns = [rng.uniform(1, 9, (1, keys)) for _ in range(5)]
    record = DeltaRecord(
        Kind.INSERTION, 0, replica, 0, 0, 0, 0, keys=names, keys_hash=7, fields=("v",),
        count=columns[0], sum=columns[1], m2=columns[2], min=columns[3], max=columns[4],
    )  # fmt: skip
    for seq in range(1, DAY_US // bucket_us + 1):
        at = start_us + (seq - 1) * bucket_us
        yield encode_delta(replace(record, seq=seq, bucket_start=at, bucket_end=at + bucket_us))


def fill(transport: KafkaTransport, start_us: int, keys: int, bucket_us: int) -> int:
    """Write the deltas; return their bytes."""
    writer, total = transport.writer(sys.exit), 0
    for replica in range(REPLICAS):
        size = 0
        partition = DeltaLog(0, replica, LineName.STABLE).partition(REPLICAS)
        for value in deltas(replica, start_us, keys, bucket_us):
            if not size:
                writer.append(TOPIC, partition + 1, value)  # START, in the live log too
            writer.append(TOPIC, partition, value)
            size += len(value)
        total += size
    writer.await_delivered(WAIT_S_MAX)
    writer.close()
    return total


class Roots:
    """Runs roots of the part, one after the other."""

    def __init__(self, bootstrap: str, start_us: int, bucket_us: int) -> None:
        self.transport = KafkaTransport(bootstrap)
        self._start_us, self._end_us = start_us, start_us + DAY_US
        self._grid = Grid(bucket_us, WindowSpec(DAY_US, MINUTE_US))
        self._placement = 0
        self.wait = LoopWait()

    def answer_to(self, start_us: int) -> None:
        """Write the state record of a part that has answered all windows before this one."""
        config = self.config()
        first = initial_state(config)
        state = replace(first, placement=0, next_seq=1, stable_from=start_us, answered_to=start_us)
        append_and_wait(
            self.transport.writer(sys.exit), (Names().state("bench"), 0),
            encode_root_state(state), config.fragment.encode(), timeout_s=WAIT_S_MAX,
        )  # fmt: skip

    def config(self, **other: Any) -> RootConfig:
        """Return the configuration of the next root."""
        self._placement += 1
        return replace(
            RootConfig(
                "root/bench.0", "bench", 0, self._placement, (("s",),), REPLICAS, ("v",),
                self._grid, Schedule(lambda e: e, 0), self._start_us, 2 * SECOND_US,
            ),
            **other,
        )  # fmt: skip

    async def run(self, label: str, *, stores: bool, **other: Any) -> RootSession:
        """Run a root until it has read everything, and print how long that took."""
        config = self.config(**other)
        session, turns = RootSession(config, windowed=True), WakeSignal()
        peers: Any = NoPeers()
        committer = PartCommitter(self.transport.cluster, Names(), config, ("count", "avg"))
        driven = Driven(
            session, self.transport, peers, peers, end_timeout_us=25_000, wake=turns.wake,
            committer=committer,
        )  # fmt: skip
        driver = Driver(turns)
        self.wait.taken()
        began = time.perf_counter()
        await driven.start()
        started_s, waited = time.perf_counter() - began, self.wait.taken()
        driver.add(driven)
        tasks = [asyncio.create_task(driver.run()), asyncio.create_task(self._read(driven))]
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while not self._is_ready(session):
                    await asyncio.sleep(0.002)
                    for ended in filter(asyncio.Task.done, tasks):
                        ended.result()
                took_s = time.perf_counter() - began
                print(
                    f"| {label} | {started_s:.2f} s | {waited}"
                    f" | {session.core.movable.records_read:,} | {took_s:.2f} s |",
                    flush=True,
                )
                while stores and session.core.movable.kept is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            driven.drop()
            await committer.close()
        return session

    def _is_ready(self, session: RootSession) -> bool:
        child = session.core.movable.cut().frontiers[0] if session.is_ready else 0
        return child == self._end_us

    async def _read(self, driven: Driven) -> None:
        """Read as a live consumer does, decoded in another thread."""
        session, reader = driven.session, self.transport.reader()
        reader.assign(dict(session.live_offsets))
        while True:
            found = await asyncio.to_thread(reader.poll, 20, 0.05)
            for raw in found:
                record = decode("deltas", raw.log, raw.offset, raw.value)
                driven.take(raw.log, raw.offset, record)
            await asyncio.sleep(0)


async def measure(roots: Roots, size: int) -> None:
    """Run the roots."""
    ticking = asyncio.create_task(roots.wait.run())
    print(f"deltas of a day: {size / 1e6:.0f} MB\n")
    print("| root | started | wait for the loop | deltas read | ready |\n|---|---|---|---|---|")
    await roots.run("from S, nothing stored", stores=False, reread_us_max=NEVER_US)
    first = await roots.run(
        "from S, storing heads", stores=True, reread_us_max=50_000, head_period_us=200_000
    )
    last = await roots.run("from a head", stores=False, reread_us_max=NEVER_US)
    kept = first.core.movable.kept
    assert kept is not None
    ends = roots.transport.end_offsets([(TOPIC, 0), (TOPIC, 2)])
    left = sum(ends.values()) - sum(
        offset for log, offset in kept.offsets.items() if log.line is LineName.STABLE
    )
    moved = last.mover.installed
    assert moved is not None
    panes_bytes = sum(pane.nbytes for pane in moved.panes.values())
    print(f"\npanes: {len(moved.panes):,}, {panes_bytes / 1e6:.1f} MB")
    print(f"deltas kept for two heads: {left:,} of {sum(ends.values()):,}")
    ticking.cancel()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=120)
    parser.add_argument("--bucket-s", type=int, default=10)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        start_us = time.time_ns() // 1_000 // MINUTE_US * MINUTE_US - DAY_US
        ensure_topics(broker.bootstrap, topics_for([], [QueryTopics("bench", 1, REPLICAS, 1)]))
        roots = Roots(broker.bootstrap, start_us, options.bucket_s * SECOND_US)
        roots.answer_to(start_us)
        size = fill(roots.transport, start_us, options.keys, options.bucket_s * SECOND_US)
        asyncio.run(measure(roots, size))


if __name__ == "__main__":
    main()
