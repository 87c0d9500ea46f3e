"""What the thread of an MQTT connection and the thread of its stream share.

Messages go one way, acknowledgements the other. A message with QoS 1 stays the broker's until it is
acknowledged, so the messages of a connection that has ended are dropped here, and the broker sends
them again on the next one; acknowledgements for an earlier connection are dropped, too, because
their message ids mean nothing on this one.

A *probe* is this client's substitute for an end offset, which MQTT lacks. The connection sends a
request that the broker must answer, and bytes arrive in order: what the broker had sent before its
answer has arrived. What it had not sent by then it holds back only while its window of
unacknowledged messages is full. So if fewer than ``in_flight`` messages were unacknowledged when
the answer was made, all that the broker had for this client when the probe was sent is here. An
acknowledgement takes up to ``SETTLE_US`` to the broker; until then its message counts as
unacknowledged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from slackwater.model.limits import NEVER

SETTLE_US: Final = 250_000
"""Longest time that an acknowledgement is assumed to take to the broker."""
KEPT_US_MAX: Final = 10_000_000
"""How long acknowledgements are remembered."""
TICK_US: Final = 10_000
"""Acknowledgements of this time are remembered as one."""
INBOX_BYTES_MAX: Final = 32 * 1024 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 256
"""Of the objects that a small message consists of."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. ``mid`` is 0 with QoS 0; ``size`` is that of the payload before it was cut."""

    topic: str
    payload: bytes
    size: int
    mid: int = 0
    is_repeated: bool = False
    connection: int = 0

    @property
    def bytes_held(self) -> int:
        """Approximate size in memory."""
        return len(self.topic) + len(self.payload) + MESSAGE_OVERHEAD_BYTES


class Window:
    """Whether the broker may hold messages back, because its window may be full."""

    def __init__(self, in_flight: int) -> None:
        self._in_flight = in_flight
        self._unacknowledged = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """Acknowledgements: when they were sent, at the latest, and how many."""
        self._forgotten_to_us = NEVER

    def received(self) -> None:
        """Count a message that is to be acknowledged."""
        self._unacknowledged += 1

    def acknowledged(self, messages: int, now_us: int) -> None:
        """Count acknowledgements that have just been sent."""
        self._unacknowledged -= messages
        under_way, at_us = self._under_way, -(-now_us // TICK_US) * TICK_US
        if under_way and under_way[-1][0] == at_us:
            messages += under_way.pop()[1]
        under_way.append((at_us, messages))
        while under_way[0][0] < now_us - KEPT_US_MAX:
            self._forgotten_to_us = under_way.popleft()[0]

    def may_be_full(self, since_us: int) -> bool:
        """Whether it may have been full at some time since then."""
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
        """Number of the current connection; those before it have ended."""
        self.is_connected = False
        """Whether the broker sends all messages of the session, as far as its window has room."""
        self._is_open = False
        self.retained = self.sessions_lost = 0

    # For the thread of the connection.

    def opened(self, wake: Callable[[], None]) -> None:
        """Begin a connection; ``wake`` ends the wait of its thread."""
        with self._changed:
            self.connection += 1
            self._is_open, self._wake = True, wake
            self._acks.clear()
            self._window = Window(self._in_flight)
            self._probe_us = self._clear_us = None

    def subscribed(self) -> None:
        """All messages of the session come from now on."""
        with self._changed:
            self.is_connected = True

    def closed(self) -> None:
        """End the connection: what it has delivered with QoS 1 and nobody took is dropped."""
        with self._changed:
            self.is_connected = self._is_open = False
            self._wake = lambda: None
            self._messages = deque(m for m in self._messages if not m.mid)
            self._bytes = sum(m.bytes_held for m in self._messages)
            self._acks.clear()
            self._probe_us = self._clear_us = None
            self._changed.notify_all()

    def put(self, message: Message) -> None:
        """Hand a message over."""
        with self._changed:
            self._messages.append(message)
            self._bytes += message.bytes_held
            if message.mid:
                self._window.received()
            self._changed.notify_all()

    def ignored(self, mid: int) -> None:
        """Take note of a message that is acknowledged without having been handed over."""
        with self._changed:
            self.retained += 1
            if mid:
                self._window.received()
                self._acks.append(mid)

    def session_was_lost(self) -> None:
        """Take note that the broker has no session where it had one."""
        self.sessions_lost += 1

    @property
    def is_full(self) -> bool:
        """Whether the connection must not be read until messages have been taken."""
        return self._bytes >= self._bytes_max

    def acknowledgements(self, now_us: int) -> list[int]:
        """Return the message ids to acknowledge now, in the order of their messages."""
        with self._changed:
            acks, self._acks = self._acks, []
            if acks:
                self._window.acknowledged(len(acks), now_us)
            return acks

    def probe_is_due(self, now_us: int) -> bool:
        """Whether to send a probe now; true once for each ``ask``."""
        with self._changed:
            if not self._asked or not self.is_connected or self._probe_us is not None:
                return False
            self._asked, self._probe_us = False, now_us
            return True

    def answered(self) -> None:
        """Take the broker's answer to the probe."""
        with self._changed:
            sent_us, self._probe_us = self._probe_us, None
            if sent_us is not None and not self._window.may_be_full(sent_us):
                self._clear_us = sent_us
            self._changed.notify_all()

    # For the thread of the stream.

    def wait(self, messages: int, timeout_s: float) -> None:
        """Wait until so many messages are here, a probe is answered, or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    len(self._messages) >= messages or self.is_full or self._clear_us is not None
                ),
                timeout_s,
            )

    @property
    def waiting(self) -> int:
        """Messages that wait to be taken."""
        return len(self._messages)

    def take(self, messages_max: int) -> tuple[list[Message], int | None]:
        """Return the oldest messages, and the time up to which all have been taken, if it is known.

        That is the time of an answered probe; it is returned once, with the last of the messages.
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
        """Let the broker forget these messages, which are durable here."""
        with self._changed:
            mids = [m.mid for m in messages if m.mid and m.connection == self.connection]
            if mids and self._is_open:
                self._acks += mids
                self._wake()

    def ask(self) -> None:
        """Ask for a probe."""
        with self._changed:
            self._asked = True
            self._wake()
