"""Effects: the actions that a session requests, as values its host carries out in order.

A host encodes, sends and reads; it decides nothing. The result of an effect returns to the session
through the method that the effect names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from slackwater.model.records import OrderedRecord, OrdererState
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.sessions.requests import Log, Procedure


@dataclass(frozen=True, slots=True)
class Append:
    """Append to a log of this session's own, behind all before; ``delivered`` when it is."""

    log: Log
    record: OrderedRecord


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write an orderer's state record; nobody waits for it (rule-5)."""

    query: str
    state: OrdererState


@dataclass(frozen=True, slots=True)
class FetchEnds:
    """Ask for the ends of these inputs; answer with ``ends``, soon or with None (rule-14)."""

    logs: tuple[Log, ...]


@dataclass(frozen=True, slots=True)
class FetchPositions:
    """Ask how far the live consumer is in these inputs; answer with ``positions`` (trace-11)."""

    logs: tuple[Log, ...]


@dataclass(frozen=True, slots=True)
class Perform:
    """Run this procedure beside the steps; what it finds it keeps in the session itself."""

    procedure: Procedure[None]


@dataclass(frozen=True, slots=True)
class Refute:
    """No such incarnation of this fragment has begun: whoever claims it counts for nothing."""

    inc: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record of an input was passed over; to be counted, and logged now and then."""

    log: Log
    offset: int
    reason: str
    found: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the log of the process."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """End the session; it is rebuilt from its logs."""

    reason: str


Effect: TypeAlias = (
    Append
    | Commit
    | WriteState
    | FetchEnds
    | FetchPositions
    | Perform
    | Refute
    | Skipped
    | LogLine
    | Fail
)
"""``Commit`` is the core's: one transaction, and then ``committed`` or ``commit_failed``."""
