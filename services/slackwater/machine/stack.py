"""The stack: a whole deployment on this machine, started in the right order.

There are two ways to start. `up` is for live data: the event clock is published at once. The
proxies start first and read the data in their inputs, then the queries are registered with the E0
of that data (trace-24), and the other processes start. In a *rehearsal* the data is given: the
queries are registered first, and all processes start and become ready. Then the clock is published,
anchored one second ahead, so that all processes begin together. Processes wait for their entries in
the registry, so every order is correct; these are the fastest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from slackwater.deployment.fragments import process_names, without_queries
from slackwater.deployment.kinds import AGGREGATOR
from slackwater.deployment.sharing import as_in_last_run, share
from slackwater.machine.background import Background
from slackwater.machine.broker import EmbeddedBroker, why_no_answer
from slackwater.machine.broker_security import CLIENT_FILE, security_of
from slackwater.machine.draining import Draining
from slackwater.machine.http_port import check_http_port
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch, differ_in_fragments, fragment_specs, proxy_specs
from slackwater.machine.ownhosts import OwnHosts
from slackwater.machine.paths import java_executable
from slackwater.machine.placed_proxies import AddedProxies
from slackwater.machine.readiness import raise_what_ended, wait_ready
from slackwater.machine.supervisor import ProcessEvent, Supervisor
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.names import kind_of
from slackwater.primitives.eventclock import AnchoredClock
from slackwater.registration.begins import Begins
from slackwater.registration.late_registration import LateRegistration
from slackwater.registration.registration import Registration
from slackwater.registration.truncation import Truncation
from slackwater.runtime.logs.cluster import Cluster, find_cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import DataDirectory, keep_prefix, read_run
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.settings import Settings, settings
from slackwater.runtime.service.zone_rules import zones_of

_log = logging.getLogger(__name__)

PROXIES_READY_S_MAX = 5.0
"""Longest wait for proxies to read their inputs to the end before queries are registered."""
READY_S_MAX = 600.0
BROKER_S_MAX = 10.0
"""Longest wait for the response of an external broker."""
ANCHOR_AHEAD_US = 1_000_000
FIRST_AGGREGATOR_S_MAX = 12.0
"""Longest delay of the other replicas' aggregators by the start of the first one."""


@dataclass(frozen=True)
class StackOptions:
    """Options of a stack.

    Without ``bootstrap`` and ``kafka_config`` the stack has an embedded broker, on ``port``. With
    ``secure`` that broker requires the password in ``client.properties`` of the data directory.
    Processes get the path of that file, never its content. ``runs_long`` optimizes for long runs
    instead of a fast start.
    """

    deployment_path: Path
    deployment: Deployment
    data_dir: Path
    port: int | None = None
    bootstrap: str | None = None
    kafka_config: Path | None = None
    secure: bool = False
    runs_long: bool = False
    proxy_options: tuple[str, ...] = ()
    aggregator_options: tuple[str, ...] = ()
    python: str = sys.executable
    settings: Settings | None = None

    @property
    def has_external_broker(self) -> bool:
        """Whether others run the broker."""
        return self.bootstrap is not None or self.kafka_config is not None

    @property
    def input_partitions(self) -> int | None:
        """Number of partitions with which input topics are created; None if others create them.

        A user cannot create topics in advance on a broker that runs only with the stack.
        """
        return None if self.has_external_broker else 1


