"""Effects: actions that a session requests, as values that its host carries out in order.

A host encodes, sends and reads; it makes no decision. The result of an effect is an event
(``events``), which the effect's docstring names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from slackwater.model.heads import Key, Stored
from slackwater.model.merged import MergedRecord
from slackwater.model.records import OrderedRecord, OrdererState, RootState
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.sessions.requests import Isolation, Log, Procedure


@dataclass(frozen=True, slots=True)
class Append:
    """Append a record to a log of the session, after all earlier ones: ``RecordDelivered``."""

    log: Log
    record: OrderedRecord | MergedRecord


@dataclass(frozen=True, slots=True)
class CommitRecords:
    """Commit these keys and values in one transaction: ``CommitSucceeded`` or ``CommitFailed``."""

    log: Log
    records: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write a state record outside transactions; the session does not wait for it (rule-5)."""

    query: str
    state: OrdererState | RootState
    part: int = 0


@dataclass(frozen=True, slots=True)
class StorePane:
    """Append a record to a log of panes and heads, after all earlier ones: ``RecordDelivered``."""

    log: Log
    key: Key
    record: Stored


@dataclass(frozen=True, slots=True)
class FetchEnds:
    """Fetch the end offsets of inputs: ``EndsFetched``, after a time-out with None (rule-14)."""

    logs: tuple[Log, ...]
    isolation: Isolation = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class FetchPositions:
    """Fetch the live consumer's positions in inputs: ``PositionsFetched`` (trace-11)."""

    logs: tuple[Log, ...]


@dataclass(frozen=True, slots=True)
class Perform:
    """Run a procedure concurrently with the steps; it stores its result in the session."""

    procedure: Procedure[None]


@dataclass(frozen=True, slots=True)
class Refute:
    """Ignore heartbeats with this incarnation of the fragment: the log shows that it is false."""

    inc: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Count an input record that the session ignores, and log it at a limited rate."""

    log: Log
    offset: int
    reason: str
    found: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """Write a line to the log of the process."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """End the session; the host rebuilds it from its logs."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rebuild:
    """End the session, which is no failure; the host builds the next one at once (rule-30)."""

    reason: str


Effect: TypeAlias = (
    Append
    | Commit
    | CommitRecords
    | WriteState
    | StorePane
    | FetchEnds
    | FetchPositions
    | Perform
    | Refute
    | Skipped
    | LogLine
    | Fail
    | Rebuild
)
"""``Commit`` is defined by the core: commit a transaction: ``CommitSucceeded`` or
``CommitFailed``."""
