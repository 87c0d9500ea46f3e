"""Who of a pair answers, and when the other one takes over.

Flux (sections 3.1, 3.2 and 5.2) runs each partition of an operator twice, as a *process pair*. The
primary forwards results. The secondary computes the same, drops its results once they are
acknowledged, and takes over when the primary fails. A *controller* detects the failure and tells
both.

Here the log of the results tells who answers. Its state records name the *term* and the copy that
has written them: the *tenure*. A copy that wants to answer begins a new term, behind a fence
(``sessions/copy.py``). The fence makes it safe, so the detection of failures needs no agreement,
and a false suspicion costs one exchange of the roles. The alternative, to let the controllers
decide, adds their detection and an agreement to each take-over, and none would happen while they
are away.

A follower takes over when the other copy is *silent*: it has sent neither a heartbeat nor a record
for ``SUSPECT_US``. Silence counts only as far as the follower's own heartbeats have returned to it.
All heartbeats are in one log, so a heartbeat that was sent after the silence, and has been read,
shows that the log can be written, that this copy has read it, and that it has not been paused
meanwhile. While Kafka cannot be reached nobody is silent (trace-51).

A copy that is to end *resigns*: its last state record says so, and the other copy takes over
without a silence. It resigns only in favour of a copy that is ready (trace-54). A supervisor that
sees the process of a copy end reports this in the log of the heartbeats, and a copy that is ready
then takes over at once, too. The fence makes both safe, so a report may be false, or lost.

Each take-over doubles the next silence as long as no answer lies between, so two copies that take
each other for dead on an overloaded machine end the exchange by themselves. The number of
take-overs without an answer is in the log. A copy that is not ready has more patience: it would
make its readers wait for longer than a copy that is only slow (trace-52).

Pure: times are arguments, in us, on the clock of the process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

SUSPECT_US: Final = 120_000
"""Three intervals of the heartbeats, as for replicas (``protocols.dpc.soutput.upstream``)."""
UNREADY_FACTOR: Final = 8
"""How many times longer a copy waits that could not answer at once."""
FRESH_FACTOR: Final = 4
"""How many silences old may be what a copy that is to end knows of the other one. Heartbeats are
late on a busy machine, and to resign in favour of a copy that has just died costs what the death of
this one would."""
DOUBLINGS_MAX: Final = 5
"""A silence of 4 s is enough on any machine."""
NO_COPY: Final = -1

TERM: Final = "term"
"""Heartbeat detail of one of two copies: the last term that it knows of."""
ANSWERS: Final = "answers"
"""Heartbeat detail of one of two copies: 1 if it answers, or takes over; 0 if it follows."""
DISAGREES: Final = "disagrees"
"""Heartbeat detail of a copy that follows: how often its panes had another digest than those of the
copy that answers."""
FOLLOWS: Final = "FOLLOWING"
"""State of the results in heartbeats of a copy that follows, in place of DPC's (dpc-6). A changed
state is sent at once, so the other copy learns of a take-over before its patience ends."""


class PairRole(Enum):
    """What a copy does, in this order; a copy that is fenced starts again, and follows.

    A copy resigns only if its process is to end.
    """

    FOLLOWING = "following"
    """It reads what the other copy reads, and adopts what that has answered."""
    TAKING_OVER = "taking over"
    """It fences the other copy, and reads what that has answered last."""
    ANSWERING = "answering"
    """Its term is in the log."""
    RESIGNING = "resigning"
    """It answers no more, and waits until the other copy does."""


class Cause(Enum):
    """Why a copy takes over."""

    FIRST = "it is the copy that answered last, or the first one"
    SILENT = "the other copy is silent"
    RESIGNED = "the other copy has resigned"
    DEAD = "the process of the other copy has ended"


@dataclass(frozen=True, slots=True)
class Tenure:
    """Who answers, as the last state record tells."""

    term: int = 0
    copy: int = NO_COPY
    """Number of the copy: 0 is ``a``."""
    vain: int = 0
    """Take-overs since the last answer."""
    resigned: bool = False
    """The copy answers no more; the other one is to take over."""

    def taken_by(self, copy: int) -> Tenure:
        """Return the next term, that of ``copy``, before its first answer."""
        return Tenure(self.term + 1, copy, self.vain + 1)

    def answered(self) -> Tenure:
        """Return this term after an answer."""
        return replace(self, vain=0) if self.vain else self

    def given_up(self) -> Tenure:
        """Return this term after its copy has resigned."""
        return replace(self, resigned=True)

    def first(self, copy: int) -> Cause | None:
        """Why ``copy`` is to answer at once, whatever the other copy does; None if it is not."""
        if self.resigned:
            return None if self.copy == copy else Cause.RESIGNED
        is_first = self.copy == copy or (self.copy == NO_COPY and not copy)
        return Cause.FIRST if is_first else None


class Pair:
    """One copy's view of its pair, and its role in it.

    Args:
        copy: number of this copy.
        is_alone: there is no other copy; then it takes over at once, whatever the log tells.
        suspect_us: the silence of the other copy after which this one takes over.
    """

    def __init__(self, copy: int, *, is_alone: bool, suspect_us: int = SUSPECT_US) -> None:
        self.copy = copy
        self.role = PairRole.FOLLOWING
        self.tenure = Tenure()
        self._is_alone = is_alone
        self._suspect_us = suspect_us
        self._at_once: Cause | None = None
        """Why this copy takes over without waiting for a silence."""
        self._is_reported_dead = False
        """Whether the process of the copy that answers has ended."""
        self._seen_at = 0
        """When the copy that answers has shown last that it works."""
        self._returned = 0
        """When the last of this copy's own heartbeats was sent that has returned to it."""
        self._follower_at: int | None = None
        """When the other copy has shown last that it follows and could answer at once."""

    # What comes in.

    def begin(self, tenure: Tenure, now: int) -> None:
        """Take the tenure in the log when this copy starts.

        A copy that starts while the log names itself replaces a process that has ended. It answers
        at once, and so does the first copy of a part that nobody has answered.
        """
        self.tenure, self._seen_at = tenure, now
        self._at_once = Cause.FIRST if self._is_alone else tenure.first(self.copy)

    def read(self, tenure: Tenure, now: int) -> None:
        """Take the tenure of a record that another process has committed."""
        assert self.role is PairRole.FOLLOWING
        if tenure.term < self.tenure.term:
            return
        if tenure.resigned and not self._is_alone:
            self._at_once = tenure.first(self.copy)
        elif tenure.term > self.tenure.term:
            self._at_once = Cause.FIRST if self._is_alone else None
            self._is_reported_dead = False
        self.tenure, self._seen_at = tenure, max(self._seen_at, now)

    def received(self, term: int, at: int) -> None:
        """Take a heartbeat of the other copy, which answers in ``term``, or takes over after it."""
        if term >= self.tenure.term:
            self._seen_at = max(self._seen_at, at)

    def followed(self, term: int, at: int) -> None:
        """Take a heartbeat of the other copy, which knows of ``term`` and could answer at once."""
        if term == self.tenure.term:
            self._follower_at = at

    def died(self, term: int, *, answered: bool) -> None:
        """Take a report that the other copy's process has ended, which answered, or followed."""
        self._follower_at = None
        if self.role is PairRole.RESIGNING:
            self._seen_at = 0
        elif self.role is PairRole.FOLLOWING and answered and term >= self.tenure.term:
            self._is_reported_dead = True

    def returned(self, sent_at: int) -> None:
        """Take one of this copy's own heartbeats as it is in the log, sent at ``sent_at``."""
        self._returned = max(self._returned, sent_at)

    # Decisions.

    def cause(self, *, is_ready: bool) -> Cause | None:
        """Return why this copy has to take over now; None if it has not.

        ``is_ready``: it has read all that it needs to answer at once.
        """
        if self.role is not PairRole.FOLLOWING:
            return None
        if self._at_once is not None:
            return self._at_once
        if self._is_reported_dead and is_ready:
            return Cause.DEAD
        return Cause.SILENT if self._returned >= self.silent_at(is_ready=is_ready) else None

    @property
    def may_wait(self) -> bool:
        """Whether there is no reason but silence to take over."""
        return self.role is PairRole.FOLLOWING and self._at_once is None

    def silent_at(self, *, is_ready: bool) -> int:
        """Return the time from which a returned heartbeat would show that the other is silent."""
        doublings = min(self.tenure.vain, DOUBLINGS_MAX)
        if self.tenure.copy == NO_COPY:
            doublings = self.copy  # the first copy may be about to start
        patience_us = (self._suspect_us << doublings) * (1 if is_ready else UNREADY_FACTOR)
        return self._seen_at + patience_us

    def take_over(self) -> None:
        """Begin to take over."""
        assert self.role is PairRole.FOLLOWING
        self.role = PairRole.TAKING_OVER

    def next_term(self, found: Tenure) -> Tenure:
        """Return the tenure to write, behind the fence, after ``found``."""
        assert self.role is PairRole.TAKING_OVER
        return found.taken_by(self.copy)

    def installed(self, tenure: Tenure) -> None:
        """Answer from now on, in this term, which is in the log."""
        assert self.role is PairRole.TAKING_OVER
        self.tenure, self.role = tenure, PairRole.ANSWERING

    def answered(self) -> None:
        """Record that an answer of this copy is in the log."""
        assert self.role is PairRole.ANSWERING
        self.tenure = self.tenure.answered()

    def may_resign(self, now: int) -> bool:
        """Return whether the other copy follows this one, and could answer at once."""
        at = self._follower_at
        fresh_us = self._suspect_us * FRESH_FACTOR
        return self.role is PairRole.ANSWERING and at is not None and now - at < fresh_us

    def resign(self, now: int) -> Tenure:
        """Answer no more; return the tenure of this copy's last record."""
        assert self.role is PairRole.ANSWERING
        self.role, self._seen_at = PairRole.RESIGNING, now
        return self.tenure.given_up()

    def waits_in_vain(self, now: int) -> bool:
        """Return whether the copy is silent in whose favour this one has resigned."""
        return now - max(self._seen_at, self._follower_at or 0) >= self._suspect_us
