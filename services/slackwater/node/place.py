"""The place of a machine: where its processes run, and what is particular there.

``node/machine.py`` starts and ends the processes; ``NodePlace`` is that of a node. That of
`slackwater up` is in ``stack/place.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Protocol

from slackwater.deployment.stored import to_text
from slackwater.machine.background import Background
from slackwater.machine.layout import Launch
from slackwater.machine.paths import java_executable
from slackwater.machine.placed_proxies import FILE, PlacedProxies
from slackwater.machine.processes import Processes
from slackwater.machine.supervisor import Supervisor
from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError
from slackwater.registration.begins import Begins
from slackwater.registration.registering import Registering
from slackwater.registration.truncation import Truncation
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.private import write_atomically
from slackwater.runtime.service.datadir import DataDirectory, keep_prefix
from slackwater.runtime.service.placements import Placements

PLACEMENTS_FILE: Final = "node-placements.json"


class Place(Protocol):
    """Where a machine's processes run, and what is particular there.

    ``prefix`` begins the names of its aggregators. ``numbers`` is the file from which fragments
    take their placement numbers; None if they take them from the registry in Kafka.
    """

    prefix: str
    numbers: Placements | None

    def open(self) -> Processes | None:
        """Begin, and return the processes, or None if they need a query first (``begin``).

        ``EnvironmentProblem`` if the machine cannot be used.
        """
        ...

    def begin(self, deployment: Deployment, background: Background) -> Processes:
        """Return the processes; ``deployment`` is the first one with a query."""
        ...

    def take(self, deployment: Deployment, paused: Collection[str]) -> None:
        """Take in the recorded queries, before processes start or end for them.

        ``paused``: the names of those that do not run.
        """
        ...

    async def settle_proxies(self, assigned: Collection[str], deployment: Deployment) -> None:
        """Run these proxies, and no others that were placed here."""
        ...

    def registering(self, truncation: Truncation, begins: Begins) -> Registering:
        """Return what registers queries, with what is to be told of them."""
        ...

    async def close(self) -> None:
        """End what the place has begun; allowed at any time."""
        ...


class NodePlace:
    """A machine of its own, in a cluster of nodes.

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
        self._aggregator_options = aggregator_options
        self.prefix = f"{name}-"
        self._name, self._cluster = name, cluster
        self._directory = DataDirectory(data_dir)
        self._processes: Processes | None = None
        self._proxies: PlacedProxies
        self._deployment: Deployment | None = None
        self.numbers: Placements | None = Placements(self._directory.path / PLACEMENTS_FILE)

    def open(self) -> Processes | None:
        """Lock the directory; ``EnvironmentProblem`` if another process has it, or without Java."""
        java_executable()
        self._directory.acquire()
        return self._processes

    @property
    def file(self) -> Path:
        """The file in which the node's processes find the deployment."""
        return self._directory.path / FILE

    def begin(self, deployment: Deployment, background: Background) -> Processes:
        """See ``Place``. The transport needs the prefix of topics, which the first query has."""
        path = self._directory.path
        keep_prefix(path, deployment.names)
        launch = Launch(
            self.file,
            self._cluster.bootstrap,
            path,
            aggregator_options=self._aggregator_options,
            kafka_config=self._cluster.security.given,
            host_options=("--placements", str(path / PLACEMENTS_FILE)),
        )
        self.take(deployment, ())
        supervisor = Supervisor(path)
        supervisor.begin()
        transport = KafkaTransport(self._cluster, deployment.names)
        self._processes = Processes(supervisor, transport, launch)
        self._processes.watch(background)
        self._proxies = PlacedProxies(supervisor, launch, self._name)
        return self._processes

    def take(self, deployment: Deployment, paused: Collection[str]) -> None:
        """See ``Place``: the file is written."""
        if not deployment.queries:
            return
        known = self._deployment
        if known is not None and deployment.names != known.names:
            raise DeploymentError(
                f"the recorded queries have prefix {deployment.names.prefix!r}, and this node runs"
                f" with {known.names.prefix!r}: start it again with another --data-dir"
            )
        if deployment != known:
            write_atomically(self.file, to_text(deployment))
            self._deployment = deployment

    async def settle_proxies(self, assigned: Collection[str], deployment: Deployment) -> None:
        """See ``Place``."""
        await self._proxies.settle(assigned, deployment)

    def registering(self, truncation: Truncation, begins: Begins) -> Registering:
        """See ``Place``."""
        assert self._processes is not None, "begin comes first"
        connections = self._processes.transport, self._processes.listener
        return Registering(*connections, self.file, truncation, begins)

    async def close(self) -> None:
        """See ``Place``."""
        if self._processes is not None:
            await self._processes.stop()
        self._directory.release()
