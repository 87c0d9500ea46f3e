"""The HTTP server of a proxy process: one listener for all its streams, in a separate thread.

uvicorn parses HTTP and limits the size of headers. This module limits the number of connections,
and the time within which a client must send the headers of a request; otherwise idle connections
would be kept for ever.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import uvicorn
from h11 import IDLE
from uvicorn.protocols.http.h11_impl import H11Protocol

from slackwater.deployment.listening import is_loopback
from slackwater.model.deployment import HttpListenSpec, StreamSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.http import HttpInputSpec
from slackwater.proxy.http.app import HEADER_BYTES_MAX, Elsewhere, Posted, Receiver
from slackwater.proxy.http.tokens import Tokens, read_tokens
from slackwater.proxy.requests import RequestQueue

_log = logging.getLogger(__name__)
CONNECTIONS_MAX: Final = 512
HEADERS_S_MAX: Final = 10.0
IDLE_S_MAX: Final = 30
"""Time for which an unused connection is kept after a response."""
STOP_S_MAX: Final = 1
BACKLOG: Final = 256


class BoundedListener(socket.socket):
    """Accepts a bounded number of connections, including those in a TLS handshake."""

    def __init__(self, listener: socket.socket, connections_max: int | None = None) -> None:
        """Replace ``listener``; ``connections_max``: ``CONNECTIONS_MAX`` if None."""
        super().__init__(fileno=listener.detach())
        self._connections_max = connections_max
        self._open: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; close it if there are too many."""
        connection, address = super().accept()
        self._open = [each for each in self._open if each.fileno() >= 0]
        most = CONNECTIONS_MAX if self._connections_max is None else self._connections_max
        if len(self._open) >= most:
            connection.close()
            raise ConnectionAbortedError  # which the event loop treats as the sender's
        self._open.append(connection)
        return connection, address


class BoundedProtocol(H11Protocol):
    """A connection whose headers must arrive in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the headers."""
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's slot and timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; partial headers do not extend the time limit."""
        super().data_received(data)
        if self.conn.their_state is not IDLE:
            self._stop_waiting()
        elif self._deadline is None and self._is_between_requests():
            self._await_headers()

    def _is_between_requests(self) -> bool:
        cycle = getattr(self, "cycle", None)  # none before the first request
        return cycle is None or bool(cycle.response_complete)

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(HEADERS_S_MAX, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpServer:
    """Listens from its construction on; accepts requests after ``start``."""

    def __init__(
        self,
        listen: HttpListenSpec,
        streams: Mapping[str, Posted],
        folder: Path,
        now_us: Callable[[], int],
        on_end: Callable[[], None],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Bind the port. File names are relative to ``folder``.

        ``now_us`` is the wall clock. ``on_end`` is called if the server ends by itself.
        """
        self._on_end = on_end
        open_ = [name for name, posted in streams.items() if posted.tokens is None]
        if open_ and not is_loopback(listen.host):
            raise EnvironmentProblem(
                f"other machines reach {listen.host}:{listen.port}, and {', '.join(open_)} has no "
                "token_file: any process on them could post readings"
            )
        config = server_config(
            *(Receiver(streams, now_us, elsewhere).app(), BoundedProtocol, _tls(listen, folder)),
            header_bytes_max=HEADER_BYTES_MAX,
            stop_s_max=STOP_S_MAX,
            fault="http.tls",
        )
        self._socket = bound(
            *(listen.host, listen.port), "change http.listen in the deployment file"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._url = listen.url

    def start(self) -> None:
        """Start to answer requests."""
        self._thread.start()
        _log.info("readings are accepted at %sNAME", self._url)

    def stop(self) -> None:
        """Stop the server; requests in progress have ``STOP_S_MAX`` to complete."""
        self._server.should_exit = True
        self._thread.join(2 * STOP_S_MAX)

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve([self._socket]))
        except Exception:  # noqa: BLE001 -- whatever it is, the process has to be restarted
            _log.exception("the HTTP server failed")
        if not self._server.should_exit:
            self._on_end()


def serve(
    listen: HttpListenSpec,
    posted: Mapping[str, tuple[StreamSpec, RequestQueue]],
    folder: Path,
    now_us: Callable[[], int],
    on_end: Callable[[], None],
    others: Mapping[str, HttpInputSpec],
    address: Callable[[str], str | None],
) -> HttpServer:
    """Return the server of these streams, with the tokens of their files.

    ``others`` are the streams that other nodes serve, each at its ``address``. One whose token file
    is not here is not redirected: the token of a request could not be checked.
    """
    streams: dict[str, Posted] = {}
    for name, (spec, queue) in posted.items():
        file = None if spec.http is None else spec.http.token_file
        streams[name] = Posted(spec, queue, None if file is None else read_tokens(folder / file))
    tokens: dict[str, Tokens | None] = {}
    for name, http in others.items():
        if http.token_file is None:
            tokens[name] = None
        elif (folder / http.token_file).exists():
            tokens[name] = read_tokens(folder / http.token_file)
    return HttpServer(listen, streams, folder, now_us, on_end, Elsewhere(tokens, address))


def server_config(
    app: Any,
    protocol: type[asyncio.Protocol],
    tls: Mapping[str, Any],
    *,
    header_bytes_max: int,
    stop_s_max: int,
    fault: str,
) -> uvicorn.Config:
    """Return the loaded settings of a server; ``fault`` begins the error of a bad certificate."""
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S_MAX,
        timeout_graceful_shutdown=stop_s_max,
        h11_max_incomplete_event_size=header_bytes_max,
        **tls,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise EnvironmentProblem(f"{fault}: {error}") from error
    return config


def bound(host: str, port: int, advice: str, connections_max: int | None = None) -> BoundedListener:
    """Return a listener; ``advice`` ends the message if the address cannot be listened on."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        # Connections that arrive before the server starts wait in the backlog.
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
        # Inherited by connections. Without it the end of a response waits 40 ms for the client's
        # delayed acknowledgement; asyncio sets it only for sockets with an explicit protocol.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return BoundedListener(listener, connections_max)
    except OSError as error:
        raise EnvironmentProblem(
            f"{host}:{port} cannot be listened on for HTTP: "
            f"{error.strerror or error}; another process may use it: {advice}"
        ) from error


def _tls(listen: HttpListenSpec, folder: Path) -> dict[str, Any]:
    if listen.certificate_file is None or listen.key_file is None:
        return {}
    return {
        "ssl_certfile": str(folder / listen.certificate_file),
        "ssl_keyfile": str(folder / listen.key_file),
    }
