"""A controller whose disk was lost gets the record back from the nodes, which run on meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from tests.support.definitions import apply
from tests.support.waiting import eventually_async

from slackwater.control.control_object import (
    ControlObject,
    DeleteQuery,
    JoinNode,
    MoveFragment,
    Operation,
    PauseQuery,
    placement_number,
    view_of_number,
)
from slackwater.control.control_state import ControlState, Wanted
from slackwater.control.recorded import Assignment, fragment_specs
from slackwater.controller import server
from slackwater.controller.address import Address
from slackwater.controller.client import connect
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store
from slackwater.node.app import Node, NodeConfig
from slackwater.protocols.iads.messages import SavedMembership, Stamp

ORDERER = "orderer/q.0.a"
ANY_PORT = Address("127.0.0.1", 0)
VIEWS = 7
"""Number of views of the controllers before their record was lost."""


@pytest.fixture
def address() -> Address:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Address(*free.getsockname())


@asynccontextmanager
async def controller(folder: Path, address: Address) -> AsyncIterator[Controller]:
    """Run a controller with this file; a new one is in its first view."""
    store, stopping = open_store(folder, "a"), asyncio.Event()
    made = Controller(ControllerConfig("a", address, {}), store, specs_of=fragment_specs)
    running = asyncio.create_task(made.run(stopping))
    try:
        await made.started()
        yield made
    finally:
        stopping.set()
        await running
        store.close()


class Machine:
    """Starts nothing, and has been given assignments."""

    def __init__(self) -> None:
        self.settled: list[Assignment] = []
        self.resigned: list[str] = []
        self.answers = False
        self._numbers: dict[str, int] = {}
        self.registering = Mock(return_value=None)
        self.close = AsyncMock()
        self.open = Mock()

    async def settle(self, assigned: Assignment, *_: object) -> None:
        self.settled.append(assigned)
        self._numbers |= assigned.fragments

    def ready(self) -> tuple[str, ...]:
        return (*self.settled[-1].fragments,) if self.settled else ()

    def superseded(self) -> tuple[str, ...]:
        return ()

    def answering(self) -> tuple[str, ...]:
        return self.ready() if self.answers else ()

    def resign(self, fragment: str) -> None:
        self.resigned.append(fragment)

    def numbers_seen(self) -> dict[str, int]:
        return self._numbers


@asynccontextmanager
async def running_node(address: Address) -> AsyncIterator[Machine]:
    machine = Machine()
    node = Node(NodeConfig("n1", (address,), 99, {}), machine)  # type: ignore[arg-type]
    running = asyncio.create_task(node.run())
    try:
        yield machine
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def request(address: Address, operation: Operation) -> str:
    async with connect([address]) as client:
        return (await client.request(operation)).response.refusal


def in_a_later_view(folder: Path) -> None:
    store = open_store(folder, "a")
    store.save_membership(SavedMembership(VIEWS, 1))
    store.close()


@asynccontextmanager
async def running_query(
    folder: Path, address: Address
) -> AsyncIterator[tuple[Machine, ControlState]]:
    """A node that runs q; its controller has ended when this begins."""
    in_a_later_view(folder)
    async with running_node(address) as machine:
        async with controller(folder, address) as before:
            assert not await request(address, apply("q"))

            async def is_placed() -> bool:
                return bool(machine.settled) and ORDERER in machine.settled[-1].fragments

            await eventually_async(is_placed, "the query is placed")
            record = before.state
        yield machine, record


def recorded() -> ControlState:
    """A record of view 7 with one query."""
    record = ControlObject(frozenset("a"), ControlState())
    record.apply(apply("q"), Stamp(VIEWS, 1, "a"))
    return record.state


async def test_a_new_controller_takes_a_record_and_its_next_view_is_later(tmp_path: Path) -> None:
    async with controller(tmp_path, ANY_PORT) as made:
        made._take(recorded())
        assert made.state == recorded()
        made.request(PauseQuery("q"))
        assert made.state.queries["q"].stamp.view_number > VIEWS
    async with controller(tmp_path, ANY_PORT) as again:
        assert again.state.queries["q"].wanted == Wanted.PAUSED.value


async def test_a_controller_that_is_not_new_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "NEW_S_MAX", 0.0)
    async with controller(tmp_path, ANY_PORT) as made:
        made._take(recorded())
        assert not made.state.queries


async def test_the_next_view_is_later_than_the_numbers_of_nodes(tmp_path: Path) -> None:
    """Else nothing could be placed on them: a root does not start with a smaller number."""
    number = placement_number(Stamp(VIEWS, 1, "a"), 0)
    async with controller(tmp_path, ANY_PORT) as made:
        made.request(JoinNode("n1", 9, (), number))
        made.request(apply("q"))
        made.request(MoveFragment("q", "root.0", "n1"))
        placed = made.state.placement.get(("q", "root.0"))
        assert placed is not None
        assert placed.number > number


@pytest.mark.timeout(60)
@pytest.mark.parametrize("applied_at_once", ["", "q", "other"])
async def test_it_is_the_record_of_a_node_and_nothing_ends(
    tmp_path: Path, address: Address, applied_at_once: str
) -> None:
    """Also if a client has applied a query to the empty record, as a deployment's first start."""
    async with running_query(tmp_path / "a", address) as (machine, record):
        number = record.placement["q", "orderer.0.a"].number
        assert view_of_number(number) > VIEWS
        settled = len(machine.settled)
        async with controller(tmp_path / "empty", address) as after:
            if applied_at_once:
                assert not await request(address, apply(applied_at_once))

            async def is_back() -> bool:
                entry = after.state.placement.get(("q", "orderer.0.a"))
                names = {*after.state.live_queries()}
                return entry is not None and names >= {"q", *filter(None, [applied_at_once])}

            await eventually_async(is_back, "the record is back")
            assert after.state.placement["q", "orderer.0.a"].number == number

            async def is_paused() -> bool:
                return not await request(address, PauseQuery("q"))

            await eventually_async(is_paused, "the controller takes requests")
            assert after.state.queries["q"].stamp.view_number > view_of_number(number)
            assert after.state.queries["q"].wanted == Wanted.PAUSED.value
        ran = [each.fragments.get(ORDERER) for each in machine.settled[settled:]]
        assert {*ran[:-1]} <= {number}, "it ended only when the query was paused"
        async with controller(tmp_path / "empty", address) as again:
            assert again.state.queries["q"].wanted == Wanted.PAUSED.value


@pytest.mark.timeout(60)
async def test_a_query_that_was_deleted_does_not_return(tmp_path: Path, address: Address) -> None:
    async with running_query(tmp_path / "a", address) as (machine, _):
        async with controller(tmp_path / "a", address):
            assert not await request(address, apply("other"))
            assert not await request(address, DeleteQuery("q"))

            async def has_ended() -> bool:
                return ORDERER not in machine.settled[-1].fragments

            await eventually_async(has_ended, "the query ends")
        async with controller(tmp_path / "empty", address) as after:

            async def is_back() -> bool:
                return "other" in after.state.live_queries()

            await eventually_async(is_back, "the record is back")
            assert "q" not in after.state.live_queries()
