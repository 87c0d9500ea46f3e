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
   sessions, pass ``LiveAt`` with its position, and the records from that position on.
3. In each turn pass all available input, then call ``step``, then carry out the effects (input
   before timers, trace-11). The next turn is due at ``wake_at``, after new input, or immediately
   while ``busy``.

The input of a session is the events that ``take`` gets (``events.py``), the answers to requests of
its procedures, and the times that ``step`` gets. The rest are queries, which change nothing. A
session that is built alike and gets the same input in the same order returns the same effects: a
run can be recorded, and replayed. The configuration may have functions of time that follow the
registry or, with ``clock: data``, the data: what they return is input, too.

- For each record of the live consumer the host first calls ``needs``. It decodes a record that any
  session needs, once for all sessions: ``Received`` for these, ``PassedBy`` for the others.
- Catch-up readers read from the offsets that ``wanted`` returns.
- Results of effects become events when they are known.
- Heartbeats are passed in a turn before ``step``, though not in each turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from slackwater.model.records import Hole
from slackwater.protocols.common.line import LineName
from slackwater.sessions.effects import Effect
from slackwater.sessions.events import SessionEvent
from slackwater.sessions.requests import Log, Procedure

Form = Literal["source", "results", "ordered", "deltas", "merged", "states"]
"""Type of the records of a log. Records of ``results`` are passed as bytes, the others decoded."""

COMMITTED: Final[frozenset[Form]] = frozenset({"results", "states"})
"""Forms of the logs that are written in transactions: of these, only committed records are read."""


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

    # Input.

    def take(self, event: SessionEvent) -> int | None:
        """Take an event; one that it does not expect changes nothing.

        Returns the time that the next turn may wait for it, in us. None: it needs no turn, or it
        is passed where one follows anyway, in a turn or at the end of an effect.
        """
        ...

    def needs(self, log: Log, offset: int) -> bool:
        """Return whether the session uses the live consumer's record at ``offset``."""
        ...

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return logs and start offsets for the catch-up readers of each line."""
        ...

    @property
    def hole(self) -> Hole | None:
        """The form in which a reader reports a hole in its log; None if it can have none."""
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
