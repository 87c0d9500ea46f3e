"""A host: one event loop that runs any number of fragments, takes them on and lets them go.

A fragment is a session (``slackwater.sessions``) and has several *lives* here. One that raises, or
that ends itself, is built anew from its logs, alone, with the back-off of the supervisor; its
heartbeat tells how often that was, and the exit code that a process of its own would have had. It
may also be *dropped*, which is how a rehearsal kills one of several: it takes no turn any more, and
nothing is flushed or noted. What it has handed to the client that writes may still arrive, as what
a killed process has handed to the kernel may; a new life writes through the same client, so its
START is behind all of that (rule-6 and rule-7).

A life also ends when its session detects that it keeps more in memory than rule-12 allows; the
host reports the amount.

One whose turns are too long (``runtime.host.longturns``) is held back, so that the others have
nearly all of the time, and its heartbeat reports it: the host's supervisor may give it a host of
its own.

What has no owner is shared: the live consumer and its logs, the client that writes, the one that
asks for ends, the heartbeats' sender and listener, what the registry has told. Whatever waits for
the broker or for the registry does so in a thread or a task of its own fragment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from slackwater.model.errors import HeldTooMuchError
from slackwater.runtime.host.decoding import Decoded
from slackwater.runtime.host.driver import Driven, Driver
from slackwater.runtime.host.fragment import Fragment
from slackwater.runtime.host.longturns import HELD_BACK_FACTOR, LONG_US, EndlessTurn, LongTurns
from slackwater.runtime.host.sharedends import SharedEnds
from slackwater.runtime.host.sharedlogs import Consumer, SharedLogs
from slackwater.runtime.host.wake_signal import WakeSignal
from slackwater.runtime.local.placement import BackOff
from slackwater.runtime.logs.transport import LogError, SharedProducer, Transport, Writer
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import exit_code_of
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.log import named
from slackwater.runtime.service.parts import (
    ENDLESS_TURN,
    FAILED_AT,
    FAILED_CODE,
    FAILURES,
    HELD_BYTES,
    HELD_BYTES_MAX,
    LONG_TURN_MS,
    PartBeat,
)

_log = logging.getLogger(__name__)
T = TypeVar("T")

IN_FLIGHT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Limit for all fragments together."""
FRAGMENT_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
PREFETCH_KIB_MAX: Final = 64 * 1024
"""Limit for all catch-up readers together, two per fragment."""
READER_PREFETCH_KIB_MIN: Final = 512
READER_PREFETCH_KIB_MAX: Final = 8 * 1024
JOIN_S: Final = 1.0
"""How long a fragment that is ready to read waits for others that are starting."""
REMOVE_AGAIN_S: Final = 1.0
"""Retry interval for removing an unused log whose removal failed."""


class DroppedFragment(Exception):
    """Ends a fragment's life as if its process had been killed."""


@dataclass(frozen=True)
class HostShared:
    """Resources shared by the fragments of a host."""

    transport: Transport
    producer: SharedProducer
    listener: HeartbeatListener
    sender: Callable[[str], PartBeat]
    """The heartbeat of a fragment; started."""
    make: Callable[[str], Fragment]
    """Begins a life of the fragment of this name; may wait long, in a thread."""
    clock: SystemClock = field(default_factory=SystemClock)


