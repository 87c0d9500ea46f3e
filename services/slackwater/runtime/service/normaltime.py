"""The normal times of a query, kept up to date in its processes (rule-15)."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.limits import NEVER
from slackwater.primitives.eventclock import DataClock, EventClock, normal_time_us
from slackwater.primitives.lateness import lateness_of
from slackwater.runtime.service.registry import Registry


class NormalTime:
    """The normal time of each event time of a query: wall(e + lateness), not before its begin.

    Before the event clock is published there is no normal time, so nothing is due. A process can
    therefore be ready before its first record, and a rehearsal begins in all processes at once. So
    it is with ``awaits_begin`` before the query's begin is recorded, which is when its processes
    are ready. If a stream of the query learns its ``expect_every``, the registry is followed for as
    long as the object is open; steps recorded earlier count at once.
    """

    def __init__(
        self,
        registry: Registry,
        deployment: Deployment,
        query: QuerySpec,
        *,
        awaits_begin: bool = False,
    ) -> None:
        self._clock: EventClock | None = None
        self._begin_us: int | None = None
        self._reached_us = NEVER
        self._awaits_begin = awaits_begin
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

    def _wait(self, registry: Registry, _deployment: Deployment, query: QuerySpec) -> None:
        for clock, _, begins in registry.follow_time(self._closed):
            if self._begin(clock, begins, query):
                return

    def _follow(self, registry: Registry, deployment: Deployment, query: QuerySpec) -> None:
        for clock, learned, begins in registry.follow_time(self._closed):
            self._lateness = lateness_of(deployment, query, learned)
            self._begin(clock, begins, query)

    def _begin(self, clock: EventClock, begins: Mapping[str, int], query: QuerySpec) -> bool:
        """Set the clock if there is nothing more to wait for; return whether it is set."""
        if self._awaits_begin and query.name not in begins:
            return False
        if self._clock is None:
            self._begin_us = begins[query.name] if self._awaits_begin else None
            self._clock = clock
        return True

    def close(self) -> None:
        """Stop waiting for the clock, and following the registry; its thread ends soon."""
        self._closed.set()

    def lateness_us(self, e: int) -> int:
        """Return the lateness at event time e (us of event time)."""
        return self._lateness.at(e)

    def of(self, e: int) -> int | None:
        """Return the normal time of e (us); None before the clock is published and begun."""
        clock = self._clock
        if clock is None:
            return None
        return normal_time_us(clock, e, self._lateness.at(e), self._begin_us)

    def observe(self, boundary: int, now: int) -> None:
        """Advance a clock that follows the data, after a boundary (event time, us) was read.

        ``now`` is the wall time, us.
        """
        self._reached_us = max(self._reached_us, boundary)
        if isinstance(self._clock, DataClock):
            self._clock.observe(boundary, now)

    def reached_us(self) -> int:
        """Return the largest event time (us) observed so far; NEVER before the first."""
        return self._reached_us
