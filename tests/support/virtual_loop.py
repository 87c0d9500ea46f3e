"""An event loop with virtual time: when there is nothing to do, it advances to the next timer.

A test of a time-out therefore takes no time, and a pause of the machine causes no time-out. Events
must not come from outside the loop, from a thread or a socket: the loop would not wait for them.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Ready(selectors.DefaultSelector):
    """Never blocks; adds up the time for which it would have blocked."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "no further event is possible"
            self.now_s += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; see the module."""

    def __init__(self) -> None:
        self._ready_now = _Ready()
        super().__init__(self._ready_now)

    def time(self) -> float:
        """Return seconds since the loop was created."""
        return self._ready_now.now_s


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like ``asyncio.run``."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
