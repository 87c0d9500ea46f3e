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
DOUBLINGS_MAX: Final = 5
"""A silence of 4 s is enough on any machine."""
NO_COPY: Final = -1

TERM: Final = "term"
"""Heartbeat detail of one of two copies: the last term that it knows of."""
ANSWERS: Final = "answers"
"""Heartbeat detail of one of two copies: 1 if it answers, or takes over; 0 if it follows."""
FOLLOWS: Final = "FOLLOWING"
"""State of the results in heartbeats of a copy that follows, in place of DPC's (dpc-6). A changed
state is sent at once, so the other copy learns of a take-over before its patience ends."""


class PairRole(Enum):
    """What a copy does, in this order; a copy that is fenced starts again, and follows."""

    FOLLOWING = "following"
    """It reads what the other copy reads, and adopts what that has answered."""
    TAKING_OVER = "taking over"
    """It fences the other copy, and reads what that has answered last."""
    ANSWERING = "answering"
    """Its term is in the log."""


class Cause(Enum):
    """Why a copy takes over."""

    FIRST = "it is the copy that answered last, or the first one"
    SILENT = "the other copy is silent"


@dataclass(frozen=True, slots=True)
class Tenure:
    """Who answers, as the last state record tells."""

    term: int = 0
    copy: int = NO_COPY
    """Number of the copy: 0 is ``a``."""
    vain: int = 0
    """Take-overs since the last answer."""

    def taken_by(self, copy: int) -> Tenure:
        """Return the next term, that of ``copy``, before its first answer."""
        return Tenure(self.term + 1, copy, self.vain + 1)

    def answered(self) -> Tenure:
        """Return this term after an answer."""
        return replace(self, vain=0) if self.vain else self


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
        self._is_first = False
        self._seen_at = 0
        """When the copy that answers has shown last that it works."""
        self._returned = 0
        """When the last of this copy's own heartbeats was sent that has returned to it."""

    # What comes in.

    def begin(self, tenure: Tenure, now: int) -> None:
        """Take the tenure in the log when this copy starts.

        A copy that starts while the log names itself replaces a process that has ended. It answers
        at once, and so does the first copy of a part that nobody has answered.
        """
        self.tenure, self._seen_at = tenure, now
        is_first = tenure.copy == self.copy or (tenure.copy == NO_COPY and not self.copy)
        self._is_first = self._is_alone or is_first

    def read(self, tenure: Tenure, now: int) -> None:
        """Take the tenure of a record that another process has committed."""
        assert self.role is PairRole.FOLLOWING
        if tenure.term < self.tenure.term:
            return
        if tenure.term > self.tenure.term:
            self._is_first = self._is_alone
        self.tenure, self._seen_at = tenure, max(self._seen_at, now)

    def received(self, term: int, at: int) -> None:
        """Take a heartbeat of the other copy, which answers in ``term``, or takes over after it."""
        if term >= self.tenure.term:
            self._seen_at = max(self._seen_at, at)

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
        if self._is_first:
            return Cause.FIRST
        return Cause.SILENT if self._returned >= self.silent_at(is_ready=is_ready) else None

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
