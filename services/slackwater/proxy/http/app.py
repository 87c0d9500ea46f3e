"""``POST /streams/NAME``: checks a request, passes its body to the stream, returns the response.

The checks are made in the order of their cost: path, token, headers, size. A body is read only if
it fits the memory limit for all bodies of the process, and within a time limit, so that slow
senders block neither memory nor a stream. All responses are JSON.

A stream that another node serves is answered with 307 and the address there, which the heartbeats
of its proxy have: a sender needs to know one node only (Fargo, section 3.4.1).

A stream without tokens accepts only requests to this machine's own address (the ``Host`` header).
Otherwise a web page opened on this machine could post readings through a name that resolves to the
loopback address.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from slackwater.deployment.listening import is_loopback
from slackwater.model.deployment import StreamSpec
from slackwater.proxy.http.bodies import MEDIA_TYPES, reader_for
from slackwater.proxy.http.tokens import Tokens
from slackwater.proxy.remembered import KEY_CHARS_MAX
from slackwater.proxy.requests import Outcome, Pushed, RequestQueue

_log = logging.getLogger(__name__)
HEADER_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
UNPACKED_BYTES_MAX: Final = BODY_BYTES_MAX
"""Maximum size of a body of gzip when it is unpacked."""
UNPACK_BYTES: Final = 256 * 1024
"""Maximum bytes that are unpacked at once."""
PACKED: Final = ("gzip", "x-gzip")
_GZIP: Final = 16 + zlib.MAX_WBITS
BODIES_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum size of all bodies in the process, from their first byte to their response."""
BODY_S_MAX: Final = 60.0
ANSWER_S_MAX: Final = 30.0
DISCARD_S_MAX: Final = 10.0
DISCARD_PAUSE_S_MAX: Final = 0.5
"""Maximum time to read the rest of a refused body, and maximum pause of its sender."""
BUSY_RETRY_S: Final = 1
KEY_HEADER: Final = "idempotency-key"
REASONS: Final = {
    404: "there is nothing at this path: readings are posted to /streams/NAME",
    405: "only POST is accepted: readings are posted to /streams/NAME",
}
"""What the responses say that the router makes, by status."""
_DIGITS_MAX: Final = 20
"""Maximum digits of a Content-Length; with more digits the length is too large in any case."""


