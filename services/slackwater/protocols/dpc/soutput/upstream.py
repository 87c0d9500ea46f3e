"""The replicas of one upstream output: what each said last, and for how long that counts.

DPC, section 4.3: a consumer knows of each replica whether it is STABLE, in UP_FAILURE, in
STABILIZATION, or gone, and Table II says whom it listens to. Here it hears all replicas' logs at
once (``live_input.py``), so a switch costs nothing; what takes time is to find out that there is
nothing more to wait for. A tentative bucket of one replica is not used as long as another one says
STABLE (trace-34): if that one has just died, every answer waits until its last word is stale.

So the word of a replica counts for ``STALE_US_MAX``, three of its heartbeats. A replica that is
only slow and is taken for dead costs some tentative answers that would have been stable a moment
later, and only while another one is tentative anyway: hence a short limit, where one that started
processes anew would have to be long. The rejected alternative, a limit of some 100 ms periods as
others use it for take-over, held answers back for 350 ms.

A word is also *doubted* when a unit had to be answered without what it promises: who says STABLE
and misses a deadline is late or dead, and what the others say tentatively is better than nothing.
Its stable log going on takes the doubt away. Without it a replica that died just before the
deadlines of a long silence was believed for as long as its last word counted, and whole runs of
units were answered empty while another replica's buckets were arriving.

A *switch* is told once it has shown: when the loss was noticed, and when the first answer after it
was given out of what another replica says (section 5.1 measures the time between the two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.protocols.common.states import LineState

STALE_US_MAX: Final = 120_000
ONLY_STALE_US_MAX: Final = 400_000
"""Where there is one replica, which speaks less often, since nobody can turn to another."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A replica that said STABLE is gone, or says so no more."""

    replica: int
    last_heartbeat: int
    detected_at: int


@dataclass(frozen=True, slots=True)
class Switched:
    """The first answer after a loss, from what another replica says."""

    child: int
    replica: int
    last_seen: int
    detected_at: int
    answered_at: int


class Upstream:
    """All replicas of one child, in the eyes of one consumer. Times are us of wall time."""

    def __init__(self, replicas: int, stale_us: int = STALE_US_MAX) -> None:
        self._stale_us = stale_us
        self._statuses: list[tuple[LineState, int] | None] = [None] * replicas
        self._was_stable = [False] * replicas
        self._stable_to = [0] * replicas
        self._doubted_at: list[int | None] = [None] * replicas
        self.lost: Loss | None = None
        """The latest loss that no answer has followed yet."""

    def update(self, replica: int, state: LineState, received_at: int) -> None:
        """The replica's latest heartbeat, and when it was heard."""
        self._statuses[replica] = (state, received_at)

    def has_come(self, stable_to: Sequence[int]) -> None:
        """How far each replica has come stably: who goes on is not doubted any more."""
        self._stable_to = list(stable_to)
        self._doubted_at = [
            at if at is not None and to <= at else None
            for at, to in zip(self._doubted_at, stable_to, strict=True)
        ]

    def doubt(self, now: int) -> None:
        """A deadline is over, and nobody has passed it stably: those who say STABLE are not."""
        for replica, state in enumerate(self.states(now)):
            if state is LineState.STABLE:
                self._doubted_at[replica] = self._stable_to[replica]
        self.notice(now)

    def states(self, now: int, *, doubting: bool = False) -> list[LineState | None]:
        """What each replica is; None: not heard lately, or in doubt (FAILURE in the paper).

        ``doubting``: as it will be after ``doubt``.
        """
        states: list[LineState | None] = []
        for status, doubted_at in zip(self._statuses, self._doubted_at, strict=True):
            state = None if status is None or now - status[1] >= self._stale_us else status[0]
            is_doubted = state is LineState.STABLE and (doubting or doubted_at is not None)
            states.append(None if is_doubted else state)
        return states

    def stable(self, now: int) -> list[bool]:
        """Who says STABLE, and was heard lately."""
        return [state is LineState.STABLE for state in self.states(now)]

    def notice(self, now: int) -> int | None:
        """Look who is lost; returns when somebody's last word will be stale."""
        next_stale: int | None = None
        for replica, state in enumerate(self.states(now)):
            status, is_ = self._statuses[replica], state is LineState.STABLE
            if status is None:
                continue
            if self._was_stable[replica] and not is_:
                self.lost = Loss(replica, status[1], now)
            elif is_ and self.lost is not None and self.lost.replica == replica:
                self.lost = None  # it is back before anybody has taken its place
            self._was_stable[replica] = is_
            stale_at = status[1] + self._stale_us
            if stale_at > now and (next_stale is None or stale_at < next_stale):
                next_stale = stale_at
        return next_stale


def suspends(states: Sequence[LineState | None]) -> bool:
    """Does the best of the replicas hold tentative buckets back, until it has caught up?

    See dpc-10.
    """
    return {state for state in states if state is not None} == {LineState.STABILIZATION}
