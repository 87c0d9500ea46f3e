"""Heartbeats: what each process last said, as the others know it, some time later."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from tests.simulator.history import Note

from slackwater.model.records import Heartbeat, Hole
from slackwater.protocols.dpc.states import LineState

if TYPE_CHECKING:
    from tests.simulator.process import Process
    from tests.simulator.world import World

    from slackwater.sessions.orderer import OrdererSession
    from slackwater.sessions.root import RootSession

DELAY_US = 50_000
"""An orderer's period of 40 ms, and the way to the others."""


def beat_of(
    process: str, detail: dict[str, int] | None = None, states: dict[str, str] | None = None
) -> Heartbeat:
    """A heartbeat that carries these counters, or these states of outputs."""
    return Heartbeat(process, 0, 0, 0, -1, ready=True, states=states or {}, detail=detail or {})


@cache
def beat_of_state(process: str, topic: str, state: str) -> Heartbeat:
    """The same, of one output: a root is told it in every turn."""
    return beat_of(process, states={topic: state})


@dataclass(slots=True)
class _Said:
    process: Process
    states: deque[tuple[int, str]] = field(default_factory=deque)
    holes: tuple[Hole, ...] = ()


class Heartbeats:
    """The topic, without its bytes: a word is known to others ``DELAY_US`` after it was said."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._delay_us = world.config.paced(DELAY_US)
        self._with_holes: dict[str, _Said] = {}
        self._said: dict[str, _Said] = {}

    def say(self, process: Process, session: OrdererSession | RootSession) -> None:
        """A process says how it is; a report is made only of what has changed, as in a host."""
        now = self._world.scheduler.now
        said = self._said.get(process.name)
        if said is None or said.process is not process:
            if not self._world.is_present(process):
                return
            said = self._said[process.name] = _Said(process)
        known = said.states[-1][1] if said.states else None
        if session.state == known and session.core.holes == said.holes:
            return
        report = session.report()
        (state,), holes = report.states.values(), report.holes
        if holes != said.holes:
            said.holes = holes
            if holes:
                self._with_holes[process.name] = said
        if state != known:
            said.states.append((now, state))
            self._world.history.said.append(Note(now, process.name, f"says {state}"))
            while len(said.states) > 1 and said.states[1][0] <= now - self._delay_us:
                said.states.popleft()

    def heard(self, name: str) -> tuple[LineState, int] | None:
        """What a process said last, as the others know it, and when they heard it."""
        said = self._said.get(name)
        if said is None:
            return None
        now = self._world.scheduler.now
        known = None
        for at, state in said.states:
            if at <= now - self._delay_us:
                known = state
        if known is None:
            return None
        stopped = said.process.stopped_at
        heard_at = now if stopped is None else min(now, stopped + self._delay_us)
        return LineState(known), heard_at

    def is_hole(self, hole: Hole) -> bool:
        """Does anybody see this hole?"""
        return any(s.process.speaks and hole in s.holes for s in self._with_holes.values())

    def is_missed(self, topic: str, partition: int) -> bool:
        """Does anybody see a hole in this log, whoever wrote it?"""
        return any(
            (hole.topic, hole.partition) == (topic, partition)
            for s in self._with_holes.values()
            if s.process.speaks
            for hole in s.holes
        )
