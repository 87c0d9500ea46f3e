"""What a connected client is sent after a merge, and what it may ask for (iads-6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.ports import free_port

from slackwater.control.control_object import ApplyQuery
from slackwater.controller.address import Address
from slackwater.controller.client import connect
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store

pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def running(folder: Path, name: str, ports: dict[str, Address]) -> AsyncIterator[Address]:
    store, stopping = open_store(folder / name, name), asyncio.Event()
    peers = {peer: address for peer, address in ports.items() if peer != name}
    controller = Controller(ControllerConfig(name, ports[name], peers), store)
    task = asyncio.create_task(controller.run(stopping))
    try:
        yield await controller.started()
    finally:
        stopping.set()
        await task
        store.close()


async def test_a_state_that_is_requested_after_a_refresh_contains_its_merge(
    tmp_path: Path,
) -> None:
    ports = {name: Address("127.0.0.1", free_port()) for name in ("a", "b")}
    async with running(tmp_path, "b", ports) as there, connect([there]) as client:
        assert not (await client.request(ApplyQuery("of-b", "x"))).response.refusal
    async with running(tmp_path, "a", ports) as here, connect([here]) as client:
        response = await client.request(ApplyQuery("of-a", "x"))
        assert not response.response.refusal
        async with running(tmp_path, "b", ports):
            while True:
                frame = await client.state()
                merged = [r for r in client.refreshes if r.members == ("a", "b")]
                if merged:
                    break
                assert "of-b" not in frame.state.queries
            frame = await client.state()
            assert {"of-a", "of-b"} <= frame.state.queries.keys()
            assert frame.view_number >= merged[0].view_number
            assert response.stamp not in merged[0].overridden
