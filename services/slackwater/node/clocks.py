"""This machine's clock compared with those of the controllers (``control/clock_offset.py``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from slackwater.control.applied import AppliedQuery
from slackwater.control.clock_offset import (
    CLOCK_PERIOD_S,
    EXCHANGES,
    ClockExchange,
    ClockOffset,
    measured,
    why_too_far,
)
from slackwater.controller.client import ControlClient
from slackwater.controller.links import LinkError
from slackwater.runtime.service.clock import SystemClock

_log = logging.getLogger(__name__)


class ClockComparison:
    """The offsets by controller; ``applied`` returns the recorded queries, which bound them.

    ``problem`` is why the clocks are too far apart, empty if they are not.
    """

    def __init__(self, applied: Callable[[], Mapping[str, AppliedQuery]]) -> None:
        self._applied = applied
        self._offsets: dict[str, ClockOffset] = {}
        self.problem = ""

    def of(self, controller: str) -> ClockOffset:
        """Return the offset against a controller; with an error of -1 while it is not known."""
        return self._offsets.get(controller, ClockOffset(0, -1))

    def forget(self, controller: str) -> None:
        """Forget the offset: the connection has ended."""
        self._offsets.pop(controller, None)

    async def run(self, client: ControlClient) -> None:
        """Measure the clock against a controller's, until cancelled."""
        while True:
            with suppress(LinkError):  # the connection ends, or the controller is paused
                self._offsets[client.controller] = measured(await _exchanges(client))
            queries = {
                name: query.deployment.queries[name] for name, query in self._applied().items()
            }
            problem = why_too_far(self._offsets, queries)
            if problem and not self.problem:
                _log.warning("%s", problem)
            self.problem = problem
            await asyncio.sleep(CLOCK_PERIOD_S)


async def _exchanges(client: ControlClient) -> list[ClockExchange]:
    """Request a controller's time, ``EXCHANGES`` times in a row."""
    found = []
    for _ in range(EXCHANGES):
        # A clock that has run for longer would still slew towards the machine's time.
        clock = SystemClock()
        sent_us, began_us = clock.now_us(), clock.monotonic_us()
        answered_us = await client.wall_us()
        round_trip_us = clock.monotonic_us() - began_us
        found.append(ClockExchange(sent_us, answered_us, round_trip_us))
    return found
