"""The routes: ``/api/v1`` for programs, ``/`` for the page. Every response has strict headers.

Each request is checked before anything else: its ``Host`` and ``Origin``, then its right. The files
of the page need no right, since they say nothing of the deployment. The API of this version reads
only; ``operate`` is a right for operations to come.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from slackwater.codec.results import format_time, parse_time
from slackwater.gateway.access import COOKIE, SESSION_S, Access, Right, why_not_from
from slackwater.gateway.files import INDEX, PageFile
from slackwater.gateway.folded import history_json, windows_json
from slackwater.gateway.hub import Hub
from slackwater.gateway.openapi import document
from slackwater.gateway.outbox import Outbox
from slackwater.gateway.positions import ID_CHARS_MAX
from slackwater.gateway.streaming import EventStream
from slackwater.model.errors import SlackwaterError

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)
BODY_BYTES_MAX: Final = 64 * 1024
BODY_S_MAX: Final = 10.0
HEADER_BYTES_MAX: Final = 32 * 1024
STREAMS_MAX: Final = 2_000
SETTLE_S_MAX: Final = 5.0
"""Time for which a request waits for a gateway that has just started."""
WINDOWS_MAX: Final = 1_000
WINDOWS_DEFAULT: Final = 60
KEY_CHARS_MAX: Final = 65_536
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "interest-cohort=()",
}


class RefusedRequest(Exception):
    """Raised to answer a request with an error."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, dict(headers or {})


