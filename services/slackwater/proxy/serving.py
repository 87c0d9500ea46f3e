"""Serves one stream of a proxy process, and restarts it alone after a failure.

A process serves many streams, each in its own thread, so that no stream waits for the disk, the
broker or the parsing of another. The threads share the producer, the client that requests end
offsets, the clock, the heartbeat listener and the registry reader. No lock is held while a thread
waits for a disk or a broker.

An error of one stream ends the serving of that stream, not the process. The stream restarts from
its spool and log with a new incarnation, as after a restart of the process, with back-off after
repeated failures. If another process writes the stream's log, the stream *stands by*: it writes
nothing, and is served again when the other process has sent no heartbeat for ``STANDBY_S``. Thus
two processes do not alternate in taking over the stream, and one of them writes it after the end of
the other.

A stream can also be *dropped*, which is how a rehearsal kills one of several: its serving ends
between two steps, and nothing is flushed, acknowledged or stored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.formats.dead_letters import DeadLetters, Faults
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.errors import DeploymentError, EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import ProxyName
from slackwater.proxy.inputs import StreamOptions, make_input, own_topics
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.registered import RegistryWatch
from slackwater.proxy.requests import RequestQueue
from slackwater.proxy.shell import HeartbeatTarget, InputContext, Shell, SupersededWriter
from slackwater.proxy.spool import Spool
from slackwater.proxy.topic.watched import TopicAwayError, TopicChangedError
from slackwater.proxy.topicmemory import TopicMemory
from slackwater.runtime.logs.cluster import Where
from slackwater.runtime.logs.described import Topics
from slackwater.runtime.logs.transport import SharedProducer, Transport, Writer
from slackwater.runtime.service.back_off import BackOff
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import exit_code_of
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.log import named
from slackwater.runtime.service.owntopics import OwnTopics
from slackwater.runtime.service.parts import (
    AWAY_SINCE,
    FAILED_AT,
    FAILED_CODE,
    FAILURES,
    LEARN,
    WATERMARK,
)
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)

IN_FLIGHT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum bytes sent and not acknowledged, over all streams."""
STREAM_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
LEAVE_S_MAX: Final = 0.5
"""Maximum wait for records in flight when a stream is stopped."""
STANDBY_S: Final = 10.0
"""Silence of the other writer before a superseded stream is served again. The longest back-off of a
restart is 8 s, so a restarted writer precedes the standby."""
STANDBY_LOOK_S: Final = 0.5
AWAY_LOOK_S: Final = 1.0
"""How often a topic that does not exist is looked for."""
HOPELESS: Final = (UsageError, DeploymentError, EnvironmentProblem)
"""Errors that a restart cannot resolve without a change to a file or topic."""


class DroppedStream(Exception):
    """Raised to end a stream's serving as if its process had been killed."""


class StreamControl:
    """Controls the loop of one stream: stop, hold, drop. The loop waits on it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stopped = self._held = self._dropped = self._woken = False

    def is_set(self) -> bool:
        """Whether the loop must end."""
        return self._stopped

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the time-out, a wake-up or the end; ``DroppedStream`` if it was dropped."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or self._held or self._dropped or self._woken, timeout
            )
            self._woken = False
            self._changed.wait_for(lambda: self._stopped or not self._held or self._dropped)
            if self._dropped and not self._stopped:
                self._dropped = self._held = False
                raise DroppedStream
            return self._stopped

    def wake(self) -> None:
        """End the wait: there is something to do."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End the loop in order."""
        self._set(stopped=True)

    def drop(self) -> None:
        """End the loop as if killed, also when held."""
        self._set(dropped=True)

    def hold(self) -> None:
        """Pause the loop, like a paused process."""
        self._set(held=True)

    def release(self) -> None:
        """Continue a held loop."""
        self._set(held=False)

    def _set(
        self, *, stopped: bool = False, dropped: bool = False, held: bool | None = None
    ) -> None:
        with self._changed:
            self._stopped |= stopped
            self._dropped |= dropped
            self._held = self._held if held is None else held
            self._changed.notify_all()


