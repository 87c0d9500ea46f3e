"""The driver over a root's session, on a broker in memory, with a recording committer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from tests.paper.stage import MS
from tests.support.live_consumer import hand_over
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX
from tests.unit.sessions.test_root_session import LIVE, SETTINGS, STABLE, START, boundary

from slackwater.codec import encode_ordered
from slackwater.host.driven import Driven, SessionEndedError
from slackwater.host.driver import Driver
from slackwater.host.wake_signal import WakeSignal
from slackwater.model.records import RootState
from slackwater.primitives.rows import RowContents
from slackwater.protocols.dpc.soutput.config import Commit, RootConfig
from slackwater.runtime.logs.transport import LogError
from slackwater.runtime.service.clock import SystemClock
from slackwater.sessions.effects import CommitRecords
from slackwater.sessions.root import RootSession


class NoPeers:
    """Heartbeats: none are received, and sent ones are kept."""

    def __init__(self) -> None:
        self.reported: list[dict[str, Any]] = []

    def update(self, **reported: Any) -> None:
        self.reported.append(reported)

    def last_heartbeat(self, *_: Any) -> None: ...

    def claimed(self, *_: Any) -> None: ...

    def returned(self, *_: Any) -> None: ...


class Committer:
    """The root's calls, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.commits: list[Commit] = []
        self.refuses = False

    async def open(self) -> None:
        self.asked.append("open")

    async def prepare(self) -> None:
        self.asked.append("prepare")

    async def commit(self, commit: Commit | CommitRecords, emitted_at: int) -> None:
        assert isinstance(commit, Commit)
        await asyncio.sleep(0.01)
        if self.refuses:
            raise LogError("it was fenced off")
        assert emitted_at > 0
        self.asked.append("commit")
        self.commits.append(commit)

    async def claim(self, state: RootState) -> None:
        self.asked.append(f"claim {state.placement}")

    async def close(self) -> None:
        self.asked.append("close")


class Process:
    """A driver, and its live consumer. It begins at time 0."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.create_topic("sw.state.q")
        self.broker.create_topic(STABLE[0], 2)
        self.turns, self.others, self.committer = WakeSignal(), NoPeers(), Committer()
        began_us = time.monotonic_ns() // 1_000
        clock = SystemClock(wall_us=lambda: time.monotonic_ns() // 1_000 - began_us)
        config = RootConfig(
            "root/q.0", "q", 0, 1, (("s1",),), 1, ("v",), SETTINGS.grid, SETTINGS.schedule(2),
            start_time=0, bound_us=1_000 * MS, contents=RowContents,
        )  # fmt: skip
        self.session = RootSession(config, windowed=False)
        others: Any = self.others
        self.driven = Driven(
            self.session, self.broker, others, others, end_timeout_us=25 * MS,
            wake=self.turns.wake, committer=self.committer, clock=clock,
        )  # fmt: skip
        self.driver = Driver(self.turns, clock)

    async def start(self) -> asyncio.Task[None]:
        await self.driven.start()
        self.driver.add(self.driven)
        return asyncio.create_task(self.driver.run())

    def emit(self, buckets: int) -> None:
        """Write START and this many empty future buckets, passed on as by the live consumer."""
        hand_over(self.driven, STABLE, 0, encode_ordered(START))
        for i in range(buckets):
            record = boundary(100 * i, 100 * (i + 1))
            hand_over(self.driven, STABLE, i + 1, encode_ordered(record))


async def until(holds: Callable[[], object], running: asyncio.Task[None]) -> None:
    """Wait for it, or raise the driver's error."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():
            await asyncio.wait([running], timeout=0.005)
            if running.done():
                running.result()


async def test_a_root_fences_opens_and_commits_what_its_session_decides() -> None:
    process = Process()
    assert process.committer.asked == [], "a constructor has no effect"
    task = await process.start()
    assert process.committer.asked == [], "the copy that runs answers"
    assert set(process.session.live_offsets) == {STABLE, LIVE}
    await until(lambda: "open" in process.committer.asked, task)
    process.emit(30)
    answers = process.session.core.answers
    await until(lambda: answers.state.stable_from == 3_000 * MS, task)
    assert process.committer.asked[:2] == ["open", "commit"]
    starts = [commit.transaction.before.next_seq for commit in process.committer.commits]
    assert starts == sorted(set(starts)), "one after the other"
    await until(lambda: process.others.reported[-1]["detail"]["stable_from"] == 3_000 * MS, task)
    task.cancel()


async def test_a_commit_that_is_refused_ends_the_process() -> None:
    process = Process()
    process.committer.refuses = True
    task = await process.start()
    process.emit(30)
    with pytest.raises(SessionEndedError, match=r"root/q\.0: it was fenced off"):
        await asyncio.wait_for(task, WAIT_S_MAX)
    assert process.committer.commits == []


async def test_a_word_of_a_replica_brings_a_turn_forward_from_any_thread() -> None:
    process = Process()
    task = await process.start()
    await until(lambda: "open" in process.committer.asked, task)
    await until(lambda: process.driven.due_at > 0, task)
    other = Thread(target=process.driven.make_due_soon)
    other.start()
    other.join()  # the loop is blocked, so there is no turn in between
    assert process.driven.due_at == 0
    await asyncio.to_thread(process.turns.wake_from_thread)
    await until(lambda: process.driven.due_at > 0, task)
    task.cancel()
