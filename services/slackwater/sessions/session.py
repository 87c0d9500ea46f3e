"""The session interface: one fragment (an orderer or a copy of a root) as a value without I/O.

A session makes all decisions of its fragment: its start and first writes (rule-6, rule-25,
rule-27), which records count, when a state record may be written, whether another writer has
appended to its log, and when records must be sent again. A *host* makes none: it reads records,
passes them to the session, calls ``step``, carries out the effects, and waits. The product, the
simulator and the experiments of the papers therefore run the same sessions, and one process can run
many of them.

A session runs once. A failed session is discarded and a new one is built from the logs.

A host does the following:

1. Run the procedure ``start`` (``requests.py``) and carry out the effects that it returns.
2. Read every log of ``inputs`` from ``live_offsets`` on. If it already reads a log for other
   sessions, call ``live_at`` with its position, and pass the records from that position on.
3. In each turn pass all available input, then call ``step``, then carry out the effects (input
   before timers, trace-11). The next turn is due at ``wake_at``, after new input, or immediately
   while ``busy``.

The input of a session:

- ``receive``: each record of the live consumer, in log order. For every record the host first calls
  ``needs``, and it decodes a record that any session needs, once for all sessions. The form of
  the record is that of ``inputs``; a record that cannot be decoded is None. The return value is
  how long the session's next turn may wait.
- ``catch_up``: records read from the offsets that ``wanted`` returns. Then ``caught_up_to`` with
  the reader's position, or ``position_gone`` if retention has removed the offset.
- ``ends``, ``positions``, ``delivered``, ``committed`` and ``commit_failed``: results of effects.
- ``on_heartbeat``: heartbeats of the fragments in ``listens_to``. ``claimed``: a heartbeat carries
  a greater incarnation of this fragment. ``hole_reported``: a reader reports ``hole``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from slackwater.model.records import (
    BucketRecord,
    Heartbeat,
    Hole,
    OrdererState,
    RootState,
    SourceRecord,
)
from slackwater.protocols.common.line import LineName
from slackwater.sessions.effects import Effect
from slackwater.sessions.requests import Isolation, Log, Procedure

Form = Literal["source", "results", "ordered", "deltas", "states"]
"""Type of the records of a log. Records of ``results`` are passed as bytes, the others decoded."""

COMMITTED: Final[frozenset[Form]] = frozenset({"results", "states"})
"""Forms of the logs that are written in transactions: of these, only committed records are read."""

Record: TypeAlias = SourceRecord | BucketRecord | OrdererState | RootState | bytes | None


@dataclass(frozen=True, slots=True)
class Report:
    """Session state published in a fragment's heartbeat; see ``model.records.Heartbeat``."""

    ready: bool
    states: dict[str, str]
    holes: tuple[Hole, ...] = ()
    detail: dict[str, int] = field(default_factory=dict)


class Session(Protocol):
    """Interface between a session and its host. Times are us of wall time."""

    @property
    def fragment(self) -> str:
        """Name of the fragment, as ``slackwater status`` prints it."""
        ...

    @property
    def inc(self) -> int:
        """Incarnation of an orderer or placement number of a root; -1 before it is known."""
        ...

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """Input logs and the forms of their records."""
        ...

    @property
    def isolation(self) -> Isolation:
        """Isolation level of requests for end offsets of the inputs.

        Logs of a form in ``COMMITTED`` are always read with ``read_committed``.
        """
        ...

    @property
    def listens_to(self) -> Sequence[str]:
        """Fragments whose heartbeats the session needs."""
        ...

    # Start.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Procedure of the initial reads and writes; runs before anything else."""
        ...

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Offsets at which the live consumer starts."""
        ...

    def live_at(self, log: Log, offset: int) -> None:
        """Set the live consumer's position: ``receive`` passes records from ``offset`` on.

        The session requests earlier records through ``wanted``.
        """
        ...

    # Input.

    def needs(self, log: Log, offset: int) -> bool:
        """Return whether ``receive`` uses the live consumer's record at ``offset``."""
        ...

    def receive(self, log: Log, offset: int, record: Record) -> int | None:
        """Take a record of the live consumer.

        Returns the time that the next turn may wait, in us; None if no turn is needed.
        """
        ...

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return logs and start offsets for the catch-up readers of each line."""
        ...

    def catch_up(self, line: LineName, log: Log, offset: int, record: Record) -> None:
        """Take a record from a line's catch-up reader, in log order."""
        ...

    def caught_up_to(self, line: LineName, log: Log, position: int) -> None:
        """Take a catch-up reader's position; all records below it have been passed."""
        ...

    def position_gone(self, line: LineName, log: Log, beginning: int) -> None:
        """Take the log's new first offset after retention removed a wanted one (rule-28)."""
        ...

    def ends(self, ends: Mapping[Log, int | None], asked_at: int) -> None:
        """Take end offsets of inputs, requested at ``asked_at``; None: no answer of the broker."""
        ...

    def positions(self, positions: Mapping[Log, int]) -> None:
        """Take the live consumer's positions; all records below them have been passed.

        Empty if they are unknown.
        """
        ...

    def delivered(self, log: Log, offset: int) -> None:
        """Take the offset of the next delivered record of one of its logs, in append order."""
        ...

    def committed(self, now: int) -> None:
        """Record that the transaction in flight is committed."""
        ...

    def commit_failed(self, why: str) -> None:
        """Record that the transaction was rejected, or that its outcome is unknown."""
        ...

    def on_heartbeat(self, beat: Heartbeat, received_at: int) -> None:
        """Take a heartbeat of a fragment in ``listens_to``; one may be passed repeatedly."""
        ...

    def returned(self, sent_at: int) -> None:
        """Take the time, in us, at which its last own heartbeat was sent that has been read."""
        ...

    def claimed(self, inc: int) -> None:
        """Take a greater incarnation of this fragment than its own, from a heartbeat."""
        ...

    @property
    def hole(self) -> Hole | None:
        """The form in which a reader reports a hole in its log; None if it can have none."""
        ...

    def hole_reported(self) -> None:
        """Handle a recent heartbeat that reports ``hole`` (rule-11)."""
        ...

    def resign(self, now: int) -> bool:
        """Give the output up, since the process is to end.

        Returns whether there is something to wait for: the session then ends by itself.
        """
        ...

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """Run everything due at ``now`` and return the effects."""
        ...

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        ...

    @property
    def wake_at(self) -> int | None:
        """Time of the next turn without further input, us; None: nothing is due."""
        ...

    @property
    def state(self) -> str:
        """DPC state of the output; a change is published at once in a heartbeat."""
        ...

    def report(self) -> Report:
        """Report for the next heartbeat."""
        ...
