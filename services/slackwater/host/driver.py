"""Runs sessions on Kafka: the loop over any number of them. Contains no rule of the protocol.

In a *turn* a session gets its input, is stepped, and its effects are executed
(``host.driven``). A session takes a turn when it has input or when it is due. An error
raised by a session ends that session alone, whether it is raised in a turn, while a record is
passed, in a task that the session has started, or in its writer. A session that has ended takes no
more turns, and the driver calls ``on_failure``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from slackwater.host.driven import Driven
from slackwater.host.wake_signal import IDLE_S_MAX, WakeSignal
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.cpu import ThreadWait
from slackwater.runtime.service.log import named

LOOK_AT_WAIT_US: Final = 50_000
"""The wait for a core is not read after a shorter turn. Reading it releases the interpreter's lock,
which another thread may then hold for milliseconds."""


class Driver:
    """The loop over any number of sessions.

    Args:
        turns: wakes the loop.
        clock: the current time.
        on_failure: called with a session that has ended and its error; without it the loop raises
            the error.
        on_turn: called after each turn with its duration in us, which for a long turn is less the
            wait for a core.
        choose: selects the next session from those that are due.
        wait: measures the loop's thread; made by ``run`` by default.
    """

    def __init__(
        self,
        turns: WakeSignal,
        clock: SystemClock | None = None,
        on_failure: Callable[[Driven, BaseException], None] | None = None,
        on_turn: Callable[[Driven, int], None] | None = None,
        *,
        choose: Callable[[Sequence[Driven]], Driven] = random.choice,
        wait: ThreadWait | None = None,
    ) -> None:
        self._turns = turns
        self._clock = clock or SystemClock()
        self._on_failure = on_failure
        self._on_turn = on_turn
        self._driven: list[Driven] = []
        self._choose = choose
        self._was_root = False
        self._wait = wait
        self._waited_to_us = 0
        self._taken = 0
        self.turn: tuple[int, Driven] | None = None
        """Number and session of the current turn."""

    def add(self, driven: Driven) -> None:
        """Schedule a started session."""
        self._driven.append(driven)
        self._turns.wake()

    def remove(self, driven: Driven) -> None:
        """Stop scheduling a session."""
        if driven in self._driven:
            self._driven.remove(driven)

    async def run(self) -> None:
        """Run the loop without end."""
        wait = self._wait or ThreadWait()
        while True:
            now = self._clock.now_us()
            driven = self._next(now)
            if driven is not None:
                self._measured_turn(driven, wait)
                await asyncio.sleep(0)  # lets the consumer and tasks run
                continue
            idle = now + round(IDLE_S_MAX * 1e6)
            self._waited_us(wait)
            await self._turns.wait(now, min((each.turn_at for each in self._driven), default=idle))

    def _next(self, now: int) -> Driven | None:
        """Select a due session at random; roots and orderers alternate.

        When a bucket ends, all fragments are due at the same time. In a fixed order one query would
        always be answered last, and replicas in two hosts would make the same buckets at the same
        time, although a root needs each bucket from one replica only. Roots and orderers alternate,
        so that a backlog of buckets does not delay the roots, nor a root with much input the
        orderers.
        """
        due = [driven for driven in self._driven if driven.turn_at <= now]
        if not due:
            return None
        due = [driven for driven in due if driven.is_root is not self._was_root] or due
        driven = self._choose(due)
        self._was_root = driven.is_root
        return driven

    def _measured_turn(self, driven: Driven, wait: ThreadWait) -> None:
        if self._on_turn is None:
            self._turn(driven)
            return
        began_us, used_us = self._clock.monotonic_us(), wait.used_us()
        self._taken += 1
        self.turn = self._taken, driven
        self._turn(driven)
        self.turn = None
        lasted_us = self._clock.monotonic_us() - began_us
        if lasted_us >= LOOK_AT_WAIT_US:
            # The wait is that of all turns since the last look. This turn's share of it is at most
            # the time in which it used no core.
            idle_us = max(lasted_us - (wait.used_us() - used_us), 0)
            lasted_us -= min(self._waited_us(wait), idle_us)
        self._on_turn(driven, lasted_us)

    def _waited_us(self, wait: ThreadWait) -> int:
        """Return the time (us) that this thread has waited for a core since the last call."""
        before, self._waited_to_us = self._waited_to_us, wait.waited_us()
        return self._waited_to_us - before

    def _turn(self, driven: Driven) -> None:
        with named(driven.session.fragment):
            try:
                driven.turn()
            except Exception as error:
                self.remove(driven)
                if self._on_failure is None:
                    raise
                self._on_failure(driven, error)
