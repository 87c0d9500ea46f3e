"""A response of server-sent events: first frames, then an outbox, at most ten writes a second.

With many readers there are fewer writes to each: what comes meanwhile goes with the next one.

Each write is bounded in time. A reader whose connection takes nothing for ``WRITE_S_MAX`` is cut
off: closing it in order would wait for it once more. A reader that has gone is noticed at once if
it closed the connection, else at the next write: a stream without events has a comment every
``COMMENT_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from slackwater.gateway.outbox import Outbox

PAUSE_S: Final = 0.1
"""Least time between two writes to a reader."""
WRITES_PER_S_MAX: Final = 5_000
"""Writes to all readers together: of a thousand, each is written to every 0.2 s at most."""
WRITE_S_MAX: Final = 10.0
COMMENT_S: Final = 15.0
CHUNK_BYTES: Final = 64 * 1024
ABORT: Final = "slackwater.abort"
"""Key of a request's scope: a function that ends its connection without sending the rest."""
RETRY_MS: Final = 1_000
_OPENING: Final = b"retry: %d\n\n" % RETRY_MS


class EventStream(Response):
    """Sends until the reader goes, is lagged, or the outbox is closed.

    Args:
        first: what is sent first.
        outbox: what is sent then; its ``wake`` is ``wake`` of this event.
        woken: set when the outbox has something.
        readers: returns how many readers there are.
        on_end: called when the stream has ended, whatever the reason.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        first: Iterable[bytes],
        outbox: Outbox,
        woken: asyncio.Event,
        readers: Callable[[], int],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first, self._outbox, self._woken, self._on_end = first, outbox, woken, on_end
        self._readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done() and not writing.cancelled() and writing.exception() is not None:
                error = writing.exception()
                if not isinstance(error, TimeoutError | OSError):
                    raise error  # type: ignore[misc]
                if (abort := scope.get(ABORT)) is not None:
                    abort()
        finally:
            self._on_end()
            for task in (writing, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, TimeoutError, OSError):
                    await task

    async def _write(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        await _send(send, _OPENING)
        for chunk in _joined(self._first):
            await _send(send, chunk)
        self._first = ()
        while True:
            if data := self._outbox.take():
                await _send(send, data)
            elif self._outbox.is_ending:
                break
            if not self._outbox.is_ending:  # otherwise nothing more wakes it
                await asyncio.sleep(pause_s(self._readers()))
                await self._wait(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait(self, send: Send) -> None:
        """Wait until the outbox has something; send comments meanwhile."""
        while not self._woken.is_set():
            try:
                async with asyncio.timeout(COMMENT_S):
                    await self._woken.wait()
            except TimeoutError:
                await _send(send, b": nothing new\n\n")
        self._woken.clear()


def pause_s(readers: int) -> float:
    """Return the least time between two writes to one of so many readers."""
    return max(PAUSE_S, readers / WRITES_PER_S_MAX)


async def _send(send: Send, data: bytes) -> None:
    async with asyncio.timeout(WRITE_S_MAX):
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _joined(frames: Iterable[bytes]) -> Iterable[bytes]:
    """Join frames to chunks of some size."""
    waiting: list[bytes] = []
    size = 0
    for frame in frames:
        waiting.append(frame)
        size += len(frame)
        if size >= CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
