"""The stack: a whole deployment on this machine: broker, controller, node and processes.

What starts the processes is the machine of a node (``node/machine.py``), which carries out the
record of a controller (``local_control.py``). This module adds the broker, what is checked before
anything runs, and two kinds of time. `up` is for live data: the event clock is published at once,
and queries begin with the first readings in their inputs (trace-24). In a *rehearsal* the data is
given: the start of the queries is, too, and the clock is published once all processes are ready,
anchored one second ahead, so that all begin together.

The proxies of the file's streams start first, and beside the broker the first aggregator, since
half of a start is Spark's. Processes wait for their entries in the registry, so every order is
correct; this one is the fastest.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from slackwater.control.applied import Start
from slackwater.deployment.fragments import process_names, without_queries
from slackwater.deployment.sharing import share
from slackwater.machine.background import Background
from slackwater.machine.broker import EmbeddedBroker, why_no_answer
from slackwater.machine.broker_security import CLIENT_FILE, security_of
from slackwater.machine.http_port import check_http_port
from slackwater.machine.kept_process import ProcessEvent
from slackwater.machine.layout import Launch, aggregator_spec
from slackwater.machine.notifying import notifier_spec
from slackwater.machine.paths import java_executable
from slackwater.machine.placed_proxies import FILE
from slackwater.machine.processes import Processes
from slackwater.machine.readiness import raise_what_ended, wait_ready
from slackwater.machine.supervisor import Supervisor
from slackwater.machine.web import WebAddress, gateway_spec
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.kinds import GATEWAY
from slackwater.model.names import AGGREGATOR
from slackwater.primitives.eventclock import AnchoredClock
from slackwater.registration.registration import Registration
from slackwater.runtime.logs.cluster import Cluster, find_cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.datadir import DataDirectory, keep_prefix
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.settings import Settings, settings
from slackwater.stack.local_control import LocalControl
from slackwater.stack.place import HowToRegister, StackPlace, write_file

READY_S_MAX = 600.0
BROKER_S_MAX = 10.0
"""Longest wait for the response of an external broker."""
ANCHOR_AHEAD_US = 1_000_000
FIRST = f"{AGGREGATOR}/0"
"""The aggregator that starts beside the broker."""


@dataclass(frozen=True)
class StackOptions:
    """Options of a stack.

    Without ``bootstrap`` and ``kafka_config`` the stack has an embedded broker, on ``port``. With
    ``secure`` that broker requires the password in ``client.properties`` of the data directory.
    Processes get the path of that file, never its content. ``runs_long`` optimizes for long runs
    instead of a fast start. With ``web`` it has a gateway, which serves the page there, and
    with ``notify`` a notifier, which sends alerts to the receivers of the environment.
    """

    deployment_path: Path
    deployment: Deployment
    data_dir: Path
    port: int | None = None
    bootstrap: str | None = None
    kafka_config: Path | None = None
    secure: bool = False
    runs_long: bool = False
    web: WebAddress | None = None
    notify: bool = False
    proxy_options: tuple[str, ...] = ()
    aggregator_options: tuple[str, ...] = ()
    python: str = sys.executable
    settings: Settings | None = None
    site: str | None = None
    """The site whose view ``deployment`` is; None: the centre's, or a file without sites."""

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

    ``stop`` must be called in every case, also after a start that has failed.
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
        self._supervisor: Supervisor | None = None
        self._transport: KafkaTransport | None = None
        self._processes: Processes | None = None
        self._registration: Registration | None = None
        self._paused: frozenset[str] = frozenset()
        self._control: LocalControl | None = None
        self._early: str | None = None
        """The broker's address for the aggregator that was started before it."""

    @property
    def deployment(self) -> Deployment:
        """Its queries, paused ones too, and their streams."""
        return self._deployment

    @property
    def paused(self) -> frozenset[str]:
        """Names of its paused queries."""
        return self._paused

    @property
    def waiting(self) -> frozenset[str]:
        """The names of its queries that are not registered yet."""
        return frozenset() if self._control is None else self._control.waiting

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
    def processes(self) -> Processes:
        """Its processes, once its broker is started."""
        assert self._processes is not None, "not started yet"
        return self._processes

    @property
    def listener(self) -> HeartbeatListener:
        """The listener for its processes' heartbeats."""
        return self.processes.listener

    @property
    def process_names(self) -> tuple[str, ...]:
        """Names of its processes and parts, with the broker if it is embedded."""
        has_own_broker = not self.options.has_external_broker
        return process_names(self.running, broker=has_own_broker, paused=self._paused)

    async def open(self) -> str:
        """First phase of both starts: directory, broker, topics; returns the broker's address."""
        java_executable()  # of the broker and of Spark
        self._directory.acquire()
        if self._deployment.is_posted and self.options.runs_long:
            await check_http_port(self._deployment.http)
        keep_prefix(self._directory.path, self._deployment.names)
        self._write_file()
        self._supervisor = Supervisor(
            self._directory.path,
            clock=self._clock,
            on_event=self._on_event,
            on_change=self._write_run,
        )
        self._supervisor.begin()  # while the broker starts
        cluster = await self._find_broker()
        self._transport = KafkaTransport(cluster, self._deployment.names)
        self._registration = self._registration_of(self._deployment)
        self._deployment = await asyncio.to_thread(self.registration.share)
        self._write_file()
        self._write_run()
        inputs = self.options.input_partitions
        await asyncio.to_thread(self.registration.make_topics, input_partitions=inputs)
        launch = self._launch_at(cluster)
        self._processes = Processes(self._supervisor, self._transport, launch)
        self._processes.watch(self._background)
        return cluster.bootstrap

    async def start_up(self) -> None:
        """Start the processes for live data.

        Returns when the queries are registered, and their fragments started once; a query whose
        start time is not known yet (``clock: data`` and no data) follows by itself.

        Raises:
            DeploymentError: the file differs from what is registered.
            UsageError: it has another clock.
            EnvironmentProblem: the registry is lost, or the record has no space for the queries.
        """
        await asyncio.to_thread(self.registration.publish_clock)
        await asyncio.to_thread(self.registration.missing)
        await (await self._carry_out("beginning")).registered()

    async def _carry_out(self, start: Start, speed: float | None = None) -> LocalControl:
        """Start the proxies, record the queries, and run what the record has from now on."""
        options = self.options
        how = HowToRegister(
            options.deployment_path, options.deployment, options.input_partitions, speed
        )
        place = StackPlace(self.processes, self._directory.path / FILE, how, self._take)
        await place.settle_proxies((), self._deployment)
        self._control = control = LocalControl(
            self._directory.path, place, self._deployment, start, self.transport, self._clock
        )
        await control.start()
        if options.web is not None:  # it reads the controller's address
            prefix = self._deployment.names.prefix
            await self.supervisor.start(gateway_spec(options.web, self.processes.launch, prefix))
        if options.notify:
            prefix = self._deployment.names.prefix
            await self.supervisor.start(notifier_spec(self.processes.launch, prefix))
        return control

    def _take(self, recorded: Deployment, paused: Collection[str]) -> Deployment:
        """Take in the recorded queries, and their streams beside those of the file."""
        declared = self.options.deployment
        self._deployment = replace(
            declared,
            streams={**recorded.streams, **declared.streams},
            queries=recorded.queries,
            http=declared.http if declared.is_posted else recorded.http,
        )
        self._paused = frozenset(paused)
        self._write_run()
        return self._deployment

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
        """Start the processes for given data, and wait until all are ready for the clock.

        The start of the queries is given; the clock is published by ``begin``.
        """
        await self._carry_out(start_time_us, speed)
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

    def is_ready(self, name: str) -> bool:
        """Whether a process or part is ready; the gateway, which has no heartbeat, by its port."""
        if name == GATEWAY and self.options.web is not None:
            return self.options.web.takes_connections()
        return self.listener.ready(name)

    def raise_what_gave_up(self) -> None:
        """Raise the error of a process that no restart repairs (exit code 2 or 3), if any."""
        for name in self.supervisor.names():
            if not self.is_ready(name):
                raise_what_ended(self.supervisor, self.listener, name)

    async def stop(self) -> None:
        """Stop everything; allowed at any time, and repeatedly."""
        if self._control is not None:
            await self._control.stop()
        await self._background.end()
        if self._processes is not None:
            await self._processes.stop()
        elif self._supervisor is not None:
            await self._supervisor.stop_all()
        self._directory.release()

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
        if self._early not in {None, broker.bootstrap}:
            await self.supervisor.end(FIRST)  # the broker could not keep its port
        if security is not None:
            security.write_client_files(broker.bootstrap, broker.inside, directory)
        return broker.cluster

    async def _start_early(self, launch: Launch) -> None:
        """Start the slowest process, the first aggregator, while the broker starts.

        The aggregator waits for the broker, and gets its fragments when they are placed. A killed
        broker can register again only after three seconds without work. The start of Spark's JVM
        takes half of a restart, and for most of it needs no broker. The other aggregators start
        later (``node/machine.py``): on two cores they would delay the broker and the first one.
        """
        if any(query.is_aggregated for query in self._deployment.queries.values()):
            await self.supervisor.start(aggregator_spec(FIRST, (), launch))
            self._early = launch.bootstrap

    def _launch_at(self, cluster: Cluster) -> Launch:
        options = self.options
        return Launch(
            self._directory.path / FILE,
            cluster.bootstrap,
            self._directory.path,
            options.proxy_options,
            (*options.aggregator_options, *(() if options.runs_long else ("--short-run",))),
            options.python,
            cluster.security.given,
        )

    def _write_file(self) -> None:
        """Write what the processes read."""
        folder = self.options.deployment_path.parent
        write_file(self._directory.path / FILE, self._deployment, folder)

    def _write_run(self) -> None:
        if self._transport is not None:
            kept = self._supervisor
            self._directory.write_run(
                self.transport.cluster,
                self.options.deployment_path,
                {} if kept is None else kept.pids(),
                self._deployment.names,
                {} if kept is None else kept.lives(),
                self.options.site,
            )
