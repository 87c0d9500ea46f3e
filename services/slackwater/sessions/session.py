"""A session: one fragment, an orderer or a copy of a root, as a value that does no I/O.

All decisions of a fragment are in its session: its start and first writes (rule-6, rule-25,
rule-27), which records count, when a state record may be written, whether another writer has
appended to its log, and when records must be sent again. A *host* decides nothing: it reads, hands
over, steps, carries out, and waits. So the product, the simulator and the experiments of the papers
run the same sessions, and one process may run many.

A session runs once. A failed session is discarded and a new one is built from the logs.

What a host does, in this order:

1. It runs the procedure ``start`` (``requests.py``) and carries out the effects that it returns.
2. It reads every log of ``inputs`` from ``live_offsets`` on. If it reads a log already, for other
   sessions, it says ``live_at`` instead, at the moment from which it hands records over.
3. In each turn it hands over what there is, then calls ``step``, then carries out the effects
   (input before timers, trace-11). The next turn is due at ``wake_at``, when something was handed
   over, or at once while ``busy``.

What is handed over:

- ``receive``: each record of the live consumer, in the order of its log. A host asks ``needs``
  first, of every record, and decodes those that some session needs, once for all sessions: as
  ``inputs`` says, and None for what cannot be decoded. It returns whether a turn is worth while.
- ``catch_up``: records read from where ``wanted`` says; then ``caught_up_to`` with the reader's
  position, or ``position_gone`` where retention deleted the wanted position.
- ``ends``, ``positions``, ``delivered``, ``committed`` and ``commit_failed``: what came of effects.
  ``on_heartbeat``: the heartbeats of those in ``listens_to``; ``claimed``: a heartbeat names a
  greater incarnation of this fragment; ``hole_reported``: a reader names ``hole``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from slackwater.model.records import BucketRecord, Heartbeat, Hole, SourceRecord
from slackwater.protocols.common.line import LineName
from slackwater.sessions.effects import Effect
from slackwater.sessions.requests import Isolation, Log, Procedure

Form = Literal["source", "results", "ordered", "deltas"]
"""What the records of a log are. Those of ``results`` are handed over as they are, as bytes."""

Record: TypeAlias = SourceRecord | BucketRecord | bytes | None


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
        """Its name, as ``slackwater status`` prints it."""
        ...

    @property
    def inc(self) -> int:
        """The number that heartbeats name: its incarnation, or its placement. -1: none yet."""
        ...

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """Input logs and the forms of their records."""
        ...

    @property
    def isolation(self) -> Isolation:
        """Of its live consumer. Those of ``results`` must be read committed in any case."""
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
        """Start offsets of the live consumer."""
        ...

    def live_at(self, log: Log, offset: int) -> None:
        """The next record that ``receive`` will bring of this log is at ``offset`` or behind.

        What lies before it the session reads by ``wanted``.
        """
        ...

    # Input.

    def needs(self, log: Log, offset: int) -> bool:
        """Whether ``receive`` uses the live consumer's record at ``offset``."""
        ...

    def receive(self, log: Log, offset: int, record: Record) -> int | None:
        """A record of the live consumer; so long its turn may wait (us), None: it needs none."""
        ...

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Logs and start offsets for the catch-up readers of each line."""
        ...

    def catch_up(self, line: LineName, log: Log, offset: int, record: Record) -> None:
        """A record from a line's catch-up reader, in the order of the log."""
        ...

    def caught_up_to(self, line: LineName, log: Log, position: int) -> None:
        """The catch-up reader has handed over all below ``position``."""
        ...

    def position_gone(self, line: LineName, log: Log, beginning: int) -> None:
        """Retention took what was wanted; the log begins at ``beginning`` now (rule-28)."""
        ...

    def ends(self, ends: Mapping[Log, int | None], asked_at: int) -> None:
        """The ends of some inputs, asked for at ``asked_at``; None: the broker gave no answer."""
        ...

    def positions(self, positions: Mapping[Log, int]) -> None:
        """The live consumer's positions where ``receive`` has had all below; {}: not known."""
        ...

    def delivered(self, log: Log, offset: int) -> None:
        """A record that was appended to an own log is in it, at ``offset``; in their order."""
        ...

    def committed(self, now: int) -> None:
        """The transaction under way is in the log."""
        ...

    def commit_failed(self, why: str) -> None:
        """The transaction was rejected, or its outcome is unknown."""
        ...

    def on_heartbeat(self, beat: Heartbeat, received_at: int) -> None:
        """The latest heartbeat of a fragment in ``listens_to``; may be told more than once."""
        ...

    def claimed(self, inc: int) -> None:
        """A heartbeat speaks of this incarnation of the fragment, a greater one than its own."""
        ...

    @property
    def hole(self) -> Hole | None:
        """How a reader would name a hole in a log of this session's own."""
        ...

    def hole_reported(self) -> None:
        """Somebody who was heard lately names ``hole`` (rule-11)."""
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
        """When the next turn is due, if nothing comes in before; None: nothing is due."""
        ...

    @property
    def state(self) -> str:
        """Of its outputs: when it has changed, a heartbeat goes out at once."""
        ...

    def report(self) -> Report:
        """Report for the next heartbeat."""
        ...
