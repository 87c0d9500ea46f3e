"""What every kind of proxy does beside reading its input: the loop of the process.

An *input* (a replayed file, an existing topic, sensors) is opened, its source logs are taken over
(rule 6), the process says that it is ready, the event clock is awaited, and then ``step`` is called
whenever the input asked to be woken. Between two steps the loop looks for what ends the process:
a stop, a failed write (rule 7), a successor (rule 6), a hole that a reader sees (rule 11).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.errors import SlackwaterError
from slackwater.primitives.eventclock import AnchoredClock, DataClock, EventClock, WallClock
from slackwater.primitives.windows import Grid
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.spool import Spool
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.heartbeats import HeartbeatListener, HeartbeatSender
from slackwater.runtime.registry import Registry
from slackwater.runtime.transport import LogError, Transport, Writer

_log = logging.getLogger(__name__)
wake_s_max: Final = 0.2
queries_every_s: Final = 2.0
hint_every_us: Final = 5_000_000
grid_wall_us: Final = 100_000
"""Cut points before any query is registered: every 100 ms of wall time, as with queries."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Wall time relative to the anchor in which nothing is appended (a fault of a rehearsal)."""

    at_us: int
    for_us: int

    def ends_us(self, anchor_us: int, now_us: int) -> int | None:
        """When it ends, if it holds now."""
        start = anchor_us + self.at_us
        return start + self.for_us if start <= now_us < start + self.for_us else None


@dataclass(slots=True)
class Context:
    """What an input works with."""

    spec: StreamSpec
    deployment: Deployment
    transport: Transport
    bootstrap: str
    writer: Writer
    quarantine: Quarantine
    spool: Spool
    clock: SystemClock
    stop: threading.Event
    silences: tuple[Silence, ...] = ()
    event_clock: EventClock | None = None
    default_grid: Grid = field(default_factory=lambda: Grid(grid_wall_us, None))

    def start_clock(self, event_clock: EventClock) -> None:
        """The deployment's clock is known."""
        self.event_clock = event_clock
        if isinstance(event_clock, AnchoredClock):
            self.default_grid = Grid(max(1, int(grid_wall_us * event_clock.speed)), None)

    def event_us(self, now_us: int) -> int | None:
        """What the event clock shows; None for ``clock: data``, where nothing is paced."""
        assert self.event_clock is not None
        if isinstance(self.event_clock, DataClock):
            return None
        return self.event_clock.event(now_us)

    def future_from_us(self, now_us: int) -> int | None:
        """From what a reading a day ahead is judged; a rehearsal has no such rule."""
        return now_us if isinstance(self.event_clock, WallClock) else None

    def wall_us(self, event_us: int) -> int:
        """When the event clock will show a time; only where there is one that is paced."""
        assert self.event_clock is not None
        wall = self.event_clock.wall(event_us)
        assert wall is not None
        return wall

    def silent_until_us(self, now_us: int) -> int | None:
        """When the silence that holds now ends; None if none does."""
        if not isinstance(self.event_clock, AnchoredClock):
            return None
        anchor = self.event_clock.anchor_wall_us
        ends = [end for s in self.silences if (end := s.ends_us(anchor, now_us)) is not None]
        return max(ends, default=None)


