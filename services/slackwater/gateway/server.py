"""The HTTP server of the gateway, with the listener and the time limits of readings over HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import uvicorn

from slackwater.deployment.listening import is_loopback
from slackwater.gateway.access import Access
from slackwater.gateway.app import HEADER_BYTES_MAX, STREAMS_MAX, Gateway
from slackwater.gateway.files import read_page
from slackwater.gateway.hub import Hub
from slackwater.gateway.streaming import ABORT
from slackwater.model.errors import EnvironmentProblem
from slackwater.proxy.http.server import BoundedProtocol, bound, server_config
from slackwater.runtime.service.clock import SystemClock

_log = logging.getLogger(__name__)
STOP_S_MAX: Final = 1
CONNECTIONS_MAX: Final = STREAMS_MAX + 512
_AT_ONCE: Final = struct.pack("ii", 1, 0)
WRITE_BUFFER_BYTES: Final = 32 * 1024
"""Bytes that wait for the network, of one connection; then a write waits."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the gateway listens; the files are PEM."""

    host: str = "127.0.0.1"
    port: int = 8090
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}/"


class Feeding(Protocol):
    """What brings changes and the status to a hub."""

    def start(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; the hub is called in this loop."""
        ...

    def set_readers(self, count: int) -> None:
        """Accept the number of readers."""
        ...

    def look_once(self) -> None:
        """Make the status soon."""
        ...

    def quarantine(self, stream: str) -> list[dict[str, Any]] | None:
        """Return what a stream has in quarantine; None if there is no such stream."""
        ...

    def alerts(self) -> dict[str, Any]:
        """Return rules and alerts."""
        ...

    def stop(self) -> None:
        """End."""
        ...


class GatewayProtocol(BoundedProtocol):
    """A connection that a stream can cut off."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Bound what waits for the network."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and tell the request how to end its connection."""
        super().data_received(data)
        if (scope := getattr(self, "scope", None)) is not None:
            scope[ABORT] = self._abort

    def _abort(self) -> None:
        """End the connection now; else the kernel would go on sending what it has, for minutes."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()


def check_listening(listen: Listen, access: Access) -> None:
    """Refuse an address that others reach, unless there are tokens or it is open.

    Raises:
        EnvironmentProblem: other machines reach it, and any process on them could read all results.
    """
    if access.digests is None and not (access.is_open or is_loopback(listen.host)):
        raise EnvironmentProblem(
            f"other machines reach {listen.host}:{listen.port}, and any process on them could read"
            " all results: add --tokens FILE"
        )


async def serve(
    listen: Listen,
    access: Access,
    sources: Feeding,
    stopping: asyncio.Event,
    listening: Callable[[], None] = lambda: None,
) -> None:
    """Serve until stopped; ``listening`` is called when connections are answered.

    Raises:
        EnvironmentProblem: the address cannot be listened on, or a file of TLS cannot be used.
    """
    check_listening(listen, access)
    loop = asyncio.get_running_loop()
    hub = Hub(sources.set_readers)
    gateway = Gateway(
        *(hub, access, read_page(), sources.quarantine, sources.alerts, sources.look_once),
        SystemClock().now_us,
        is_secure=listen.certificate is not None,
    )
    server = _server(gateway, listen, listening)
    with bound(
        *(listen.host, listen.port), "name another one with --listen", CONNECTIONS_MAX
    ) as listener:
        sources.start(hub, loop)
        serving = asyncio.ensure_future(server.serve([listener]))
        stopped = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sources.stop()
            hub.close()  # the server waits for open streams
            server.should_exit = True
            await serving
            stopped.cancel()


class _Server(uvicorn.Server):
    """A server that leaves signals to its process, and says when it answers."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening()

    def capture_signals(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()


def _server(gateway: Gateway, listen: Listen, listening: Callable[[], None]) -> uvicorn.Server:
    tls: dict[str, Any] = {}
    if listen.certificate is not None and listen.key is not None:
        tls = {"ssl_certfile": str(listen.certificate), "ssl_keyfile": str(listen.key)}
    config = server_config(
        *(gateway.app(), GatewayProtocol, tls),
        header_bytes_max=HEADER_BYTES_MAX,
        stop_s_max=STOP_S_MAX,
        fault="the certificate or its key cannot be used",
    )
    return _Server(config, listening)