class Host:
    """Runs fragments in one event loop; ``run`` runs beside the live consumer.

    Args:
        shared: what the fragments have in common.
        consumer: the live one.
        turns: what its loop waits by.
    """

    def __init__(self, shared: HostShared, consumer: Consumer, turns: WakeSignal) -> None:
        self.shared = shared
        self.turns = turns
        self.decode = Decoded()
        self.logs = SharedLogs(consumer, self.decode)
        self.ends = SharedEnds(shared.transport)
        self.driver = Driver(turns, shared.clock, self._failed, self._took)
        self._hosted: dict[str, Hosted] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._endless = EndlessTurn()
        self._coming = 0
        """Lives that have begun and do not read yet, except those in ``_joining``."""
        self._joining: list[Driven] = []
        self._all_here = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def fragments(self) -> tuple[str, ...]:
        """Names of the fragments that run here."""
        return tuple(self._hosted)

    def take_on(self, name: str) -> None:
        """Start running a fragment; a fragment that is being removed is removed first."""
        assert name not in self._hosted, f"{name} is here already"
        hosted = self._hosted[name] = Hosted(name, self)
        hosted.start(self._leaving.get(name))

    def remove(self, name: str) -> asyncio.Task[None]:
        """Stop a fragment; the others continue. The task ends when it is gone."""
        leaving = asyncio.get_running_loop().create_task(self._hosted.pop(name).stop())
        self._leaving[name] = leaving
        leaving.add_done_callback(partial(self._has_left, name))
        return leaving

    def _has_left(self, name: str, leaving: asyncio.Task[None]) -> None:
        if self._leaving.get(name) is leaving:
            del self._leaving[name]

    def kill(self, name: str) -> None:
        """End the life of this fragment as if its process had been killed."""
        self._hosted[name].drop()

    def pause(self, name: str) -> None:
        """Suspend a fragment, as SIGSTOP does a process."""
        self._hosted[name].hold()

    def resume(self, name: str) -> None:
        """Resume a suspended fragment."""
        self._hosted[name].release()

    async def run(self) -> None:
        """Run the turns of all fragments without end."""
        await self.driver.run()

    def wake_listeners(self) -> None:
        """The state of an output has changed; from any thread."""
        for hosted in tuple(self._hosted.values()):
            hosted.on_heartbeat()
        self.turns.wake_from_thread()

    def look(self) -> None:
        """See whether the loop is stuck in a turn; from the heartbeats' thread, at each of them."""
        number, driven = self.driver.turn or (0, None)
        if self._endless.look(number) and driven is not None:
            hosted = self._hosted.get(driven.session.fragment)
            if hosted is not None:
                hosted.is_stuck()

    # For its fragments.

    @property
    def in_flight_bytes_max(self) -> int:
        """Of each fragment."""
        share = IN_FLIGHT_BYTES_MAX // max(len(self._hosted), 1)
        return min(share, FRAGMENT_IN_FLIGHT_BYTES_MAX)

    @property
    def prefetch_kib_max(self) -> int:
        """Of each catch-up reader."""
        share = PREFETCH_KIB_MAX // (2 * max(len(self._hosted), 1))
        return max(READER_PREFETCH_KIB_MIN, min(share, READER_PREFETCH_KIB_MAX))

    def comes(self) -> None:
        """A life begins; the others wait for it in ``join``, for ``JOIN_S`` at most."""
        self._coming += 1
        self._all_here.clear()

    def is_here(self) -> None:
        """The life joins now or has failed; other lives stop waiting for it."""
        self._coming -= 1
        if not self._coming:
            self._all_here.set()

    async def join(self, driven: Driven) -> None:
        """Hand live records to a session, together with the sessions that begin at the same time.

        A log not read yet is then read from the smallest position needed, and no session has to
        read by itself records that the others have been handed.
        """
        self._joining.append(driven)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(JOIN_S):
                    await self._all_here.wait()
        except asyncio.CancelledError:
            if driven in self._joining:
                self._joining.remove(driven)
            raise
        joining, self._joining = self._joining, []
        self.logs.join(each for each in joining if not each.is_held)
        for each in joining:
            self.driver.add(each)
        await self.logs.settle()

    def part(self, driven: Driven) -> None:
        """Stop handing records to a session and scheduling it."""
        self.driver.remove(driven)
        self.stop_reading(driven)

    def stop_reading(self, driven: Driven) -> None:
        """It is handed nothing any more."""
        self.logs.leave(driven)
        self.background(self._settle())

    def read_on(self, driven: Driven) -> None:
        """It is handed again what is read; what it has missed it reads by itself."""
        self.logs.join([driven])
        self.background(self._settle())

    async def _settle(self) -> None:
        while True:
            with contextlib.suppress(LogError):  # those who wait for a log have been told
                await self.logs.settle()
            if self.logs.is_settled:
                return
            await asyncio.sleep(REMOVE_AGAIN_S)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; its result is not awaited."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _took(self, driven: Driven, lasted_us: int) -> None:
        if lasted_us >= LONG_US and (hosted := self._hosted.get(driven.session.fragment)):
            hosted.took(driven, lasted_us)

    def _failed(self, driven: Driven, error: BaseException) -> None:
        hosted = self._hosted.get(driven.session.fragment)
        if hosted is not None:
            hosted.failed(driven, error)


