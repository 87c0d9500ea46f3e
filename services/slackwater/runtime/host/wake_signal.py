"""The wait between two turns of a fragment's loop, the same for every shell around a core.

A core says when it next wants waking; input and finished tasks wake it earlier. The loop gives way
to the event loop once in every turn, also when something is overdue already: a turn that does not
yield keeps out what it waits for, such as the commit under way.

A time-out is ``asyncio.timeout`` here. Up to Python 3.11 ``asyncio.wait_for`` forgets that it was
cancelled if what it waits for comes in the same turn of the event loop: a fragment that was told to
stop just when it was woken went on for good.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

IDLE_S_MAX: Final = 1.0
"""A loop with nothing to do looks so often whether that is still so."""
UNSETTLED_S_MAX: Final = 0.05
"""So often a fragment takes a turn while something is under way that wakes nobody."""
PARKED_S_MAX: Final = 0.005
"""While a catch-up reader is wanted, it is asked this often."""

GATHER_TURNS: Final = 2
"""Of the event loop, between a wake and the turn: what came with the first record is in it too. A
turn costs some hundred microseconds, a record some ten."""


class WakeSignal:
    """Wakes a loop at its deadline, or when ``wake`` is called."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def wake(self) -> None:
        """Begin the next turn now; from the event loop's thread."""
        self._woken.set()

    def wake_from_thread(self) -> None:
        """The same, from any other thread; before the first turn there is nothing to wake."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.wake)

    async def wait(self, now: int, wake_at: int) -> None:
        """Until ``wake_at`` (us of wall time), but not for ever, or until woken."""
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
