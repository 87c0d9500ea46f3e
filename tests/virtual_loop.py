"""An event loop with virtual time: it goes on to the next timer when nothing else is to be done.

So a test of what a time-out does takes no time, and no pause of the machine is a time-out. Nothing
may come from outside the loop, neither a thread nor a socket: the loop would not wait for it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Ready(selectors.DefaultSelector):
    """Never blocks; counts how long it would have."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen"
            self.now_s += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """See above."""

    def __init__(self) -> None:
        self._ready_now = _Ready()
        super().__init__(self._ready_now)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._ready_now.now_s


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