class Refusal(Exception):
    """Raised to answer a request whose body has not been stored."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, dict(headers or {})


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Streams with ``http`` that other nodes serve.

    ``tokens``: those of each stream, None without; ``address``: where a stream is served now.
    """

    tokens: Mapping[str, Tokens | None] = field(default_factory=dict)
    address: Callable[[str], str | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Posted:
    """A stream that accepts requests; without tokens, from this machine only."""

    spec: StreamSpec
    queue: RequestQueue
    tokens: Tokens | None


class Room:
    """The memory limit of bodies; used only in the server's event loop."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self.left = bytes_max

    def reserve(self, size: int) -> None:
        """Reserve memory for a body or a part of it; raises ``Refusal`` if there is none."""
        if size > self.left:
            reason = "the bodies of other requests fill the proxy's memory limit"
            raise Refusal(429, reason, {"Retry-After": str(BUSY_RETRY_S)})
        self.left -= size

    def release(self, size: int) -> None:
        """Release reserved memory."""
        self.left += size


class Receiver:
    """Answers the requests of all streams of a process."""

    def __init__(
        self,
        streams: Mapping[str, Posted],
        now_us: Callable[[], int],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._streams, self._now_us = streams, now_us
        self._elsewhere = elsewhere or Elsewhere()
        self._room = Room()

    def app(self) -> Starlette:
        """Return the application."""
        # A slash at the end is accepted as it is: many clients do not follow a redirection.
        paths = ("/streams/{name}", "/streams/{name}/")
        app = Starlette(
            routes=[Route(path, self.post, methods=["POST"]) for path in paths],
            exception_handlers={Refusal: _refused, HTTPException: _failed, Exception: _broken},
        )
        app.router.redirect_slashes = False
        return app

    async def post(self, request: Request) -> Response:
        """Accept the readings of a body."""
        name = request.path_params["name"]
        posted = self._admit(name, request)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        reader = reader_for(posted.spec, content_type, self._now_us())
        if reader is None:
            given = content_type or "no Content-Type"
            raise Refusal(415, f"{given} is not supported: send {', '.join(MEDIA_TYPES)}")
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", *PACKED):
            raise Refusal(415, f"Content-Encoding {encoding[:64]!r}: send gzip, or the body plain")
        key = _key(request)
        body = _Body(self._room)
        try:
            data = await body.read(request)
            if encoding in PACKED:
                data = await body.unpacked(data)
            pushed = Pushed(data, reader, key, self._now_us())
            refused = posted.queue.put(pushed)
            return _response(name, refused or await _answer(posted.queue, pushed))
        finally:
            body.release()

    def _admit(self, name: str, request: Request) -> Posted:
        """Check stream and token; without a valid token the response does not reveal streams."""
        # The server limits incomplete headers; these are complete.
        size = sum(len(header) + len(value) for header, value in request.headers.raw)
        if size > HEADER_BYTES_MAX:
            raise Refusal(431, f"the headers are larger than {HEADER_BYTES_MAX} bytes")
        posted = self._streams.get(name)
        if posted is None and name in self._elsewhere.tokens:
            _permit(self._elsewhere.tokens[name], request)
            raise self._redirected(name)
        if posted is None:
            if all(each.tokens is not None for each in self._streams.values()):
                raise _unauthorized()
            raise Refusal(404, f"this proxy serves no stream {name!r} with http in its declaration")
        _permit(posted.tokens, request)
        return posted

    def _redirected(self, name: str) -> Refusal:
        address = self._elsewhere.address(name)
        if address is None:
            reason = f"no node serves stream {name!r} now"
            return Refusal(503, reason, {"Retry-After": str(BUSY_RETRY_S)})
        place = f"{address}/streams/{name}"
        return Refusal(307, f"stream {name!r} is served at {place}", {"Location": place})


def _permit(tokens: Tokens | None, request: Request) -> None:
    """Refuse a request without a valid token, or from another machine if there are no tokens."""
    if tokens is None:
        if not is_loopback(_host_of(request)):
            raise Refusal(421, "without tokens the host must be localhost or 127.0.0.1")
    elif not tokens.accept(request.headers.get("authorization")):
        raise _unauthorized()


class _Body:
    """A body being read, and the memory reserved for it."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._reserved = 0

    async def read(self, request: Request) -> bytes:
        """Read the body within its limits of size and time."""
        declared = request.headers.get("content-length")
        if declared is not None:
            self._reserve(int(declared[:_DIGITS_MAX]) if declared.isdecimal() else 0)
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S_MAX):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._reserve(size)
                    chunks.append(chunk)
        except TimeoutError:
            reason = f"the body took longer than {BODY_S_MAX:g} s"
            raise Refusal(408, reason) from None
        except ClientDisconnect:
            raise Refusal(400, "the connection was closed before the body's end") from None
        return b"".join(chunks)

    async def unpacked(self, packed: bytes) -> bytes:
        """Unpack a body of gzip, step by step, so that no body is larger than it may be.

        The event loop answers other requests between the steps.
        """
        parts: list[bytes] = []
        size, read = 0, len(packed)
        unpacker = zlib.decompressobj(wbits=_GZIP)
        while packed:
            try:
                part = unpacker.decompress(packed, UNPACK_BYTES)
            except zlib.error as error:
                raise Refusal(400, f"the body is not gzip: {error}") from None
            size += len(part)
            if size > UNPACKED_BYTES_MAX:
                reason = f"the body has more than {UNPACKED_BYTES_MAX} bytes when it is unpacked"
                raise Refusal(413, f"{reason}: send several")
            self._hold(read + size)
            parts.append(part)
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                # Another member may follow: packed files that were concatenated.
                packed = unpacker.unused_data
                if packed:
                    unpacker = zlib.decompressobj(wbits=_GZIP)
            await asyncio.sleep(0)
        if not unpacker.eof:
            raise Refusal(400, "the body of gzip ends early")
        return b"".join(parts)

    def release(self) -> None:
        """Release the reserved memory."""
        self._room.release(self._reserved)
        self._reserved = 0

    def _reserve(self, size: int) -> None:
        if size > BODY_BYTES_MAX:
            reason = f"the body is larger than {BODY_BYTES_MAX} bytes: send several"
            raise Refusal(413, reason)
        self._hold(size)

    def _hold(self, size: int) -> None:
        if size > self._reserved:
            self._room.reserve(size - self._reserved)
            self._reserved = size


