"""A gateway with its real server, to which a test brings changes and the status itself."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from slackwater.client.follow import Seen
from slackwater.codec.results import format_time
from slackwater.delivery.records import AlertRecord
from slackwater.delivery.view import AlertView
from slackwater.gateway.access import Access, read_access
from slackwater.gateway.alerts import alerts_frame, alerts_json
from slackwater.gateway.changes import Changes
from slackwater.gateway.hub import Hub
from slackwater.gateway.server import Listen, serve
from slackwater.model.alerts import AlertSpec

S = 1_000_000
BEGIN = 1_795_696_000 * S
"""Start of the first window: 2026-11-26, us."""
WINDOW = 10 * S


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def query_status(name: str = "climate", **more: object) -> dict[str, Any]:
    return {
        "query": name,
        "state": "exact",
        "sentence": "exact to 12:26:05, 0.1 s ago",
        "problem": None,
        "generation": 0,
        "begun_at": format_time(BEGIN),
        "from": ["room-1", "room-2"],
        "window": "10s",
        "slide_ms": 10_000.0,
        "aggregate": ["count", "avg"],
        "bound_ms": 2_000.0,
        "parts": 1,
        "streams": ["room-1", "room-2"],
        "exact_to": format_time(BEGIN),
        "tentative_windows": 0,
        "missing": [],
        "p99_ms": 32,
        "remarks": [],
        **more,
    }


def stream_status(name: str, **more: object) -> dict[str, Any]:
    return {
        "stream": name,
        "runs": True,
        "last_reading": format_time(BEGIN),
        "complete_to": format_time(BEGIN),
        "quarantined": {},
        "missing": False,
        "partitions_behind": [],
        "lane": "in time",
        "behind_ms": 100.0,
        "sentence": "last reading 12:26:05, 0.1 s ago",
        "remarks": [],
        **more,
    }


def status(**more: object) -> dict[str, Any]:
    return {
        "at": format_time(BEGIN + 600 * S),
        "event_at": format_time(BEGIN + 600 * S),
        "kafka": True,
        "well": True,
        "problems": [],
        "queries": [query_status()],
        "streams": [stream_status("room-1"), stream_status("room-2")],
        "processes": [
            {"process": "root/climate/0", "state": "ready", "failing": False, "remark": ""}
        ],
        "controllers": [],
        "nodes": [],
        "fragments": [],
        **more,
    }


class Recorded:
    """Writes the records of one part of a query as a root does."""

    def __init__(self, query: str = "climate", part: int = 0) -> None:
        self.query, self.part, self.seq = query, part, 0
        self._changes = Changes()
        self.made: list[Any] = []

    def put(self, kind: str, **more: object) -> None:
        head = {"query": self.query, "part": self.part, "seq": self.seq, "kind": kind}
        self.seq += 1
        change = self._changes.take(Seen({"epoch": 0, **head, **more}, 0, 0))
        if change is not None:
            self.made.append(change)

    def window(
        self,
        number: int,
        rows: Mapping[str, float | None],
        label: str = "stable",
        epoch: int = 0,
        missing: tuple[str, ...] = (),
        late_ms: int = 30,
    ) -> None:
        start, end = BEGIN + number * WINDOW, BEGIN + (number + 1) * WINDOW
        times = {"window_start": format_time(start), "window_end": format_time(end)}
        of = {"epoch": epoch, "missing": list(missing), "due_at": format_time(end + S // 10)}
        of["emitted_at"] = format_time(end + S // 10 + late_ms * 1_000)
        for key, average in rows.items():
            fields = {"temperature": {"count": 0 if average is None else 20, "avg": average}}
            self.put(label, **times, key=key, fields=fields, **of)
        self.put("boundary", label=label, windows=1, keys=len(rows), **times, **of)

    def undo(self, first: int, last: int, epoch: int = 1) -> None:
        times = {"undo_from": first, "undo_to": last}
        texts = {name: format_time(BEGIN + n * WINDOW) for name, n in times.items()}
        self.put("undo", epoch=epoch, **texts, emitted_at=format_time(BEGIN + (last + 4) * WINDOW))

    def take(self) -> list[Any]:
        made, self.made = self.made, []
        return made


class Reader:
    """A client of a gateway on this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, dict(headers or {}))
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.request("GET", path, named) as response:
            body = response.read()
        is_json = "json" in (response.headers["content-type"] or "")
        return response.status, json.loads(body) if is_json else body

    @contextmanager
    def events(self, path: str, **headers: str) -> Iterator[Events]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.request("GET", path, named) as response:
            assert response.status == 200, response.read()
            yield Events(response)


class Site(Reader):
    """The server, in a thread. It is its own source: what a test publishes is what there is."""

    def __init__(
        self, tokens: Path | None = None, port: int | None = None, *, is_settled: bool = True
    ) -> None:
        super().__init__(port or free_port())
        self.status: dict[str, Any] = status()
        self.refused: dict[str, list[dict[str, Any]]] = {"room-1": []}
        self.alerts_view = AlertView()
        self.rules: dict[tuple[str, str], AlertSpec] = {}
        self.hub: Hub = Hub()
        self._is_settled = is_settled
        self._access = Access() if tokens is None else read_access(tokens)
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self) -> None:
        self._stopping = asyncio.Event()
        await serve(Listen(port=self.port), self._access, self, self._stopping)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(20)
        for _ in range(200):
            try:
                self.get("/")
                break
            except OSError:
                self._started.wait(0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    # what the server asks of its source
    def start(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        self.hub, self._loop = hub, loop
        if self._is_settled:
            hub.open("climate")
            hub.reach("climate")
            hub.know()
        hub.set_status(self.status)
        self._started.set()

    def set_readers(self, count: int) -> None:
        pass

    def look_once(self) -> None:
        self._loop.call_soon(self.hub.set_status, self.status)

    def alerts(self) -> dict[str, Any]:
        return alerts_json(self.alerts_view, self.rules)

    def quarantine(self, stream: str) -> list[dict[str, Any]] | None:
        return self.refused.get(stream)

    def stop(self) -> None:
        pass

    # what a test does
    def publish(self, of: Recorded) -> None:
        self.call(lambda: self.hub.publish(of.query, of.take(), {of.part: 0}))

    def set_status(self, **more: object) -> None:
        self.status = status(**more)
        self.call(lambda: self.hub.set_status(self.status))

    def set_alerts(self, *records: AlertRecord) -> None:
        """Take records, and push what stands then."""
        for record in records:
            self.alerts_view.take(record)
        frame = alerts_frame(self.alerts_view, self.rules)
        self.call(lambda: self.hub.set_alerts(frame))

    def call(self, call: Any) -> None:
        done = threading.Event()

        def run() -> None:
            call()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10)


class Events:
    """Reads server-sent events."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self, *events: str) -> dict[str, str]:
        """Return the next event, of these if any are named; empty at the end."""
        found: dict[str, str] = {}
        while line := self._response.readline().decode():
            if line == "\n":
                if "event" in found and (not events or found["event"] in events):
                    return found
                found = {}
            elif ":" in line:
                name, _, value = line.rstrip("\n").partition(":")
                found[name] = value.removeprefix(" ")
        return {}

    def change(self) -> dict[str, Any]:
        """Return the next change."""
        found: dict[str, Any] = orjson.loads(self.next("change")["data"])
        return found
