"""What receivers of alerts get, and when they get it again. Pure: time comes in as an argument.

A receiver gets each change at least once: a change is done when the receiver has acknowledged it,
and is sent again until then, with growing pauses. It has an idempotency key, so that a receiver may
drop what it has had. The queue of a receiver is bounded: while it is full, no topic is read on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from slackwater.codec.results import format_time
from slackwater.delivery.records import AlertRecord
from slackwater.delivery.view import AlertView, public

QUEUE_MAX: Final = 1_000
FIRST_WAIT_US: Final = 500_000
WAIT_US_MAX: Final = 60_000_000
RESEND_US: Final = 60_000_000
"""How often Alertmanager gets what stands, as it expects of its clients."""
RESOLVED_AFTER_US: Final = 4 * RESEND_US
"""An alert that Alertmanager gets no more is resolved after this time: nobody renews it."""


@dataclass(frozen=True, slots=True)
class AlertNotice:
    """One request: its body, its idempotency key, and the offset after it in its log.

    ``at_us``: when its record was written.
    """

    topic: str
    next_offset: int
    key: str
    body: bytes
    at_us: int = 0


@dataclass(slots=True)
class NoticeQueue:
    """The notices for one receiver, in order, one at a time."""

    most: int = QUEUE_MAX
    sent: int = 0
    failures: int = 0
    """Failed attempts of the first notice."""
    last_error: str = ""
    due_at: int = 0
    waiting: deque[AlertNotice] = field(default_factory=deque)

    @property
    def room(self) -> int:
        """How many notices may be added."""
        return max(self.most - len(self.waiting), 0)

    def behind_us(self, now: int) -> int:
        """Return for how long the first notice has waited; 0 if none waits."""
        return max(now - self.waiting[0].at_us, 0) if self.waiting else 0

    def add(self, notice: AlertNotice) -> None:
        """Append a notice."""
        assert self.room, "the log is read on only if there is room"
        self.waiting.append(notice)

    def due(self, now: int) -> AlertNotice | None:
        """Return the notice to send now, if there is one."""
        return self.waiting[0] if self.waiting and now >= self.due_at else None

    def acknowledged(self) -> AlertNotice:
        """Take the first notice out: the receiver has it."""
        self.sent, self.failures, self.last_error, self.due_at = self.sent + 1, 0, "", 0
        return self.waiting.popleft()

    def failed(self, now: int, why: str) -> None:
        """Send the first notice again, after twice the last pause."""
        wait_us = min(FIRST_WAIT_US * 2 ** min(self.failures, 20), WAIT_US_MAX)
        self.failures, self.last_error, self.due_at = self.failures + 1, why, now + wait_us

    def to_json(self) -> dict[str, Any]:
        """Return its state, for people."""
        return {
            "sent": self.sent,
            "waiting": len(self.waiting),
            "failures": self.failures,
            "last_error": self.last_error,
        }


def webhook_body(record: AlertRecord) -> bytes:
    """Return the JSON of one change."""
    return orjson.dumps(public(record))


def alertmanager_body(view: AlertView, record: AlertRecord, now: int) -> bytes:
    """Return the state of a record's rule and key, for ``/api/v2/alerts``.

    Alertmanager knows an alert by its labels. A tentative alert that is confirmed therefore goes on
    as the same one there; ``tentative`` is an annotation.
    """
    standing = view.of(record.query, record.rule, record.key)
    if standing:
        return orjson.dumps([_fired(standing, now)])
    ended = _alert(record, record.began.window_end, max(now, record.changed_to))
    note = {"state": record.state, **({"reason": record.reason} if record.reason else {})}
    ended["annotations"] |= note
    return orjson.dumps([ended])


def renewed_body(view: AlertView, now: int) -> bytes | None:
    """Return all that stands, for ``/api/v2/alerts``; None if nothing does."""
    places: dict[tuple[str, str, str], list[AlertRecord]] = {}
    for record in view.standing.values():
        places.setdefault((record.query, record.rule, record.key), []).append(record)
    found = [_fired(standing, now) for standing in places.values()]
    return orjson.dumps(found) if found else None


def _fired(standing: Iterable[AlertRecord], now: int) -> Mapping[str, Any]:
    """Return a firing alert; an exact one counts before a tentative one."""
    records = sorted(standing, key=lambda each: each.began.tentative)
    starts = min(record.began.window_end for record in records)
    return _alert(records[0], starts, now + RESOLVED_AFTER_US)


def _alert(record: AlertRecord, starts: int, ends: int) -> dict[str, Any]:
    began = record.began
    values = {name: value for name, value in began.values.items() if value is not None}
    shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
    missing = f", without {', '.join(began.missing)}" if began.missing else ""
    return {
        "labels": {
            "alertname": record.rule,
            "query": record.query,
            **({"key": record.key} if record.key else {}),
        },
        "annotations": {
            "summary": f"{record.rule} {record.key} {shown}{missing}".replace("  ", " ").strip(),
            "tentative": "true" if began.tentative else "false",
            "missing": ",".join(began.missing),
            "id": record.id,
        },
        "startsAt": format_time(starts),
        "endsAt": format_time(max(ends, starts)),
    }
