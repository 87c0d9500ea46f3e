"""One stream of a proxy process: served, and when that fails, served anew, alone.

A process serves many streams, each in a thread of its own, because what one stream waits for (its
disk, the broker's answer about its log, a piece that is parsed) must keep no other waiting. They
share what has no owner: the client that writes, the one that asks for ends, the clock, the
listener, the registry's reader. Nothing is locked while anybody waits for a disk or a broker.

An error of one stream ends its serving, not the process: it begins again from its spool and its
log, with a new incarnation, as after a restart, and backs off if it fails again and again. A stream
may also be *dropped*, which is how a rehearsal kills one of several: its serving ends between two
steps. Nothing is flushed, acknowledged or noted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.errors import DeploymentError, EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import proxy_process
from slackwater.proxy.dead_letters import DeadLetters, Faults
from slackwater.proxy.inputs import StreamOptions, make_input
from slackwater.proxy.quarantine import Quarantine
from slackwater.proxy.registered import RegistryWatch
from slackwater.proxy.shell import HeartbeatTarget, InputContext, Shell, SupersededWriter
from slackwater.proxy.spool import Spool
from slackwater.runtime.local.placement import BackOff
from slackwater.runtime.logs.cluster import Where
from slackwater.runtime.logs.transport import SharedProducer, Transport, Writer
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import exit_code_of
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.log import named
from slackwater.runtime.service.parts import FAILED_AT, FAILED_CODE, FAILURES
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)

IN_FLIGHT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all streams together."""
STREAM_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
LEAVE_S_MAX: Final = 0.5
"""So long a stream that is told to stop waits for what is in flight."""
HOPELESS: Final = (UsageError, DeploymentError, EnvironmentProblem)
"""What no restart mends, unless somebody changes a file or makes a topic."""


class DroppedStream(Exception):
    """The stream's serving is to end as if its process had been killed."""


class Rein:
    """What the loop of one stream sleeps on, so that others can stop it, hold it or drop it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stopped = self._held = self._dropped = False

    def is_set(self) -> bool:
        """Whether the loop is to end."""
        return self._stopped

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep so long, or until the loop is to end; ``DroppedStream`` if as a killed one does."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._held or self._dropped, timeout)
            self._changed.wait_for(lambda: self._stopped or not self._held or self._dropped)
            if self._dropped and not self._stopped:
                self._dropped = self._held = False
                raise DroppedStream
            return self._stopped

    def stop(self) -> None:
        """End in order."""
        self._set(stopped=True)

    def drop(self) -> None:
        """End as if killed; a stream that is held, too."""
        self._set(dropped=True)

    def hold(self) -> None:
        """Stand still, as a paused process does."""
        self._set(held=True)

    def release(self) -> None:
        """Go on."""
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
    """What the streams of one process have in common."""

    deployment: Deployment
    cluster: Where
    data_dir: Path
    transport: Transport
    producer: SharedProducer
    in_flight_bytes_max: int
    """Of each stream."""
    clock: SystemClock
    listener: HeartbeatListener
    registry: Registry
    watch: RegistryWatch
    faults: Faults
    sender: Callable[[str], HeartbeatTarget]
    """The heartbeat of a part of the process; started."""
    make_topics: Callable[[Sequence[StreamSpec]], None]
    """Those that these streams need from the start, if they are missing."""
    topics_made: bool = True


class Serving:
    """One stream in its thread."""

    def __init__(
        self,
        shared: ProxyShared,
        spec: StreamSpec,
        options: StreamOptions,
        on_change: Callable[[], None],
    ) -> None:
        self.name = proxy_process(spec.name)
        self.stream = spec.name
        self.rein = Rein()
        self.error: SlackwaterError | None = None
        """Why it cannot be served, and never was; it is tried all the same."""
        self._has_ended = False
        self._shared, self._spec, self._options = shared, spec, options
        self._on_change = on_change
        self._failures = 0
        self._ever_ready = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether it is not served, and will not be as far as can be seen."""
        return self._has_ended or self.error is not None

    @property
    def verbs(self) -> Mapping[str, Callable[[], None]]:
        """What can be done to it from outside: as a signal does to a process."""
        return {"kill": self.rein.drop, "pause": self.rein.hold, "resume": self.rein.release}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _run(self) -> None:
        with named(self.name):
            sender = self._shared.sender(self.name)
            try:
                self._serve_on(sender)
            finally:
                sender.stop()
                self._has_ended = True
                self._on_change()

    def _serve_on(self, sender: HeartbeatTarget) -> None:
        back_off = BackOff()
        while not self.rein.is_set():
            try:
                self._serve(sender)
                return
            except SupersededWriter:
                _log.warning("another process writes stream %s now: stopping", self.stream)
                return
            except DroppedStream:
                _log.warning("dropped, as if it had been killed")
                sender.begin_again()
            except Exception as error:  # noqa: BLE001 -- whatever it is, other streams go on
                sender.begin_again(self._failed(error))
            if not self._rest(back_off.after_death(self._shared.clock.monotonic_us() / 1e6)):
                return

    def _failed(self, error: Exception) -> dict[str, int]:
        """Log it; what the heartbeat tells of it."""
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
        """Before it is served again; False if it is not to be."""
        if wait_s:
            _log.warning("served again in %g s", wait_s)
        try:
            return not self.rein.wait(wait_s)
        except DroppedStream:
            return True

    def _serve(self, sender: HeartbeatTarget) -> None:
        shared = self._shared
        if self._failures or not shared.topics_made:
            shared.make_topics([self._spec])
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

    def _ready(self) -> None:
        self._ever_ready, self.error = True, None

    def _context(self, writer: Writer, failures: list[str], held: ExitStack) -> InputContext:
        shared, spec = self._shared, self._spec
        folder = shared.data_dir / "proxy"
        dead_letters = DeadLetters.open(folder, spec.name, shared.faults)
        held.callback(dead_letters.close)
        spool = Spool.open(folder / f"{spec.name}.sqlite", self._options.spool_bytes_max)
        held.callback(spool.close)
        return InputContext(
            dead_letters=dead_letters,
            spec=spec,
            deployment=shared.deployment,
            transport=shared.transport,
            cluster=shared.cluster,
            writer=writer,
            quarantine=Quarantine(writer, spec.name, shared.transport.names),
            spool=spool,
            clock=shared.clock,
            stop=self.rein,
            silences=self._options.silences,
            failures=failures,
        )
