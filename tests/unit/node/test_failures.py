"""An unexpected error ends a node, wherever it is raised: `slackwater node` is started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.virtual_loop import run_virtually

from slackwater.controller.address import Address
from slackwater.controller.links import CONNECTED_ALREADY, LinkError
from slackwater.model.errors import UsageError
from slackwater.node import app
from slackwater.node.app import Node, NodeConfig
from slackwater.node.machine import NodeMachine
from slackwater.node.place import NodePlace
from slackwater.runtime.logs.cluster import Cluster


@pytest.mark.timeout(60)
async def test_an_error_of_a_part_that_began_later_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation of logs begins with the first query that is registered here."""
    machine = NodeMachine(NodePlace("n1", Cluster("127.0.0.1:9"), tmp_path))
    node = Node(NodeConfig("n1", (), 1, {}), machine)

    async def truncate() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("a defect")

    async def register() -> None:
        node._start(truncate())
        await asyncio.Event().wait()

    monkeypatch.setattr(node, "_register_always", register)
    with pytest.raises(RuntimeError, match="a defect"):
        await node.run()


def test_a_second_node_of_a_name_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: the first one may be its own earlier process, whose connection is half open."""
    dialed: list[float] = []

    @asynccontextmanager
    async def refused(*_: object) -> AsyncIterator[None]:
        dialed.append(asyncio.get_running_loop().time())
        if dialed:
            raise LinkError(f"controller c1: node n1 {CONNECTED_ALREADY}: give it another name")
        yield

    async def nothing() -> None:
        return

    monkeypatch.setattr(app, "connect", refused)
    machine = NodeMachine(NodePlace("n1", Cluster("127.0.0.1:9"), tmp_path))
    node = Node(NodeConfig("n1", (Address("127.0.0.1", 9),), 1, {}), machine)
    monkeypatch.setattr(node, "_register_always", nothing)
    monkeypatch.setattr(node, "_settle_always", nothing)
    with pytest.raises(UsageError, match="another node n1 is connected"):
        run_virtually(node.run())
    assert app.SAME_NAME_S_MAX < dialed[-1] < 2 * app.SAME_NAME_S_MAX
    assert len(dialed) < 15