class Stack:
    """A deployment's processes on this machine. For one event loop.

    ``stop`` must be called in every case, also after a start that has failed. ``late`` has the
    queries that it has not been able to register yet.
    """

    def __init__(
        self,
        options: StackOptions,
        *,
        clock: SystemClock | None = None,
        on_event: Callable[[ProcessEvent], None] | None = None,
    ) -> None:
        self.options = options
        self._deployment = share(options.deployment)
        self._settings = options.settings or settings()
        self._clock = clock or SystemClock()
        self._on_event = on_event
        self._directory = DataDirectory(options.data_dir)
        self._background = Background()
        self._launch: Launch | None = None
        self._early: dict[str, ProcessSpec] = {}
        """Processes started before the broker responded."""
        self._supervisor: Supervisor | None = None
        self._listener: HeartbeatListener | None = None
        self._transport: KafkaTransport | None = None
        self._registration: Registration | None = None
        self._paused: frozenset[str] = frozenset()
        self._truncation: Truncation | None = None
        self.begins: Begins
        """Records the begins of its queries; after ``open``."""
        self.late = LateRegistration()
        self.added: AddedProxies
        """The proxies of streams that were added with queries; after ``open``."""

    @property
    def deployment(self) -> Deployment:
        """Its queries, paused ones too, and their streams."""
        return self._deployment

    @property
    def paused(self) -> frozenset[str]:
        """Names of its paused queries."""
        return self._paused

    @property
    def bootstrap(self) -> str:
        """The address of its broker, once started."""
        return self.transport.bootstrap

    @property
    def transport(self) -> KafkaTransport:
        """The transport to its logs, once the broker is started."""
        assert self._transport is not None, "not started yet"
        return self._transport

    @property
    def registration(self) -> Registration:
        """The registration of its topics and queries, once the broker is started."""
        assert self._registration is not None, "not started yet"
        return self._registration

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of its processes."""
        assert self._supervisor is not None, "not started yet"
        return self._supervisor

    @property
    def listener(self) -> HeartbeatListener:
        """The listener for its processes' heartbeats."""
        assert self._listener is not None, "not started yet"
        return self._listener

    @property
    def process_names(self) -> tuple[str, ...]:
        """Names of its processes and parts, with the broker if it is embedded."""
        has_own_broker = not self.options.has_external_broker
        return process_names(self.running, broker=has_own_broker, paused=self._paused)

    async def open(self) -> str:
        """First phase of both starts: directory, broker, topics; returns the broker's address."""
        java_executable()  # of the broker and of Spark
        self._directory.acquire()
        http = any(stream.http is not None for stream in self._deployment.streams.values())
        if http and self.options.runs_long:
            await check_http_port(self._deployment.http)
        keep_prefix(self._directory.path, self._deployment.names)
        self._deployment = self._as_in_last_run()
        self._supervisor = Supervisor(
            self._directory.path,
            clock=self._clock,
            on_event=self._on_event,
            on_change=self._write_run,
        )
        cluster = await self._find_broker()
        self._transport = KafkaTransport(cluster, self._deployment.names)
        self._registration = self._registration_of(self._deployment)
        self._deployment = await asyncio.to_thread(self.registration.share)
        self._launch = self._launch_at(cluster)
        self.added = AddedProxies(
            self._supervisor, self._launch, self.declared_streams, self._directory.path
        )
        self._write_run()
        inputs = self.options.input_partitions
        await asyncio.to_thread(self.registration.make_topics, input_partitions=inputs)
        self._listener = HeartbeatListener(self._transport).start()
        self.begins = Begins(Registry(self._transport), self._listener, self._clock)
        self._background.run("watch of the logs", self._supervisor.watch_logs)
        kept = (self._supervisor, self._listener, self._launch)
        self._background.run("watch of long turns", OwnHosts(*kept).run)
        self._background.run("watch of the hosts' memory", Draining(*kept).run)
        return cluster.bootstrap

    async def start_up(self) -> None:
        """Start the processes for live data; returns when all have been started once.

        A query whose start time is not known yet (``clock: data`` and no data) is registered in the
        background.
        """
        event_clock = await asyncio.to_thread(self.registration.publish_clock)
        missing = await asyncio.to_thread(self.registration.missing)
        declared = {name: self._deployment.streams[name] for name in self.declared_streams}
        proxies = proxy_specs(replace(self._deployment, streams=declared), self.launch)
        for proxy in proxies:
            await self.supervisor.start(proxy)
        await self.added.settle(self._deployment)
        if missing:
            with contextlib.suppress(EnvironmentProblem):  # not all are ready in time
                parts = [part for proxy in proxies for part in proxy.parts]
                await self.wait_ready(parts, PROXIES_READY_S_MAX)
            missing = await asyncio.to_thread(self.registration.register, missing, event_clock)
            # Another program may have registered one of the queries first, with other children.
            self._deployment = await asyncio.to_thread(self.registration.share)
            self._write_run()
        self.begins.register(self._deployment.queries)
        self._background.run("begins of queries", self.begins.run)
        await self._start_fragments()
        self.late.begin_with(missing)
        if missing:
            run = partial(self.late.run, lambda: self.registration, event_clock)
            self._background.run("registration", run)

    def set_queries(self, deployment: Deployment, paused: Iterable[str]) -> None:
        """Set the queries, paused ones too; the caller starts and ends their fragments."""
        self._deployment, self._paused = deployment, frozenset(paused)
        self._registration = self._registration_of(deployment)
        self._write_run()

    @property
    def truncation(self) -> Truncation:
        """The truncation of its logs, once the fragments have been started."""
        assert self._truncation is not None, "not started yet"
        return self._truncation

    @property
    def declared_streams(self) -> Set[str]:
        """The names of the streams in the deployment file; others were added with queries."""
        return self.options.deployment.streams.keys()

    @property
    def running(self) -> Deployment:
        """Its queries without the paused ones, and their streams."""
        return without_queries(self._deployment, self._paused)

    def _registration_of(self, deployment: Deployment) -> Registration:
        """Return the registration of a deployment in the Kafka cluster of this stack."""
        return Registration(
            self.transport,
            deployment,
            self.options.deployment_path,
            data_dir=None if self.options.has_external_broker else self._directory.path,
            clock=self._clock,
        )

    async def start_rehearsal(self, start_time_us: int, speed: float) -> None:
        """Register the queries, start everything and wait until all are ready for the clock."""
        definitions = [
            QueryDefinition(
                *(name, 0, start_time_us, query.bucket_us(speed), query), zones=zones_of(query)
            )
            for name, query in self._deployment.queries.items()
        ]
        registry = Registry(self.transport)
        await asyncio.to_thread(registry.publish_queries, *definitions)
        # The slowest processes start first; then the stack waits until all are ready.
        fragments = fragment_specs(self._deployment, self.launch)
        proxies = proxy_specs(self._deployment, self.launch)
        await self._start_rest([*fragments, *proxies])
        self._truncate()
        await self.wait_ready(process_names(self._deployment, broker=False), READY_S_MAX)

    async def begin(self, start_time_us: int, speed: float, end_us: int | None = None) -> int:
        """Publish the clock of a rehearsal.

        Returns the wall time (us) at which the clock shows ``start_time_us``. ``end_us`` is the
        event time at which the replay ends (trace-24).
        """
        anchor_wall_us = self._clock.now_us() + ANCHOR_AHEAD_US
        anchored = AnchoredClock(anchor_wall_us, start_time_us, speed, end_us)
        await asyncio.to_thread(Registry(self.transport).publish_clock, anchored)
        return anchor_wall_us

    async def wait_ready(self, names: Iterable[str], within_s: float) -> None:
        """Wait until these processes report ready; see ``readiness``."""
        logs = self._directory.path / "logs"
        await wait_ready(self.supervisor, self.listener, logs, names, within_s)

    def raise_what_gave_up(self) -> None:
        """Raise the error of a process that no restart repairs (exit code 2 or 3), if any."""
        for name in self.supervisor.names():
            if not self.listener.ready(name):
                raise_what_ended(self.supervisor, self.listener, name)

    async def stop(self) -> None:
        """Stop everything; allowed at any time, and repeatedly."""
        await self._background.end()
        if self._supervisor is not None:
            await self._supervisor.stop_all()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.stop)
            self._listener = None
        self._directory.release()

    def _as_in_last_run(self) -> Deployment:
        # With a damaged file the process that starts early may have to be restarted.
        with contextlib.suppress(EnvironmentProblem):
            if (run := read_run(self._directory.path)) is not None:
                return as_in_last_run(self.options.deployment, run.children_of)
        return self._deployment

    async def _find_broker(self) -> Cluster:
        if not self.options.has_external_broker:
            return await self._start_broker()
        options = self.options
        given = find_cluster(options.bootstrap, options.kafka_config, Role.ADMIN)
        why = await asyncio.to_thread(why_no_answer, given, BROKER_S_MAX)
        if why is not None:
            raise EnvironmentProblem(
                f"no broker answers on {given} within {BROKER_S_MAX:g} s: {why}"
            )
        return given

    async def _start_broker(self) -> Cluster:
        """Start the embedded broker; with ``secure`` write its credentials beside its data."""
        directory = self._directory.path
        file = directory / CLIENT_FILE
        if file.exists() and not self.options.secure:
            raise UsageError(
                f"the broker in {directory} requires a password (see {file}): add --secure"
            )
        security = security_of(directory) if self.options.secure else None
        broker = EmbeddedBroker(
            directory / "broker",
            port=self.options.port,
            heap_mib_max=self._settings.broker_heap_mib_max,
            security=security,
            client_config=None if security is None else file,
            # For a history of 10 M readings the optimising compiler would take a third of the
            # broker's CPU time (bench.history).
            runs_long=self.options.runs_long and self._deployment.clock == "wall",
        )
        if security is None and broker.known_bootstrap is not None:
            await self._start_early(self._launch_at(Cluster(broker.known_bootstrap)))
        await self.supervisor.start_broker(broker)
        if security is not None:
            security.write_client_files(broker.bootstrap, broker.inside, directory)
        return broker.cluster

    async def _start_early(self, launch: Launch) -> None:
        """Start the slowest process, the first aggregator, while the broker starts.

        The aggregator waits for the broker and for its queries. A killed broker can register again
        only after three seconds without work. The start of Spark's JVM takes half of a restart, and
        for most of it needs no broker. The aggregators of other replicas start once the broker
        responds: on two cores they would delay the broker and the first aggregator, and one replica
        suffices for an answer.
        """
        for spec in fragment_specs(self._deployment, launch):
            if kind_of(spec.name) == AGGREGATOR:
                await self.supervisor.start(spec)
                self._early[spec.name] = spec
                break

    def _launch_at(self, cluster: Cluster) -> Launch:
        options = self.options
        return Launch(
            options.deployment_path.resolve(),
            cluster.bootstrap,
            self._directory.path,
            options.proxy_options,
            (*options.aggregator_options, *(() if options.runs_long else ("--short-run",))),
            options.python,
            cluster.security.given,
        )

    async def _start_fragments(self) -> None:
        """Start the first aggregator and the hosts; when it is ready, the other aggregators.

        The start of an aggregator takes seven seconds of CPU time. One replica suffices for exact
        answers, and on two cores they begin a third earlier if the replicas' aggregators start one
        after the other.
        """
        self._paused = await asyncio.to_thread(self.registration.paused)
        specs = fragment_specs(self.running, self.launch, self._paused)
        aggregators = [spec for spec in specs if kind_of(spec.name) == AGGREGATOR]
        others = aggregators[1:]
        await self._start_rest(spec for spec in specs if spec not in others)
        self._truncate()
        if others:
            with contextlib.suppress(EnvironmentProblem):  # not ready in time
                await self.wait_ready([aggregators[0].name], FIRST_AGGREGATOR_S_MAX)
            await self._start_rest(others)

    async def _start_rest(self, specs: Iterable[ProcessSpec]) -> None:
        for spec in specs:
            early = self._early.pop(spec.name, None)
            if early is not None and early.command != spec.command:
                # The registered queries differ from those of the file.
                if differ_in_fragments(early, spec):
                    self.supervisor.serve(spec)
                    continue
                await self.supervisor.end(spec.name)
                early = None
            if early is None:
                await self.supervisor.start(spec)

    def _truncate(self) -> None:
        self._truncation = Truncation(self.transport, self._deployment.queries.values())
        every_s = self._settings.truncate_every_s
        self._background.run("truncation of logs", partial(self._truncation.run, every_s))

    @property
    def launch(self) -> Launch:
        """The parameters of its processes' command lines; after ``open``."""
        assert self._launch is not None, "open the stack first"
        return self._launch

    def _write_run(self) -> None:
        if self._transport is not None:
            kept = self._supervisor
            self._directory.write_run(
                self.transport.cluster,
                self.options.deployment_path,
                {} if kept is None else kept.pids(),
                self._deployment.names,
                {} if kept is None else kept.lives(),
                {name: query.child_query for name, query in self._deployment.queries.items()},
            )
