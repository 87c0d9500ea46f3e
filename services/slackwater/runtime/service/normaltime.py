"""The normal times of a query, kept up to date in its processes (rule-15)."""

from __future__ import annotations

import threading

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.primitives.eventclock import DataClock, EventClock, normal_time_us
from slackwater.primitives.lateness import lateness_of
from slackwater.runtime.service.registry import Registry


class NormalTime:
    """The normal time of each event time of a query: wall(e + lateness).

    Before the event clock is published there is no normal time, so nothing is due. A process can
    therefore be ready before its first record, and a rehearsal begins in all processes at once. If
    a stream of the query learns its ``expect_every``, the registry is followed for as long as the
    object is open; steps recorded earlier count at once.
    """

    def __init__(self, registry: Registry, deployment: Deployment, query: QuerySpec) -> None:
        self._clock: EventClock | None = None
        self._closed = threading.Event()
        self._lateness = lateness_of(deployment, query, {})
        learns = any(deployment.streams[s].learns_gaps for s in deployment.source_streams(query))
        self._thread = threading.Thread(
            target=self._follow if learns else self._wait,
            args=(registry, deployment, query),
            name="clock",
            daemon=True,
        )
        self._thread.start()

    def _wait(self, registry: Registry, _deployment: Deployment, _query: QuerySpec) -> None:
        for clock, _ in registry.follow_time(self._closed):
            self._clock = clock
            return

    def _follow(self, registry: Registry, deployment: Deployment, query: QuerySpec) -> None:
        for clock, learned in registry.follow_time(self._closed):
            self._lateness = lateness_of(deployment, query, learned)
            self._clock = self._clock or clock

    def close(self) -> None:
        """Stop waiting for the clock, and following the registry; its thread ends soon."""
        self._closed.set()

    def lateness_us(self, e: int) -> int:
        """Return the lateness at event time e (us of event time)."""
        return self._lateness.at(e)

    def of(self, e: int) -> int | None:
        """Return the normal time of e (us); None before the event clock is published."""
        clock = self._clock
        return None if clock is None else normal_time_us(clock, e, self._lateness.at(e))

    def observe(self, boundary: int, now: int) -> None:
        """Advance a clock that follows the data, after a boundary (event time, us) was read.

        ``now`` is the wall time, us.
        """
        if isinstance(self._clock, DataClock):
            self._clock.observe(boundary, now)
