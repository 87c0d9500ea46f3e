"""What ends a controller or a connection, and who is told."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.support.ports import free_port

from slackwater.control.control_object import ApplyQuery
from slackwater.controller.address import Address
from slackwater.controller.client import connect
from slackwater.controller.links import LinkError, NodeBeat, StateFrame
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store
from slackwater.model.errors import EnvironmentProblem

pytestmark = pytest.mark.timeout(60)


def config() -> ControllerConfig:
    return ControllerConfig("a", Address("127.0.0.1", free_port()), {})


async def test_an_operation_of_its_own_that_cannot_be_saved_ends_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requester repeats what fails, and the controller would go on with a lost effect."""
    store = open_store(tmp_path, "a")
    controller = Controller(config(), store)
    running = asyncio.create_task(controller.run(asyncio.Event()))
    await controller.started()
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(store, "save_state", Mock(side_effect=full))
    controller.request(ApplyQuery("q", "x"))
    with pytest.raises(EnvironmentProblem, match=r"the controller ends: .*No space left"):
        await running
    store.close()


async def test_a_state_that_its_receiver_cannot_use_breaks_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node would go on to send heartbeats, and never follow the record again."""
    store, stopping = open_store(tmp_path, "a"), asyncio.Event()
    controller = Controller(config(), store, specs_of=lambda _: [])
    running = asyncio.create_task(controller.run(stopping))
    address = await controller.started()

    def on_state(_: StateFrame) -> None:
        raise ValueError("a defect")

    async with connect([address], on_state=on_state) as client:
        client.beat(NodeBeat("n1", (), ()))
        with pytest.raises(LinkError, match="a state cannot be used: ValueError"):
            await client.state()  # answered after the state that the heartbeat brings
        with pytest.raises(LinkError, match="a defect"):
            client.beat(NodeBeat("n1", (), ()))
    assert "a state cannot be used" in caplog.text
    stopping.set()
    await running
    store.close()


def test_the_end_of_a_controller_with_connections_is_silent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At Ctrl-C the loop cancels a connection that waits for its first frame."""
    store = open_store(tmp_path, "a")

    async def runs() -> None:
        stopping = asyncio.Event()
        controller = Controller(config(), store, specs_of=lambda _: [])
        running = asyncio.create_task(controller.run(stopping))
        address = await controller.started()
        _, writer = await asyncio.open_connection(*address)
        async with connect([address]) as client:
            await client.state()  # so the connection before it has been accepted
            stopping.set()
            await running
        writer.close()

    asyncio.run(runs())
    store.close()
    assert [record for record in caplog.records if record.name == "asyncio"] == []
