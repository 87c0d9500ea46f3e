"""A node whose controllers have lost the record goes on with its own one, and gives it to them."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock, Mock

from tests.support.virtual_loop import run_virtually
from tests.unit.node.test_last_record import ADDRESS, ORDERER, recorded

from slackwater.control.control_state import ControlState
from slackwater.control.recorded import assignment
from slackwater.controller.address import Address
from slackwater.controller.links import NodeReport, StateFrame
from slackwater.node.app import Node, NodeConfig

OTHER = Address("127.0.0.1", 10)


def received(*frames: tuple[Address, ControlState, bool]) -> Node:
    """A node that has received these records; the third value is whether the sender is new."""
    machine = Mock(ready=tuple, superseded=tuple, answering=tuple, close=AsyncMock())
    node = Node(NodeConfig("n1", (ADDRESS, OTHER), 9, {}), machine)
    for address, record, is_new in frames:
        nodes = NodeReport((), (), (), (), (), "", ())
        node._receive(address, StateFrame(0, "a", 1, ("a",), record, nodes, is_new))
    return node


def runs(node: Node) -> bool:
    return ORDERER in assignment(node._state, "n1").fragments


def test_it_goes_on_while_all_controllers_lack_the_record() -> None:
    node = received((ADDRESS, recorded(), False), (ADDRESS, ControlState(), True))
    assert runs(node)
    node = received(
        (ADDRESS, recorded(), False), (OTHER, ControlState(), True), (ADDRESS, ControlState(), True)
    )
    assert runs(node)


def test_it_follows_controllers_that_have_not_lost_theirs() -> None:
    """What is not in their record was deleted, perhaps while this node was away."""
    node = received((ADDRESS, recorded(), False), (ADDRESS, ControlState(), False))
    assert not runs(node)
    node = received(
        (ADDRESS, recorded(), False),
        (OTHER, ControlState(), True),
        (ADDRESS, recorded("n2"), False),
    )
    assert not runs(node)


def test_the_record_is_given_once_to_each_connection() -> None:
    empty = ControlState(nodes=recorded().nodes)
    node = received((ADDRESS, recorded(), False), (ADDRESS, empty, True))
    node._is_joined = True
    client = Mock(controller="a")

    async def report() -> None:
        reporting = asyncio.create_task(node._report_to(client, ADDRESS))
        await asyncio.sleep(3)
        nodes = NodeReport((), (), (), (), (), "", ())
        node._receive(ADDRESS, StateFrame(0, "a", 9, ("a",), recorded(), nodes))
        await asyncio.sleep(3)
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)

    run_virtually(report())
    assert [call.args for call in client.offer.call_args_list] == [(recorded(),)]
    assert node._followed.to_give is None
    assert runs(node)
