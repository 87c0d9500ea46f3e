"""Reads the alert topics of a deployment and sends each change, at least once.

All of a topic is read at the start, since it is compacted: what stands follows from it. Changes
from the stored offset on are sent. The offset is stored when all receivers have acknowledged what
is before it, in a file of the data directory, which also has the state of each receiver. Without a
file the first start begins at the present end: receivers get what stands, not the past.

Requests are sent one after the other, each with a time limit. A receiver that is away delays the
others by one time limit for each attempt, whose pauses grow.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from slackwater.delivery.notices import (
    RESEND_US,
    AlertNotice,
    NoticeQueue,
    alertmanager_body,
    renewed_body,
    webhook_body,
)
from slackwater.delivery.records import AlertRecord, decode_delivery
from slackwater.delivery.view import AlertView
from slackwater.model.errors import MalformedRecordError, UsageError
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Log, RawRecord, Transport
from slackwater.runtime.security.private import write_atomically
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.parts import RECEIVER

_log = logging.getLogger(__name__)

STATE_FILE: Final = "notifier.json"
REQUEST_S_MAX: Final = 10.0
POLL_S: Final = 0.2
POLL_RECORDS: Final = 200
LOOK_US: Final = 30_000_000
"""How often topics of new queries are looked for."""
DELIVERS: Final = "delivers"
"""State of a receiver that has acknowledged what it was sent last."""
SENT_STATES: Final = ("firing", "ended", "confirmed", "withdrawn")


@dataclass(frozen=True, slots=True)
class AlertReceiver:
    """Where changes are sent: ``url`` and ``token`` are secrets, ``name`` and ``where`` are not."""

    name: str
    url: str
    token: str = ""

    @property
    def where(self) -> str:
        """The address without path, query and credentials, for logs."""
        found = urlsplit(self.url)
        return f"{found.scheme}://{found.hostname}{f':{found.port}' if found.port else ''}"

    def send(self, body: bytes, key: str) -> None:
        """Send a body; raises ``OSError`` or ``http.client.HTTPException`` if it was not taken."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url, body, headers, method="POST")
        context = ssl.create_default_context() if self.url.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=REQUEST_S_MAX, context=context) as answer:
            answer.read(65_536)


def receiver(name: str, url: str, token: str = "") -> AlertReceiver:
    """Return a receiver; ``UsageError`` names the setting if its URL is none, without the URL."""
    try:
        found = urlsplit(url)
        is_valid = found.scheme in {"http", "https"} and bool(found.hostname) and found.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UsageError(f"the URL of the {name} must be http://HOST:PORT/... or https://...")
    return AlertReceiver(name, url, token)


