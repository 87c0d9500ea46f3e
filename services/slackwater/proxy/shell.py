"""The loop that serves one stream, common to all kinds of input.

An *input* (a replayed file, an existing topic, sensors) is opened and takes over its source logs
(rule-6); the heartbeat reports the stream as ready; the loop waits for the event clock and then
calls ``step`` at the times that the input requested. Between steps the loop checks for its end: a
stop, a failed write (rule-7), a newer writer (rule-6), a hole detected by a reader (rule-11).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Unpack

from slackwater.codec.state_records import encode_registry
from slackwater.formats.dead_letters import DeadLetters
from slackwater.model.deployment import BUCKET_OF_WINDOWS_US, Deployment, StreamSpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.names import ProxyName
from slackwater.primitives.eventclock import AnchoredClock, DataClock, EventClock, WallClock
from slackwater.primitives.lateness import LEARNING, Learning, Step
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.protocols.dpc.source.core import Refused, SourceCore
from slackwater.proxy.expecting import AHEAD_US, Expecting
from slackwater.proxy.histories import end_of_history
from slackwater.proxy.observed import Observed
from slackwater.proxy.quarantine import NOT_FINITE, Quarantine
from slackwater.proxy.requests import RequestQueue
from slackwater.proxy.skipped import SkippedNumbers
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.spool import Spool
from slackwater.proxy.topicmemory import TopicMemory
from slackwater.runtime.logs.cluster import Where
from slackwater.runtime.logs.described import Topics
from slackwater.runtime.logs.transport import LogError, Transport, Writer
from slackwater.runtime.service.beat import HeartbeatChanges
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.parts import COMPLETE_TO, LAST_READING
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.registry_entries import Learned, expectation_record

_log = logging.getLogger(__name__)
WAKE_S_MAX: Final = 0.5
CLOCK_LOOK_S: Final = 0.01
HINT_EVERY_US: Final = 5_000_000
GRID_WALL_US: Final = BUCKET_OF_WINDOWS_US
"""Interval of cut points before any query is registered: that of a query with windows."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Wall time relative to the anchor without appends (an injected fault of a rehearsal)."""

    at_us: int
    for_us: int

    def ends_us(self, anchor_us: int, now_us: int) -> int | None:
        """Return when the silence ends if it is in effect, else None."""
        start = anchor_us + self.at_us
        return start + self.for_us if start <= now_us < start + self.for_us else None


class Stop(Protocol):
    """Ends a loop, and its wait; a ``threading.Event`` conforms."""

    def is_set(self) -> bool:
        """Whether the loop must end."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the time-out or the end of the loop; return ``is_set``."""
        ...


