"""A deployment on real processes: embedded broker, Faust orderers and roots, Spark; no proxies.

The sources are in this process (``sources.py``). Everything else is started and kept running as by
``slackwater up``, with a given grid of the query (``w_us``) if an experiment needs one.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
from bench.paper_dpc.results import Results
from bench.paper_dpc.sources import FIELD, Feeder, Source

from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch, fragment_specs, host_spec
from slackwater.machine.supervisor import Supervisor
from slackwater.primitives.eventclock import WallClock
from slackwater.registration.topics import topic_specs
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ensure_topics
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry

READY_S_MAX = 180.0
SETTLE_S_MAX = 60.0
T = TypeVar("T")


def deployment_text(streams: Iterable[str], queries: Mapping[str, str]) -> str:
    """A deployment file; ``queries`` are flow mappings, as in ``{from: [s1], bound: 3s}``."""
    stream = f"{{key: {{column: k}}, time: {{column: t, unit: us}}, fields: [{FIELD}]}}"
    return "\n".join(
        [
            "apiVersion: slackwater/v1",
            "clock: wall",
            "streams:",
            *(f"  {name}: {stream}" for name in streams),
            "queries:",
            *(f"  {name}: {text}" for name, text in queries.items()),
            "",
        ]
    )


class System:
    """The processes of one deployment.

    Args:
        folder: for its logs and data.
        text: of the deployment file.
        per_s: readings of each stream.
        w_us: the bucket size; by default what ``slackwater up`` takes.
        flush_us: interval of a source's records.
        keys: how many each stream has; 0: one, with the stream's name.
        only: kinds of processes to start.
        python: runs them.
    """

    def __init__(
        self,
        folder: Path,
        text: str,
        *,
        per_s: int,
        w_us: int | None = None,
        flush_us: int = 100_000,
        keys: int = 0,
        only: tuple[str, ...] = ("aggregator", "orderer", "root"),
        python: str = sys.executable,
    ) -> None:
        self.folder = folder
        path = folder / "deployment.yaml"
        path.write_text(text)
        self.deployment = load_deployment(path)
        self._path, self._only, self._w_us = path, only, w_us
        self._python = python
        self._per_s, self._flush_us, self._keys = per_s, flush_us, keys
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.supervisor = Supervisor(folder)
        self._broker = EmbeddedBroker(folder / "broker")
        self.sources: dict[str, Source] = {}
        self._listener: HeartbeatListener | None = None
        self._feeder: Feeder | None = None

    def start(self) -> None:
        """Start everything; the sources write from the beginning, so that nothing is missing."""
        self._wait(self.supervisor.start_broker(self._broker))
        self.transport = KafkaTransport(self._broker.bootstrap)
        ensure_topics(self._broker.bootstrap, topic_specs(self.deployment, {}))
        self._listener = HeartbeatListener(self.transport).start()
        sources = [Source(self.transport, name, self._keys) for name in self.deployment.streams]
        self.sources = {source.stream: source for source in sources}
        self._register()
        self._feeder = Feeder(sources, per_s=self._per_s, flush_us=self._flush_us)
        if self._per_s:
            self._feeder.start()
        specs = list(self._wanted(self.launch))
        for spec in specs:
            self._wait(self.supervisor.start(spec))
        self.wait_ready(name for spec in specs for name in spec.parts or (spec.name,))

    @property
    def launch(self) -> Launch:
        """Return the launch of its processes, used once its broker responds."""
        return Launch(self._path, self._broker.bootstrap, self.folder, python=self._python)

    def _wanted(self, launch: Launch) -> Iterator[ProcessSpec]:
        """Hosts run only the requested kinds."""
        for spec in fragment_specs(self.deployment, launch):
            parts = tuple(part for part in spec.parts if part.startswith(self._only))
            if parts:
                yield host_spec(spec.name, parts, launch)
            elif not spec.parts and spec.name.startswith(self._only):
                yield spec

    @property
    def feeder(self) -> Feeder:
        """The feeder of the sources; an experiment with ``per_s=0`` writes by itself."""
        assert self._feeder is not None, "not started yet"
        return self._feeder

    @property
    def listener(self) -> HeartbeatListener:
        """The processes' heartbeats."""
        assert self._listener is not None, "not started yet"
        return self._listener

    def _register(self) -> None:
        registry = Registry(self.transport)
        registry.publish_clock(WallClock())
        start_time = int(time.time()) * 1_000_000
        registry.publish_queries(
            *(
                QueryDefinition(name, 0, start_time, self._w_us or spec.bucket_us(), spec)
                for name, spec in self.deployment.queries.items()
            )
        )

    def follow(self, query: str) -> Results:
        """Start to read the query's results."""
        results = Results(self.transport, query)
        results.start()
        return results

    def wait_ready(self, names: Iterable[str]) -> None:
        """Wait until these processes report that they are working."""
        wanted = list(names)
        if not self.listener.wait_for(
            lambda view: all(view.ready(name, time.monotonic()) for name in wanted), READY_S_MAX
        ):
            raise SystemExit(f"not ready after {READY_S_MAX:.0f} s; see {self.folder / 'logs'}")

    def settle(self) -> None:
        """Wait until every output has been STABLE for a second: no failure is in progress."""
        until, since = time.monotonic() + SETTLE_S_MAX, time.monotonic()
        while time.monotonic() - since < 1.0:
            unsettled = [
                f"{name} is in {state}"
                for name, beat in self.listener.all().items()
                for state in beat.states.values()
                if state != "STABLE"
            ]
            if unsettled:
                since = time.monotonic()
            if since > until:
                raise SystemExit(f"not all STABLE in {SETTLE_S_MAX:.0f} s: {', '.join(unsettled)}")
            time.sleep(0.05)

    def kill(self, name: str, *, away_s: float) -> float:
        """Kill -9, or drop a fragment; it restarts at once, and is held back for this time.

        Return the wall time (s) of its end.
        """

        async def act() -> float:
            killed = self.supervisor.kill(name)
            assert killed == [name], f"{name} does not run"
            return time.time()

        async def hold() -> None:
            self.supervisor.pause(name, away_s)

        was = self._wait(self._pids()).get(name)
        at = self._wait(act())
        # A fragment's host executes commands in order; a process must exist again.
        while was is not None and self._wait(self._pids()).get(name, was) == was:
            time.sleep(0.001)
        self._wait(hold())
        return at

    def serve(self, spec: ProcessSpec) -> None:
        """Let a process serve these parts from now on."""

        async def act() -> None:
            self.supervisor.serve(spec)

        self._wait(act())

    def in_background(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run this in the supervisor's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _pids(self) -> dict[str, int]:
        return self.supervisor.pids()

    def log(self, name: str) -> str:
        """Return a process's log so far."""
        return self.supervisor.log_path(name).read_text(errors="replace")

    def memory_mb(self) -> dict[str, float]:
        """Resident memory of each process with its children."""
        found = {}
        for name, pid in self._wait(self._pids()).items():
            process = psutil.Process(pid)
            family = [process, *process.children(recursive=True)]
            found[name] = sum(one.memory_info().rss for one in family) / 1e6
        return found

    def jvms(self) -> dict[str, int]:
        """Return process ids of the Java processes, by their parent process."""
        found = {}
        for name, pid in self._wait(self._pids()).items():
            process = psutil.Process(pid)
            for one in [process, *process.children(recursive=True)]:
                if one.name() == "java":
                    found[name] = one.pid
        return found

    def deaths(self) -> int:
        """Return the number of processes that have ended by themselves."""
        reported = [event.event for event in self.supervisor.events]
        return sum("ended" in event or "exit" in event for event in reported)

    def stop(self) -> None:
        """Stop everything that was started."""
        if self._feeder is not None and self._feeder.is_alive():
            self._feeder.stop()
        for source in self.sources.values():
            source.close()
        if self._listener is not None:
            self._listener.stop()
        self._wait(self.supervisor.stop_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def running(text: str, **options: Any) -> Iterator[System]:
    """Run a system for the length of a block, in its own folder, which is kept after a failure."""
    folder = Path(tempfile.mkdtemp(prefix="slackwater-paper-"))
    system = System(folder, text, **options)
    try:
        system.start()
        yield system
    except BaseException:
        system.stop()
        print(f"the logs are in {folder / 'logs'}", file=sys.stderr)
        raise
    system.stop()
    shutil.rmtree(folder)
