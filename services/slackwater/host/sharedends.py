"""End offsets of logs, requested for several sessions at once.

When a stream falls silent, its deadline is the same in all fragments that read it, and each of them
requests the end offset of the log (rule-14). Equal requests in one iteration of the event loop
share one answer. No session receives an answer to a request that was sent before its own: records
appended between the two requests would wrongly count as read (trace-11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from slackwater.runtime.logs.transport import Isolation, Log

Ends: TypeAlias = Mapping[Log, int] | None
"""End offset of each log; None if the broker did not answer in time."""

_Request: TypeAlias = tuple[frozenset[Log], Isolation, float]


class EndOffsets(Protocol):
    """Interface of the transport for end offsets."""

    async def end_offsets_async(
        self, logs: Iterable[Log], *, isolation: Isolation = ..., timeout_s: float
    ) -> dict[Log, int] | None:
        """Return the current end offset of each log; None after a time-out."""
        ...


class SharedEnds:
    """Combines the end-offset requests of one iteration of an event loop. For one event loop."""

    def __init__(self, transport: EndOffsets) -> None:
        self._transport = transport
        self._unsent: dict[_Request, asyncio.Task[Ends]] = {}

    async def end_offsets_async(
        self, logs: Iterable[Log], *, isolation: Isolation, timeout_s: float
    ) -> Ends:
        """Return the end offsets of these logs at a time after this call."""
        request = (frozenset(logs), isolation, timeout_s)
        pending = self._unsent.get(request)
        if pending is None:
            pending = asyncio.get_running_loop().create_task(self._send(request))
            self._unsent[request] = pending
        # Shielded: if one waiting session is cancelled, the others still receive the answer.
        return await asyncio.shield(pending)

    async def _send(self, request: _Request) -> Ends:
        await asyncio.sleep(0)  # collect the requests of this iteration
        del self._unsent[request]
        logs, isolation, timeout_s = request
        return await self._transport.end_offsets_async(
            logs, isolation=isolation, timeout_s=timeout_s
        )
