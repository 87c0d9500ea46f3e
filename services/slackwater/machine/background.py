"""Background work of a stack or a node: an error of it is logged, and the work begins again.

The tasks are kept until the program ends, so asyncio would report an error only then, and a watch
of logs or hosts would have ended without a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

_log = logging.getLogger(__name__)

AGAIN_S: Final = 5.0


class Background:
    """Tasks that run until ``end``; for one event loop."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` until it returns; ``what`` names it in the log."""
        self._tasks.append(asyncio.create_task(_run(what, work)))

    async def end(self) -> None:
        """Cancel all of them, and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _run(what: str, work: Callable[[], Awaitable[None]]) -> None:
    reported = ""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- the rest of the program continues
            if repr(error) != reported:
                reported = repr(error)
                _log.error("%s: begins again in %g s", what, AGAIN_S, exc_info=error)
        else:
            return
        await asyncio.sleep(AGAIN_S)
