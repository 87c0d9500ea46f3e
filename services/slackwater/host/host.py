"""Runs any number of fragments in one event loop; fragments are added and removed at run time.

A fragment runs a session (``slackwater.sessions``). A *life* of a fragment lasts from a start of
its session to the session's end. When the session raises an error or ends itself, the host rebuilds
this fragment alone from its logs, with the supervisor's back-off, and a new life begins. The
fragment's heartbeat reports the number of failures and the exit code that a process of its own
would have had. A life also ends when its session keeps more in memory than rule-12 allows.

A rehearsal kills one of several fragments by *dropping* it: the fragment takes no further turn and
nothing is flushed. Records that it has passed to the producer may still be written. The next life
uses the same producer, so its START follows these records (rule-6 and rule-7).

A fragment whose turns are too long (``host.longturns``) is delayed, so that the others have nearly
all of the time. Its heartbeat reports this, and the supervisor may move it to a host of its own.

The fragments share the live consumer and its logs, the producer, requests for end offsets, the
sender and the listener of heartbeats, and the registry's contents. A request that waits for the
broker or the registry runs in a thread or task of the fragment that makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from slackwater.host.decoding import Decoded
from slackwater.host.driven import Driven, SessionOutdatedError
from slackwater.host.driver import Driver
from slackwater.host.fragment import Fragment
from slackwater.host.longturns import HELD_BACK_FACTOR, LONG_US, EndlessTurn, LongTurns
from slackwater.host.sharedends import SharedEnds
from slackwater.host.sharedlogs import Consumer, SharedLogs
from slackwater.host.threads import in_thread
from slackwater.host.wake_signal import WakeSignal
from slackwater.model.errors import HeldTooMuchError, SlackwaterError, SupersededError
from slackwater.runtime.logs.transport import LogError, SharedProducer, Transport, Writer
from slackwater.runtime.service.back_off import BackOff
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import exit_code_of
from slackwater.runtime.service.heartbeat_view import FAILED_PLACEMENT
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
from slackwater.sessions.events import EarlierEnded

_log = logging.getLogger(__name__)

IN_FLIGHT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Limit for all fragments together."""
FRAGMENT_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
PREFETCH_KIB_MAX: Final = 64 * 1024
"""Limit for all catch-up readers, at two per fragment; an orderer that reads results has four."""
READER_PREFETCH_KIB_MIN: Final = 512
READER_PREFETCH_KIB_MAX: Final = 8 * 1024
JOIN_S: Final = 1.0
"""How long a fragment that is ready to read live records waits for others that are starting."""
RESIGN_S_MAX: Final = 1.0
"""How long a fragment that is to end waits until another process has taken over from it."""
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
    """Returns the started heartbeat of the fragment of this name."""
    make: Callable[[str], Fragment]
    """Makes the fragment of this name for one life. Called in a thread, since it may wait long."""
    clock: SystemClock = field(default_factory=SystemClock)


