"""A process: it loops over its input, and may be killed, paused, or be too old without knowing it.

``turn`` is what the real shell's loop does once: read what there is, step the core with the time,
carry out the effects. A paused process keeps what would have happened, and on waking does it all
at once, at the late time, believing that it is still the one: a zombie, if another was started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.simulator.clock import Act
from tests.simulator.kafka import Log, Producer

if TYPE_CHECKING:
    from tests.simulator.world import World


class Process(ABC):
    """One incarnation of a fragment."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self.stopped_at: int | None = None
        """Since when it does not speak: killed or paused."""
        self.skew_us = world.skew_us.get(name, 0)
        self.producer = Producer(world.broker)
        self._deferred: list[Act] = []
        self._turn_at: int | None = None
        self._woken = 0

    @property
    def now(self) -> int:
        """The time by this process's own clock."""
        return self.world.scheduler.now + self.skew_us

    @property
    def speaks(self) -> bool:
        """Are there heartbeats?"""
        return self.alive and not self.paused

    def later(self, delay_us: int, act: Act) -> None:
        """As long as the process lives; when it is paused, as soon as it wakes."""
        self.world.scheduler.after(delay_us, lambda: self._run(act))

    def _run(self, act: Act) -> None:
        if not self.alive:
            return
        if self.paused:
            self._deferred.append(act)
        else:
            act()

    def kill(self) -> None:
        """Kill -9."""
        self.alive = False
        self.stopped_at = self.world.scheduler.now
        self.producer.kill()
        self.world.note(self.name, "killed")

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True
        self.stopped_at = self.world.scheduler.now
        self.world.note(self.name, "paused")

    def wake(self) -> None:
        """SIGCONT."""
        if not self.alive or not self.paused:
            return
        self.paused = False
        self.stopped_at = None
        self.world.note(self.name, "woke")
        deferred, self._deferred = self._deferred, []
        for act in deferred:
            self._run(act)

    # The loop.

    def watch(self, log: Log[object]) -> None:
        """Take a turn soon after something was appended."""

        def appended() -> None:
            if self.alive:
                self.turn_in(self.world.scheduler.between(*self.world.config.fetch_us))

        log.watchers.append(appended)

    def turn_in(self, delay_us: int) -> None:
        """Take a turn by then."""
        at = self.world.scheduler.now + max(delay_us, 0)
        if self._turn_at is not None and self._turn_at <= at:
            return
        self._turn_at = at
        self._woken += 1
        mine = self._woken

        def act() -> None:
            if self._woken == mine:
                self._turn_at = None
                self.turn()

        self.later(delay_us, act)

    @abstractmethod
    def turn(self) -> None:
        """Once round the loop."""
