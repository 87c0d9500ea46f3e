"""A process: it loops over its input, and may be killed, paused, or be too old without knowing it.

``turn`` is what a host's loop does once: read what there is, step the session with the time,
carry out the effects. A paused process keeps what would have happened, and on waking does it all
at once, at the late time, believing that it is still the one: a zombie, if another was started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.simulator.clock import Act
from tests.simulator.kafka import Log, Producer

from slackwater.runtime.service.clock import OBSERVE_EVERY_US, SlewedClock
from slackwater.sessions.effects import Effect
from slackwater.sessions.requests import Log as At
from slackwater.sessions.session import Session

if TYPE_CHECKING:
    from tests.simulator.world import World


CATCH_UP_WAIT_US = 3_000


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
        self._clock: SlewedClock | None = None
        self._observed_at = 0
        self.producer = Producer(world.broker)
        self._deferred: list[Act] = []
        self._watched: list[Log[object]] = []
        self._turn_at: int | None = None
        self._fetch_us = world.config.fetch_us
        self._woken = 0
        self._works_until = 0
        self._unfinished: list[Act] = []

    @property
    def now(self) -> int:
        """The time by this process's own clock."""
        at = self.world.scheduler.now
        if self._clock is None:
            return at + self.skew_us
        if at - self._observed_at >= OBSERVE_EVERY_US:
            self._observed_at = at
            self._clock.observe(at + self.world.skew_us.get(self.name, 0), at)
        return self._clock.now_us(at)

    def clock_stepped(self) -> None:
        """From now on the product's slewed clock matters; until then it equals wall time."""
        if self._clock is None:
            at = self._observed_at = self.world.scheduler.now
            self._clock = SlewedClock(at + self.skew_us, at)

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
        for log in self._watched:
            log.watchers.remove(self._on_append)
        self._watched.clear()
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

    def fence(self) -> None:
        """What a transactional producer does when it starts."""
        raise AssertionError(f"{self.name} has no transactions")

    # Overload: what a unit of work takes then; else what is modelled with each act.

    @property
    def unit_us(self) -> int:
        """What a unit of work takes longer than usual, as long as the process is overloaded."""
        return self.world.overloaded_us.get(self.name, 0)

    def work(self, units: int, act: Act) -> None:
        """``act`` when so many units are done; until then the loop does nothing else."""
        if not self.unit_us or not units:
            act()
            return
        waiting = [act]

        def finish() -> None:
            if waiting:
                waiting.pop()()

        delay = units * self.unit_us
        self._works_until = self.world.scheduler.now + delay
        self._unfinished.append(finish)
        self.later(delay, finish)

    def relieved(self) -> None:
        """The overload is over: what was under way is done in no time."""
        self._works_until = 0
        unfinished, self._unfinished = self._unfinished, []
        for finish in unfinished:
            self._run(finish)
        self.turn_in(0)

    # The loop.

    def watch(self, log: Log[object]) -> None:
        """Take a turn soon after something was appended."""
        self._watched.append(log)
        log.watchers.append(self._on_append)

    def _on_append(self) -> None:
        soonest, latest = self._fetch_us
        scheduler = self.world.scheduler
        if self._turn_at is None or self._turn_at > scheduler.now + soonest:
            self.turn_in(scheduler.between(soonest, latest))

    def turn_in(self, delay_us: int) -> None:
        """Take a turn by then."""
        scheduler = self.world.scheduler
        at = max(scheduler.now + max(delay_us, 0), self._works_until)
        if self._turn_at is not None and self._turn_at <= at:
            return
        self._turn_at = at
        self._woken += 1
        mine = self._woken

        def act() -> None:
            if self._woken != mine or not self.alive:
                return
            if self.paused:
                self._deferred.append(act)
            else:
                self._turn_at = None
                self.turn()

        scheduler.at(at, act)

    @abstractmethod
    def turn(self) -> None:
        """Once round the loop."""


class Fragment(Process):
    """A process that runs a session of the product, with the model of Kafka for a host."""

    session: Session
    logs: dict[At, Log[Any]]
    """Its inputs."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._works = False
        """The start has come to its end."""
        self._positions: dict[At, int] = {}
        """Of the live consumer."""

    def begin(self, effects: Sequence[Effect]) -> None:
        """The start has come to its end, with these effects: read what there is."""
        self._works = True
        self._positions = dict(self.session.live_offsets)
        if self.world.config.hosted:
            for at, log in self.logs.items():
                self._positions[at] = log.stable_end
                self.session.live_at(at, log.stable_end)
        self._carry_out(effects)
        for log in self.logs.values():
            self.watch(log)
        self.world.works(self)
        self.turn()

    def turn_again(self, now: int, cost_us: int) -> None:
        """Take the next turn when it is due; the one that ends takes ``cost_us``."""
        session = self.session
        if session.busy or self._is_lagging:
            self.turn_in(cost_us)
        elif self._has_parked_records:
            self.turn_in(max(CATCH_UP_WAIT_US, cost_us))
        if session.wake_at is not None:
            self.turn_in(max(session.wake_at - now, cost_us))

    @property
    def _has_parked_records(self) -> bool:
        """Without them there is no need to look again: what is appended wakes the loop."""
        return self.world.broker.up and any(
            offset < self.logs[at].stable_end for (_, at), offset in self.session.wanted().items()
        )

    @property
    @abstractmethod
    def _is_lagging(self) -> bool:
        """Is there more for the live consumer?"""

    @abstractmethod
    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Do what the session wants done."""
