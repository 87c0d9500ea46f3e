"""An unexpected error ends a node, wherever it is raised: `slackwater node` is started again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slackwater.node.app import Node, NodeConfig
from slackwater.node.machine import NodeMachine
from slackwater.runtime.logs.cluster import Cluster


@pytest.mark.timeout(60)
async def test_an_error_of_a_part_that_began_later_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation of logs begins with the first query that is registered here."""
    machine = NodeMachine("n1", Cluster("127.0.0.1:9"), tmp_path)
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