class Input(Protocol):
    """Where readings come from."""

    @property
    def logs(self) -> Sequence[SourceLog]:
        """The source logs it writes; the first one's incarnation is the proxy's."""
        ...

    def begin(self) -> None:
        """Take the source logs over."""
        ...

    def step(self, now_us: int) -> int:
        """Do what is due; says when to be called again at the latest (wall time)."""
        ...

    def detail(self) -> dict[str, int]:
        """Its counters."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class Superseded(Exception):
    """Somebody else writes this stream now."""


def turn(context: Context, source: Input, now_us: int) -> int:
    """One step, unless a silence holds; says when the next one is due."""
    silent_until = context.silent_until_us(now_us)
    return source.step(now_us) if silent_until is None else silent_until


class Shell:
    """Runs one input until it is told to stop."""

    def __init__(
        self,
        context: Context,
        source: Input,
        sender: HeartbeatSender,
        listener: HeartbeatListener,
        failures: list[str],
    ) -> None:
        self._context = context
        self._input = source
        self._sender = sender
        self._listener = listener
        self._failures = failures
        self._process = f"proxy/{context.spec.name}"
        self._registry = Registry(context.transport)
        self._found: dict[str, tuple[Grid, int]] = {}
        self._known = 0
        self._hint_at_us = 0

    def run(self) -> None:
        """Until stopped or superseded; everything else is an error."""
        try:
            self._run()
        except Superseded:
            _log.warning("another process writes stream %s now: stopping", self._context.spec.name)

    def _run(self) -> None:
        context = self._context
        watch = threading.Thread(target=self._watch, name="registry", daemon=True)
        watch.start()
        # A restart during a silence of a rehearsal must keep it: START is a record, too.
        self._await_clock_if_silenced()
        if context.stop.is_set():
            return
        self._input.begin()
        inc = self._input.logs[0].inc
        states = {log.topic: "STABLE" for log in self._input.logs}
        self._sender.update(inc=inc, ready=True, states=states, detail=self._input.detail())
        _log.info("ready; incarnation %d, next id %d", inc, self._input.logs[0].core.next_id)
        while context.event_clock is None:
            if context.stop.wait(0.01):
                return
            self._check(inc)
        self._loop(inc)

    def _loop(self, inc: int) -> None:
        context = self._context
        while not context.stop.is_set():
            self._check(inc)
            now_us = context.clock.now_us()
            wake_us = turn(context, self._input, now_us)
            self._sender.update(detail=self._input.detail())
            self._keep_hints(now_us)
            context.stop.wait(min(wake_s_max, context.clock.seconds_until(wake_us)))
        self._keep_hints(context.clock.now_us(), now=True)

    def _check(self, inc: int) -> None:
        if self._failures:
            raise SlackwaterError(f"the source log cannot be written: {self._failures[0]}")
        if self._listener.superseded(self._process, inc):
            raise Superseded
        for log in self._input.logs:
            if log.is_superseded():
                raise Superseded
            if self._listener.hole_in(log.topic, 0, log.inc):
                raise SlackwaterError(f"a reader sees a hole in {log.topic}: sending again")
        if len(self._found) != self._known:
            found = dict(self._found)
            self._known = len(found)
            grids = [grid for grid, _ in found.values()]
            for log in self._input.logs:
                log.core.read_by(grids, min(start for _, start in found.values()))

    def _keep_hints(self, now_us: int, *, now: bool = False) -> None:
        if not now and now_us < self._hint_at_us:
            return
        self._hint_at_us = now_us + hint_every_us
        hints = {log.name: log.hint for log in self._input.logs if log.hint is not None}
        self._context.spool.keep_hints(hints)

    # The registry, in a thread: it waits for the broker, and the loop must not.

    def _watch(self) -> None:
        context = self._context
        try:
            context.start_clock(self._registry.wait_for_clock())
        except (SlackwaterError, ValueError) as error:
            self._failures.append(str(error))
            return
        name = context.spec.name
        wanted = {q for q, spec in context.deployment.queries.items() if name in spec.sources}
        while not wanted <= set(self._found):
            try:
                queries = self._registry.queries()
            except LogError:
                queries = {}
            self._found |= {
                query.name: (query.grid, query.e0_us)
                for query in queries.values()
                if name in query.spec.sources
            }
            if context.stop.wait(queries_every_s):
                return

    def _await_clock_if_silenced(self) -> None:
        context = self._context
        if not context.silences:
            return
        known = self._registry.clock()
        if known is None:
            return
        context.start_clock(known)
        while (end := context.silent_until_us(context.clock.now_us())) is not None:
            if context.stop.wait(min(wake_s_max, context.clock.seconds_until(end))):
                return
