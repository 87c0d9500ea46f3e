"""One session and its connection to Kafka: passes the input, steps the session, executes effects.

``slackwater.sessions.session`` specifies which input a session takes, and in which order. The live
consumer is shared (``host.sharedlogs``): it reads and decodes for all sessions, and calls
``take`` in the event loop. Parked cursors are fed by catch-up readers (``host.parked``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar, Unpack

from slackwater.codec.ordered_records import encode_ordered
from slackwater.codec.pane_records import encode_merged
from slackwater.host.decoding import Decode, decode, watermark_of
from slackwater.host.parked import CATCH_UP_PREFETCH_KIB, ParkedReaders
from slackwater.host.procedures import Committer, perform
from slackwater.host.sharedends import SharedEnds
from slackwater.host.wake_signal import IDLE_S_MAX, PARKED_S_MAX, UNSETTLED_S_MAX
from slackwater.model.errors import SlackwaterError
from slackwater.model.heads import text_of
from slackwater.model.merged import MergedRecord
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.protocols.flux.pair import FOLLOWS
from slackwater.runtime.logs.recent import RecentRecords
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import Isolation, Log, Transport, Writer
from slackwater.runtime.service.beat import HeartbeatChanges
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.panes import encode_stored
from slackwater.runtime.service.state import write_state
from slackwater.sessions.effects import (
    Append,
    CommitRecords,
    Effect,
    Fail,
    FetchEnds,
    FetchPositions,
    LogLine,
    Perform,
    Rebuild,
    Refute,
    Skipped,
    StorePane,
    WriteState,
)
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    EndsFetched,
    HeartbeatReceived,
    HeartbeatReturned,
    HoleReported,
    IncarnationClaimed,
    PassedBy,
    PositionsFetched,
    Received,
    Record,
    RecordDelivered,
    ResignRequested,
)
from slackwater.sessions.requests import Procedure
from slackwater.sessions.session import Form, Session

T = TypeVar("T")

HEARTBEAT_PERIOD_US: Final = 20_000
SLOW_HEARTBEAT_PERIOD_US: Final = 100_000
"""Of fragments whose silence is no failure of an answer: mergers, deliveries, uplinks."""

_log = logging.getLogger(__name__)


class SessionEndedError(SlackwaterError):
    """Raised when a session has ended itself and must be restarted."""


class SessionOutdatedError(SlackwaterError):
    """Raised when a session is to be built again at once, since what it reads has changed."""


class HeartbeatPublisher(Protocol):
    """Publishes a session's state in heartbeats."""

    def update(self, **changes: Unpack[HeartbeatChanges]) -> None:
        """Set these fields of the following heartbeats; an omitted field keeps its value."""
        ...


def _encoded(effect: Append | StorePane, *, packed: bool) -> tuple[bytes | None, bytes | None]:
    """Return the value and the key of a record; ``packed``: it passes over a link."""
    if isinstance(effect, Append):
        record = effect.record
        if isinstance(record, MergedRecord):
            return encode_merged(record, packed=packed), None
        return encode_ordered(record), None
    return encode_stored(effect.record), text_of(effect.key).encode()


Positions = Callable[["Driven"], Awaitable[Mapping[Log, int]]]
"""Returns the live consumer's position in each log whose records have all reached the session."""


