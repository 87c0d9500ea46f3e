"""The processes of a node: hosts, aggregators and proxies of the fragments placed on it.

The processes and their supervision are those of `slackwater up`, without the broker. They read a
deployment file that the node writes from the record. If any query has a window, the aggregator runs
even without a fragment: a JVM takes seconds to start, which would delay a take-over.

The machine of `slackwater up` is in ``stack_machine.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from slackwater.control.recorded import Assignment
from slackwater.deployment.kinds import AGGREGATOR, HOST, ORDERER
from slackwater.deployment.stored import SUFFIX, to_text
from slackwater.machine.background import Background
from slackwater.machine.changes import Fragments, fragments_to_hosts
from slackwater.machine.draining import Draining
from slackwater.machine.layout import Launch
from slackwater.machine.ownhosts import OwnHosts
from slackwater.machine.paths import java_executable
from slackwater.machine.placed_proxies import PlacedProxies
from slackwater.machine.supervisor import ProcessEvent, Supervisor
from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError
from slackwater.model.names import OrdererName, ProxyName, kind_of, own_name
from slackwater.registration.begins import Begins
from slackwater.registration.registering import Registering
from slackwater.registration.truncation import Truncation
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.private import write_atomically
from slackwater.runtime.service.datadir import DataDirectory, keep_prefix
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.parts import LEARN
from slackwater.runtime.service.placements import Placements
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.settings import settings

FILE: Final = f"node{SUFFIX}"
PLACEMENTS_FILE: Final = "node-placements.json"


class FragmentRunner(Protocol):
    """Starts and ends fragments and proxies on one machine, for the agent of a node."""

    def open(self) -> None:
        """Begin; ``EnvironmentProblem`` if the machine cannot be used."""
        ...

    def registering(self) -> Registering | None:
        """What registers queries in Kafka; None before the first query is known."""
        ...

    def numbers_seen(self) -> Mapping[str, int]:
        """The placement numbers that the machine was given last, by the names of fragments."""
        ...

    async def settle(
        self, assigned: Assignment, deployment: Deployment, registered: Collection[str]
    ) -> None:
        """Start the assigned fragments and proxies, and end all others; idempotent.

        Args:
            assigned: what this machine is to run.
            deployment: all recorded queries.
            registered: the queries that are known to be registered.
        """
        ...

    def learn(self, streams: Iterable[str]) -> None:
        """Make the proxies of these streams that run here read the registry."""
        ...

    def ready(self) -> frozenset[str]:
        """The names of assigned fragments and proxies that run here and report ready."""
        ...

    def superseded(self) -> frozenset[str]:
        """The names of fragments that stay down, since another copy has a greater number."""
        ...

    async def close(self) -> None:
        """End what the machine has started; allowed at any time."""
        ...


@dataclass(slots=True)
class _Processes:
    """The supervisor of a node and its connections.

    They need the prefix of topics, which the first recorded query has, so they are created with it.
    """

    supervisor: Supervisor
    transport: KafkaTransport
    listener: HeartbeatListener
    launch: Launch
    proxies: PlacedProxies


class NodeMachine:
    """The processes of one node; for one event loop. ``close`` in every case.

    Args:
        name: the node's name.
        cluster: Kafka.
        data_dir: directory of spools, logs and what the node writes for its processes.
        aggregator_options: of the command lines of its aggregators (``slackwater_spark.app``).
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        data_dir: Path,
        aggregator_options: Sequence[str] = (),
    ) -> None:
        self._name, self._cluster = name, cluster
        self._aggregator_options = aggregator_options
        self._directory = DataDirectory(data_dir)
        self._processes: _Processes | None = None
        self._deployment = Deployment("wall", {}, {})
        self._assigned = Assignment()
        self._aggregated: dict[str, list[str]] = {}
        self._background = Background()

    def open(self) -> None:
        """Lock the directory; ``EnvironmentProblem`` if another process has it, or without Java."""
        java_executable()
        self._directory.acquire()

    @property
    def file(self) -> Path:
        """The file in which the node's processes find the deployment."""
        return self._directory.path / FILE

    def registering(self) -> Registering | None:
        """See ``FragmentRunner``; it also truncates logs from now on."""
        if self._processes is None:
            return None
        transport, listener = self._processes.transport, self._processes.listener
        truncation = Truncation(transport, ())
        every_s = settings().truncate_every_s
        self._background.run("truncation of logs", partial(truncation.run, every_s))
        begins = Begins(Registry(transport), listener)
        self._background.run("begins of queries", begins.run)
        return Registering(transport, listener, self.file, truncation, begins)

    def numbers_seen(self) -> dict[str, int]:
        """See ``FragmentRunner``."""
        return Placements(self._directory.path / PLACEMENTS_FILE).read()

    def events(self) -> list[ProcessEvent]:
        """All events of processes so far, in order."""
        return [] if self._processes is None else list(self._processes.supervisor.events)

    async def settle(
        self, assigned: Assignment, deployment: Deployment, registered: Collection[str]
    ) -> None:
        """See ``FragmentRunner``.

        An aggregator gets only the fragments of registered queries: it would wait for the
        registration of another query, and its other fragments with it.
        """
        if self._processes is None:
            if not deployment.queries:
                return
            self._processes = self._begin(deployment)
        if deployment.queries and deployment.names != self._deployment.names:
            raise DeploymentError(
                f"the recorded queries have prefix {deployment.names.prefix!r}, and this node runs"
                f" with {self._deployment.names.prefix!r}: start it again with another --data-dir"
            )
        if deployment.queries and deployment != self._deployment:
            write_atomically(self.file, to_text(deployment))
            self._deployment = deployment
        # What stayed down, and has another number now, starts without the pause of a failure.
        again = {
            name
            for name in self.superseded()
            if assigned.fragments.get(name) != self._assigned.fragments[name]
        }
        if assigned.numbers() != self._assigned.numbers():
            given = Placements(self._directory.path / PLACEMENTS_FILE)
            given.write(assigned.numbers())
        self._assigned = assigned
        processes = self._processes
        await processes.proxies.settle(assigned.proxies, self._over_http(assigned.proxies))
        fragments = Fragments(processes.supervisor, processes.launch)
        await fragments.settle_aggregators(self._aggregators(assigned.fragments, registered))
        if again:
            await fragments.settle_hosts(assigned.fragments.keys() - again)
        await fragments.settle_hosts(assigned.fragments)

    def learn(self, streams: Iterable[str]) -> None:
        """See ``FragmentRunner``."""
        wanted = {*streams}
        if self._processes is not None:
            for part in self._assigned.proxies:
                if ProxyName.parse(own_name(part)).stream in wanted:
                    self._processes.supervisor.command(part, LEARN)

    def ready(self) -> frozenset[str]:
        """See ``FragmentRunner``."""
        return frozenset(
            name
            for name in (*self._assigned.fragments, *self._assigned.proxies)
            if self._is_ready(name)
        )

    def superseded(self) -> frozenset[str]:
        """See ``FragmentRunner``.

        A fragment that has been given another number since is not among them.
        """
        return frozenset(
            name
            for name, number in self._assigned.fragments.items()
            if self._stayed_down_with(name) == number and not self._is_ready(name)
        )

    async def close(self) -> None:
        """See ``FragmentRunner``."""
        await self._background.end()
        if self._processes is not None:
            await self._processes.supervisor.stop_all()
            await asyncio.to_thread(self._processes.listener.stop)
        self._directory.release()

    def _begin(self, deployment: Deployment) -> _Processes:
        path = self._directory.path
        keep_prefix(path, deployment.names)
        supervisor = Supervisor(path)
        transport = KafkaTransport(self._cluster, deployment.names)
        launch = Launch(
            self.file,
            self._cluster.bootstrap,
            path,
            aggregator_options=self._aggregator_options,
            kafka_config=self._cluster.security.given,
            host_options=("--placements", str(path / PLACEMENTS_FILE)),
        )
        listener = HeartbeatListener(transport).start()
        write_atomically(self.file, to_text(deployment))
        self._deployment = deployment
        kept = (supervisor, listener, launch)
        self._background.run("watch of the logs", supervisor.watch_logs)
        self._background.run("watch of long turns", OwnHosts(*kept).run)
        self._background.run("watch of the hosts' memory", Draining(*kept).run)
        proxies = PlacedProxies(supervisor, launch, self._name)
        return _Processes(supervisor, transport, listener, launch, proxies)

    def _over_http(self, proxies: Iterable[str]) -> list[str]:
        """Those of the proxies whose streams receive readings over HTTP."""
        streams = self._deployment.streams
        found = ((name, streams.get(ProxyName.parse(own_name(name)).stream)) for name in proxies)
        return [name for name, stream in found if stream is not None and stream.http is not None]

    def _aggregators(
        self, fragments: Mapping[str, int], registered: Collection[str]
    ) -> dict[str, list[str]]:
        """The aggregated fragments of each aggregator; replicas of a child are kept apart."""
        queries = self._deployment.queries
        orderers = [
            name
            for name in fragments
            if kind_of(name) == ORDERER
            and (query := OrdererName.parse(own_name(name)).query) in registered
            and queries[query].window is not None
        ]
        placed = fragments_to_hosts(orderers, self._aggregated)
        self._aggregated = {at: has for at, has in placed.items() if has}
        if not self._aggregated and any(query.window is not None for query in queries.values()):
            self._aggregated = {next(iter(placed), f"{HOST}/0"): []}
        return {
            f"{AGGREGATOR}/{self._name}-{own_name(at)}": [own_name(each) for each in has]
            for at, has in self._aggregated.items()
        }

    def _is_ready(self, name: str) -> bool:
        processes = self._processes
        assert processes is not None, "nothing is assigned before the first query is known"
        beat, pid = processes.listener.latest(name), self._pid_of(name)
        return beat is not None and beat.ready and beat.pid == pid

    def _stayed_down_with(self, name: str) -> int | None:
        """The placement number with which a fragment stayed down here last."""
        processes = self._processes
        pid = None if processes is None else self._pid_of(name)
        if processes is None or pid is None:
            return None
        return processes.listener.stayed_down_with(name, pid)

    def _pid_of(self, name: str) -> int | None:
        """The process here that serves a fragment or a proxy; None if none does."""
        processes = self._processes
        assert processes is not None, "nothing is assigned before the first query is known"
        of = processes.supervisor.process_of(name)
        return None if of is None else processes.supervisor.pids().get(of)