class Host:
    """Runs fragments in one event loop; ``run`` runs beside the live consumer.

    Args:
        shared: resources of all fragments.
        consumer: the live consumer.
        turns: wakes the loop.
    """

    def __init__(self, shared: HostShared, consumer: Consumer, turns: WakeSignal) -> None:
        self.shared = shared
        self.turns = turns
        self.decode = Decoded()
        self.logs = SharedLogs(consumer, self.decode)
        self.ends = SharedEnds(shared.transport)
        self.driver = Driver(turns, shared.clock, self._failed, self._on_turn)
        self._hosted: dict[str, Hosted] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, Hosted] = {}
        """The fragments that are being removed."""
        self._endless = EndlessTurn()
        self._starting = 0
        """Lives that have begun and do not read live records yet, except those in ``_joining``."""
        self._joining: list[Driven] = []
        self._none_starting = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def fragments(self) -> tuple[str, ...]:
        """Names of the fragments that run here."""
        return tuple(self._hosted)

    def take_on(self, name: str) -> None:
        """Start a fragment; if one of this name is being removed, after that has ended."""
        assert name not in self._hosted, f"{name} already runs in this host"
        hosted = self._hosted[name] = Hosted(name, self)
        hosted.start(self._leaving.get(name))

    def remove(self, name: str) -> asyncio.Task[None]:
        """Stop a fragment; the others continue. The returned task ends when it has stopped."""
        hosted = self._ending[name] = self._hosted.pop(name)
        leaving = asyncio.get_running_loop().create_task(hosted.stop())
        self._leaving[name] = leaving
        leaving.add_done_callback(partial(self._has_left, name))
        return leaving

    def _has_left(self, name: str, leaving: asyncio.Task[None]) -> None:
        if self._leaving.get(name) is leaving:
            del self._leaving[name], self._ending[name]

    async def resign(self) -> None:
        """Let other processes take over what the fragments do, before this process ends.

        A fragment that is being removed does so already.
        """
        resigning = [asyncio.ensure_future(hosted.resign()) for hosted in self._hosted.values()]
        if resigning or self._leaving:
            await asyncio.wait({*resigning, *self._leaving.values()}, timeout=RESIGN_S_MAX)

    def kill(self, name: str) -> None:
        """End the life of this fragment as if its process had been killed."""
        self._hosted[name].drop()

    def hand_over(self, name: str) -> None:
        """Let another process take over from this fragment, if it could; it is built again."""
        if (driven := self._hosted[name].driven) is not None:
            driven.resign()

    def lost(self, name: str, error: SlackwaterError) -> None:
        """End the life of a fragment, of which a topic has been lost (rule-32)."""
        hosted = self._hosted.get(name)
        if hosted is not None and hosted.driven is not None:
            hosted.driven.fail(error)

    def pause(self, name: str) -> None:
        """Suspend a fragment, as SIGSTOP suspends a process."""
        self._hosted[name].hold()

    def resume(self, name: str) -> None:
        """Resume a suspended fragment."""
        self._hosted[name].release()

    async def run(self) -> None:
        """Run the turns of all fragments without end."""
        await self.driver.run()

    def wake_listeners(self) -> None:
        """Wake the roots after a replica's reported state has changed; from any thread."""
        for hosted in tuple(self._hosted.values()):
            hosted.on_heartbeat()
        self.turns.wake_from_thread()

    def look(self) -> None:
        """Check whether a turn does not end; called in the heartbeats' thread at each heartbeat."""
        number, driven = self.driver.turn or (0, None)
        if self._endless.look(number) and driven is not None:
            hosted = self._hosted.get(driven.session.fragment)
            if hosted is not None:
                hosted.report_endless_turn()

    # Used by ``Hosted``.

    @property
    def in_flight_bytes_max(self) -> int:
        """Limit of each fragment for bytes that are sent and not acknowledged."""
        share = IN_FLIGHT_BYTES_MAX // max(len(self._hosted), 1)
        return min(share, FRAGMENT_IN_FLIGHT_BYTES_MAX)

    @property
    def prefetch_kib_max(self) -> int:
        """Prefetch limit of each catch-up reader, KiB."""
        share = PREFETCH_KIB_MAX // (2 * max(len(self._hosted), 1))
        return max(READER_PREFETCH_KIB_MIN, min(share, READER_PREFETCH_KIB_MAX))

    def add_starting(self) -> None:
        """Register a life that begins; other lives wait for it in ``join``, at most ``JOIN_S``."""
        self._starting += 1
        self._none_starting.clear()

    def end_starting(self) -> None:
        """Note that a life joins now, or has ended before; the others stop waiting for it."""
        self._starting -= 1
        if not self._starting:
            self._none_starting.set()

    async def join(self, driven: Driven) -> None:
        """Pass live records to a session, together with the sessions that start at the same time.

        A log that is not read yet is then read from the smallest position that one of them needs,
        so none has to read with its own catch-up readers what the others have received.
        """
        self._joining.append(driven)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(JOIN_S):
                    await self._none_starting.wait()
        except asyncio.CancelledError:
            if driven in self._joining:
                self._joining.remove(driven)
            raise
        joining, self._joining = self._joining, []
        self.logs.join(each for each in joining if not each.is_held)
        for each in joining:
            self.driver.add(each)
        await self.logs.settle()

    def detach(self, driven: Driven) -> None:
        """Stop scheduling a session and passing records to it."""
        self.driver.remove(driven)
        self.stop_reading(driven)

    def stop_reading(self, driven: Driven) -> None:
        """Stop passing records to a session."""
        self.logs.leave(driven)
        self.background(self._settle())

    def read_on(self, driven: Driven) -> None:
        """Pass live records to a session again; its catch-up readers read what it has missed."""
        self.logs.join([driven])
        self.background(self._settle())

    async def _settle(self) -> None:
        while True:
            with contextlib.suppress(LogError):  # the sessions concerned have been ended
                await self.logs.settle()
            if self.logs.is_settled:
                return
            await asyncio.sleep(REMOVE_AGAIN_S)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; its result is not awaited."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_turn(self, driven: Driven, lasted_us: int) -> None:
        if lasted_us >= LONG_US and (hosted := self._hosted.get(driven.session.fragment)):
            hosted.on_long_turn(driven, lasted_us)

    def _failed(self, driven: Driven, error: BaseException) -> None:
        for of in (self._hosted, self._ending):  # one of this name may wait for the other's end
            if (hosted := of.get(driven.session.fragment)) is not None:
                hosted.failed(driven, error)