class Gateway:
    """Answers all requests.

    Args:
        hub: what is known.
        access: who may read.
        page: the files of the page.
        quarantine: reads what a stream has in quarantine; called in a thread.
        alerts: returns rules and alerts; called in a thread.
        look: has the status made soon.
        now_us: the wall clock.
        is_secure: the listener has TLS, so that the cookie is only sent with it.
    """

    def __init__(
        self,
        hub: Hub,
        access: Access,
        page: Mapping[str, PageFile],
        quarantine: Callable[[str], list[dict[str, Any]] | None],
        alerts: Callable[[], dict[str, Any]],
        look: Callable[[], None],
        now_us: Callable[[], int],
        *,
        is_secure: bool = False,
    ) -> None:
        self._hub, self._access, self._page = hub, access, page
        self._quarantine, self._alerts = quarantine, alerts
        self._look, self._now_us = look, now_us
        self._is_secure = is_secure

    def app(self) -> ASGIApp:
        """Return the application."""
        api = {
            "/openapi.json": self.openapi,
            "/overview": self.overview,
            "/queries": self.queries,
            "/queries/{query}": self.query,
            "/queries/{query}/windows": self.windows,
            "/queries/{query}/history": self.history,
            "/streams": self.streams,
            "/streams/{stream}/quarantine": self.refused,
            "/alerts": self.alerts,
            "/nodes": self.nodes,
            "/stream": self.stream,
        }
        routes = [
            *(Route(f"/api/v1{path}", handler, methods=["GET"]) for path, handler in api.items()),
            Route("/api/v1/session", self.session, methods=["GET", "POST", "DELETE"]),
            Route("/", self.file, methods=["GET"]),
            Route("/page/{path:path}", self.file, methods=["GET"]),
        ]
        handlers: Any = {RefusedRequest: _refused, HTTPException: _failed, Exception: _broken}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False
        return _Guard(app, has_tokens=self._access.digests is not None)

    # -- the page and the session -----------------------------------------------------------

    async def file(self, request: Request) -> Response:
        """Return a file of the page."""
        found = self._page.get(request.path_params.get("path", INDEX))
        if found is None:
            raise RefusedRequest(404, "there is no such file")
        headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        content = found.content
        if "gzip" in request.headers.get("accept-encoding", ""):
            content, headers["Content-Encoding"] = found.packed, "gzip"
        return Response(content, media_type=found.media_type, headers=headers)

    async def session(self, request: Request) -> Response:
        """Return the right of this reader, or exchange a token for a cookie, or end the session."""
        if request.method == "DELETE":
            response: Response = _Json({"right": None})
            response.delete_cookie(COOKIE, httponly=True, samesite="strict")
            return response
        has_tokens = self._access.digests is not None
        if request.method == "GET":
            return _Json({"right": self._right(request), "needs_token": has_tokens})
        token = _token_of(await _body(request))
        right = self._access.right_of_token(token)
        if right is None:
            raise RefusedRequest(401, "this token is not valid")
        response = _Json({"right": right, "needs_token": has_tokens})
        response.set_cookie(
            COOKIE,
            self._access.session(token, self._now_us() // 1_000_000),
            max_age=SESSION_S,
            secure=self._is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    # -- what is known ----------------------------------------------------------------------

    async def openapi(self, _: Request) -> Response:
        """Return the description of this API."""
        return _Json(document())

    async def overview(self, request: Request) -> Response:
        """Return the whole status."""
        return _Json(await self._status(request))

    async def queries(self, request: Request) -> Response:
        """Return all queries."""
        status = await self._status(request)
        return _Json({"at": status["at"], "queries": status["queries"]})

    async def query(self, request: Request) -> Response:
        """Return one query."""
        name = request.path_params["query"]
        for each in (await self._status(request))["queries"]:
            if each["query"] == name:
                return _Json(each)
        raise RefusedRequest(404, "there is no such query")

    async def windows(self, request: Request) -> Response:
        """Return the last windows of a query."""
        changes = await self._changes(request)
        limit = _number(request, "limit", WINDOWS_DEFAULT, WINDOWS_MAX)
        found = await asyncio.to_thread(lambda: windows_json(map(orjson.loads, changes), limit))
        return _Json({"query": request.path_params["query"], "windows": found})

    async def history(self, request: Request) -> Response:
        """Return how the value of a key in a window came about."""
        changes = await self._changes(request)
        start, key = _window_start(request), request.query_params.get("key")
        if key is None or len(key) > KEY_CHARS_MAX:
            raise RefusedRequest(400, f"key: give a key of at most {KEY_CHARS_MAX} characters")
        bodies = map(orjson.loads, changes)
        steps = await asyncio.to_thread(lambda: history_json(bodies, start, key))
        if not steps:
            raise RefusedRequest(404, "no answer that is still known has this window and key")
        query = request.path_params["query"]
        return _Json({"query": query, "window_start": start, "key": key, "steps": steps})

    async def streams(self, request: Request) -> Response:
        """Return all streams."""
        status = await self._status(request)
        return _Json({"at": status["at"], "streams": status["streams"]})

    async def refused(self, request: Request) -> Response:
        """Return what a stream has in quarantine, by reason."""
        self._check(request)
        stream = request.path_params["stream"]
        if not stream.isascii() or not 0 < len(stream) <= 200 or not stream.isprintable():
            raise RefusedRequest(404, "there is no such stream")
        groups = await _from_kafka(self._quarantine, stream)
        if groups is None:
            raise RefusedRequest(404, "there is no such stream")
        return _Json({"stream": stream, "reasons": groups})

    async def alerts(self, request: Request) -> Response:
        """Return which alerts fire, which are pending, and which ended last."""
        self._check(request)
        return _Json(await _from_kafka(self._alerts))

    async def nodes(self, request: Request) -> Response:
        """Return machines, what is placed on them, and all processes."""
        status = await self._status(request)
        names = ("at", "controllers", "nodes", "fragments", "processes")
        return _Json({name: status.get(name, []) for name in names})

    async def stream(self, request: Request) -> Response:
        """Return the stream of the status, of the alerts, and of one query's changes."""
        self._check(request)
        # A browser sends the header by itself only for a connection that broke.
        last_id = request.headers.get("last-event-id") or request.query_params.get("after")
        if last_id is not None and len(last_id) > ID_CHARS_MAX:
            last_id = None  # which gives a snapshot
        if self._hub.readers >= STREAMS_MAX:
            raise RefusedRequest(503, "too many streams are open", {"Retry-After": "5"})
        query = request.query_params.get("query")
        # One that comes back keeps what it has; a new one at least sees that Kafka is away.
        is_settled = query is None or await self._settled(query)
        if not is_settled and (last_id is not None or self._hub.feed(query or "") is None):
            raise _unsettled()
        woken = asyncio.Event()
        outbox = Outbox(woken.set)
        try:
            first = self._hub.join(outbox, query, last_id)
        except KeyError:
            raise RefusedRequest(404, "there is no such query") from None
        return EventStream(
            *(first, outbox, woken, lambda: self._hub.readers, lambda: self._hub.leave(outbox))
        )

    # -- checks -----------------------------------------------------------------------------

    def _right(self, request: Request) -> Right | None:
        cookie = request.cookies.get(COOKIE)
        now_s = self._now_us() // 1_000_000
        return self._access.right_of(request.headers.get("authorization"), cookie, now_s)

    def _check(self, request: Request) -> None:
        if self._right(request) is None:
            reason = "a token is required: Authorization: Bearer, or a session of the page"
            raise RefusedRequest(401, reason, {"WWW-Authenticate": "Bearer"})

    async def _status(self, request: Request) -> Mapping[str, Any]:
        self._check(request)
        return await self._hub.fresh_status(self._look)

    async def _settled(self, query: str) -> bool:
        return await self._hub.settled(query, SETTLE_S_MAX)

    async def _changes(self, request: Request) -> list[bytes]:
        """Return the bodies of all changes of the query that are kept."""
        self._check(request)
        query = request.path_params["query"]
        is_settled, feed = await self._settled(query), self._hub.feed(query)
        if feed is None and not is_settled:
            raise _unsettled()
        if feed is None:
            raise RefusedRequest(404, "there is no such query")
        return feed.ring.bodies()


class _Guard:
    """Refuses requests to other hosts and from other origins, and adds headers to all responses."""

    def __init__(self, app: ASGIApp, *, has_tokens: bool) -> None:
        self._app, self._has_tokens = app, has_tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = [(name.encode("latin-1"), value.encode()) for name, value in HEADERS.items()]

        async def send_on(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *raw]
            await send(message)

        request = Request(scope)
        size = sum(len(name) + len(value) for name, value in request.headers.raw)
        given = request.headers.get
        why = why_not_from(given("host"), given("origin"), has_tokens=self._has_tokens)
        if size > HEADER_BYTES_MAX:
            await _answer(431, "the headers are too large")(scope, receive, send_on)
        elif why is not None:
            status = 421 if given("origin") is None else 403
            await _answer(status, why)(scope, receive, send_on)
        else:
            await self._app(scope, receive, send_on)


class _Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True).encode() + b"\n"

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers({"Cache-Control": "no-store", **(headers or {})})


async def _from_kafka(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a function reads that waits for Kafka."""
    try:
        return await asyncio.to_thread(read, *args, **kwargs)
    except SlackwaterError as error:
        raise RefusedRequest(503, f"Kafka does not answer: {error.message}") from None


async def _body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RefusedRequest(415, "send application/json")
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for chunk in request.stream():
                size += len(chunk)
                if size > BODY_BYTES_MAX:
                    raise RefusedRequest(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
                chunks.append(chunk)
    except TimeoutError:
        raise RefusedRequest(408, f"the body took longer than {BODY_S_MAX:g} s") from None
    except ClientDisconnect:
        raise RefusedRequest(400, "the connection was closed before the body's end") from None
    return b"".join(chunks)


def _token_of(body: bytes) -> str:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    token = found.get("token") if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise RefusedRequest(400, 'send {"token": "..."}')
    return token


def _number(request: Request, name: str, default: int, largest: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 0 < int(text) <= largest):
        raise RefusedRequest(400, f"{name}: a whole number from 1 to {largest}")
    return int(text)


def _window_start(request: Request) -> str:
    text = request.query_params.get("window_start", "")
    try:
        return format_time(parse_time(text[:64]))
    except (ValueError, OverflowError):
        raise RefusedRequest(400, "window_start: a time such as 2016-03-15T08:47:00Z") from None


def _answer(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    # A body may not have been read to its end, so the connection cannot be used again.
    return _Json({"error": reason}, status, {"Connection": "close", **(headers or {})})


def _unsettled() -> RefusedRequest:
    return RefusedRequest(503, "Kafka has not told yet what there is", {"Retry-After": "1"})


async def _refused(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, RefusedRequest)
    return _answer(refusal.status, refusal.reason, refusal.headers)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reasons = {404: f"there is nothing at {quote(request.url.path)[:200]}", 405: "read with GET"}
    reason = reasons.get(error.status_code, error.detail)
    return _answer(error.status_code, reason, error.headers)


async def _broken(_request: Request, error: Exception) -> Response:
    _log.error("a request failed: %r", error, exc_info=error)
    return _answer(500, "the gateway failed")
