"""Heartbeats: the last state of each process, as received by the others after a delay."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from tests.simulator.history import Note

from slackwater.model.records import Heartbeat, Hole
from slackwater.protocols.common.states import LineState

if TYPE_CHECKING:
    from tests.simulator.process import Process
    from tests.simulator.world import World

    from slackwater.sessions.orderer import OrdererSession
    from slackwater.sessions.root import RootSession

DELAY_US = 50_000
"""An orderer's period of 40 ms, plus the delivery time."""


def beat_of(
    process: str, detail: dict[str, int] | None = None, states: dict[str, str] | None = None
) -> Heartbeat:
    """Return a heartbeat with these counters, or these states of outputs."""
    return Heartbeat(process, 0, 0, 0, -1, ready=True, states=states or {}, detail=detail or {})


@cache
def beat_of_state(process: str, topic: str, state: str) -> Heartbeat:
    """Return a heartbeat with one output's state: a root receives it in every turn."""
    return beat_of(process, states={topic: state})


@dataclass(slots=True)
class _SentHeartbeats:
    process: Process
    states: deque[tuple[int, str]] = field(default_factory=deque)
    holes: tuple[Hole, ...] = ()
    is_reported_dead: bool = False


class Heartbeats:
    """Model of the heartbeat topic: a heartbeat is received ``DELAY_US`` after it was sent."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._delay_us = world.config.paced(DELAY_US)
        self._with_holes: dict[str, _SentHeartbeats] = {}
        self._sent: dict[str, _SentHeartbeats] = {}

    def emit(self, process: Process, session: OrdererSession | RootSession) -> None:
        """Send a process's state; as in a host, a report is built only for what has changed."""
        now = self._world.scheduler.now
        answer = self._sent.get(process.name)
        if answer is None or answer.process is not process:
            if not self._world.is_present(process):
                return
            answer = self._sent[process.name] = _SentHeartbeats(process)
        known = answer.states[-1][1] if answer.states else None
        if session.state == known and session.core.holes == answer.holes:
            return
        report = session.report()
        (state,), holes = report.states.values(), report.holes
        if holes != answer.holes:
            answer.holes = holes
            if holes:
                self._with_holes[process.name] = answer
        if state != known:
            answer.states.append((now, state))
            if process.name not in self._world.retired:  # else nobody reads what a zombie reports
                self._world.history.reported_states.append(Note(now, process.name, f"says {state}"))
            while len(answer.states) > 1 and answer.states[1][0] <= now - self._delay_us:
                answer.states.popleft()

    def last_heartbeat(self, name: str) -> tuple[LineState, int] | None:
        """Return the last heartbeat of a process as received, and the time of its reception."""
        answer = self._sent.get(name)
        if answer is None:
            return None
        now = self._world.scheduler.now
        known = None
        for at, state in answer.states:
            if at <= now - self._delay_us:
                known = state
        if known is None:
            return None
        stopped = answer.process.stopped_at
        received_at = now if stopped is None else min(now, stopped + self._delay_us)
        return LineState(known), received_at

    def report_dead(self, name: str) -> None:
        """Report that the process of this name has ended which sent last."""
        if (sent := self._sent.get(name)) is not None:
            sent.is_reported_dead = True

    def is_reported_dead(self, name: str) -> bool:
        """Return whether the process that sent last under this name is reported to have ended."""
        sent = self._sent.get(name)
        return sent is not None and sent.is_reported_dead

    def is_hole(self, hole: Hole) -> bool:
        """Return whether any process reports this hole."""
        return any(s.process.speaks and hole in s.holes for s in self._with_holes.values())

    def is_missed(self, topic: str, partition: int) -> bool:
        """Return whether any process reports a hole in this log, of any writer."""
        return any(
            (hole.topic, hole.partition) == (topic, partition)
            for s in self._with_holes.values()
            if s.process.speaks
            for hole in s.holes
        )