class Driven:
    """One session and its connection to Kafka. For the event loop's thread.

    Args:
        session: a session that has not been started.
        transport: access to the logs.
        heartbeats: publishes the session's heartbeats; already started.
        listener: receives the heartbeats of other fragments.
        end_timeout_us: time-out of a request for end offsets; half a margin (trace-11).
        wake: begins the next turn of the loop.
        write: makes the session's writer at the first write; the argument is a function that is
            called with the reason when a record cannot be written.
        observe: called with (event time, now), both in us, if the event clock follows the data
            (trace-12).
        ends: answers the session's requests for end offsets; the transport by default.
        positions: answers the session's requests for the live consumer's positions.
        committer: commits transactions, of a root or a delivery. ``centre``: asked ``AtCentre``.
        heartbeat_period_us: interval at which the session's report is published.
        prefetch_kib_max: limit for each of the session's catch-up readers.
        clock: the current time.
        decode: decodes what the catch-up readers read; may be shared by the host's sessions.
        recent: records that the live consumer read last, for the catch-up readers.
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
        centre: Transport | None = None,
    ) -> None:
        self.session = session
        self._transport = transport
        self._heartbeats = heartbeats
        self._listener = listener
        self._end_timeout_s = end_timeout_us / 1e6
        self._wake = wake
        self._observe = observe
        self._ends: SharedEnds | Transport = ends or transport
        self._positions = positions
        self._committer = committer
        self._of_procedures = committer, self._read_to, centre
        self._encoded = partial(_encoded, packed=centre is not None)
        self._heartbeat_period_us = heartbeat_period_us
        self._clock = clock or SystemClock()
        self._write = write or transport.writer
        self._written: Writer | None = None
        self._writing = threading.Lock()
        """Guards ``_written``: procedures write from other threads."""
        self.reads_heartbeats_at_once = committer is not None and bool(session.listens_to)
        """Whether heartbeats are read at every turn. A root's answers depend on the states that
        replicas report (trace-34)."""
        self._forms = dict(session.inputs)
        self._parked = ParkedReaders(
            session, transport, prefetch_kib_max, recent=recent, decode=decode, follow=self._follow
        )
        self._delivered: deque[tuple[Log, int]] = deque()
        """Filled by the writer's thread, emptied at each turn."""
        self._undelivered = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reported_at, self._reported_state = 0, ""
        self._failed: BaseException | None = None
        # An event loop holds weak references to its tasks: an unreferenced task may be collected.
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = self._is_held = False
        self.due_at = 0
        """Time of the next turn, us."""
        self.not_before = 0
        """Earliest time of the next turn, us, also if the session has input."""

    @property
    def is_root(self) -> bool:
        """Whether the session is a root."""
        return self.reads_heartbeats_at_once

    @property
    def turn_at(self) -> int:
        """Time of the next turn, us."""
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

    async def start(self) -> None:
        """Run the session's start procedure and carry out its first effects."""
        self._loop = asyncio.get_running_loop()
        first = await self._perform(self.session.start())
        self._carry_out(first)
        # Until the live consumer reads for the session, its output is not current.
        states = dict.fromkeys(self.session.report().states, LineState.UP_FAILURE.value)
        self._heartbeats.update(inc=self.session.inc, states=states)

    # End and suspension.

    def fail(self, error: BaseException) -> None:
        """End the session with this error at its next turn; the first error counts."""
        self._failed = self._failed or error
        self._make_due()

    def drop(self) -> None:
        """Stop the session as if its process had been killed: no turn, no record, no heartbeat.

        Records already passed to the producer may still be written. They precede all records that
        the session's successor writes through the same producer.
        """
        with self._writing:
            self._is_over = True
        for task in list(self._tasks):
            task.cancel()
        if self._written is not None:
            self._written.close(0.0)
        self._parked.close()

    def resign(self) -> bool:
        """Let the session hand its output over; return whether it then ends by itself."""
        is_able = not self._is_held and self._failed is None
        self._make_due()
        return is_able and self.session.take(ResignRequested(self._clock.now_us())) is not None

    def hold(self) -> None:
        """Suspend the session as a paused process: no turn, no record."""
        self._is_held = True

    def release(self) -> None:
        """Resume the session; afterwards the caller attaches it to live logs again (rule-12)."""
        self._is_held = False
        self._make_due()

    # Input.

    def needs(self, log: Log, offset: int) -> bool:
        """Return whether ``take`` would use the live consumer's record; else pass it by."""
        if self._is_held or self._failed is not None:
            return False
        try:
            if self.session.needs(log, offset):
                return True
            self.session.take(PassedBy(log, offset))
        except Exception as error:  # noqa: BLE001 -- of this session; others read the log too
            self.fail(error)
        return False

    def take(self, log: Log, offset: int, record: Record) -> None:
        """Pass a record of the live consumer for which ``needs`` returned True; never raises."""
        try:
            self._follow(record)
            may_wait_us = self.session.take(Received(log, offset, record))
        except Exception as error:  # noqa: BLE001 -- of this session; others read the log too
            self.fail(error)
        else:
            if may_wait_us == 0:
                self._make_due()
            elif may_wait_us is not None:
                self._make_due_by(self._clock.now_us() + may_wait_us)

    def _follow(self, record: Record) -> None:
        """Advance the event clock by the record's watermark, if the clock follows the data."""
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
        """Make the session due, from any thread; the caller wakes the loop."""
        self.due_at = 0

    def _read_heartbeats(self, now: int) -> None:
        session, listener = self.session, self._listener
        if self.is_root and (sent_at := listener.returned(session.fragment)) is not None:
            # Before the others' are read, which may be later (trace-11).
            session.take(HeartbeatReturned(sent_at))
        for name in session.listens_to:
            latest = listener.last_heartbeat(name, now)
            if latest is not None:
                session.take(HeartbeatReceived(*latest))
        if (claimed := listener.claimed(session.fragment, session.inc)) is not None:
            session.take(IncarnationClaimed(claimed))
        hole = session.hole
        if hole is not None and listener.hole_in(hole.topic, hole.partition, hole.inc):
            session.take(HoleReported())

    # Turns.

    def turn(self) -> None:
        """Take one turn; raises the error that ends the session."""
        if self._failed is not None:
            raise self._failed
        if self._is_held:
            self.due_at = self._clock.now_us() + round(IDLE_S_MAX * 1e6)
            return
        session = self.session
        read = self._parked.read()
        while self._delivered:
            self._undelivered -= 1
            session.take(RecordDelivered(*self._delivered.popleft()))
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
        """Return the longest wait before the next turn, in seconds.

        Input, ended tasks and ``wake_at`` begin a turn. Three events do not, so they are polled: a
        delivered record, the publication of the deployment's clock and, while the lines are
        forked, heartbeats of the other replicas and of the roots.
        """
        session = self.session
        if session.wanted():
            return PARKED_S_MAX
        is_forked = session.state not in (LineState.STABLE.value, FOLLOWS)
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
                case Append(log) | StorePane(log):
                    self._undelivered += 1
                    self._writer.append(*log, *self._encoded(effect), partial(self._report, log))
                case WriteState(query, state, part):
                    write_state(self._writer, self._transport.names, query, state, part)
                case FetchEnds(logs, isolation):
                    self._begin(self._fetch_ends(logs, isolation))
                case FetchPositions(logs):
                    self._begin(self._fetch_positions(logs))
                case Perform(procedure):
                    self._begin(self._perform(procedure))
                case Commit() | CommitRecords():
                    self._begin(self._commit(effect))
                case LogLine(text, is_warning):
                    _log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
                case Refute(inc):
                    self._listener.refute(self.session.fragment, inc)
                case Skipped(log, offset, reason, found):
                    SKIPPED.note(*log, offset, reason, found)
                case Fail(reason):
                    raise SessionEndedError(reason)
                case Rebuild(reason):
                    raise SessionOutdatedError(reason)

    def _report(self, log: Log, offset: int) -> None:
        """Note a delivered record. Called in the writer's thread; begins no turn."""
        self._delivered.append((log, offset))

    def _cannot_write(self, why: str) -> None:
        """Record that a write has failed. Called in the writer's thread."""
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

        return await perform(procedure, self._transport, writer, *self._of_procedures)

    async def _read_to(self) -> Mapping[Log, int]:
        return {} if self._positions is None else await self._positions(self)

    async def _commit(self, commit: Commit | CommitRecords) -> None:
        assert self._committer is not None, "it has no transactions"
        try:
            await self._committer.commit(commit, self._clock.now_us())
        except SlackwaterError as error:
            self.session.take(CommitFailed(str(error)))
        else:
            self.session.take(CommitSucceeded(self._clock.now_us()))

    async def _fetch_ends(self, logs: Sequence[Log], isolation: Isolation) -> None:
        asked_at, timeout_s = self._clock.now_us(), self._end_timeout_s
        ends = await self._ends.end_offsets_async(logs, isolation=isolation, timeout_s=timeout_s)
        found = {log: None if ends is None else ends[log] for log in logs}
        self.session.take(EndsFetched(found, asked_at))

    async def _fetch_positions(self, logs: Sequence[Log]) -> None:
        found = await self._read_to()
        positions = {log: at for log, at in found.items() if log in logs}
        self.session.take(PositionsFetched(positions))