class Hosted:
    """One fragment of a host across all its lives."""

    def __init__(self, name: str, host: Host) -> None:
        self.name = name
        self._host = host
        self._failures = 0
        self._long = LongTurns()
        """Long turns of all lives together."""
        self.driven: Driven | None = None
        """The current session; None between two lives."""
        self._reads_later = False
        """Whether the fragment reads again when it is resumed."""
        self._ended: asyncio.Future[None] | None = None
        self._is_leaving = False
        """Whether this life is the last one."""
        self._released = asyncio.Event()
        self._released.set()
        self._beat: PartBeat | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, after: asyncio.Task[None] | None = None) -> None:
        """Start the first life when ``after``, a removal of a fragment of this name, has ended."""
        self._running = asyncio.get_running_loop().create_task(self._run(after))

    async def resign(self) -> None:
        """Let another process take over what the fragment does, if one could at once (rule-27)."""
        assert self._running is not None, f"{self.name} has not been started"
        if self.driven is not None and self.driven.resign():
            self._is_leaving = True
            await asyncio.wait({self._running}, timeout=RESIGN_S_MAX)

    async def stop(self) -> None:
        """End the fragment, after it has resigned; no further life begins."""
        assert self._running is not None, f"{self.name} has not been started"
        await self.resign()
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
            # Between two lives: the next life counts as the restart after this kill.
            self._beat.begin_again()

    def hold(self) -> None:
        """Suspend the fragment; no records are read for it until ``release``."""
        self._released.clear()
        if self.driven is not None:
            self.driven.hold()
            if self._host.logs.reads(self.driven):
                self._reads_later = True
                self._host.stop_reading(self.driven)
        if self._beat is not None:
            self._beat.hold()

    def release(self) -> None:
        """Resume the fragment."""
        self._released.set()
        if self._beat is not None:
            self._beat.release()
        if self.driven is not None:
            self.driven.release()
            if self._reads_later:
                self._reads_later = False
                self._host.read_on(self.driven)

    def failed(self, driven: Driven, error: BaseException) -> None:
        """Record that the current life has ended."""
        if driven is self.driven and self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def on_long_turn(self, driven: Driven, lasted_us: int) -> None:
        """Record a long turn that has ended; delay the next one if the fragment is too slow."""
        clock, long = self._host.shared.clock, self._long
        if long.note(lasted_us, clock.monotonic_us()):
            _log.warning("%s: turns are too long; one took %d ms", self.name, lasted_us // 1000)
        if not long.is_too_slow:
            return
        if self._beat is not None:
            self._beat.keep_reporting({LONG_TURN_MS: long.longest_us // 1000})
        if len(self._host.fragments) > 1:
            driven.not_before = clock.now_us() + HELD_BACK_FACTOR * lasted_us

    def report_endless_turn(self) -> None:
        """Report that a turn of the fragment does not end; from any thread."""
        _log.error("%s: a turn does not end", self.name)
        if self._beat is not None:
            self._beat.keep_reporting({ENDLESS_TURN: 1})

    def on_heartbeat(self) -> None:
        """Make a root due after a replica's reported state has changed; from any thread."""
        driven = self.driven
        if driven is not None and driven.reads_heartbeats_at_once:
            driven.make_due_soon()

    async def _run(self, after: asyncio.Task[None] | None) -> None:
        with named(self.name):
            if after is not None:
                await asyncio.wait({after})
            self._beat = self._host.shared.sender(self.name)
            try:
                await self._live_on(self._beat)
            finally:
                self._beat.stop()

    async def _live_on(self, beat: PartBeat) -> None:
        back_off, clock = BackOff(), self._host.shared.clock
        while not self._is_leaving:
            try:
                await self._live(beat)
            except DroppedFragment:
                _log.warning("dropped, as if it had been killed")
                beat.begin_again()
            except SessionOutdatedError as change:
                _log.info("built again: %s", change)
                beat.begin_again()
                continue
            except Exception as error:  # noqa: BLE001 -- the other fragments must continue
                beat.begin_again(self._count_failure(error))
            wait_s = back_off.after_death(clock.monotonic_us() / 1e6)
            if wait_s and not self._is_leaving:
                _log.warning("restarts in %g s", wait_s)
                await asyncio.sleep(wait_s)

    def _count_failure(self, error: BaseException) -> Mapping[str, int]:
        """Count a failure; return the counters for the heartbeat."""
        self._failures += 1
        reported = {
            FAILURES: self._failures,
            FAILED_AT: self._host.shared.clock.now_us(),
            FAILED_CODE: exit_code_of(error),
        }
        if isinstance(error, HeldTooMuchError):
            reported |= {HELD_BYTES: error.held, HELD_BYTES_MAX: error.bound}
        if isinstance(error, SupersededError):
            reported[FAILED_PLACEMENT] = error.placement
        return reported

    async def _live(self, beat: PartBeat) -> None:
        """Run one life; raises the error that ended it."""
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
            self.driven = self._ended = None
            self._reads_later = False
            life.close()

    async def _begin(self, beat: PartBeat, life: contextlib.ExitStack) -> None:
        """Start a life up to its first turn; ``life`` collects what its end is to release."""
        host = self._host
        host.add_starting()
        with contextlib.ExitStack() as starting:
            starting.callback(host.end_starting)
            await self._released.wait()
            fragment = await in_thread(
                lambda: host.shared.make(self.name), lambda unused: unused.close()
            )
            life.callback(fragment.close)
            driven = self.driven = self._drive(fragment, beat)
            if (committer := fragment.committer) is not None:
                life.callback(lambda: host.background(committer.close()))
            life.callback(driven.drop)
            await driven.start()
            if fragment.earlier is not None:
                fragment.earlier.when_ended(partial(self._earlier_ended, driven))
            await self._released.wait()
            life.callback(host.detach, driven)
            starting.close()
            await host.join(driven)
            if not host.logs.reads(driven) and not self._reads_later:
                # The fragment was suspended when the others joined.
                if driven.is_held:
                    self._reads_later = True
                else:
                    host.read_on(driven)

    def _earlier_ended(self, driven: Driven) -> None:
        driven.session.take(EarlierEnded())
        driven.make_due_soon()
        self._host.turns.wake()

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
            write=fragment.write or write,
            observe=fragment.observe,
            ends=host.ends,
            positions=host.logs.positions,
            committer=fragment.committer,
            heartbeat_period_us=fragment.heartbeat_period_us,
            prefetch_kib_max=host.prefetch_kib_max,
            decode=host.decode,
            recent=host.logs.recent,
            clock=shared.clock,
            centre=fragment.centre,
        )
