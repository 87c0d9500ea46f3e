"""A process: it loops over its input, and may be killed, paused, or superseded.

``turn`` is one iteration of a host's loop: read the available input, step the session with the
time, execute the effects. A paused process defers its events. When it resumes, it processes all of
them at once, at the later time, as if it were still current: a zombie, if another was started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.simulator.clock import Act
from tests.simulator.kafka import Log, Producer

from slackwater.host.decoding import watermark_of
from slackwater.model.errors import SlackwaterError, SupersededError
from slackwater.model.records import RootState
from slackwater.primitives.eventclock import DataClock
from slackwater.runtime.service.clock import OBSERVE_EVERY_US, SlewedClock
from slackwater.sessions.effects import Effect
from slackwater.sessions.events import LiveAt, Record
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
        """Time since which it sends no heartbeats: killed or paused."""
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
    def has_broker(self) -> bool:
        """Whether the process reaches the broker."""
        return self.world.broker.up and not self.producer.cut_off

    def cut_off(self, is_cut_off: bool) -> None:
        """Cut the process off from the broker alone, or end this."""
        self.producer.cut_off = is_cut_off
        if not is_cut_off:
            self.producer.pump()
            self.turn_in(0)

    @property
    def now(self) -> int:
        """The time by this process's clock."""
        at = self.world.scheduler.now
        if self._clock is None:
            return at + self.skew_us
        if at - self._observed_at >= OBSERVE_EVERY_US:
            self._observed_at = at
            self._clock.observe(at + self.world.skew_us.get(self.name, 0), at)
        return self._clock.now_us(at)

    def clock_stepped(self) -> None:
        """Use the product's slewed clock from now on; until then it equals wall time."""
        if self._clock is None:
            at = self._observed_at = self.world.scheduler.now
            self._clock = SlewedClock(at + self.skew_us, at)

    @property
    def speaks(self) -> bool:
        """Whether it sends heartbeats."""
        return self.alive and not self.paused

    def later(self, delay_us: int, act: Act) -> None:
        """Schedule an act for as long as the process lives; if it is paused, until it resumes."""
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

    def fence(self, then: Act) -> None:
        """Fence, as a transactional producer does when it starts; then go on."""
        raise AssertionError(f"{self.name} has no transactions: {then}")

    def await_read(self, offset: int, then: Act) -> None:
        """Wait until a root's live consumer has read the state records below ``offset``."""
        raise AssertionError(f"{self.name} follows nobody")

    def claim(self, state: RootState, then: Act, refused: Act) -> None:
        """Commit a state record alone, as a transactional producer does; then go on."""
        raise AssertionError(f"{self.name} has no transactions: {state}, {then}, {refused}")

    # Overload: the time of a unit of work; otherwise the times modelled with each act.

    @property
    def unit_us(self) -> int:
        """Additional time of a unit of work while the process is overloaded."""
        return self.world.overloaded_us.get(self.name, 0)

    def work(self, units: int, act: Act) -> None:
        """Run ``act`` after this many units of work; until then the loop is blocked."""
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
        """End the overload: work in progress completes at once."""
        self._works_until = 0
        unfinished, self._unfinished = self._unfinished, []
        for finish in unfinished:
            self._run(finish)
        self.turn_in(0)

    @abstractmethod
    def start(self) -> None:
        """Begin, once."""

    # The loop.

    def watch(self, log: Log[object]) -> None:
        """Take a turn soon after each append to the log."""
        self._watched.append(log)
        log.watchers.append(self._on_append)

    def _on_append(self) -> None:
        soonest, latest = self._fetch_us
        scheduler = self.world.scheduler
        if self._turn_at is None or self._turn_at > scheduler.now + soonest:
            self.turn_in(scheduler.between(soonest, latest))

    def turn_in(self, delay_us: int) -> None:
        """Take a turn within this time."""
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
        """Run one iteration of the loop."""


class Fragment(Process):
    """A process that runs a session of the product, with the model of Kafka as its host."""

    session: Session
    logs: dict[At, Log[Any]]
    """Its inputs."""
    placement: int
    """Its placement number; -1 if it has none."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._works = False
        """Whether the start is complete."""
        self._positions: dict[At, int] = {}
        """Positions of the live consumer."""

    @property
    def has_begun(self) -> bool:
        """Whether the start is complete."""
        return self._works

    def begin(self, effects: Sequence[Effect]) -> None:
        """Complete the start with these effects, and read the available input."""
        self._works = True
        self._positions = dict(self.session.live_offsets)
        if self.world.config.hosted:
            for at, log in self.logs.items():
                self._positions[at] = log.stable_end
                self.session.take(LiveAt(at, log.stable_end))
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
        begin_us = self.world.config.begin_us
        if begin_us is not None and now < begin_us:
            # A driver looks at each session once a second; a begin is recorded a second ahead.
            self.turn_in(max(begin_us - now, cost_us))

    def stay_down(self, error: SlackwaterError) -> None:
        """End, since the same fragment has a greater placement number elsewhere."""
        assert isinstance(error, SupersededError), error
        self.world.note(self.name, "stays down: a greater placement was here")
        self.kill()
        self.world.stays_down(self)

    @property
    def _has_parked_records(self) -> bool:
        """Return whether cursors are parked; otherwise appended records wake the loop."""
        return self.world.broker.up and any(
            offset < self.logs[at].stable_end for (_, at), offset in self.session.wanted().items()
        )

    @property
    @abstractmethod
    def _is_lagging(self) -> bool:
        """Return whether the live consumer has more records to read."""

    @abstractmethod
    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Execute the session's effects."""


def observe(clock: DataClock | None, record: Record, now: int) -> None:
    """Advance the clock of a process in a history by a record that it reads, as its host does."""
    if clock is not None and (reached := watermark_of(record)) is not None:
        clock.observe(reached, now)
