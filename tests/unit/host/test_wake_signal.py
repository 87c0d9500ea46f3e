"""The wait between turns: a cancellation is effective, whatever else happens at that time."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.waiting import WAIT_S_MAX

from slackwater.host.wake_signal import WakeSignal

YIELDS_MAX = 6
"""More turns of the event loop than between a wake-up and the end of the wait."""


async def turn_forever(turns: WakeSignal, wait_us: int) -> None:
    while True:
        await turns.wait(0, wait_us)


async def stops(loop: asyncio.Task[None]) -> bool:
    """Return whether one cancellation ends it.

    Otherwise end it, since asyncio.run would wait for it.
    """
    loop.cancel()
    await asyncio.wait([loop], timeout=WAIT_S_MAX)
    ended = loop.cancelled()
    while not loop.done():
        loop.cancel()
        await asyncio.sleep(0.001)
    return ended


@pytest.mark.parametrize("woken_before", range(YIELDS_MAX))
@pytest.mark.parametrize("cancelled_after", range(YIELDS_MAX))
def test_a_stop_that_comes_with_a_wake_ends_the_loop(
    woken_before: int, cancelled_after: int
) -> None:
    async def scenario() -> bool:
        turns = WakeSignal()
        loop = asyncio.create_task(turn_forever(turns, 50_000))
        for _ in range(woken_before):
            await asyncio.sleep(0)
        turns.wake()
        for _ in range(cancelled_after):
            await asyncio.sleep(0)
        return await stops(loop)

    assert asyncio.run(scenario())


@pytest.mark.parametrize("wait_us", [1, 100, 1_000])
def test_a_stop_that_comes_with_the_deadline_ends_the_loop(wait_us: int) -> None:
    async def scenario() -> bool:
        loop = asyncio.create_task(turn_forever(WakeSignal(), wait_us))
        await asyncio.sleep(wait_us / 1e6)
        return await stops(loop)

    assert all(asyncio.run(scenario()) for _ in range(100))
