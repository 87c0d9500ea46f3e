"""What a node registers and deletes in Kafka, while the record changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from unittest.mock import AsyncMock, Mock

import pytest
from tests.support.definitions import apply

from slackwater.control.applied import AppliedQuery
from slackwater.control.control_object import (
    AcknowledgeView,
    ControlObject,
    ControlResponse,
    DeleteQuery,
    JoinNode,
    MoveFragment,
    Operation,
)
from slackwater.control.control_state import ControlState, Wanted
from slackwater.control.plan import SetState, State, changes
from slackwater.control.recorded import REGISTRATION
from slackwater.controller.address import Address
from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.node.app import Node, NodeConfig
from slackwater.protocols.iads.messages import Stamp


class FakeRegistering:
    """A registry that can be away. It is changed at once, except for queries that wait."""

    def __init__(self) -> None:
        self.registered_as: dict[str, State] = {}
        self.waiting: set[str] = set()
        self.ready: set[str] = set()
        """New generations that can replace the earlier one."""
        self.is_away = self.awaits_readings = False

    async def carry_out(
        self, wanted: Mapping[str, Wanted], applied: Mapping[str, AppliedQuery], _: Deployment
    ) -> tuple[frozenset[str], str]:
        if self.is_away:
            raise EnvironmentProblem("no broker answers")
        states: dict[str, State] = {name: of.value for name, of in wanted.items()}
        for change in changes(states, self.registered_as, {}):
            if isinstance(change, SetState):
                self.registered_as[change.query] = change.state
            elif change.query not in self.waiting:
                assert applied[change.query].query == change.query
                self.registered_as[change.query] = "running"
        return frozenset(wanted) - self.waiting, ""

    def registered(self) -> Collection[str]:
        return self.registered_as.keys()

    async def run(self) -> None:
        """Delete no topics."""

    async def are_ready(
        self, changes: Collection[tuple[str, str]], _: object
    ) -> list[tuple[str, str]]:
        return [each for each in changes if each[1] in self.ready]


class World:
    """A node n1, the record of a controller, and the registry."""

    def __init__(self) -> None:
        self.registry = FakeRegistering()
        machine = Mock(settle=AsyncMock(), ready=tuple, superseded=tuple, answering=tuple)
        machine.registering = lambda: self.registry
        self.node = Node(NodeConfig("n1", (), 1, {}), machine)
        self.record, self._time = ControlObject(frozenset("a"), ControlState()), 0
        self.do(JoinNode("n1", 9), JoinNode("n2", 9), apply("q"))
        self.do(MoveFragment("q", REGISTRATION, "n1"))

    def do(self, *operations: Operation, view: int = 1) -> None:
        for operation in operations:
            self._time += 1
            assert not self.record.apply(operation, Stamp(view, self._time, "a")).refusal

    def move(self, node: str) -> None:
        """Place the registration on another node."""
        number = self.record.state.placement["q", REGISTRATION].number
        self.do(MoveFragment("q", REGISTRATION, node, replaces=number))

    def receives(self) -> None:
        """The node receives the record."""
        self.node._state = self.record.state

    async def follows(self) -> bool:
        """The node carries out the record; False if some of it remains to be done."""
        self.receives()
        await self.node._settle()
        return await self.node._register()


@pytest.fixture(name="world")
async def _world() -> World:
    return World()


async def test_a_query_that_is_deleted_while_it_waits_to_be_registered(world: World) -> None:
    """Processes end meanwhile, so the record is newer than what has been carried out of it."""
    world.registry.waiting.add("q")
    assert not await world.follows()
    world.registry.waiting.clear()
    world.do(DeleteQuery("q"))
    world.receives()
    await world.node._register()
    assert await world.follows()
    assert world.registry.registered_as == {"q": "deleted"}


async def test_a_heartbeat_has_the_deletions_that_have_been_carried_out(world: World) -> None:
    assert await world.follows()
    number = world.record.state.placement["q", REGISTRATION].number
    assert (world.node._beat("a").ready, world.node._beat("a").ended) == ((number,), ())
    world.do(DeleteQuery("q"))
    world.registry.is_away = True
    with pytest.raises(EnvironmentProblem):
        await world.follows()
    assert (world.node._beat("a").ready, world.node._beat("a").ended) == ((), ())
    world.registry.is_away = False
    assert await world.follows()
    assert (world.node._beat("a").ready, world.node._beat("a").ended) == ((number,), (number,))


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_what_was_registered_after_the_deletion_is_deleted(
    world: World,
    is_forgotten: bool,
) -> None:
    world.receives()
    await world.node._settle()
    world.move("n2")
    world.do(DeleteQuery("q"))
    if is_forgotten:
        world.do(AcknowledgeView(2), view=2)
        assert not world.record.state.queries
    await world.node._register()
    assert world.registry.registered_as == {"q": "running"}, "it has not received the deletion"

    world.registry.is_away = True
    with pytest.raises(EnvironmentProblem):
        await world.follows()
    world.registry.is_away = False
    assert await world.follows()
    assert world.registry.registered_as == {"q": "deleted"}
    assert world.node._beat("a").ended == (), "the deletion is placed on another node"
    assert not world.node._tried


async def test_what_another_node_registers_now_is_not_deleted(world: World) -> None:
    assert await world.follows()
    world.move("n2")
    assert await world.follows()
    assert world.registry.registered_as == {"q": "running"}


async def test_a_generation_is_replaced_only_while_its_successor_is_there() -> None:
    """Its deletion may have been requested meanwhile."""
    world = World()
    world.do(apply("q.g1"), MoveFragment("q.g1", REGISTRATION, "n1"))
    client = Mock(request=AsyncMock(return_value=Mock(response=ControlResponse())))
    world.node._clients[Address("127.0.0.1", 1)] = client
    assert not await world.follows(), "the new generation is not ready"
    client.request.assert_not_called()
    world.registry.ready.add("q.g1")
    assert await world.follows()
    client.request.assert_awaited_once_with(DeleteQuery("q", beside="q.g1"))
