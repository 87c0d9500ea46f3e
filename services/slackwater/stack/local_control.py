"""The control plane of `slackwater up`: one controller and one node, in the command's process.

They are the classes of `slackwater controller` and `slackwater node`. The queries of the deployment
file become operations on the record before the node first looks at it. The controller places all
fragments on the node, and the node's agent starts and ends what the record says.

Clients on this machine connect to a port on loopback, whose address and secret are in the data
directory, readable by its owner only. What runs does not depend on the controller: if it fails,
queries cannot be changed, and results are unaffected.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from slackwater.control.applied import Start
from slackwater.control.control_object import ROOM_FRAGMENTS_MAX, JoinNode, Operation
from slackwater.control.declared import DeclaredQueries
from slackwater.control.recorded import fragment_specs
from slackwater.controller.address import Address
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import DamagedStore, Store, open_store
from slackwater.machine.background import Background
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.node.app import Node, NodeConfig
from slackwater.node.machine import NodeMachine
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.security.private import make_private, write_atomically
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.stack.place import StackPlace

_log = logging.getLogger(__name__)

FOLDER: Final = "controller"
ADDRESS_FILE: Final = "address"
SECRET_FILE: Final = "secret"
SECRET_BYTES: Final = 32
NAME: Final = "up"
"""The name of the controller, and of the node."""


class LocalControl:
    """The controller and the node of one stack; for the stack's event loop.

    Args:
        data_dir: the stack's data directory.
        place: where the node's processes run.
        deployment: the queries of the file, and those that were applied at run time.
        start: the start of queries that are new.
        transport: of the registry.
        clock: the present time.
    """

    def __init__(
        self,
        data_dir: Path,
        place: StackPlace,
        deployment: Deployment,
        start: Start,
        transport: KafkaTransport,
        clock: SystemClock,
    ) -> None:
        self._folder = data_dir / FOLDER
        self._place, self._clock = place, clock
        self._deployment, self._start_of_new = deployment, start
        self._transport = transport
        self._store: Store | None = None
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._background = Background()
        self._node: Node | None = None
        self._registered = asyncio.Event()

    async def start(self) -> None:
        """Open the controller's state, serve clients, and carry out the record from now on.

        Raises:
            EnvironmentProblem: the state cannot be opened, or has no space for the queries.
        """
        self._store = self._open_store()
        registered = await asyncio.to_thread(self._read_registry)
        declared = DeclaredQueries(self._deployment, registered, self._start_of_new)
        machine = NodeMachine(self._place, self._clock)
        config = ControllerConfig(NAME, Address("127.0.0.1", 0), {}, self._secret())

        def definitions() -> Mapping[str, QueryDefinition]:
            return self._place.definitions or registered

        def why_refused(operation: Operation) -> str:
            if isinstance(operation, JoinNode) and operation.node == NAME:
                return ""
            return declared.why_refused(operation, controller.state, definitions())

        controller: Controller = Controller(
            config,
            self._store,
            admit=why_refused,
            specs_of=lambda state: fragment_specs(declared.view(state)),
            may_forget=lambda state: declared.may_forget(state, definitions()),
        )
        self._serving = asyncio.create_task(self._serve(controller))
        started = asyncio.create_task(controller.started())
        await asyncio.wait({started, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            raise EnvironmentProblem(
                f"the controller cannot start: see the log, and {self._folder}"
            )
        for operation in declared.imports(controller.state, registered):
            controller.request(operation)
        if lacking := declared.imports(controller.state, registered):
            names = sorted({operation.query for operation in lacking})
            raise EnvironmentProblem(
                f"the record of the deployment has no space for {len(names)} of its queries"
                f" ({', '.join(names[:3])}, ...): use a second deployment, with a prefix of its own"
            )
        node = NodeConfig(NAME, (started.result(),), ROOM_FRAGMENTS_MAX, {}, config.secret)

        async def carry_out() -> None:
            known = declared.known(controller.state, definitions())
            self._node = Node(
                node, machine, view=declared.view, known=known, registered=self._registered
            )
            await self._node.run()

        self._background.run("agent", carry_out)
        write_atomically(self._folder / ADDRESS_FILE, f"{started.result()}\n")

    @property
    def waiting(self) -> frozenset[str]:
        """The recorded queries that are not registered yet."""
        return frozenset() if self._node is None else self._node.waiting

    async def registered(self) -> None:
        """Wait until all recorded queries are registered, or wait for something that may last."""
        await self._registered.wait()

    async def stop(self) -> None:
        """Stop controller and node; may be called at any time.

        A controller that was not started leaves the address: the folder may be that of another one.
        """
        self._stopping.set()
        if self._store is not None:
            (self._folder / ADDRESS_FILE).unlink(missing_ok=True)
        await self._background.end()
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._store is not None:
            self._store.close()
            self._store = None

    def _open_store(self) -> Store:
        """Open the record. One that cannot be read is kept as a file, and made again.

        All that it has is registered in Kafka, too, from where ``DeclaredQueries`` takes it.
        """
        make_private(self._folder)
        try:
            return open_store(self._folder, NAME)
        except DamagedStore as error:
            kept = error.path.with_suffix(".damaged")
            error.path.replace(kept)
            _log.warning("%s; it is kept as %s, and made again", error, kept.name)
            return open_store(self._folder, NAME)

    async def _serve(self, controller: Controller) -> None:
        try:
            await controller.run(self._stopping)
        except (EnvironmentProblem, OSError) as error:
            _log.error("queries cannot be changed until a restart: %s", error)

    def _read_registry(self) -> Mapping[str, QueryDefinition]:
        return Registry(self._transport).all_queries()

    def _secret(self) -> bytes:
        path = self._folder / SECRET_FILE
        with suppress(FileNotFoundError):
            return path.read_bytes().strip()
        write_atomically(path, secrets.token_hex(SECRET_BYTES) + "\n")
        return path.read_bytes().strip()


def where(data_dir: Path) -> tuple[Address, bytes]:
    """Return the address and the secret of the controller of a running `slackwater up`.

    Raises:
        EnvironmentProblem: no deployment runs from this data directory.
    """
    folder = data_dir / FOLDER
    try:
        host, _, port = (folder / ADDRESS_FILE).read_text().strip().rpartition(":")
        return Address(host, int(port)), (folder / SECRET_FILE).read_bytes().strip()
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"no deployment runs from {data_dir}: start `slackwater up`"
        ) from error
