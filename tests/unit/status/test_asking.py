"""Controllers that are asked again and again: over one connection each, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.ports import free_port

from slackwater.controller.address import Address
from slackwater.controller.links import StateFrame, dial
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store
from slackwater.status.asking import ControllersAsked

SECRET = b"x" * 16


@asynccontextmanager
async def controller(folder: Path, address: Address) -> AsyncIterator[None]:
    store, stopping = open_store(folder, "a"), asyncio.Event()
    made = Controller(ControllerConfig("a", address, {}, SECRET), store, admit=lambda _: "")
    running = asyncio.create_task(made.run(stopping))
    try:
        await made.started()
        yield
    finally:
        stopping.set()
        await running
        store.close()


async def test_a_connection_stays_and_a_broken_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, absent = (Address("127.0.0.1", free_port()) for _ in range(2))
    dialled: list[int] = []

    async def counted(host: str, port: int, *more: object) -> object:
        dialled.append(port)
        return await dial(host, port, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("slackwater.controller.client.dial", counted)
    asked = ControllersAsked([address, absent], "test", SECRET)
    async with controller(tmp_path, address):
        for _ in range(3):
            answers = await asked.ask()
            assert isinstance(answers[str(address)], StateFrame)
            assert answers[str(absent)] == "connection refused"
        assert dialled.count(address.port) == 1
    assert isinstance((await asked.ask())[str(address)], str)
    async with controller(tmp_path, address):
        assert isinstance((await asked.ask())[str(address)], StateFrame)
    async with controller(tmp_path, address):  # it was not asked while it was away
        assert isinstance((await asked.ask())[str(address)], StateFrame)
        await asked.close()


async def test_a_refusal_is_the_answer(tmp_path: Path) -> None:
    address = Address("127.0.0.1", free_port())
    asked = ControllersAsked([address], "test", b"y" * 16)
    async with controller(tmp_path, address):
        assert await asked.ask() == {str(address): "the shared secret differs"}