@dataclass(slots=True, eq=False)
class InputContext:
    """Context of an input."""

    spec: StreamSpec
    name: ProxyName
    deployment: Deployment
    transport: Transport
    cluster: Where
    writer: Writer
    quarantine: Quarantine
    spool: Spool
    clock: SystemClock
    stop: Stop
    silences: tuple[Silence, ...] = ()
    dead_letters: DeadLetters | None = None
    requests: RequestQueue | None = None
    """The request queue of a stream with ``http``."""
    http_at: str = ""
    """The address at which other machines post to it; empty: unknown."""
    topics: Topics | None = None
    """Describes the topic of a stream with ``topic``."""
    topic_memory: TopicMemory = field(default_factory=TopicMemory)
    """What is remembered of the topic while the process runs."""
    use_topics: Callable[[Iterable[str]], None] = lambda _: None
    """Checks topics of the stream's logs, and watches them (rule-32)."""
    lost: SlackwaterError | None = None
    """The loss of one of these topics; ends the loop."""
    watermark_elsewhere: Callable[[], int | None] = lambda: None
    """Returns the smallest watermark that the stream's other proxies report; None if none does."""
    event_clock: EventClock | None = None
    failures: list[str] = field(default_factory=list)
    """Errors of the writer or the registry that end the loop."""
    not_finite: int = 0
    """Number of values since the start that were NaN or Infinity in JSON, and are missing."""
    found: dict[str, tuple[Grid, int]] = field(default_factory=dict)
    """The registered queries that read the stream."""
    readers: dict[str, tuple[Sequence[str], Grid]] = field(default_factory=dict)
    """All registered queries: what they read, and their grids."""
    expecting: Expecting = field(init=False)
    observed: Observed = field(init=False)
    skipped: SkippedNumbers = field(init=False)
    default_grid: Grid = field(default_factory=lambda: Grid(GRID_WALL_US, None))

    def __post_init__(self) -> None:
        self.expecting = Expecting(self.spec.name, self._record)
        self.observed = Observed(self.spec)
        self.skipped = SkippedNumbers(self.spec.name)

    def _record(self, step: Step) -> None:
        entry = expectation_record(self.spec.name, step)
        registry = self.transport.names.registry
        self.writer.append(registry, 0, encode_registry(entry), entry.name.encode())

    @property
    def learning(self) -> Learning | None:
        """How the stream's ``expect_every`` is learned; None where it is declared."""
        return LEARNING if self.spec.learns_gaps else None

    def counts(self) -> dict[str, int]:
        """Return counters for the heartbeat: of quarantined readings, values, and devices."""
        counts = {NOT_FINITE: self.not_finite, **self.quarantine.all_counts()}
        return counts | self.observed.detail() | self.skipped.detail()

    def offer(
        self, core: SourceCore, arrived: Arrived, now_us: int, message: Callable[[], bytes | str]
    ) -> tuple[Refused, ...]:
        """Offer readings to the core, and note what they show.

        ``message``: returns one of the messages that they come from, or empty text. With a counter
        they are parsed ``with_counter``.
        """
        compared_us = self.compared_us(now_us)
        if self.spec.counter is not None:
            arrived = self.skipped.taken(arrived)
        self.observed.note(arrived, compared_us)
        if self.observed.asks:
            self.observed.tell(message())
        return core.offer(arrived, compared_us)

    def guard(self, where: str) -> tuple[DeadLetters, str] | None:
        """Return the dead letters and the input's name in them."""
        return None if self.dead_letters is None else (self.dead_letters, where)

    def start_clock(self, event_clock: EventClock) -> None:
        """Set the deployment's event clock."""
        self.event_clock = event_clock
        if isinstance(event_clock, AnchoredClock):
            self.default_grid = Grid(max(1, int(GRID_WALL_US * event_clock.speed)), None)

    def registered(self, queries: Mapping[str, QueryDefinition], learned: Learned | None) -> bool:
        """Store the registry's entries; return whether they are all that the stream needs.

        Deleted queries are among them. They give no cut points, and are not waited for.
        """
        name = self.spec.name
        self.readers |= {
            query.name: (query.spec.sources, query.grid)
            for query in queries.values()
            if query.state != "deleted"
        }
        self.found |= {
            query.name: (query.grid, query.e0_us)
            for query in queries.values()
            if name in query.spec.sources and query.state != "deleted"
        }
        if learned is not None and not self.expecting.is_restored:
            self.expecting.restore(learned.get(name, ()))
        restored = self.learning is None or self.expecting.is_restored
        wanted = {q for q, spec in self.deployment.queries.items() if name in spec.sources}
        return restored and wanted <= queries.keys()

    def end_of_history(self, largest: int) -> int | None:
        """Return the watermark after a history's last reading, at ``largest`` (us)."""
        return end_of_history(self.spec.name, largest, dict(self.readers))

    def event_us(self, now_us: int) -> int | None:
        """Return the event clock's time; None for ``clock: data``, which is unpaced."""
        assert self.event_clock is not None
        if isinstance(self.event_clock, DataClock):
            return None
        return self.event_clock.event(now_us)

    def compared_us(self, now_us: int) -> int | None:
        """Return the clock that readings are compared with; None in a rehearsal.

        There the clock follows the file, so nothing in it is ahead.
        """
        return now_us if isinstance(self.event_clock, WallClock) else None

    def wall_us(self, event_us: int) -> int:
        """Return when the event clock reaches a time; requires a paced clock."""
        assert self.event_clock is not None
        wall = self.event_clock.wall(event_us)
        assert wall is not None
        return wall

    def ahead_us(self, now_us: int, cores: Iterable[SourceCore]) -> int:
        """Return an event time not yet reached, from which a step recorded now may take effect."""
        event_us = self.event_us(now_us + AHEAD_US)
        return max(core.largest for core in cores) + AHEAD_US if event_us is None else event_us

    def silent_until_us(self, now_us: int) -> int | None:
        """Return when the current silence ends; None if there is none."""
        if not isinstance(self.event_clock, AnchoredClock):
            return None
        anchor = self.event_clock.anchor_wall_us
        ends = [end for s in self.silences if (end := s.ends_us(anchor, now_us)) is not None]
        return max(ends, default=None)