class Hosted:
    """One fragment of a host across all its lives."""

    def __init__(self, name: str, host: Host) -> None:
        self.name = name
        self._host = host
        self._failures = 0
        self._long = LongTurns()
        """Over all its lives."""
        self._driven: Driven | None = None
        self._reads_later = False
        """It would read, if it did not stand still."""
        self._ended: asyncio.Future[None] | None = None
        self._released = asyncio.Event()
        self._released.set()
        self._beat: PartBeat | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, behind: asyncio.Task[None] | None = None) -> None:
        """Begin, when this has ended."""
        self._running = asyncio.get_running_loop().create_task(self._run(behind))

    async def stop(self) -> None:
        """End the fragment for good; no further life begins."""
        assert self._running is not None, "it has not been started"
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def drop(self) -> None:
        """End the current life, also of a suspended fragment."""
        self._released.set()
        if self._beat is not None:
            self._beat.release()
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(DroppedFragment())
        elif self._beat is not None:
            # Between two lives: whoever waits for one that began behind this waits for the next.
            self._beat.begin_again()

    def hold(self) -> None:
        """Suspend the fragment; nothing is read for it meanwhile."""
        self._released.clear()
        if self._driven is not None:
            self._driven.hold()
            if self._host.logs.reads(self._driven):
                self._reads_later = True
                self._host.stop_reading(self._driven)
        if self._beat is not None:
            self._beat.hold()

    def release(self) -> None:
        """Go on."""
        self._released.set()
        if self._beat is not None:
            self._beat.release()
        if self._driven is not None:
            self._driven.release()
            if self._reads_later:
                self._reads_later = False
                self._host.read_on(self._driven)

    def failed(self, driven: Driven, error: BaseException) -> None:
        """Record that the current life has ended."""
        if driven is self._driven and self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def took(self, driven: Driven, lasted_us: int) -> None:
        """Record that a long turn has ended."""
        clock, long = self._host.shared.clock, self._long
        if long.note(lasted_us, clock.monotonic_us()):
            _log.warning("%s: its turns are too long: one took %d ms", self.name, lasted_us // 1000)
        if not long.is_too_slow:
            return
        if self._beat is not None:
            self._beat.keep_reporting({LONG_TURN_MS: long.longest_us // 1000})
        if len(self._host.fragments) > 1:
            driven.not_before = clock.now_us() + HELD_BACK_FACTOR * lasted_us

    def is_stuck(self) -> None:
        """A turn of it does not end; from any thread."""
        _log.error("%s: its turn does not end", self.name)
        if self._beat is not None:
            self._beat.keep_reporting({ENDLESS_TURN: 1})

    def on_heartbeat(self) -> None:
        """Somebody's output has changed its state; from any thread."""
        driven = self._driven
        if driven is not None and driven.reads_heartbeats_at_once:
            driven.make_due_soon()

    async def _run(self, behind: asyncio.Task[None] | None) -> None:
        with named(self.name):
            if behind is not None:
                await asyncio.wait({behind})
            self._beat = self._host.shared.sender(self.name)
            try:
                await self._live_on(self._beat)
            finally:
                self._beat.stop()

    async def _live_on(self, beat: PartBeat) -> None:
        back_off, clock = BackOff(), self._host.shared.clock
        while True:
            try:
                await self._live(beat)
            except DroppedFragment:
                _log.warning("dropped, as if it had been killed")
                beat.begin_again()
            except Exception as error:  # noqa: BLE001 -- whatever it is, the other fragments go on
                beat.begin_again(self._noted(error))
            wait_s = back_off.after_death(clock.monotonic_us() / 1e6)
            if wait_s:
                _log.warning("begins again in %g s", wait_s)
                await asyncio.sleep(wait_s)

    def _noted(self, error: BaseException) -> Mapping[str, int]:
        """Count the failure; returns its counters for the heartbeat."""
        self._failures += 1
        reported = {
            FAILURES: self._failures,
            FAILED_AT: self._host.shared.clock.now_us(),
            FAILED_CODE: exit_code_of(error),
        }
        if isinstance(error, HeldTooMuchError):
            reported |= {HELD_BYTES: error.held, HELD_BYTES_MAX: error.bound}
        return reported

    async def _live(self, beat: PartBeat) -> None:
        """From its beginning to what ends it, which is raised."""
        loop = asyncio.get_running_loop()
        ended = self._ended = loop.create_future()
        life = contextlib.ExitStack()
        beginning = loop.create_task(self._begin(beat, life))
        try:
            await asyncio.wait({beginning, ended}, return_when=asyncio.FIRST_COMPLETED)
            if beginning.done():
                beginning.result()
            await ended
        finally:
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
            self._driven = self._ended = None
            self._reads_later = False
            life.close()

    async def _begin(self, beat: PartBeat, life: contextlib.ExitStack) -> None:
        """Until it takes turns; ``life`` has what is to be given back in the end."""
        host = self._host
        host.comes()
        with contextlib.ExitStack() as coming:
            coming.callback(host.is_here)
            await self._released.wait()
            fragment = await in_thread(
                lambda: host.shared.make(self.name), lambda unused: unused.close()
            )
            life.callback(fragment.close)
            driven = self._driven = self._drive(fragment, beat)
            if (committer := fragment.committer) is not None:
                life.callback(lambda: host.background(committer.close()))
            life.callback(driven.drop)
            await driven.start()
            await self._released.wait()
            life.callback(host.part, driven)
            coming.close()
            await host.join(driven)
            if not host.logs.reads(driven) and not self._reads_later:
                # It stood still when the others joined.
                if driven.is_held:
                    self._reads_later = True
                else:
                    host.read_on(driven)

    def _drive(self, fragment: Fragment, beat: PartBeat) -> Driven:
        host, shared = self._host, self._host.shared

        def write(on_fatal: Callable[[str], None]) -> Writer:
            return shared.producer.writer(on_fatal, in_flight_bytes_max=host.in_flight_bytes_max)

        return Driven(
            fragment.session,
            shared.transport,
            beat,
            shared.listener,
            end_timeout_us=fragment.end_timeout_us,
            wake=host.turns.wake,
            write=write,
            observe=fragment.observe,
            ends=host.ends,
            positions=host.logs.positions,
            committer=fragment.committer,
            heartbeat_period_us=fragment.heartbeat_period_us,
            prefetch_kib_max=host.prefetch_kib_max,
            decode=host.decode,
            recent=host.logs.recent,
            clock=shared.clock,
        )


async def in_thread(function: Callable[[], T], give_back: Callable[[T], None]) -> T:
    """Call it in a thread of its own, however long it takes.

    A pool would be full of those who wait for a query that is not registered yet. What comes when
    nobody waits for it any more goes to ``give_back``.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def call() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
            reported = error
            notify(lambda: done.set_exception(reported), lambda: None)
        else:
            notify(lambda: done.set_result(result), lambda: give_back(result))

    def notify(set_it: Callable[[], None], unwanted: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: unwanted() if done.done() else set_it())

    threading.Thread(target=call, name="beginning", daemon=True).start()
    return await done
