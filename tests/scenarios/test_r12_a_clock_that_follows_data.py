"""trace-12, ``clock: data``: a time is due when the first stream's boundary has reached it.

This applies to a boundary read by any consumer. A file that is read at once runs far ahead of a
line that waits for a silent stream, so its cursor is parked, and only the catch-up reader reads the
rest: a clock that followed only the live consumer would stop, and nothing would be due.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.paper.stage import MS, Settings, Source
from tests.support.live_consumer import hand_over
from tests.support.memory import MemoryBroker

from slackwater.codec import encode_source
from slackwater.codec.ordered_records import decode_ordered
from slackwater.host.driven import Driven
from slackwater.host.driver import Driver
from slackwater.host.wake_signal import WakeSignal
from slackwater.primitives.eventclock import DataClock
from slackwater.protocols.common.line import Schedule
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.runtime.logs.transport import read_to_end
from slackwater.sessions.orderer import OrdererSession

END = 100_000
"""Event time (ms): more than H, 600 buckets of 100 ms."""


class Silent:
    """No heartbeats."""

    def update(self, **_: Any) -> None: ...

    def last_heartbeat(self, *_: Any) -> None: ...

    def claimed(self, *_: Any) -> None: ...

    def hole_in(self, *_: Any) -> bool:
        return False


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    for topic in ("sw.source.s1", "sw.source.s2", "sw.state.q"):
        made.create_topic(topic)
    made.create_topic("sw.ordered.q.0", 2)
    return made


def test_a_file_that_ran_ahead_goes_on_to_be_due(broker: MemoryBroker) -> None:
    one, two = Source("s1"), Source("s2")
    for at in range(100, END + 1, 100):
        one.emit([at - 50], at)
    two.emit([50], 100)
    for source in (one, two):
        writer = broker.writer(pytest.fail)
        for record in source.log:
            writer.append(f"sw.source.{source.name}", 0, encode_source(record))
    clock, settings = DataClock(), Settings()
    config = OrdererConfig(
        "orderer/q.0.a", 0, 0, ("s1", "s2"), ("s1", "s2"), settings.grid,
        Schedule(clock.wall, 50 * MS), in_time_us=50 * MS,
    )  # fmt: skip
    session = OrdererSession(
        "q",
        config,
        settings.operators(2),
        sources=[("sw.source.s1", 0), ("sw.source.s2", 0)],
        own=(("sw.ordered.q.0", 0), ("sw.ordered.q.0", 1)),
        start_time=0,
        parts=1,
    )
    asyncio.run(until_answered(broker, session, clock))


async def until_answered(broker: MemoryBroker, session: OrdererSession, clock: DataClock) -> None:
    """The live consumer reads both logs to their ends; in time all of s1 is answered."""
    turns, unknown = WakeSignal(), cast(Any, Silent())
    driven = Driven(
        session,
        broker,
        unknown,
        unknown,
        end_timeout_us=25 * MS,
        wake=turns.wake,
        observe=clock.observe,
    )
    await driven.start()
    driver = Driver(turns)
    driver.add(driven)
    running = asyncio.create_task(driver.run())
    for log, offset in session.live_offsets.items():
        for raw in read_to_end(broker, log, offset):
            hand_over(driven, log, raw.offset, raw.value)
    answered_to, offset = 0, 0
    while answered_to < END * MS:
        await asyncio.sleep(0.05)
        if running.done():
            running.result()
        for raw in read_to_end(broker, ("sw.ordered.q.0", 1), offset):
            answered_to, offset = decode_ordered(raw.value).bucket_end, raw.offset + 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