def _host_of(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _key(request: Request) -> str | None:
    keys = request.headers.getlist(KEY_HEADER)
    if not keys:
        return None
    key = keys[0].strip()
    if len(keys) > 1 or not 0 < len(key) <= KEY_CHARS_MAX or not key.isprintable():
        raise Refusal(400, f"Idempotency-Key: one key of 1 to {KEY_CHARS_MAX} visible characters")
    return key


async def _answer(queue: RequestQueue, pushed: Pushed) -> Outcome:
    try:
        return await asyncio.wait_for(asyncio.wrap_future(pushed.answer), ANSWER_S_MAX)
    except TimeoutError:
        # The body's memory is released after this, so the queue must not keep the body.
        if queue.withdraw(pushed):
            what = "nothing of the request was stored"
        else:
            what = "the request may be stored; repeat it with its key"
        reason = f"no answer within {ANSWER_S_MAX:g} s: {what}"
        return Outcome(503, reason=reason, retry_s=BUSY_RETRY_S)


def _response(stream: str, answer: Outcome) -> Response:
    content: dict[str, Any] = {"stream": stream}
    if answer.status != 200:
        content["error"] = answer.reason
    content |= answer.counts
    if answer.errors:
        content["errors"] = list(answer.errors)
    if answer.repeated:
        content["repeated"] = True
    headers = {} if answer.retry_s is None else {"Retry-After": str(answer.retry_s)}
    return _Json(content, answer.status, headers)


class _Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True).encode() + b"\n"


def _unauthorized() -> Refusal:
    reason = "Authorization: Bearer with a token of this stream is required"
    return Refusal(401, reason, {"WWW-Authenticate": "Bearer"})


async def _discard(request: Request) -> None:
    """Read the rest of a refused body, so that its sender can read the response.

    A connection that is closed with unread bytes is reset, and its sender may lose the response.
    """
    if "expect" in request.headers:
        return  # the client sends the body only after "100 Continue"
    left, now = BODY_BYTES_MAX, asyncio.get_running_loop().time
    end = now() + DISCARD_S_MAX
    # A body that was read to its end raises a RuntimeError when read again.
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(DISCARD_PAUSE_S_MAX) as pause:
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    return
                pause.reschedule(min(end, now() + DISCARD_PAUSE_S_MAX))


async def _refused(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    await _discard(request)
    # The body may not have been read to its end, so the connection cannot be reused.
    headers = {"Connection": "close", **refusal.headers}
    return _Json({"error": refusal.reason}, refusal.status, headers)


async def _failed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = {"Connection": "close", **(error.headers or {})}
    reason = REASONS.get(error.status_code, error.detail)
    return _Json({"error": reason}, error.status_code, headers)


async def _broken(_request: Request, error: Exception) -> Response:
    _log.error("a request failed: %r", error, exc_info=error)
    return _Json({"error": "the proxy failed"}, 500, {"Connection": "close"})