class Input(Protocol):
    """A source of readings."""

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The source logs written; the incarnation of the first is the proxy's."""
        ...

    def begin(self) -> None:
        """Take over the source logs."""
        ...

    def step(self, now_us: int) -> int:
        """Do what is due; return the latest wall time for the next call."""
        ...

    def detail(self) -> dict[str, int]:
        """Return the input's counters."""
        ...

    def leave(self) -> None:
        """Store progress so that the next start is faster. Not called after a failure."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class HeartbeatTarget(Protocol):
    """The heartbeat of one stream; see ``runtime.service.heartbeats``."""

    def update(self, **changes: Unpack[HeartbeatChanges]) -> None:
        """Set the given values; all others are unchanged."""
        ...

    def begin_again(self, lasting: Mapping[str, int] | None = None) -> None:
        """Reset the heartbeat for a restarted stream; ``lasting`` stays in its details."""
        ...

    def stop(self) -> None:
        """Stop the heartbeat."""
        ...


class SupersededWriter(Exception):
    """Raised when another writer has taken over the stream."""


def turn(context: InputContext, source: Input, now_us: int) -> int:
    """Run one step unless a silence is in effect; return when the next one is due."""
    silent_until = context.silent_until_us(now_us)
    if silent_until is not None:
        return silent_until
    wake_us = source.step(now_us)
    if context.learning is not None:
        cores = [log.core for log in source.logs]
        context.expecting.step(cores, now_us, context.ahead_us(now_us, cores))
    return wake_us


def _detail(source: Input) -> dict[str, int]:
    """Return the input's counters, and how far its source logs are in event time."""
    cores = [log.core for log in source.logs]
    begun = [core for core in cores if core.next_id] or cores
    extent = {
        LAST_READING: max((core.largest for core in begun), default=NEVER),
        COMPLETE_TO: min((core.watermark for core in begun), default=NEVER),
    }
    return {name: at for name, at in extent.items() if at != NEVER} | source.detail()


class Shell:
    """Runs one input until stopped."""

    def __init__(
        self,
        context: InputContext,
        source: Input,
        sender: HeartbeatTarget,
        listener: HeartbeatListener,
        registry: Registry,
    ) -> None:
        self._context = context
        self._input = source
        self._sender = sender
        self._listener = listener
        self._registry = registry
        self._process = context.name.process
        self._known = 0
        self._hint_at_us = 0

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Run until stopped; any other end is an error, ``SupersededWriter`` included."""
        context = self._context
        # A restart must keep a rehearsal's silence, and START is a record as well.
        self._await_clock_if_silenced()
        if context.stop.is_set():
            return
        self._input.begin()
        inc = self._input.logs[0].inc
        states = {log.topic: "STABLE" for log in self._input.logs}
        self._sender.update(inc=inc, ready=True, states=states, detail=_detail(self._input))
        on_ready()
        _log.info("ready; incarnation %d, next id %d", inc, self._input.logs[0].core.next_id)
        while context.event_clock is None:
            if context.stop.wait(CLOCK_LOOK_S):
                return
            self._check(inc)
        self._loop(inc)

    def _loop(self, inc: int) -> None:
        context = self._context
        while not context.stop.is_set():
            self._check(inc)
            now_us = context.clock.now_us()
            wake_us = turn(context, self._input, now_us)
            self._sender.update(detail=_detail(self._input))
            self._keep_hints(now_us)
            context.stop.wait(min(WAKE_S_MAX, context.clock.seconds_until(wake_us)))
        self._keep_hints(context.clock.now_us(), now=True)

    def _check(self, inc: int) -> None:
        context = self._context
        if context.lost is not None:
            raise context.lost
        if context.failures:
            raise SlackwaterError(f"the source log cannot be written: {context.failures[0]}")
        self._look_at_claim(inc)
        for log in self._input.logs:
            if log.is_superseded():
                raise SupersededWriter
            if self._listener.hole_in(log.topic, 0, log.inc):
                raise SlackwaterError(f"a reader has reported a hole in {log.topic}: sending again")
        if len(context.found) != self._known:
            found = dict(context.found)
            self._known = len(found)
            grids = [grid for grid, _ in found.values()]
            for log in self._input.logs:
                log.core.read_by(grids, min(start for _, start in found.values()))

    def _look_at_claim(self, inc: int) -> None:
        """Check the log when a heartbeat names a greater incarnation."""
        claimed = self._listener.claimed(self._process, inc)
        if claimed is None:
            return
        try:
            begun = self._input.logs[0].has_begun(claimed)
        except LogError:
            return  # Kafka is unavailable: check again later
        if begun:
            raise SupersededWriter
        self._listener.refute(self._process, claimed)

    def _keep_hints(self, now_us: int, *, now: bool = False) -> None:
        if not now and now_us < self._hint_at_us:
            return
        self._hint_at_us = now_us + HINT_EVERY_US
        hints = {log.name: log.hint for log in self._input.logs if log.hint is not None}
        self._context.spool.keep_hints(hints)

    def _await_clock_if_silenced(self) -> None:
        context = self._context
        if not context.silences:
            return
        known = self._registry.clock()
        if known is None:
            return
        context.start_clock(known)
        while (end := context.silent_until_us(context.clock.now_us())) is not None:
            if context.stop.wait(min(WAKE_S_MAX, context.clock.seconds_until(end))):
                return
