"""Runs sessions on Kafka: hand over, step, carry out the effects, wait. No rule is here.

A ``Driven`` is one session with all that stands between it and the broker. A ``Driver`` is the loop
over any number of them: each takes a turn when something has come for it, or when it is due. What a
session may be handed, and in which order, is told in ``slackwater.sessions.session``.

The live consumer is shared (``runtime.host.sharedlogs``): it reads and decodes for all
sessions at once, and calls ``take`` in the event loop. Beside it a catch-up reader for each line
reads from parked positions.

An error raised by a session ends that session alone, wherever it is raised: in a turn, while a
record is handed over, in a task that it has asked for, or in the client that writes for it. It
takes no turn any more, and whoever has added it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from slackwater.codec.ordered_records import encode_ordered
from slackwater.model.errors import SlackwaterError
from slackwater.model.records import Hole
from slackwater.protocols.common.line import LINES, LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.runtime.host.decoding import Decode, decode, watermark_of
from slackwater.runtime.host.procedures import Committer, perform
from slackwater.runtime.host.sharedends import SharedEnds
from slackwater.runtime.host.wake_signal import (
    IDLE_S_MAX,
    PARKED_S_MAX,
    UNSETTLED_S_MAX,
    WakeSignal,
)
from slackwater.runtime.logs.catchup import CatchUpReader, Gone
from slackwater.runtime.logs.recent import RecentRecords
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Isolation, Log, RawRecord, Transport, Writer
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.cpu import ThreadWait
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.log import named
from slackwater.runtime.service.state import write_orderer_state
from slackwater.sessions.effects import (
    Append,
    Effect,
    Fail,
    FetchEnds,
    FetchPositions,
    LogLine,
    Perform,
    Refute,
    Skipped,
    WriteState,
)
from slackwater.sessions.requests import Procedure
from slackwater.sessions.session import Form, Record, Session

T = TypeVar("T")

CATCH_UP_PREFETCH_KIB: Final = 8 * 1024
CATCH_UP_RECORDS_MAX: Final[Mapping[Form, int]] = {
    "source": 20,
    "ordered": 50,
    "deltas": 50,
    "results": 2_000,
}
"""In one turn: a few milliseconds. A row is a record in a result topic."""
HEARTBEAT_PERIOD_US: Final = 20_000

_log = logging.getLogger(__name__)


class SessionEndedError(SlackwaterError):
    """Raised when a session has ended itself and must be restarted."""


class HeartbeatPublisher(Protocol):
    """Publishes a session's state in heartbeats."""

    def update(
        self,
        *,
        inc: int | None = None,
        ready: bool | None = None,
        states: dict[str, str] | None = None,
        holes: tuple[Hole, ...] | None = None,
        detail: dict[str, int] | None = None,
    ) -> None:
        """Tell this from now on; what is not given stays."""
        ...


Positions = Callable[["Driven"], Awaitable[Mapping[Log, int]]]
"""The live consumer's, in those logs of which all that it has read has been handed over."""


