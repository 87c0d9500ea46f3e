"""The wait of the driver's loop between two turns.

The wait ends at the next deadline of a session, or earlier, at input or at the end of a task. It
yields to the event loop also when a deadline has passed; otherwise tasks that a turn depends on,
such as a commit, would not run.

Time-outs use ``asyncio.timeout``. Up to Python 3.11 ``asyncio.wait_for`` loses a cancellation that
arrives in the same iteration of the event loop as the awaited result: a fragment that was stopped
at the moment at which it was woken would continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

IDLE_S_MAX: Final = 1.0
"""Longest interval between two turns of a session."""
UNSETTLED_S_MAX: Final = 0.05
"""Interval between turns of a fragment that waits for an event that does not wake the loop."""
PARKED_S_MAX: Final = 0.005
"""Interval between reads of a catch-up reader."""

GATHER_TURNS: Final = 2
"""Iterations of the event loop between a wake and the turn, so that one turn takes all records that
arrive together. A turn costs some 100 us, a record some 10 us."""


class WakeSignal:
    """Wakes a loop at its deadline, or when ``wake`` is called."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def wake(self) -> None:
        """Begin the next turn now; from the event loop's thread."""
        self._woken.set()

    def wake_from_thread(self) -> None:
        """Begin the next turn now, from any other thread; no effect before the first ``wait``."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.wake)

    async def wait(self, now: int, wake_at: int) -> None:
        """Wait until ``wake_at`` (us of wall time) or until woken, at most ``IDLE_S_MAX``."""
        self._loop = asyncio.get_running_loop()
        wait_s = min((wake_at - now) / 1e6, IDLE_S_MAX)
        await asyncio.sleep(0)
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
                for _ in range(GATHER_TURNS):
                    await asyncio.sleep(0)
        self._woken.clear()
