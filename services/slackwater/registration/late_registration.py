"""Registers queries whose start time is not known when a stack starts.

With ``clock: data`` a query begins with the first reading, which may arrive at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from slackwater.model.errors import SlackwaterError
from slackwater.primitives.eventclock import EventClock
from slackwater.registration.registration import Registration

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.2


class LateRegistration:
    """The queries of a stack that are not registered yet; for one event loop."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._has_registered = asyncio.Event()

    @property
    def names(self) -> frozenset[str]:
        """The names of these queries."""
        return frozenset(self._names)

    def begin_with(self, names: list[str]) -> None:
        """Set the queries; ``run`` registers them."""
        self._names = names

    async def wait(self) -> None:
        """Wait until some have been registered since the last call."""
        await self._has_registered.wait()
        self._has_registered.clear()

    async def run(self, registration: Callable[[], Registration], event_clock: EventClock) -> None:
        """Register each query when its start time is known; returns when all are registered."""
        while names := self._names:
            await asyncio.sleep(LOOK_S)
            try:
                left = await asyncio.to_thread(registration().register, names, event_clock)
            except SlackwaterError as error:
                _log.info("queries are not registered yet: %s", error)
                continue
            if left != names:
                self._names = left
                self._has_registered.set()
