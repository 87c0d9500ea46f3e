"""The queue of requests between the threads that receive them and the thread that stores them.

A request waits in the bounded ``RequestQueue`` of its stream, which is open while the stream is
served. Its outcome is a future: the receiving thread waits for it and responds to the sender.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from slackwater.formats.messages import Parsed

WAITING_MAX: Final = 1_000
"""Maximum requests in a queue."""
BYTES_AT_ONCE_MAX: Final = 16 * 1024 * 1024
"""Maximum size of the bodies of one transaction, unless a single one is larger."""
BUSY_RETRY_S: Final = 1


@dataclass(frozen=True, slots=True)
class BodyContent:
    """The content of a body: parsed readings, and the text of each for the quarantine.

    ``numbers`` identify the readings in the body; ``place`` is what they count: ``index`` from 0,
    or ``line`` from 1.
    """

    parsed: Parsed
    text: Callable[[int], str]
    numbers: Sequence[int]
    place: str = "index"
    ignored: int = 0
    """Number of values without a declared field, if the format counts them."""

    def error(self, index: int, reason: str, detail: str) -> dict[str, object]:
        """Return an error in the form of the response."""
        found: dict[str, object] = {self.place: self.numbers[index], "reason": reason}
        return found | {"detail": detail} if detail else found


class UnusableBody(Exception):
    """Raised by a parser for a body that has no usable readings; ``status`` is that of HTTP."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason, status)
        self.reason = reason
        self.status = status


BodyReader = Callable[[bytes], BodyContent]
"""Parses one body; picklable, since a suspect body is parsed in a child process."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The response to a request; ``status`` is that of HTTP.

    ``retry_s``: delay before the request should be repeated; None if a repetition is useless.
    """

    status: int
    counts: dict[str, int] = field(default_factory=dict)
    errors: tuple[dict[str, object], ...] = ()
    reason: str = ""
    repeated: bool = False
    retry_s: int | None = None


@dataclass(slots=True, eq=False)
class Pushed:
    """One request. ``key`` is the sender's idempotency key."""

    body: bytes
    reader: BodyReader
    key: str | None = None
    arrived_us: int = 0
    """Wall time at which the body was complete."""
    answer: Future[Outcome] = field(default_factory=Future)
    number: int = 0
    """Counts requests in the order of their arrival at the queue."""
    _digest: bytes = b""

    @property
    def digest(self) -> bytes:
        """Digest of the body: detects that a key is used again for another body."""
        self._digest = self._digest or hashlib.blake2b(self.body, digest_size=16).digest()
        return self._digest


class RequestQueue:
    """The queue of one stream's requests. Open while the stream is served. Thread-safe."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: deque[Pushed] = deque()
        self._is_open = False
        self.last = 0
        """Number of the last request."""

    def put(self, request: Pushed) -> Outcome | None:
        """Enqueue a request; return the outcome if it is refused, else None."""
        with self._lock:
            if not self._is_open:
                return Outcome(503, reason="the stream is not served now", retry_s=BUSY_RETRY_S)
            if len(self._waiting) >= WAITING_MAX:
                reason = f"{WAITING_MAX} requests to this stream are waiting"
                return Outcome(429, reason=reason, retry_s=BUSY_RETRY_S)
            self.last += 1
            request.number = self.last
            self._waiting.append(request)
        self._wake()
        return None

    def withdraw(self, request: Pushed) -> bool:
        """Remove a request that was abandoned by its sender; return whether it was queued."""
        with self._lock:
            if request not in self._waiting:
                return False
            self._waiting.remove(request)
            return True

    def take(self) -> list[Pushed]:
        """Remove and return queued requests in order, as many as fit one transaction."""
        taken: list[Pushed] = []
        size = 0
        with self._lock:
            while self._waiting and (not taken or size < BYTES_AT_ONCE_MAX):
                request = self._waiting.popleft()
                if request.answer.set_running_or_notify_cancel():
                    taken.append(request)
                    size += len(request.body)
        return taken

    def holds(self, number: int) -> bool:
        """Return whether a request up to this number is queued."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0].number <= number

    @property
    def is_waiting(self) -> bool:
        """Whether a request is queued."""
        return bool(self._waiting)

    def open(self) -> None:
        """Accept requests."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """Accept no more requests; respond to queued ones with 503: they were not stored."""
        with self._lock:
            self._is_open = False
            waiting = list(self._waiting)
            self._waiting.clear()
        for request in waiting:
            if request.answer.set_running_or_notify_cancel():
                reason = "the stream is not served now; nothing of the request was stored"
                request.answer.set_result(Outcome(503, reason=reason, retry_s=BUSY_RETRY_S))