@dataclass(frozen=True)
class ProxyShared:
    """State shared by the streams of a process."""

    deployment: Deployment
    cluster: Where
    data_dir: Path
    transport: Transport
    producer: SharedProducer
    in_flight_bytes_max: int
    """Limit per stream."""
    clock: SystemClock
    listener: HeartbeatListener
    registry: Registry
    watch: RegistryWatch
    faults: Faults
    sender: Callable[[str], HeartbeatTarget]
    """Returns the started heartbeat of a part of the process."""
    topics: Topics
    own_topics: OwnTopics
    make_topics: Callable[[Sequence[StreamSpec]], None]
    """Creates the topics that the streams need at the start, if missing."""
    topics_made: bool = True
    http_at: str = ""
    """The address at which other machines post to streams with ``http``; empty: unknown."""


class Serving:
    """One stream, served in its own thread."""

    def __init__(
        self,
        shared: ProxyShared,
        spec: StreamSpec,
        name: ProxyName,
        options: StreamOptions,
        on_change: Callable[[], None],
    ) -> None:
        self.name = name.process
        self.stream = spec.name
        self.control = StreamControl()
        self.requests = RequestQueue(self.control.wake)
        """The queue of a stream with ``http``."""
        self.error: SlackwaterError | None = None
        """The error because of which the stream was never ready; it is retried nevertheless."""
        self._has_ended = False
        self._shared, self._spec, self._options = shared, spec, options
        self._proxy = name
        self._on_change = on_change
        self._failures = 0
        self._ever_ready = False
        self._input_context: InputContext | None = None
        self._topic_memory = TopicMemory()
        self._log_topics: frozenset[str] = frozenset()
        self._away_since_us: int | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether the stream is not served and is not expected to be."""
        return self._has_ended or self.error is not None

    @property
    def verbs(self) -> Mapping[str, Callable[[], None]]:
        """Commands that act on the stream as signals act on a process."""
        return {
            "kill": self.control.drop,
            "pause": self.control.hold,
            "resume": self.control.release,
            LEARN: self._learn,
        }

    def _learn(self) -> None:
        """Read the registry again, for the cut points of queries that were added."""
        if self._input_context is not None:
            self._shared.watch.notify(self._input_context)

    def lost(self, error: SlackwaterError) -> None:
        """End the serving, since a topic of the stream's logs has been lost; from any thread."""
        if self._input_context is not None:
            self._input_context.lost = error
            self.control.wake()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread to end."""
        self._thread.join()

    def _run(self) -> None:
        with named(self.name):
            sender = self._shared.sender(self.name)
            try:
                self._serve_on(sender)
            finally:
                self._shared.own_topics.leave(self.name)
                sender.stop()
                self._has_ended = True
                self._on_change()

    def _serve_on(self, sender: HeartbeatTarget) -> None:
        back_off = BackOff()
        while not self.control.is_set():
            try:
                self._serve(sender)
                return
            except SupersededWriter:
                _log.warning("another process writes stream %s now: standing by", self.stream)
                if not self._stand_by(sender):
                    return
                continue
            except DroppedStream:
                _log.warning("dropped by a command, as if its process had been killed")
                sender.begin_again()
            except TopicChangedError as change:
                _log.warning("%s: stream %s is served anew", change, self.stream)
                sender.begin_again()
                continue
            except TopicAwayError as away:
                if not self._ever_ready:
                    sender.begin_again(self._failed(away))
                elif self._await_topic(sender, away):
                    continue
                else:
                    return
            except Exception as error:  # noqa: BLE001 -- whatever it is, other streams go on
                sender.begin_again(self._failed(error))
            if not self._rest(back_off.after_death(self._shared.clock.monotonic_us() / 1e6)):
                return

    def _stand_by(self, sender: HeartbeatTarget) -> bool:
        """Wait for the end of the other writer; False if the stream was stopped.

        This stream's heartbeat stops meanwhile: it would be mistaken for the writer's.
        """
        sender.stop()
        clock, silent_s = self._shared.clock, 0.0
        since_us = clock.monotonic_us()
        while silent_s < STANDBY_S:
            try:
                if self.control.wait(STANDBY_LOOK_S):
                    return False
            except DroppedStream:
                break  # like a killed and restarted process, which takes over at once
            age_ms = self._shared.listener.age_ms(self.name)
            silent_s = (clock.monotonic_us() - since_us) / 1e6
            if age_ms is not None:
                silent_s = min(silent_s, age_ms / 1000)
        _log.warning("no other process writes stream %s any more: taking over", self.stream)
        sender.begin_again()
        return True

    def _await_topic(self, sender: HeartbeatTarget, away: TopicAwayError) -> bool:
        """Wait before the topic is looked for again; False if the stream was stopped.

        Meanwhile the stream is silent, which is no failure of the proxy.
        """
        if self._away_since_us is None:
            self._away_since_us = self._shared.clock.now_us()
            _log.warning("%s: stream %s is silent until it is there again", away, self.stream)
        sender.begin_again()
        sender.update(detail={AWAY_SINCE: self._away_since_us})
        try:
            return not self.control.wait(AWAY_LOOK_S)
        except DroppedStream:
            return True

    def _failed(self, error: Exception) -> dict[str, int]:
        """Log the error and return the details for the heartbeat."""
        code = exit_code_of(error)
        self._failures += 1
        if isinstance(error, HOPELESS) and not self._ever_ready:
            self.error = error
            self._on_change()
        return {
            FAILURES: self._failures,
            FAILED_AT: self._shared.clock.now_us(),
            FAILED_CODE: code,
        }

    def _rest(self, wait_s: float) -> bool:
        """Wait before the next attempt; False if the stream was stopped."""
        if wait_s:
            _log.warning("restarting in %g s", wait_s)
        try:
            return not self.control.wait(wait_s)
        except DroppedStream:
            return True

    def _serve(self, sender: HeartbeatTarget) -> None:
        shared = self._shared
        if self._failures or not shared.topics_made:
            shared.make_topics([self._spec])
        self._use_topics(topic.name for topic in own_topics(self._spec, shared.transport.names))
        failures: list[str] = []
        writer = shared.producer.writer(
            failures.append, in_flight_bytes_max=shared.in_flight_bytes_max
        )
        with ExitStack() as held:
            context = self._context(writer, failures, held)
            source = make_input(context, self._options)
            held.callback(source.close)
            shared.watch.notify(context)
            try:
                shell = Shell(context, source, sender, shared.listener, shared.registry)
                shell.run(on_ready=self._ready)
            except DroppedStream:
                raise
            except BaseException:
                writer.close(LEAVE_S_MAX)
                raise
            writer.close(LEAVE_S_MAX)
            source.leave()

    def _use_topics(self, topics: Iterable[str]) -> None:
        """Check topics of the stream, and watch them beside those that are watched already."""
        self._log_topics |= {self._shared.transport.names.registry, *topics}
        self._shared.own_topics.use(self.name, self._log_topics)

    def _ready(self) -> None:
        self._ever_ready, self.error, self._away_since_us = True, None, None

    def _context(self, writer: Writer, failures: list[str], held: ExitStack) -> InputContext:
        shared, spec = self._shared, self._spec
        folder = shared.data_dir / "proxy"
        dead_letters = DeadLetters.open(folder, str(self._proxy), shared.faults)
        held.callback(dead_letters.close)
        spool = Spool.open(folder / f"{self._proxy}.sqlite", self._options.spool_bytes_max)
        held.callback(spool.close)
        self._input_context = InputContext(
            dead_letters=dead_letters,
            spec=spec,
            name=self._proxy,
            deployment=shared.deployment,
            transport=shared.transport,
            cluster=shared.cluster,
            writer=writer,
            quarantine=Quarantine(writer, spec.name, shared.transport.names),
            spool=spool,
            clock=shared.clock,
            stop=self.control,
            silences=self._options.silences,
            failures=failures,
            requests=self.requests,
            http_at=shared.http_at,
            topics=shared.topics,
            topic_memory=self._topic_memory,
            use_topics=self._use_topics,
            watermark_elsewhere=self._watermark_elsewhere,
        )
        return self._input_context

    def _watermark_elsewhere(self) -> int | None:
        others = (name.process for name in self._spec.proxy_names if name != self._proxy)
        beats = (self._shared.listener.latest(process) for process in others)
        reported = [beat.detail[WATERMARK] for beat in beats if beat and WATERMARK in beat.detail]
        return min(reported, default=None)
