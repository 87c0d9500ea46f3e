"""A server of the HTTP input, whose stream is on a broker in memory."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.unit.proxy.test_pushed import POSTED, PushWorld

from slackwater.model.deployment import HttpListenSpec
from slackwater.proxy.http.app import Posted
from slackwater.proxy.http.server import HttpServer
from slackwater.proxy.http.tokens import Tokens
from slackwater.proxy.shell import turn

TOKEN = "a-token-of-this-test-only"
NOW_US = 1_000_000_000
JSON_HEADERS = {"Content-Type": "application/json"}


@dataclass
class Site:
    """A listening server, and the thread that serves its stream."""

    port: int
    world: PushWorld
    ended: threading.Event

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def post(
        self, body: Any, headers: dict[str, str] | None = None, stream: str = "room"
    ) -> tuple[int, dict[str, Any]]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        with closing(self.connect()) as connection:
            given = JSON_HEADERS | (headers or {})
            connection.request("POST", f"/streams/{stream}", raw, given)
            response = connection.getresponse()
            return response.status, json.loads(response.read())


@contextmanager
def opened(world: PushWorld, port: int, folder: Path) -> Iterator[Site]:
    """Serve the world's stream, also under the name `guarded` with a token."""
    proxy = world.proxy()
    streams = {
        "room": Posted(world.spec, world.queue, None),
        "guarded": Posted(replace(POSTED, name="guarded"), world.queue, Tokens([TOKEN])),
    }
    ended, stopping = threading.Event(), threading.Event()
    awake = threading.Event()
    world.queue._wake = awake.set
    made = HttpServer(HttpListenSpec(port=port), streams, folder, lambda: NOW_US, ended.set)
    made.start()

    def serve() -> None:
        while not stopping.is_set():
            awake.wait(0.05)
            awake.clear()
            turn(world.context_now, proxy, world.now_us)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield Site(port, world, ended)
    made.stop()
    stopping.set()
    thread.join()
    proxy.close()
    assert not ended.is_set()
