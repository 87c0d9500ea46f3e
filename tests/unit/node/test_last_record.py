"""A node that starts and reaches no controller runs what it ran last, and changes no query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from tests.support.definitions import apply
from tests.support.virtual_loop import run_virtually

from slackwater.control.control_object import ControlObject, JoinNode, MoveFragment
from slackwater.control.control_state import ControlState
from slackwater.control.recorded import REGISTRATION, Assignment
from slackwater.controller.address import Address
from slackwater.controller.links import NodeReport, StateFrame
from slackwater.node import app
from slackwater.node.app import Node, NodeConfig
from slackwater.node.last_record import FILE, LastRecord
from slackwater.protocols.iads.messages import Stamp

ADDRESS = Address("127.0.0.1", 9)
ORDERER = "orderer/q.0.a"


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual loop waits for no thread."""

    async def call(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", call)


def recorded(node: str = "n1") -> ControlState:
    """A record in which query q is registered, and ordered, on a node."""
    record = ControlObject(frozenset("a"), ControlState())
    operations = (
        *(JoinNode("n1", 9), JoinNode("n2", 9), apply("q")),
        *(MoveFragment("q", REGISTRATION, node), MoveFragment("q", "orderer.0.a", node)),
    )
    for time, operation in enumerate(operations, 1):
        assert not record.apply(operation, Stamp(1, time, "a")).refusal
    return record.state


class World:
    """A node without controllers, and what its machine has been given."""

    def __init__(self, folder: Path) -> None:
        self.settled: list[tuple[float, set[str]]] = []
        self.registering = Mock(
            carry_out=AsyncMock(return_value=(frozenset(), "")),
            registered=Mock(return_value={"q": Mock()}),
            run=AsyncMock(),
            are_ready=AsyncMock(return_value=[]),
        )
        machine = Mock(settle=self._settle, close=AsyncMock(), ready=tuple, superseded=tuple)
        machine.answering = tuple
        machine.registering = lambda: self.registering
        self.last = LastRecord(folder)
        self.node = Node(NodeConfig("n1", (), 1, {}), machine, last=self.last)

    async def _settle(self, assigned: Assignment, *_: object) -> None:
        now_s = asyncio.get_running_loop().time()
        self.settled.append((now_s, {*assigned.fragments}))

    def receive(self, record: ControlState) -> None:
        nodes = NodeReport((), (), (), (), (), "", ())
        self.node._receive(ADDRESS, StateFrame(0, "a", 1, ("a",), record, nodes))

    def run(self, for_s: float, *acts: tuple[float, ControlState]) -> None:
        """Run the node; a controller's record arrives at each of these times."""

        async def run() -> None:
            running = asyncio.create_task(self.node.run())
            for at_s, record in acts:
                asyncio.get_running_loop().call_later(at_s, self.receive, record)
            await asyncio.wait({running}, timeout=for_s)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        run_virtually(run())

    def registered(self) -> list[set[str]]:
        """The queries of each registration that was requested."""
        return [{*call.args[0]} for call in self.registering.carry_out.await_args_list]


def test_it_runs_what_it_ran_last_and_registers_nothing(tmp_path: Path) -> None:
    World(tmp_path).run(2, (0, recorded()))
    again = World(tmp_path)
    again.run(2 * app.ALONE_S)
    assert [fragments for _, fragments in again.settled if fragments] == [{ORDERER}] * 2
    assert again.settled[0][0] >= app.ALONE_S, "controllers may be starting, too"
    assert not set().union(*again.registered())


def test_a_record_of_a_controller_counts_from_when_it_arrives(tmp_path: Path) -> None:
    World(tmp_path).run(2, (0, recorded()))
    again = World(tmp_path)
    again.run(3 * app.ALONE_S, (2 * app.ALONE_S, recorded("n2")))
    assert again.settled[0][1] == {ORDERER}
    assert again.settled[-1][1] == set()
    assert again.last.read() == recorded("n2")


def test_nothing_of_it_runs_if_a_controller_answers_in_time(tmp_path: Path) -> None:
    World(tmp_path).run(2, (0, recorded()))
    again = World(tmp_path)
    again.run(3 * app.ALONE_S, (app.ALONE_S / 2, recorded("n2")))
    assert all(not fragments for _, fragments in again.settled)


def test_a_query_is_registered_once_a_controller_is_back(tmp_path: Path) -> None:
    World(tmp_path).run(2, (0, recorded()))
    again = World(tmp_path)
    again.run(3 * app.ALONE_S, (2 * app.ALONE_S, recorded()))
    assert again.registered()[0] == set()
    assert again.registered()[-1] == {"q"}


@pytest.mark.parametrize("content", ["", "[", '{"a": 1}', "[]"])
def test_a_damaged_file_is_reported_and_nothing_runs(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(content)
    world = World(tmp_path)
    world.run(2 * app.ALONE_S)
    assert not world.settled
    assert f"{FILE} cannot be read" in caplog.text
