"""The real pipeline as a rehearsal's stage: everything on this machine, each part a process.

``runtime.stack`` starts and keeps the processes; what is added here is what a rehearsal wants to
know: the options of each proxy (its file, where it ends, when it is silent), when a process that
was killed does its work again (it says so itself in its heartbeats; being started is not enough),
and what the proxies have put into quarantine.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import orjson
from ruamel.yaml import YAML

from slackwater.cli.rehearse.plan import Plan
from slackwater.cli.rehearse.stage import Event
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.layout import process_names as names_of
from slackwater.runtime.stack import StackOptions, StackThread
from slackwater.runtime.supervisor import BROKER
from slackwater.runtime.topics import quarantine_topic
from slackwater.runtime.transport import LogError, Transport, read_to_end

quarantine_s_max: Final = 10.0


def process_names(deployment: Deployment, streams: Iterable[str]) -> list[str]:
    """The names that ``status`` will print, in the order of the pipeline."""
    return list(names_of(restricted(deployment, streams)))


def restricted(deployment: Deployment, streams: Iterable[str]) -> Deployment:
    """Without the streams that have no input here."""
    kept = {name: deployment.streams[name] for name in streams if name in deployment.streams}
    return dataclasses.replace(deployment, streams=kept)


class LocalStage:
    """See ``stage.Stage``."""

    def __init__(self, plan: Plan, deployment: Path, data_dir: Path) -> None:
        self._plan = plan
        self._clock = SystemClock()
        data_dir.mkdir(parents=True, exist_ok=True)
        options = StackOptions(
            deployment_path=_with_wall_clock(plan, deployment, data_dir),
            deployment=restricted(plan.deployment, plan.paths),
            data_dir=data_dir,
            proxy_options={stream: proxy_options(plan, stream) for stream in plan.paths},
        )
        self._thread = StackThread(options, clock=self._clock)
        self._away: dict[str, int] = {}
        self._back: list[Event] = []
        self._looked = 0

    @property
    def transport(self) -> Transport:
        """Where its logs are."""
        return self._thread.stack.transport

    def prepare(self) -> None:
        """Broker, topics, queries, processes; returns when all are ready."""
        self._thread.open()
        self._thread.start_rehearsal(self._plan.start, self._plan.speed)

    def begin(self) -> int:
        """Publish the clock."""
        return self._thread.begin(self._plan.start, self._plan.speed, self._plan.end)

    def kill(self, process: str) -> None:
        """SIGKILL; the supervisor starts it again."""
        self._thread.kill(process)

    def pause(self, process: str) -> None:
        """SIGSTOP."""
        self._thread.pause(process)

    def resume(self, process: str) -> None:
        """SIGCONT."""
        self._thread.resume(process)

    def events(self) -> list[Event]:
        """What the supervisor said, and who said when that it works again."""
        said = [Event(e.wall_us, e.process, e.event) for e in self._thread.events()]
        return sorted([*said, *self._back], key=lambda event: event.at_us)

    def check(self) -> None:
        """Notice who is away and who is back.

        What no restart mends has ended ``prepare``; later a process may leave because the broker
        is away, and comes back with it.
        """
        said = self._thread.events()
        for event in said[self._looked :]:
            if event.event == "killed" or event.event.startswith("ended"):
                self._away.setdefault(event.process, event.wall_us)
            elif event.process == BROKER and event.event.startswith("started"):
                self._is_back(BROKER, event.wall_us)  # it is started when it answers
        self._looked = len(said)
        for name, since in list(self._away.items()):
            beat = self._thread.stack.listener.latest(name)
            if beat is not None and beat.started_at > since and beat.ready:
                self._is_back(name, self._clock.now_us())

    def _is_back(self, process: str, at_us: int) -> None:
        if self._away.pop(process, None) is not None:
            self._back.append(Event(at_us, process, "ready"))

    def quarantine(self) -> dict[str, dict[str, int]]:
        """Distinct positions per stream and reason."""
        return {stream: self._quarantined(stream) for stream in self._plan.paths}

    def stop(self) -> None:
        """Stop everything."""
        self._thread.stop()

    def _quarantined(self, stream: str) -> dict[str, int]:
        found: set[tuple[str, str]] = set()
        log = (quarantine_topic(stream), 0)
        try:
            for record in read_to_end(self.transport, log, timeout_s=quarantine_s_max):
                entry = orjson.loads(record.value)
                found.add((entry["reason"], str(entry["position"])))
        except LogError as error:
            raise EnvironmentProblem(
                f"the quarantine of {stream} cannot be read: {error}"
            ) from error
        counts: dict[str, int] = {}
        for reason, _ in sorted(found):
            counts[reason] = counts.get(reason, 0) + 1
        return counts


def proxy_options(plan: Plan, stream: str) -> tuple[str, ...]:
    """What one proxy is started with, also when it is started again."""
    options = ["--input", str(plan.paths[stream].resolve()), "--end-boundary", str(plan.end)]
    if plan.limit is not None:
        options += ["--end-at", str(plan.limit)]
    for fault in plan.faults:
        if fault.verb == "silence" and fault.target == stream:
            options += ["--silence", f"{fault.at_us / 1e6:.6f}:{fault.for_us / 1e6:.6f}"]
    return tuple(options)


def _with_wall_clock(plan: Plan, given: Path, data_dir: Path) -> Path:
    """A copy beside the logs; the rehearsal paces the readings, whatever clock the file names."""
    path = data_dir / "deployment.yaml"
    if plan.deployment.clock == "wall":
        shutil.copyfile(given, path)
        return path
    yaml = YAML()
    content = yaml.load(given)
    content["clock"] = "wall"
    yaml.dump(content, path)
    return path
