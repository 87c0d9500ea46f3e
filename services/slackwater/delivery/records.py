"""The records of ``sw.alerts.<query>``: what alerts did, and from where their evaluation goes on.

The topic is compacted, and is its own state: the last record of a key has all that is needed to go
on. A record is a function of the results alone. It has no time of evaluation, so one that is made
again is equal, byte for byte, and so is its ``id``.

- ``alert``: a change of an alert of one rule and key. ``firing`` begins an alert, ``ended`` ends
  it. An alert that a tentative row began is ``tentative``, and ends as ``confirmed`` or
  ``withdrawn``, with the exact values. ``pending`` and ``inactive`` only keep the counts, also
  while an alert stands: which alerts stand is in ``progress``.
- ``position``: by part, where reading goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from slackwater.codec.results import format_time, parse_time
from slackwater.delivery.batches import PartPosition
from slackwater.model.errors import MalformedRecordError

AlertState = Literal["inactive", "pending", "firing", "ended", "confirmed", "withdrawn"]
AlertValues = Mapping[str, float | None]
POSITION_KEY: Final = b"position"
_ALERT: Final = b"alert/"
_UNSET: Final[Mapping[str, object]] = {"stime": None, "exact": None, "reason": "", "progress": None}


@dataclass(frozen=True, slots=True)
class Firing:
    """The row with which an alert began; for a rule on a stream, the window. Times are us.

    ``values``: the fields that the condition reads. ``missing``: what a tentative row lacked.
    """

    id: str
    window_start: int
    window_end: int
    values: AlertValues = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    stime: int | None = None
    tentative: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        found: dict[str, Any] = {
            "id": self.id,
            "tentative": self.tentative,
            "window_start": format_time(self.window_start),
            "window_end": format_time(self.window_end),
            "values": dict(self.values),
            "missing": list(self.missing),
        }
        return found if self.stime is None else {**found, "stime": format_time(self.stime)}

    @classmethod
    def from_json(cls, of: Mapping[str, Any]) -> Firing:
        """The inverse of ``to_json``; other entries are ignored."""
        return cls(
            of["id"],
            parse_time(of["window_start"]),
            parse_time(of["window_end"]),
            of["values"],
            tuple(of["missing"]),
            parse_time(of["stime"]) if "stime" in of else None,
            of["tentative"],
        )


def alert_id(query: str, rule: str, key: str, of: Firing) -> str:
    """Return the id of an alert: a function of what began it. ``rule`` has name and definition."""
    content = [query, rule, key, of.window_start, of.stime, of.tentative]
    return hashlib.blake2b(orjson.dumps(content), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """A change of an alert. ``due_at`` and ``answered_at`` are those of the result that caused it.

    ``exact``: the exact values in place of tentative ones. ``reason``: why it ended, if no row
    ended it. ``progress``: from where its rule goes on for this key; None at its beginning.
    """

    rule: str
    query: str
    key: str
    state: AlertState
    began: Firing
    changed_to: int
    """End of the window that caused the change, us of event time."""
    due_at: int
    answered_at: int
    exact: AlertValues | None = None
    reason: str = ""
    progress: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        """The alert's id, the same in all of its records."""
        return self.began.id

    @property
    def event_id(self) -> str:
        """The id of this change, for receivers that get it twice."""
        return f"{self.began.id}-{self.state}"

    @property
    def log_key(self) -> bytes:
        """The key in the topic."""
        return _ALERT + self.rule.encode() + b"/" + self.key.encode()

    def encode(self) -> bytes:
        """Return the line of JSON."""
        found: dict[str, Any] = {
            "kind": "alert",
            "alert": self.rule,
            "query": self.query,
            "key": self.key,
            "state": self.state,
            **self.began.to_json(),
            "changed_to": format_time(self.changed_to),
            "due_at": format_time(self.due_at),
            "answered_at": format_time(self.answered_at),
        }
        more = {"exact": self.exact, "reason": self.reason, "progress": self.progress}
        return orjson.dumps(found | {n: v for n, v in more.items() if v != _UNSET[n]})


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """A rule on a stream. Times are us.

    ``complete_to``: the end of the last window that did not lack it. ``since``: since when it is
    missing; then ``answered_to`` is the end of the last window that lacks it.
    """

    complete_to: int | None = None
    since: int | None = None
    answered_to: int | None = None
    firing: Firing | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        firing = None if self.firing is None else self.firing.to_json()
        return {
            "complete_to": self.complete_to,
            "since": self.since,
            "answered_to": self.answered_to,
            "firing": firing,
        }

    @classmethod
    def from_json(cls, of: Mapping[str, Any]) -> StreamProgress:
        """The inverse of ``to_json``."""
        firing = None if of["firing"] is None else Firing.from_json(of["firing"])
        return cls(of["complete_to"], of["since"], of["answered_to"], firing)


@dataclass(frozen=True, slots=True)
class DeliveryPosition:
    """From where a query's evaluation goes on.

    ``forks``: by part, the starts of the first and the last window answered tentatively since all
    answers were exact; none if they are. ``rules``: the definitions by name. ``placement``: as that
    of a root.
    """

    parts: Mapping[int, PartPosition] = field(default_factory=dict)
    forks: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    streams: Mapping[str, StreamProgress] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    placement: int = -1

    def part(self, part: int) -> PartPosition:
        """Return where a part goes on."""
        return self.parts.get(part, PartPosition())

    def encode(self) -> bytes:
        """Return the line of JSON."""
        return orjson.dumps(
            {
                "kind": "position",
                "parts": {
                    str(part): {"next_seq": at.next_seq, "offsets": dict(at.offsets)}
                    for part, at in self.parts.items()
                },
                "forks": {str(part): fork for part, fork in self.forks.items()},
                "streams": {name: of.to_json() for name, of in self.streams.items()},
                "rules": dict(self.rules),
                "placement": self.placement,
            }
        )


DeliveryRecord = AlertRecord | DeliveryPosition
_DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError)


def decode_delivery(value: bytes, where: object = "") -> DeliveryRecord:
    """Return a record of the topic.

    Raises:
        MalformedRecordError: it is none.
    """
    try:
        of = orjson.loads(value)
        return _position(of) if of["kind"] == "position" else _alert(of)
    except _DAMAGE as error:
        raise MalformedRecordError(where, f"not a record of alerts: {error!r}") from error


def _alert(of: Mapping[str, Any]) -> AlertRecord:
    changed_to, due_at, answered_at = (
        parse_time(of[name]) for name in ("changed_to", "due_at", "answered_at")
    )
    return AlertRecord(
        rule=of["alert"],
        query=of["query"],
        key=of["key"],
        state=of["state"],
        began=Firing.from_json(of),
        changed_to=changed_to,
        due_at=due_at,
        answered_at=answered_at,
        **{name: of[name] for name in ("exact", "reason", "progress") if name in of},
    )


def _position(of: Mapping[str, Any]) -> DeliveryPosition:
    return DeliveryPosition(
        {int(p): PartPosition(at["next_seq"], at["offsets"]) for p, at in of["parts"].items()},
        {int(part): (first, last) for part, (first, last) in of["forks"].items()},
        {name: StreamProgress.from_json(each) for name, each in of["streams"].items()},
        of["rules"],
        of["placement"],
    )
