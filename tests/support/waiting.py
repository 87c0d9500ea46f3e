"""Waits of tests that run real processes: for a condition, never for a fixed time.

The limit ends a test that hangs. It is generous, since it makes no claim: a machine that is three
times as slow, or shared, passes. Claims about time are judged in ``bench/``.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

WAIT_S_MAX: Final = 300.0
TEST_S_MAX: Final = 1_800
"""Limit of a test without its own; longer than several waits in a row."""
_LOOK_S: Final = 0.02
_LOOK_S_MAX: Final = 2.0
_SHARE: Final = 0.05
"""Share of the time that looks may take: one that reads a topic also costs the broker."""


def eventually(
    holds: Callable[[], bool], what: str = "it comes to hold", within_s: float = WAIT_S_MAX
) -> None:
    """Wait until the condition holds; blocks the thread, including its event loop."""
    deadline = time.monotonic() + within_s
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < deadline, f"waited {within_s:g} s in vain until {what}"
        time.sleep(_pause_s(began))
        began = time.monotonic()


async def eventually_async(
    holds: Callable[[], bool | Awaitable[bool]],
    what: str = "it comes to hold",
    within_s: float = WAIT_S_MAX,
) -> None:
    """Wait until the condition holds, while the event loop runs; it may be a coroutine."""
    deadline = time.monotonic() + within_s

    async def is_so() -> bool:
        found = holds()
        return await found if inspect.isawaitable(found) else bool(found)

    began = time.monotonic()
    while not await is_so():
        assert time.monotonic() < deadline, f"waited {within_s:g} s in vain until {what}"
        await asyncio.sleep(_pause_s(began))
        began = time.monotonic()


def _pause_s(began: float) -> float:
    """Return the time until the next look, after one that began at this time."""
    took_s = time.monotonic() - began
    return min(max(_LOOK_S, took_s * (1 / _SHARE - 1)), _LOOK_S_MAX)