class Notifier:
    """Sends the changes of all alerts of a deployment; ``webhook`` or ``alertmanager`` or both."""

    def __init__(
        self,
        transport: Transport,
        topics: Callable[[], Iterable[str]],
        state_file: Path,
        *,
        webhook: AlertReceiver | None = None,
        alertmanager: AlertReceiver | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        """``topics`` returns the alert topics that there are."""
        self._transport = transport
        self._topics = topics
        self._state_file = state_file
        self._clock = clock or SystemClock()
        self._receivers = {each.name: each for each in (webhook, alertmanager) if each is not None}
        self._queues = {name: NoticeQueue() for name in self._receivers}
        self.stopping = threading.Event()
        self._alertmanager = None if alertmanager is None else alertmanager.name
        self._view = AlertView()
        self._reader = transport.reader(isolation="read_committed", fetch_wait_ms_max=250)
        self._read: dict[str, int] = {}
        """By topic, the offset from which on changes are sent."""
        self._stored: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        """By topic, the end when it was first seen: up to there the view is of the past."""
        self._looked_at = self._renewed_at = 0

    def open(self) -> None:
        """Read which offsets are done."""
        if self._state_file.exists():
            self._stored = json.loads(self._state_file.read_text())["offsets"]

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def turn(self) -> None:
        """Read what there is room for, and send what is due."""
        now = self._clock.now_us()
        if now - self._looked_at >= LOOK_US:
            self._looked_at = now
            self._look()
        room = min((queue.room for queue in self._queues.values()), default=POLL_RECORDS)
        if room:
            for raw in self._reader.poll(min(room, POLL_RECORDS), POLL_S):
                self._take(raw, now)
        else:
            self.stopping.wait(POLL_S)
        for name, queue in self._queues.items():
            self._send(name, queue)
        self._renew()

    @property
    def states(self) -> dict[str, str]:
        """By receiver: that it gets what there is, or why it does not."""
        return {name: queue.last_error or DELIVERS for name, queue in self._queues.items()}

    @property
    def detail(self) -> dict[str, int]:
        """By receiver: what was sent, what waits and how long it has, and failures in a row."""
        now = self._clock.now_us()
        found: dict[str, int] = {}
        for name, queue in self._queues.items():
            figures = {
                "sent": queue.sent,
                "waiting": len(queue.waiting),
                "failures": queue.failures,
                "behind_ms": queue.behind_us(now) // 1_000,
            }
            found |= {f"{RECEIVER}{name}.{each}": n for each, n in figures.items()}
        return found

    def _look(self) -> None:
        new = [topic for topic in self._topics() if topic not in self._read]
        if not new:
            return
        logs: list[Log] = [(topic, 0) for topic in new]
        begins = self._transport.beginning_offsets(logs)
        ends = self._transport.end_offsets(logs, isolation="read_committed")
        for topic, _ in logs:
            self._read[topic] = self._stored.setdefault(topic, ends[topic, 0])
        self._ends |= {topic: ends[topic, 0] for topic in new}
        self._reader.assign(begins)
        self._store()

    def _take(self, raw: RawRecord, now: int) -> None:
        try:
            record = decode_delivery(raw.value, f"{raw.topic}:{raw.partition}:{raw.offset}")
        except MalformedRecordError as error:
            SKIPPED.note(*raw.log, raw.offset, "not a record of alerts", error.reason)
            return
        if not isinstance(record, AlertRecord):
            return
        self._view.take(record)
        if raw.offset < self._read[raw.topic] or record.state not in SENT_STATES:
            return
        for name, queue in self._queues.items():
            is_manager = name == self._alertmanager
            body = (
                alertmanager_body(self._view, record, now) if is_manager else webhook_body(record)
            )
            at_us = raw.timestamp_ms * 1_000
            queue.add(AlertNotice(raw.topic, raw.offset + 1, record.event_id, body, at_us))

    def _send(self, name: str, queue: NoticeQueue) -> None:
        while (notice := queue.due(self._clock.now_us())) is not None:
            if not self._sent(name, notice.body, notice.key):
                return
            queue.acknowledged()
            self._store()

    def _sent(self, name: str, body: bytes, key: str) -> bool:
        receiver_, queue = self._receivers[name], self._queues[name]
        try:
            receiver_.send(body, key)
        except (OSError, http.client.HTTPException) as error:
            why = _reason(error)
            if not queue.failures:
                _log.warning("%s at %s: %s; will retry", name, receiver_.where, why)
            queue.failed(self._clock.now_us(), why)
            self._store()
            return False
        if queue.failures:
            _log.info("%s at %s answers again", name, receiver_.where)
        return True

    def _renew(self) -> None:
        """Let Alertmanager know what still stands; also at the first turn."""
        name, now = self._alertmanager, self._clock.now_us()
        if name is None or now - self._renewed_at < RESEND_US or not self._is_present:
            return
        if self._queues[name].waiting:
            return  # it is away, and gets what stands with the rest
        body = renewed_body(self._view, now)
        if body is None or self._sent(name, body, f"standing-{now}"):
            self._renewed_at = now

    @property
    def _is_present(self) -> bool:
        """Whether the view has all that there was when the topics were first seen."""
        at = ((end, self._reader.position((topic, 0))) for topic, end in self._ends.items())
        return all(position >= end for end, position in at)

    def _store(self) -> None:
        """Store what all receivers have acknowledged, and their states."""
        first: dict[str, int] = {}
        for queue in self._queues.values():
            for notice in queue.waiting:
                at = notice.next_offset - 1
                first[notice.topic] = min(first.get(notice.topic, at), at)
        for topic in self._read:
            done = first.get(topic, self._reader.position((topic, 0)))
            self._stored[topic] = max(done, self._stored[topic])
        state = {
            "offsets": self._stored,
            "receivers": {name: queue.to_json() for name, queue in self._queues.items()},
        }
        write_atomically(self._state_file, json.dumps(state, indent=2))


def receiver_states(state_file: Path) -> Mapping[str, Any]:
    """Return the state of each receiver as last stored; none if no notifier has run here."""
    if not state_file.exists():
        return {}
    found: Mapping[str, Any] = json.loads(state_file.read_text())["receivers"]
    return found


def _reason(error: BaseException) -> str:
    """Return what happened, without a URL."""
    if isinstance(error, urllib.error.HTTPError):
        return f"answered {error.code}"
    reason = getattr(error, "reason", None)
    return f"{type(reason or error).__name__}: {getattr(reason or error, 'strerror', None) or ''}"
