"""Heartbeats: what each process last said, as the others know it, some time later."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slackwater.model.records import Hole

if TYPE_CHECKING:
    from tests.simulator.process import Process
    from tests.simulator.world import World

DELAY_US = 110_000
FRESH_US = 300_000


@dataclass(slots=True)
class _Said:
    process: Process
    states: deque[tuple[int, str]] = field(default_factory=deque)
    holes: tuple[Hole, ...] = ()


class Heartbeats:
    """The topic, without its bytes: a word is known to others ``DELAY_US`` after it was said."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._said: dict[str, _Said] = {}

    def say(self, process: Process, state: str, holes: tuple[Hole, ...]) -> None:
        """A process says how it is."""
        now = self._world.scheduler.now
        said = self._said.get(process.name)
        if said is None or said.process is not process:
            if not self._world.is_present(process):
                return
            said = self._said[process.name] = _Said(process)
        said.holes = holes
        if not said.states or said.states[-1][1] != state:
            said.states.append((now, state))
            while len(said.states) > 1 and said.states[1][0] <= now - DELAY_US:
                said.states.popleft()

    def says_stable(self, name: str) -> bool:
        """Is its heartbeat fresh, and does it say STABLE?"""
        said = self._said.get(name)
        if said is None:
            return False
        now = self._world.scheduler.now
        stopped = said.process.stopped_at
        if stopped is not None and now - stopped > FRESH_US:
            return False
        known = [state for at, state in said.states if at <= now - DELAY_US]
        return bool(known) and known[-1] == "STABLE"

    def is_hole(self, hole: Hole) -> bool:
        """Does anybody see this hole?"""
        return any(s.process.speaks and hole in s.holes for s in self._said.values())
