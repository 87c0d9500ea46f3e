"""The control plane of `slackwater up`: one controller and one agent, in the command's process.

Clients on this machine connect to a port on loopback, whose address and secret are in the data
directory, readable by its owner only. The pipeline does not depend on the controller: if it fails,
queries cannot be changed, and results are unaffected.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from slackwater.controller.server import Address, Controller, ControllerConfig
from slackwater.controller.store import Store, open_store
from slackwater.model.errors import EnvironmentProblem
from slackwater.node.agent import Agent, QueryRunner
from slackwater.runtime.security.private import make_private, write_atomically

_log = logging.getLogger(__name__)

FOLDER: Final = "controller"
ADDRESS_FILE: Final = "address"
SECRET_FILE: Final = "secret"
SECRET_BYTES: Final = 32
NAME: Final = "up"
"""The controller's name."""


class LocalControl:
    """The controller and the agent of one data directory; for the event loop of a stack."""

    def __init__(self, machine: QueryRunner, data_dir: Path) -> None:
        self._agent = Agent(machine)
        self._folder = data_dir / FOLDER
        self._store: Store | None = None
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the controller's state and serve clients.

        Raises:
            EnvironmentProblem: the state cannot be opened.
        """
        make_private(self._folder)
        self._store = open_store(self._folder, NAME)
        await self._agent.begin()
        config = ControllerConfig(NAME, Address("127.0.0.1", 0), {}, self._secret())
        controller = Controller(
            config,
            self._store,
            admit=self._agent.admit,
            on_state=self._agent.record,
            may_forget=self._agent.may_forget,
        )
        serving = asyncio.create_task(self._serve(controller))
        running = asyncio.create_task(self._agent.run(controller.request))
        self._tasks = [serving, running]
        started = asyncio.create_task(controller.started())
        await asyncio.wait({started, serving}, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            return  # the reason has been logged
        for operation in self._agent.imports(controller.state):
            controller.request(operation)
        write_atomically(self._folder / ADDRESS_FILE, f"{started.result()}\n")

    async def stop(self) -> None:
        """Stop controller and agent; may be called at any time."""
        self._stopping.set()
        (self._folder / ADDRESS_FILE).unlink(missing_ok=True)
        for task in self._tasks[1:]:
            task.cancel()  # the first task, the controller's, ends by ``_stopping``
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._store is not None:
            self._store.close()
            self._store = None

    async def _serve(self, controller: Controller) -> None:
        try:
            await controller.run(self._stopping)
        except EnvironmentProblem as error:
            _log.error("queries cannot be changed until a restart: %s", error.message)

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
