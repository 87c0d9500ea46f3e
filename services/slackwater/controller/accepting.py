"""Accepts connections, and reports TLS handshakes that fail.

asyncio drops the error of a handshake that fails at the accepting end, so TLS starts here after the
connection is accepted, and not in ``asyncio.start_server``. Anybody who reaches the port can cause
such failures, so few of them are logged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from slackwater.controller.tls import why_failed

_log = logging.getLogger(__name__)

LOG_S_MIN: Final = 10.0
"""Shortest time between two lines about failed handshakes."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def accept_tls(
    serve: Serve, host: str, port: int, context: ssl.SSLContext, within_s: float
) -> asyncio.Server:
    """Listen on a port; ``serve`` gets each connection once its TLS handshake is complete.

    Raises:
        OSError: the port is taken.
    """
    handshakes = _Handshakes(serve, context, within_s)
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Accepted(handshakes), host, port)


class _Accepted(asyncio.Protocol):
    """A connection before its handshake."""

    def __init__(self, handshakes: _Handshakes) -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, which reads the first bytes."""
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self._handshakes.begin(transport)


class _Handshakes:
    """The handshakes of one port."""

    def __init__(self, serve: Serve, context: ssl.SSLContext, within_s: float) -> None:
        self._serve, self._context, self._within_s = serve, context, within_s
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._not_before_s = 0.0
        self._unlogged = 0

    def begin(self, transport: asyncio.Transport) -> None:
        """Begin the handshake of a connection."""
        task = self._loop.create_task(self._shake_hands(transport))
        self._tasks.add(task)  # an event loop holds weak references to its tasks
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        peer = transport.get_extra_info("peername")
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader, self._serve)
        try:
            encrypted = await self._loop.start_tls(
                transport,
                protocol,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._within_s,
            )
        except OSError as error:
            self._note(peer, error)
            return
        if encrypted is not None:  # otherwise the connection was lost at once
            protocol.connection_made(encrypted)

    def _note(self, peer: object, error: OSError) -> None:
        now_s = self._loop.time()
        if now_s < self._not_before_s:
            self._unlogged += 1
            return
        others, self._unlogged = self._unlogged, 0
        self._not_before_s = now_s + LOG_S_MIN
        address = ":".join(map(str, peer[:2])) if isinstance(peer, tuple) else "an unknown address"
        is_closed = isinstance(error, ConnectionResetError)
        reason = "the other end closed the connection" if is_closed else why_failed(error)
        more = f" ({others} more since the last such line)" if others else ""
        _log.warning("the TLS handshake with %s failed: %s%s", address, reason, more)
