"""The control plane of `slackwater up`: one controller and one node, in the command's process.

They are the classes of `slackwater controller` and `slackwater node`. The controller places all
fragments on the node, and the node's agent carries out the record in the running stack.

Clients on this machine connect to a port on loopback, whose address and secret are in the data
directory, readable by its owner only. The pipeline does not depend on the controller: if it fails,
or cannot start, queries cannot be changed, and results are unaffected.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from slackwater.control.control_object import ROOM_FRAGMENTS_MAX, JoinNode, Operation
from slackwater.control.declared import DeclaredQueries
from slackwater.control.recorded import fragment_specs
from slackwater.controller.server import Address, Controller, ControllerConfig
from slackwater.controller.store import Store, open_store
from slackwater.machine.background import Background
from slackwater.machine.stack import Stack
from slackwater.model.errors import EnvironmentProblem
from slackwater.node.app import Node, NodeConfig
from slackwater.node.stack_machine import StackMachine
from slackwater.runtime.security.private import make_private, write_atomically
from slackwater.runtime.service.registry import QueryDefinition, Registry

_log = logging.getLogger(__name__)

FOLDER: Final = "controller"
ADDRESS_FILE: Final = "address"
SECRET_FILE: Final = "secret"
SECRET_BYTES: Final = 32
NAME: Final = "up"
"""The name of the controller, and of the node."""


class LocalControl:
    """The controller and the node of one stack; for the stack's event loop."""

    def __init__(self, stack: Stack, data_dir: Path) -> None:
        self._stack = stack
        self._folder = data_dir / FOLDER
        self._store: Store | None = None
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._background = Background()

    async def start(self) -> None:
        """Open the controller's state, serve clients, and carry out the record from now on.

        The stack must have been started.

        Raises:
            EnvironmentProblem: the state cannot be opened.
        """
        make_private(self._folder)
        self._store = open_store(self._folder, NAME)
        are_all_registered = not self._stack.late.names
        registered = await asyncio.to_thread(self._read_registry)
        declared = DeclaredQueries(self._stack.deployment, registered)
        machine = StackMachine(self._stack, registered)
        config = ControllerConfig(NAME, Address("127.0.0.1", 0), {}, self._secret())

        def why_refused(operation: Operation) -> str:
            if isinstance(operation, JoinNode) and operation.node == NAME:
                return ""
            return declared.why_refused(
                operation, controller.state, machine.definitions, self._stack.deployment
            )

        controller: Controller = Controller(
            config,
            self._store,
            admit=why_refused,
            specs_of=lambda state: fragment_specs(declared.view(state)),
            may_forget=lambda state: declared.may_forget(state, machine.definitions),
        )
        self._serving = asyncio.create_task(self._serve(controller))
        started = asyncio.create_task(controller.started())
        await asyncio.wait({started, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            return  # the reason has been logged
        node = NodeConfig(NAME, (started.result(),), ROOM_FRAGMENTS_MAX, {}, config.secret)

        def record(registered: Mapping[str, QueryDefinition]) -> None:
            for operation in declared.imports(controller.state, registered):
                controller.request(operation)
            # Without space for them in the record they run as they are.
            if lacking := [op.query for op in declared.imports(controller.state, registered)]:
                _log.warning(
                    "queries %s run, and cannot be changed: the record has no space for them",
                    ", ".join(sorted({*lacking})),
                )

        async def record_late() -> None:
            is_last = False
            while not is_last:
                is_last = not self._stack.late.names
                record(await asyncio.to_thread(self._read_registry))
                if not is_last:
                    await self._stack.late.wait()

        async def carry_out() -> None:
            known = declared.known(controller.state, machine.definitions)
            await Node(node, machine, view=declared.view, known=known).run()

        record(registered)
        if not are_all_registered:
            self._background.run("record of queries", record_late)
        self._background.run("agent", carry_out)
        write_atomically(self._folder / ADDRESS_FILE, f"{started.result()}\n")

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

    async def _serve(self, controller: Controller) -> None:
        try:
            await controller.run(self._stopping)
        except (EnvironmentProblem, OSError) as error:
            _log.error("queries cannot be changed until a restart: %s", error)

    def _read_registry(self) -> Mapping[str, QueryDefinition]:
        return Registry(self._stack.transport).all_queries()

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