class Driven:
    """One session and its connection to Kafka. For the event loop's thread.

    Args:
        session: not started yet.
        transport: where the logs are.
        heartbeats: its sender, begun already.
        listener: receives the heartbeats of other fragments.
        end_timeout_us: how long the broker may take to name an end (half a margin, trace-11).
        wake: begins the next turn of the loop.
        write: makes its writer, from what is told when a record cannot be written; it is asked when
            there is something to write.
        observe: told of (event time, now), where the event clock follows the data (trace-12).
        ends: whom it asks where logs end; the transport if nobody is named.
        positions: for a session that asks for them.
        committer: for a root.
        heartbeat_period_us: how often the sender is told what the session reports.
        prefetch_kib_max: of each of its catch-up readers.
        clock: the current time.
        decode: of what it reads itself; what the host remembers is not decoded again.
        recent: what the live consumer has brought lately, for its catch-up readers.
    """

    def __init__(
        self,
        session: Session,
        transport: Transport,
        heartbeats: HeartbeatPublisher,
        listener: HeartbeatListener,
        *,
        end_timeout_us: int,
        wake: Callable[[], None],
        write: Callable[[Callable[[str], None]], Writer] | None = None,
        observe: Callable[[int, int], None] | None = None,
        ends: SharedEnds | None = None,
        positions: Positions | None = None,
        committer: Committer | None = None,
        heartbeat_period_us: int = HEARTBEAT_PERIOD_US,
        prefetch_kib_max: int = CATCH_UP_PREFETCH_KIB,
        clock: SystemClock | None = None,
        decode: Decode = decode,
        recent: RecentRecords | None = None,
    ) -> None:
        self.session = session
        self._decode = decode
        self._transport = transport
        self._heartbeats = heartbeats
        self._listener = listener
        self._end_timeout_s = end_timeout_us / 1e6
        self._wake = wake
        self._observe = observe
        self._ends: SharedEnds | Transport = ends or transport
        self._positions = positions
        self._committer = committer
        self._heartbeat_period_us = heartbeat_period_us
        self._clock = clock or SystemClock()
        self._write = write or transport.writer
        self._written: Writer | None = None
        self._writing = threading.Lock()
        """Procedures write from other threads."""
        self.reads_heartbeats_at_once = committer is not None
        """A root's answers wait for what replicas say of themselves (trace-34)."""
        self._forms = dict(session.inputs)
        self._catch_up = {
            (line, isolation): CatchUpReader(
                transport, isolation=isolation, prefetch_kib_max=prefetch_kib_max, recent=recent
            )
            for line in LINES
            for isolation in {self._isolation(log) for log in self._forms}
        }
        self._delivered: deque[tuple[Log, int]] = deque()
        """Filled by the writer's thread, emptied at each turn."""
        self._undelivered = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reported_at = 0
        self._reported_state = ""
        self._failed: BaseException | None = None
        # The loop itself holds its tasks weakly: one that nobody else holds may vanish half done.
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._is_held = False
        self.due_at = 0
        """When the next turn is to be taken."""
        self.not_before = 0
        """No turn before this, whatever comes for it."""

    @property
    def is_root(self) -> bool:
        """Whether the session is a root."""
        return self._committer is not None

    @property
    def turn_at(self) -> int:
        """Time of the next turn."""
        return max(self.due_at, self.not_before)

    @property
    def forms(self) -> Mapping[Log, Form]:
        """Record forms of the inputs."""
        return self._forms

    @property
    def is_held(self) -> bool:
        """Whether the session is suspended."""
        return self._is_held

    @property
    def _writer(self) -> Writer:
        with self._writing:
            if self._written is None:
                if self._is_over:
                    raise SessionEndedError(f"{self.session.fragment} has been dropped")
                self._written = self._write(self._cannot_write)
            return self._written

    def _isolation(self, log: Log) -> Isolation:
        return "read_committed" if self._forms[log] == "results" else "read_uncommitted"

    async def start(self) -> None:
        """What the session reads and writes first."""
        self._loop = asyncio.get_running_loop()
        first = await self._perform(self.session.start())
        self._carry_out(first)
        # Until its live consumer reads it has nothing to offer.
        states = dict.fromkeys(self.session.report().states, LineState.UP_FAILURE.value)
        self._heartbeats.update(inc=self.session.inc, states=states)

    # Its end, and standing still.

    def fail(self, error: BaseException) -> None:
        """End the session with this error at its next turn; the first error counts."""
        self._failed = self._failed or error
        self._make_due()

    def drop(self) -> None:
        """Stop the session as if its process had been killed: no turn, no record, no heartbeat.

        What it has handed to the client that writes may still arrive, before all that a session in
        its place will write through the same client.
        """
        with self._writing:
            self._is_over = True
        for task in list(self._tasks):
            task.cancel()
        if self._written is not None:
            self._written.close(0.0)
        for reader in self._catch_up.values():
            reader.close()

    def hold(self) -> None:
        """Suspend the session as a paused process: no turn, no record."""
        self._is_held = True

    def release(self) -> None:
        """Go on; whoever hands records over says first where the live consumer is (rule-12)."""
        self._is_held = False
        self._make_due()

    # Input.

    def needs(self, log: Log, offset: int) -> bool:
        """Would ``take`` look at the live consumer's record at ``offset``?"""
        if self._is_held or self._failed is not None:
            return False
        try:
            return self.session.needs(log, offset)
        except Exception as error:  # noqa: BLE001 -- of this session; others read the log too
            self.fail(error)
            return False

    def take(self, log: Log, offset: int, record: Record) -> None:
        """A record of the live consumer that it ``needs``; never raises."""
        try:
            may_wait_us = self._receive(log, offset, record)
        except Exception as error:  # noqa: BLE001 -- of this session; others read the log too
            self.fail(error)
        else:
            if may_wait_us == 0:
                self._make_due()
            elif may_wait_us is not None:
                self._make_due_by(self._clock.now_us() + may_wait_us)

    def _receive(self, log: Log, offset: int, record: Record) -> int | None:
        self._follow(record)
        return self.session.receive(log, offset, record)

    def _follow(self, record: Record) -> None:
        """Whoever reads a record, its promise may turn the event clock."""
        if self._observe is not None and (watermark := watermark_of(record)) is not None:
            self._observe(watermark, self._clock.now_us())

    def _make_due(self) -> None:
        self.due_at = 0
        self._wake()

    def _make_due_by(self, latest: int) -> None:
        if latest < self.due_at:
            self.due_at = latest
            self._wake()

    def make_due_soon(self) -> None:
        """The same, from any thread; whoever calls it wakes the loop."""
        self.due_at = 0

    def _read_parked(self) -> bool:
        """Feed the parked cursors, at most one small batch from each reader."""
        session, wanted, read = self.session, self.session.wanted(), False
        for (line, isolation), reader in self._catch_up.items():
            positions = {
                log: offset
                for (of, log), offset in wanted.items()
                if of is line and self._isolation(log) == isolation
            }
            is_rows = isolation == "read_committed"
            found = reader.read(positions, self._records_max(positions))
            if isinstance(found, Gone):
                session.position_gone(line, found.log, found.beginning)
                continue
            if not is_rows:
                self._pass_unseen(line, positions, found)
            for raw in found:
                record = self._decode(self._forms[raw.log], raw.log, raw.offset, raw.value)
                self._follow(record)
                session.catch_up(line, raw.log, raw.offset, record)
            for log in positions if is_rows else ():
                session.caught_up_to(line, log, reader.position(log))
            read = read or bool(found)
        return read

    def _pass_unseen(
        self, line: LineName, positions: Mapping[Log, int], found: Sequence[RawRecord]
    ) -> None:
        """Move parked cursors past offsets without records, up to the first record read.

        These offsets are markers of foreign transactions; slackwater writes these logs without
        transactions. Lost records show as missing ids in the records that follow.
        """
        firsts = {raw.log: raw.offset for raw in reversed(found)}
        for log, offset in firsts.items():
            if offset > positions[log]:
                self.session.position_gone(line, log, offset)

    def _records_max(self, logs: Iterable[Log]) -> int:
        return max((CATCH_UP_RECORDS_MAX[self._forms[log]] for log in logs), default=1)

    def _read_heartbeats(self, now: int) -> None:
        session, listener = self.session, self._listener
        for name in session.listens_to:
            latest = listener.last_heartbeat(name, now)
            if latest is not None:
                session.on_heartbeat(*latest)
        if (claimed := listener.claimed(session.fragment, session.inc)) is not None:
            session.claimed(claimed)
        hole = session.hole
        if hole is not None and listener.hole_in(hole.topic, hole.partition, hole.inc):
            session.hole_reported()

    # Turns.

    def turn(self) -> None:
        """Take one turn; raises the error that ends the session."""
        if self._failed is not None:
            raise self._failed
        if self._is_held:
            self.due_at = self._clock.now_us() + round(IDLE_S_MAX * 1e6)
            return
        session = self.session
        read = self._read_parked()
        while self._delivered:
            self._undelivered -= 1
            session.delivered(*self._delivered.popleft())
        now = self._clock.now_us()
        is_time = now - self._reported_at >= self._heartbeat_period_us
        if is_time or self.reads_heartbeats_at_once:
            self._read_heartbeats(now)
        self._carry_out(session.step(now))
        if is_time or session.state != self._reported_state:
            self._send_report(now)
        if read or session.busy:
            self.due_at = now
            return
        latest = now + round(self._longest_s() * 1e6)
        self.due_at = latest if session.wake_at is None else min(session.wake_at, latest)

    def _longest_s(self) -> float:
        """How long it may wait, whatever it waits for.

        Input, tasks that end and ``wake_at`` wake it. What does not: a record that is delivered,
        the clock of the deployment when it is published, and, while the lines are apart, what the
        other replicas and the roots say in heartbeats.
        """
        session = self.session
        if session.wanted():
            return PARKED_S_MAX
        is_forked = session.state != LineState.STABLE.value
        if self._undelivered or session.wake_at is None or is_forked:
            return UNSETTLED_S_MAX
        return IDLE_S_MAX

    def _send_report(self, now: int) -> None:
        self._reported_at, self._reported_state = now, self.session.state
        report = self.session.report()
        self._heartbeats.update(
            inc=self.session.inc,
            ready=report.ready,
            states=report.states,
            holes=report.holes,
            detail=report.detail,
        )

    # Effects.

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(log, record):
                    self._undelivered += 1
                    report = partial(self._report, log)
                    self._writer.append(*log, encode_ordered(record), None, report)
                case WriteState(query, state):
                    write_orderer_state(self._writer, self._transport.names, query, state)
                case FetchEnds(logs):
                    self._begin(self._fetch_ends(logs))
                case FetchPositions(logs):
                    self._begin(self._fetch_positions(logs))
                case Perform(procedure):
                    self._begin(self._perform(procedure))
                case Commit():
                    self._begin(self._commit(effect))
                case LogLine(text, is_warning):
                    _log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
                case Refute(inc):
                    self._listener.refute(self.session.fragment, inc)
                case Skipped(log, offset, reason, found):
                    SKIPPED.note(*log, offset, reason, found)
                case Fail(reason):
                    raise SessionEndedError(reason)

    def _report(self, log: Log, offset: int) -> None:
        """In the writer's thread. No reason for a turn: what waits for it is in no hurry."""
        self._delivered.append((log, offset))

    def _cannot_write(self, why: str) -> None:
        """In the writer's thread."""
        self._failed = self._failed or SessionEndedError(why)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._make_due)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed = self._failed or error
        self._make_due()

    async def _perform(self, procedure: Procedure[T]) -> T:
        def writer() -> Writer:
            return self._writer

        return await perform(procedure, self._transport, writer, self._committer)

    async def _commit(self, commit: Commit) -> None:
        assert self._committer is not None, "only a root has transactions"
        try:
            await self._committer.commit(commit, self._clock.now_us())
        except SlackwaterError as error:
            self.session.commit_failed(str(error))
        else:
            self.session.committed(self._clock.now_us())

    async def _fetch_ends(self, logs: Sequence[Log]) -> None:
        asked_at = self._clock.now_us()
        ends = await self._ends.end_offsets_async(
            logs, isolation=self.session.isolation, timeout_s=self._end_timeout_s
        )
        self.session.ends({log: None if ends is None else ends[log] for log in logs}, asked_at)

    async def _fetch_positions(self, logs: Sequence[Log]) -> None:
        found = {} if self._positions is None else await self._positions(self)
        self.session.positions({log: at for log, at in found.items() if log in logs})


