"""State shared by the thread of an MQTT connection and the thread of its stream.

Messages flow to the stream, acknowledgements to the connection. The broker keeps a QoS 1 message
until it is acknowledged. When a connection ends, its messages are therefore dropped here, and the
broker sends them again on the next connection. Acknowledgements for an earlier connection are also
dropped, because message ids are valid for one connection only.

A *probe* replaces an end offset, which MQTT lacks. The connection sends a request to which the
broker must respond, and bytes arrive in order, so all messages sent before the response have
arrived. The broker holds messages back only while its window of unacknowledged messages is full. If
fewer than ``in_flight`` messages were unacknowledged at the time of the response, then all messages
that the broker had for this client when the probe was sent have arrived. An acknowledgement is
assumed to take up to ``SETTLE_US`` to the broker; until then its message counts as unacknowledged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from slackwater.model.limits import NEVER

SETTLE_US: Final = 250_000
"""Assumed maximum time until an acknowledgement reaches the broker."""
KEPT_US_MAX: Final = 10_000_000
"""Time for which acknowledgements are recorded."""
TICK_US: Final = 10_000
"""Acknowledgements within this interval are recorded as one."""
INBOX_BYTES_MAX: Final = 32 * 1024 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 256
"""Size of the objects of a small message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. ``mid`` is 0 with QoS 0; ``size``: bytes of the payload before truncation."""

    topic: str
    payload: bytes
    size: int
    mid: int = 0
    is_repeated: bool = False
    connection: int = 0
    arrived_us: int = 0
    """Wall time of its arrival."""

    @property
    def bytes_held(self) -> int:
        """Approximate size in memory."""
        return len(self.topic) + len(self.payload) + MESSAGE_OVERHEAD_BYTES


class Window:
    """Tracks whether the broker's window may be full, so that it may hold messages back."""

    def __init__(self, in_flight: int) -> None:
        self._in_flight = in_flight
        self._unacknowledged = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """Acknowledgements: upper bound of the time at which they were sent, and their number."""
        self._forgotten_to_us = NEVER

    def received(self) -> None:
        """Count a message that requires an acknowledgement."""
        self._unacknowledged += 1

    def acknowledged(self, messages: int, now_us: int) -> None:
        """Count acknowledgements sent at ``now_us``."""
        self._unacknowledged -= messages
        under_way, at_us = self._under_way, -(-now_us // TICK_US) * TICK_US
        if under_way and under_way[-1][0] == at_us:
            messages += under_way.pop()[1]
        under_way.append((at_us, messages))
        while under_way[0][0] < now_us - KEPT_US_MAX:
            self._forgotten_to_us = under_way.popleft()[0]

    def may_be_full(self, since_us: int) -> bool:
        """Return whether the window may have been full at any time since ``since_us``."""
        since_us -= SETTLE_US
        under_way = sum(messages for at_us, messages in self._under_way if at_us >= since_us)
        is_known = since_us > self._forgotten_to_us
        return not is_known or self._unacknowledged + under_way >= self._in_flight


class Link:
    """Queues between the two threads; all methods are thread-safe."""

    def __init__(self, in_flight: int, bytes_max: int = INBOX_BYTES_MAX) -> None:
        self._in_flight = in_flight
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._acks: list[int] = []
        self._window = Window(in_flight)
        self._asked = False
        self._probe_us: int | None = None
        self._clear_us: int | None = None
        self._wake: Callable[[], None] = lambda: None
        self.connection = 0
        """Number of the current connection; earlier ones have ended."""
        self.is_connected = False
        """Whether the broker sends the session's messages, limited only by its window."""
        self._is_open = False
        self.retained = self.sessions_lost = 0

    # Called by the connection's thread.

    def opened(self, wake: Callable[[], None]) -> None:
        """Start a connection; ``wake`` ends the wait of its thread."""
        with self._changed:
            self.connection += 1
            self._is_open, self._wake = True, wake
            self._acks.clear()
            self._window = Window(self._in_flight)
            self._probe_us = self._clear_us = None

    def subscribed(self) -> None:
        """Record that the broker sends the session's messages from now on."""
        with self._changed:
            self.is_connected = True

    def closed(self) -> None:
        """End the connection; drop its QoS 1 messages that were not taken."""
        with self._changed:
            self.is_connected = self._is_open = False
            self._wake = lambda: None
            self._messages = deque(m for m in self._messages if not m.mid)
            self._bytes = sum(m.bytes_held for m in self._messages)
            self._acks.clear()
            self._probe_us = self._clear_us = None
            self._changed.notify_all()

    def put(self, message: Message) -> None:
        """Enqueue a message for the stream."""
        with self._changed:
            self._messages.append(message)
            self._bytes += message.bytes_held
            if message.mid:
                self._window.received()
            self._changed.notify_all()

    def ignored(self, mid: int) -> None:
        """Count a retained message, and acknowledge it without enqueueing it."""
        with self._changed:
            self.retained += 1
            if mid:
                self._window.received()
                self._acks.append(mid)

    def session_was_lost(self) -> None:
        """Count a session that the broker has lost."""
        self.sessions_lost += 1

    @property
    def is_full(self) -> bool:
        """Whether reading must pause until messages have been taken."""
        return self._bytes >= self._bytes_max

    def acknowledgements(self, now_us: int) -> list[int]:
        """Return the message ids to acknowledge now, in the order of the messages."""
        with self._changed:
            acks, self._acks = self._acks, []
            if acks:
                self._window.acknowledged(len(acks), now_us)
            return acks

    def probe_is_due(self, now_us: int) -> bool:
        """Return whether to send a probe now; true once for each ``ask``."""
        with self._changed:
            if not self._asked or not self.is_connected or self._probe_us is not None:
                return False
            self._asked, self._probe_us = False, now_us
            return True

    def answered(self) -> None:
        """Record the broker's response to the probe."""
        with self._changed:
            sent_us, self._probe_us = self._probe_us, None
            if sent_us is not None and not self._window.may_be_full(sent_us):
                self._clear_us = sent_us
            self._changed.notify_all()

    # Called by the stream's thread.

    def wait(self, messages: int, timeout_s: float) -> None:
        """Wait for this number of messages, the response to a probe, or the time-out."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    len(self._messages) >= messages or self.is_full or self._clear_us is not None
                ),
                timeout_s,
            )

    @property
    def waiting(self) -> int:
        """Number of messages not yet taken."""
        return len(self._messages)

    def take(self, messages_max: int) -> tuple[list[Message], int | None]:
        """Return the oldest messages, and the time up to which all have been taken, else None.

        It is the time of a probe with a response; it is returned once, with the last message.
        """
        with self._changed:
            was_full = self.is_full
            count = min(messages_max, len(self._messages))
            taken = [self._messages.popleft() for _ in range(count)]
            self._bytes -= sum(m.bytes_held for m in taken)
            if was_full:
                self._wake()
            clear_us = None
            if not self._messages:
                clear_us, self._clear_us = self._clear_us, None
            return taken, clear_us

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Acknowledge these messages, which are durable here, to the broker."""
        with self._changed:
            mids = [m.mid for m in messages if m.mid and m.connection == self.connection]
            if mids and self._is_open:
                self._acks += mids
                self._wake()

    def ask(self) -> None:
        """Request a probe."""
        with self._changed:
            self._asked = True
            self._wake()
