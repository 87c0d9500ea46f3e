"""Tracks the replicas of one upstream output: the last reported state, and its validity.

In DPC, section 4.3, a consumer tracks whether each replica is STABLE, in UP_FAILURE, in
STABILIZATION, or failed, and chooses a replica by Table II. Here all replicas' logs are read at
once (``live_input.py``), so a switch costs nothing; only detecting a failed replica takes time. A
tentative bucket of one replica is not used while another replica reports STABLE (trace-34). If that
other replica has just died, every answer waits until its last heartbeat is stale.

A heartbeat is therefore valid for ``STALE_US_MAX``, three heartbeat periods. If a slow replica is
taken for dead, some answers become tentative that would have been stable a moment later, and only
while another replica is tentative anyway. Hence the limit can be short, whereas a limit that
restarts processes must be long. Rejected: a limit of several periods of 100 ms, as is usual for
take-over; it delayed answers by 350 ms.

A replica is *doubted* if it reports STABLE and a unit had to be answered without its bucket: it is
late or dead, and another replica's tentative bucket is better than none. Progress of its stable log
ends the doubt. Without this rule, a replica that dies just before many windows reach their deadline
counts as STABLE until its heartbeat is stale, and runs of windows are answered without rows while
another replica's buckets arrive.

A *switch* is reported once complete: when the loss was detected, and when the first answer from
another replica's input followed (section 5.1 measures the time between the two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.protocols.common.states import LineState

STALE_US_MAX: Final = 120_000
ONLY_STALE_US_MAX: Final = 400_000
"""Limit for a single replica, which sends heartbeats less often: no other can replace it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a replica: it was STABLE, and is now stale, doubted or in another state."""

    replica: int
    last_heartbeat: int
    detected_at: int


@dataclass(frozen=True, slots=True)
class Switched:
    """A completed switch: the first answer after a loss, from another replica's input."""

    child: int
    replica: int
    last_seen: int
    detected_at: int
    answered_at: int


class Upstream:
    """One consumer's view of all replicas of one child. Times are us of wall time."""

    def __init__(self, replicas: int, stale_us: int = STALE_US_MAX) -> None:
        self._stale_us = stale_us
        self._statuses: list[tuple[LineState, int] | None] = [None] * replicas
        self._is_dead = [False] * replicas
        self._was_stable = [False] * replicas
        self._stable_to = [0] * replicas
        self._doubted_at: list[int | None] = [None] * replicas
        self.lost: Loss | None = None
        """The latest loss that has not been followed by an answer."""

    def update(self, replica: int, state: LineState | None, received_at: int) -> None:
        """Record the state in a replica's latest heartbeat, and its arrival time.

        None if the replica's process has ended: then its last heartbeat is valid no more.
        """
        self._is_dead[replica] = state is None
        if state is not None:
            self._statuses[replica] = (state, received_at)

    def has_come(self, stable_to: Sequence[int]) -> None:
        """Record the stable progress of each replica; progress ends a doubt."""
        self._stable_to = list(stable_to)
        self._doubted_at = [
            at if at is not None and to <= at else None
            for at, to in zip(self._doubted_at, stable_to, strict=True)
        ]

    def doubt(self, now: int) -> None:
        """Doubt the replicas that report STABLE: no stable bucket met the deadline."""
        for replica, state in enumerate(self.states(now)):
            if state is LineState.STABLE:
                self._doubted_at[replica] = self._stable_to[replica]
        self.notice(now)

    def states(self, now: int, *, doubting: bool = False) -> list[LineState | None]:
        """The state of each replica; None if stale or doubted (FAILURE in the paper).

        ``doubting``: the states as after ``doubt``.
        """
        states: list[LineState | None] = []
        for status, doubted_at, is_dead in zip(
            self._statuses, self._doubted_at, self._is_dead, strict=True
        ):
            is_stale = status is None or is_dead or now - status[1] >= self._stale_us
            state = None if status is None or is_stale else status[0]
            is_doubted = state is LineState.STABLE and (doubting or doubted_at is not None)
            states.append(None if is_doubted else state)
        return states

    def stable(self, now: int) -> list[bool]:
        """Per replica, true if a fresh heartbeat reports STABLE and is not doubted."""
        return [state is LineState.STABLE for state in self.states(now)]

    def notice(self, now: int) -> int | None:
        """Detect lost replicas; return when the next heartbeat becomes stale."""
        next_stale: int | None = None
        for replica, state in enumerate(self.states(now)):
            status, is_ = self._statuses[replica], state is LineState.STABLE
            if status is None:
                continue
            if self._was_stable[replica] and not is_:
                self.lost = Loss(replica, status[1], now)
            elif is_ and self.lost is not None and self.lost.replica == replica:
                self.lost = None  # the replica is back before an answer without it
            self._was_stable[replica] = is_
            stale_at = status[1] + self._stale_us
            if stale_at > now and (next_stale is None or stale_at < next_stale):
                next_stale = stale_at
        return next_stale


def suspends(states: Sequence[LineState | None]) -> bool:
    """True if all replicas with a valid state are in STABILIZATION, and there is one.

    Under the policy ``suspend`` these send no tentative buckets until they have caught up (dpc-10).
    """
    return {state for state in states if state is not None} == {LineState.STABILIZATION}