LOOK_AT_WAIT_US: Final = 50_000
"""A turn that took less is short, whatever it waited for. To ask costs more than the file: the call
gives the interpreter's lock away, and another thread keeps it for milliseconds."""


class Driver:
    """The loop over some sessions.

    Args:
        turns: what it waits by.
        clock: tells the time.
        on_failure: told of a session that has ended, and why; it takes no turn any more. Without
            it the loop ends with the error.
        choose: whose turn it is, of several that are due.
        on_turn: told of each turn how long it took (us), without what it waited for a core.
    """

    def __init__(
        self,
        turns: WakeSignal,
        clock: SystemClock | None = None,
        on_failure: Callable[[Driven, BaseException], None] | None = None,
        on_turn: Callable[[Driven, int], None] | None = None,
        *,
        choose: Callable[[Sequence[Driven]], Driven] = random.choice,
    ) -> None:
        self._turns = turns
        self._clock = clock or SystemClock()
        self._on_failure = on_failure
        self._on_turn = on_turn
        self._driven: list[Driven] = []
        self._choose = choose
        self._was_root = False
        self._waited_to_us = 0
        self._taken = 0
        self.turn: tuple[int, Driven] | None = None
        """The number of the turn that is being taken, and whose it is."""

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
        wait = ThreadWait()
        while True:
            now = self._clock.now_us()
            driven = self._next(now)
            if driven is not None:
                self._measured_turn(driven, wait)
                await asyncio.sleep(0)  # what has come meanwhile
                continue
            idle = now + round(IDLE_S_MAX * 1e6)
            self._waited_us(wait)
            await self._turns.wait(now, min((each.turn_at for each in self._driven), default=idle))

    def _next(self, now: int) -> Driven | None:
        """Any of those that are due; roots and orderers by turns.

        All fragments are due at the same moments, when a bucket ends. By chance, for in a fixed
        order one query would always be answered last; and replicas, which are at it in two hosts,
        would make the same buckets at the same time, where the roots need one of each. An answer
        does not wait for all buckets that are still to be made, and a root with much to read does
        not keep the orderers from the present.
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
        began_us = self._clock.monotonic_us()
        self._taken += 1
        self.turn = self._taken, driven
        self._turn(driven)
        self.turn = None
        lasted_us = self._clock.monotonic_us() - began_us
        if lasted_us >= LOOK_AT_WAIT_US:
            lasted_us -= min(self._waited_us(wait), lasted_us)
        self._on_turn(driven, lasted_us)

    def _waited_us(self, wait: ThreadWait) -> int:
        """For a core, since this was asked last; at most so much of a turn was that."""
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
