"""Requests of senders between the threads that receive them and the one that stores them.

A request waits in the bounded ``RequestQueue`` of its stream, which is open while the stream is
served. Its outcome is a future: the receiving thread waits for it and answers the sender.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from slackwater.proxy.messages import Parsed

WAITING_MAX: Final = 1_000
"""Requests that wait in a queue."""
BYTES_AT_ONCE_MAX: Final = 16 * 1024 * 1024
"""Bodies that one transaction takes, unless a single one is larger."""
BUSY_RETRY_S: Final = 1


@dataclass(frozen=True, slots=True)
class BodyContent:
    """What a body holds: parsed readings, and the text of each for the quarantine.

    ``numbers`` are those under which the sender finds the readings, and ``place`` what they count:
    an ``index`` from 0, or a ``line`` from 1.
    """

    parsed: Parsed
    text: Callable[[int], str]
    numbers: Sequence[int]
    place: str = "index"
    ignored: int = 0
    """Values that belong to no declared field, where a format counts them."""

    def error(self, index: int, reason: str, detail: str) -> dict[str, object]:
        """Return an error as the sender is answered."""
        found: dict[str, object] = {self.place: self.numbers[index], "reason": reason}
        return found | {"detail": detail} if detail else found


class UnusableBody(Exception):
    """Raised by a parser for a body that holds no usable readings, with the status to answer."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason, status)
        self.reason = reason
        self.status = status


BodyReader = Callable[[bytes], BodyContent]
"""Parses one body; picklable, since a suspect body is parsed in a child process."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the sender is answered; ``status`` is that of HTTP.

    ``retry_s``: when to repeat the request; None where repeating it would change nothing.
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
    answer: Future[Outcome] = field(default_factory=Future)
    number: int = 0
    """In the order of arrival at the queue."""
    _digest: bytes = b""

    @property
    def digest(self) -> bytes:
        """A digest of the body: of two requests with one key, it tells a repetition from a slip."""
        self._digest = self._digest or hashlib.blake2b(self.body, digest_size=16).digest()
        return self._digest


class RequestQueue:
    """Requests of one stream between the threads that receive them and the one that stores them.

    It is open while the stream is served. Thread-safe.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: deque[Pushed] = deque()
        self._is_open = False
        self.last = 0
        """Number of the request that came last."""

    def put(self, request: Pushed) -> Outcome | None:
        """Enqueue a request; return an answer at once if it cannot be taken."""
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
        """Remove a request that nobody waits for any more; return whether it still waited."""
        with self._lock:
            if request not in self._waiting:
                return False
            self._waiting.remove(request)
            return True

    def take(self) -> list[Pushed]:
        """Return waiting requests in order, as many as one transaction takes."""
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
        """Whether a request up to this number waits."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0].number <= number

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits."""
        return bool(self._waiting)

    def open(self) -> None:
        """Accept requests."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """Accept no more requests; those that wait are answered that they were not taken."""
        with self._lock:
            self._is_open = False
            waiting = list(self._waiting)
            self._waiting.clear()
        for request in waiting:
            if request.answer.set_running_or_notify_cancel():
                reason = "the stream is not served now; nothing of the request was stored"
                request.answer.set_result(Outcome(503, reason=reason, retry_s=BUSY_RETRY_S))
