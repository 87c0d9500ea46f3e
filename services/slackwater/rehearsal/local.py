"""The local stage of a rehearsal: the real pipeline on this machine, one process per component.

``stack`` starts the processes and keeps them running. This module adds what a
rehearsal needs: each proxy's options (file, end, silences), the time at which a killed process is
processing again (by its heartbeats, which is later than its start), and the contents of the
quarantine.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import orjson

from slackwater.deployment.fragments import placed
from slackwater.deployment.fragments import process_names as names_of
from slackwater.machine.kept_process import ProcessEvent as Happened
from slackwater.machine.web import WebAddress
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.kinds import BROKER, GATEWAY, HOST, is_hosted
from slackwater.model.names import PROXY
from slackwater.model.records import Heartbeat
from slackwater.rehearsal.plan import RehearsalPlan
from slackwater.rehearsal.stage import StageEvent
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import LogError, RawRecord, Transport, read_to_end
from slackwater.runtime.security.private import make_data_directory
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.cpu import CpuLoad, LoadMeter
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

QUARANTINE_S_MAX: Final = 10.0
LOADS_MAX: Final = 20_000
LOAD_EVERY_S: Final = 1.0
WITHOUT_HEARTBEAT: Final = frozenset({BROKER, GATEWAY})


def process_names(deployment: Deployment, streams: Iterable[str]) -> list[str]:
    """Return the possible targets of a fault: names printed by ``status``, the proxy, the hosts."""
    kept = restricted(deployment, streams)
    return [*names_of(kept), PROXY, *placed(HOST, kept)]


def restricted(deployment: Deployment, streams: Iterable[str]) -> Deployment:
    """Return the deployment without streams that have no input."""
    kept = {name: deployment.streams[name] for name in streams if name in deployment.streams}
    return dataclasses.replace(deployment, streams=kept)


class LocalStage:
    """Implements ``stage.Stage``; with ``web`` there is a page."""

    def __init__(
        self,
        plan: RehearsalPlan,
        deployment: Path,
        data_dir: Path,
        web: WebAddress | None = None,
    ) -> None:
        self._plan = plan
        self._clock = SystemClock()
        make_data_directory(data_dir)
        options = StackOptions(
            deployment_path=deployment,
            # The rehearsal paces the readings of a history, too.
            deployment=dataclasses.replace(restricted(plan.deployment, plan.paths), clock="wall"),
            data_dir=data_dir,
            proxy_options=proxy_options(plan),
            web=web,
        )
        self._thread = StackThread(options, clock=self._clock)
        self._has_broker = False
        self._away: dict[str, int] = {}
        self._back: list[StageEvent] = []
        self._looked = 0
        self._meter = LoadMeter()
        self._loads: deque[CpuLoad] = deque(maxlen=LOADS_MAX)

    @property
    def transport(self) -> Transport:
        """The transport to the pipeline's logs."""
        return self._thread.stack.transport

    def prepare(self) -> None:
        """Start broker, topics, queries and processes; return when all are ready."""
        self._thread.open()
        self._has_broker = True
        self._thread.start_rehearsal(self._plan.start, self._plan.speed)

    def ready(self) -> dict[str, bool]:
        """Whether the broker and each process is ready."""
        names = process_names(self._plan.deployment, self._plan.paths)
        if not self._has_broker:
            return dict.fromkeys(names, False)
        listener = self._thread.stack.listener
        return {name: name == BROKER or listener.ready(name) for name in names}

    def begin(self) -> int:
        """Publish the event clock."""
        return self._thread.begin(self._plan.start, self._plan.speed, self._plan.end)

    def kill(self, process: str) -> None:
        """Send SIGKILL; the supervisor restarts the process."""
        self._thread.kill(process)

    def stop_part(self, process: str) -> None:
        """End a process by SIGTERM, or let a host remove a fragment and add it again."""
        self._thread.restart(process)

    def pause(self, process: str) -> None:
        """Send SIGSTOP."""
        self._thread.pause(process)

    def resume(self, process: str) -> None:
        """Send SIGCONT."""
        self._thread.resume(process)

    def events(self) -> list[StageEvent]:
        """Return the supervisor's events and the times at which processes were ready again."""
        emitted = self._recorded(self._thread.events())
        return sorted([*emitted, *self._back], key=lambda event: event.at_us)

    def loads(self) -> list[CpuLoad]:
        """Return the CPU load of every process, in samples of one second."""
        return list(self._loads)

    def check(self) -> None:
        """Update which processes are away or back, and sample the CPU load.

        Errors that a restart cannot resolve have ended ``prepare``. Later a process may end because
        the broker is unavailable, and returns with it.
        """
        reported = self._thread.events()
        for event in self._recorded(reported[self._looked :]):
            if event.event in {"killed", "stopped"} or event.event.startswith("ended"):
                self._away.setdefault(event.process, event.at_us)
            elif event.process in WITHOUT_HEARTBEAT and event.event.startswith("started"):
                # Of the broker this event follows the first answer. Nothing waits for the gateway.
                self._is_back(event.process, event.at_us)
        self._looked = len(reported)
        for name, since in list(self._away.items()):
            beat = self._thread.stack.listener.latest(name)
            if beat is not None and beat.started_at > since and at_work(beat):
                self._is_back(name, self._clock.now_us())
        if self._meter.age_s >= LOAD_EVERY_S:
            self._loads.append(self._meter.look(self._thread.pids(), self._clock.now_us()))

    def away(self) -> list[str]:
        """Return the processes that have ended and are not back."""
        return sorted(self._away)

    def _recorded(self, events: Iterable[Happened]) -> list[StageEvent]:
        """Expand an event of a process with parts to each part."""
        parts = self._thread.stack.supervisor.parts
        return [
            StageEvent(event.wall_us, part, event.event)
            for event in events
            for part in parts(event.process)
        ]

    def _is_back(self, process: str, at_us: int) -> None:
        if self._away.pop(process, None) is not None:
            self._back.append(StageEvent(at_us, process, "ready"))

    def quarantine(self) -> dict[str, dict[str, int]]:
        """Count distinct positions per stream and reason."""
        found = {stream: self._quarantined(stream) for stream in self._plan.paths}
        return {s: dict(Counter(reason for reason, _ in some)) for s, some in found.items()}

    def dead_letter_lines(self) -> dict[str, set[int]]:
        """Return positions with the reason ``crash``, in a replayed file line numbers."""
        return {
            stream: {int(at) for reason, at in self._quarantined(stream) if reason == "crash"}
            for stream in self._plan.paths
        }

    def stop(self) -> None:
        """Stop all processes."""
        self._thread.stop()

    def _quarantined(self, stream: str) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        log = (self.transport.names.quarantine(stream), 0)
        try:
            for record in read_to_end(self.transport, log, timeout_s=QUARANTINE_S_MAX):
                found |= _quarantined(record)
        except LogError as error:
            raise EnvironmentProblem(
                f"the quarantine of {stream} cannot be read: {error}"
            ) from error
        return found


def at_work(beat: Heartbeat) -> bool:
    """Whether the process is ready and no longer suppresses its output (rule-25, rule-27)."""
    return beat.ready and not beat.detail.get("mute", int(is_hosted(beat.process)))


def proxy_options(plan: RehearsalPlan) -> tuple[str, ...]:
    """Return the proxy's options, which also apply to restarts."""
    options = ["--end-boundary", str(plan.end)]
    if plan.limit is not None:
        options += ["--end-at", str(plan.limit)]
    for stream, path in plan.paths.items():
        options += ["--input", f"{stream}={path.resolve()}"]
    for fault in plan.faults:
        if fault.verb == "silence":
            silence = f"{fault.at_us / 1e6:.6f}:{fault.for_us / 1e6:.6f}"
            options += ["--silence", f"{fault.target}={silence}"]
    return tuple(options)


def _quarantined(raw: RawRecord) -> set[tuple[str, str]]:
    """Return reason and position of an entry; empty if it is invalid."""
    try:
        entry = orjson.loads(raw.value)
        return {(str(entry["reason"]), str(entry["position"]))}
    except (ValueError, TypeError, KeyError) as error:
        SKIPPED.note(*raw.log, raw.offset, "not a quarantine entry", str(error))
        return set()
