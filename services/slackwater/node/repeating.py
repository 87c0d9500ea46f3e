"""Work of a node that is repeated until it is complete: Kafka may be away, or another node late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from slackwater.model.errors import SlackwaterError

RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 4.0
"""Pause before incomplete work is repeated, for example while another node registers queries."""


async def repeat(
    due: asyncio.Event,
    work: Callable[[], Awaitable[bool]],
    report: Callable[[str], None],
    retry_s_max: Callable[[], float],
) -> None:
    """Work after each change, and again with a growing pause while the work is incomplete.

    Args:
        due: is set after a change.
        work: returns whether it is complete.
        report: gets the reason of a failed attempt.
        retry_s_max: returns the longest pause at present, s.
    """
    retry_s, has_failed = RETRY_S_MIN, False
    while True:
        await due.wait()
        due.clear()
        try:
            is_done = await work()
            if has_failed:  # Kafka is available again, so other nodes will soon be done
                retry_s, has_failed = RETRY_S_MIN, False
        except (SlackwaterError, OSError) as error:
            is_done, has_failed = False, True
            report(str(error))
        if is_done:
            retry_s = RETRY_S_MIN
            continue
        try:
            async with asyncio.timeout(min(retry_s, retry_s_max())):
                await due.wait()
            retry_s = RETRY_S_MIN
        except TimeoutError:
            retry_s = min(2 * retry_s, retry_s_max())
        due.set()
