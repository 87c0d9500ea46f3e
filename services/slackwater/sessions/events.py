"""Events: the input of a session, as values that its host passes to ``Session.take`` in order.

``effects`` has the output. An event holds all that the session learns by it, and nothing changes it
afterwards: events can be recorded, and taken again by another session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from slackwater.model.merged import MergedRecord
from slackwater.model.records import (
    BucketRecord,
    Heartbeat,
    OrdererState,
    RootState,
    SourceRecord,
)
from slackwater.protocols.common.line import LineName
from slackwater.sessions.requests import Log

Record: TypeAlias = (
    SourceRecord | BucketRecord | MergedRecord | OrdererState | RootState | bytes | None
)
"""A record in the form of its log (``Session.inputs``); None if it cannot be decoded."""


@dataclass(frozen=True, slots=True)
class LiveAt:
    """The live consumer passes records of the log from ``offset`` on.

    It has passed the earlier ones before: the session requests them through ``wanted``.
    """

    log: Log
    offset: int


@dataclass(frozen=True, slots=True)
class Received:
    """A record of the live consumer for which ``needs`` returned True, in log order."""

    log: Log
    offset: int
    record: Record


@dataclass(frozen=True, slots=True)
class PassedBy:
    """The live consumer has passed a record for which ``needs`` returned False."""

    log: Log
    offset: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """A record from a line's catch-up reader, from the offset in ``wanted`` on, in log order."""

    line: LineName
    log: Log
    offset: int
    record: Record


@dataclass(frozen=True, slots=True)
class ReplayedTo:
    """The position of a line's catch-up reader; all records below it have been passed."""

    line: LineName
    log: Log
    position: int


@dataclass(frozen=True, slots=True)
class PositionGone:
    """The log begins at ``beginning`` now: retention has removed a wanted offset (rule-28)."""

    line: LineName
    log: Log
    beginning: int


@dataclass(frozen=True, slots=True)
class RecordDelivered:
    """The next record of ``Append`` or ``StorePane`` is in the log, at ``offset``.

    For each log in append order.
    """

    log: Log
    offset: int


@dataclass(frozen=True, slots=True)
class EndsFetched:
    """End offsets of ``FetchEnds``, requested at ``asked_at`` (us); None: no answer."""

    ends: Mapping[Log, int | None]
    asked_at: int


@dataclass(frozen=True, slots=True)
class PositionsFetched:
    """The live consumer's positions, for ``FetchPositions``; empty if they are unknown.

    All records below them have been passed.
    """

    positions: Mapping[Log, int]


@dataclass(frozen=True, slots=True)
class CommitSucceeded:
    """The transaction of ``Commit`` is committed, at ``now`` (us)."""

    now: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The transaction of ``Commit`` was rejected, or its outcome is unknown."""

    why: str


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A heartbeat of a fragment in ``listens_to``; one may be passed repeatedly. Times are us."""

    beat: Heartbeat
    received_at: int


@dataclass(frozen=True, slots=True)
class HeartbeatReturned:
    """A heartbeat of its own, sent at ``sent_at`` (us), has been read from the log."""

    sent_at: int


@dataclass(frozen=True, slots=True)
class IncarnationClaimed:
    """A heartbeat has a greater incarnation of this fragment than the session's own."""

    inc: int


@dataclass(frozen=True, slots=True)
class HoleReported:
    """A recent heartbeat reports the session's ``hole`` (rule-11)."""


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """The process is to end, asked at ``now`` (us): give the output up (trace-54).

    ``take`` returns 0 if another fragment can go on at once: the session hands over in its next
    turn, and later ends by itself. It returns None if there is nothing to wait for.
    """

    now: int


@dataclass(frozen=True, slots=True)
class EarlierEnded:
    """The earlier generations of the query have ended in the registry (rule-29)."""


SessionEvent: TypeAlias = (
    LiveAt
    | Received
    | PassedBy
    | Replayed
    | ReplayedTo
    | PositionGone
    | RecordDelivered
    | EndsFetched
    | PositionsFetched
    | CommitSucceeded
    | CommitFailed
    | HeartbeatReceived
    | HeartbeatReturned
    | IncarnationClaimed
    | HoleReported
    | ResignRequested
    | EarlierEnded
)
