"""Nodes that connect to one controller: who is refused, what is sent to them, what is planned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock, create_autospec

import pytest
from tests.support.definitions import apply
from tests.support.waiting import eventually_async

from slackwater.control.control_object import (
    ControlObject,
    DeleteQuery,
    DrainNode,
    JoinNode,
    MoveFragment,
    Operation,
)
from slackwater.control.control_state import STREAMS, ControlState
from slackwater.control.placement import FragmentSpec
from slackwater.control.placing import RECONNECT_US_MAX, Specs
from slackwater.control.recorded import REGISTRATION, fragment_specs
from slackwater.controller.address import Address
from slackwater.controller.client import ControlClient, connect
from slackwater.controller.links import FrameLink, LinkError, NodeBeat, NodeReport, StateFrame
from slackwater.controller.nodes import ConnectedNodes
from slackwater.controller.server import Controller, ControllerConfig
from slackwater.controller.store import open_store
from slackwater.model.errors import UsageError
from slackwater.node.app import Node, NodeConfig
from slackwater.node.machine import NodeMachine
from slackwater.node.place import NodePlace
from slackwater.protocols.iads.messages import Stamp
from slackwater.runtime.logs.cluster import find_cluster
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.clock import SystemClock
from slackwater.status.overview import overview_of

LAB = (STREAMS, "lab")


def specs(_state: ControlState) -> list[FragmentSpec]:
    return [FragmentSpec(*LAB, "lab")]


@asynccontextmanager
async def controller(
    folder: Path,
    *,
    specs_of: Specs = specs,
    admit: Callable[[Operation], str] = lambda _: "",
    ahead_us: int = 0,
) -> AsyncIterator[Address]:
    store, stopping = open_store(folder, "a"), asyncio.Event()
    config = ControllerConfig("a", Address("127.0.0.1", 0), {})
    made = Controller(
        config,
        store,
        admit=admit,
        specs_of=specs_of,
        clock=lambda: SystemClock(wall_us=lambda: SystemClock().now_us() + ahead_us),
    )
    running = asyncio.create_task(made.run(stopping))
    try:
        yield await made.started()
    finally:
        stopping.set()
        await running
        store.close()


class Connected:
    """A connected node, which sends heartbeats until it is closed."""

    def __init__(self, client: ControlClient, name: str, states: list[StateFrame]) -> None:
        self.client, self.states, self._name = client, states, name
        self.ready: set[int] = set()
        self.ended: set[int] = set()
        self.answering: set[int] = set()

    async def run(self) -> None:
        while True:
            ready, ended = tuple(sorted(self.ready)), tuple(sorted(self.ended))
            answering = tuple(sorted(self.answering))
            self.client.beat(NodeBeat(self._name, ready, (), ended=ended, answering=answering))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def node(address: Address, name: str) -> AsyncIterator[Connected]:
    states: list[StateFrame] = []
    async with connect([address], b"", name, states.append) as client:
        made = Connected(client, name, states)
        running = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_node_is_sent_the_record_and_what_is_placed_on_it(tmp_path: Path) -> None:
    async with controller(tmp_path) as address, node(address, "n1") as mine:
        await eventually_async(lambda: bool(mine.states), "the record arrives")
        assert not (await mine.client.request(JoinNode("n1", 5))).response.refusal
        await eventually_async(lambda: LAB in mine.states[-1].state.placement, "it is placed")
        entry = mine.states[-1].state.placement[LAB]
        assert entry.node == "n1"
        assert entry.number not in (await mine.client.state()).nodes.ready
        mine.ready.add(entry.number)

        async def is_ready() -> bool:
            return entry.number in (await mine.client.state()).nodes.ready

        await eventually_async(is_ready, "the report is there")
        count = len(mine.states)
        await mine.client.state()
        assert len(mine.states) == count, "nothing is sent while nothing changes"


async def test_a_second_node_of_the_name_is_refused_while_the_first_is_connected(
    tmp_path: Path,
) -> None:
    async with controller(tmp_path) as address:
        async with node(address, "n1") as first:
            await eventually_async(lambda: bool(first.states), "it is connected")
            async with connect([address]) as second:
                second.beat(NodeBeat("n1", (), ()))
                with pytest.raises(LinkError, match="n1 is connected already"):
                    await second.state()
            await first.client.state()
        async with node(address, "n1") as again:
            await eventually_async(lambda: bool(again.states), "the name is free")


async def test_what_was_on_a_node_that_is_gone_is_placed_on_another_one(tmp_path: Path) -> None:
    async with controller(tmp_path) as address, node(address, "n1") as mine:
        async with node(address, "n2") as other:
            await other.client.request(JoinNode("n2", 5))
            await eventually_async(
                lambda: bool(other.states) and LAB in other.states[-1].state.placement, "placed"
            )
            await mine.client.request(JoinNode("n1", 5))
            first = mine.states[-1].state.placement[LAB]
            assert first.node == "n2"
        began = asyncio.get_running_loop().time()
        await eventually_async(lambda: mine.states[-1].state.placement[LAB].node == "n1", "moved")
        assert asyncio.get_running_loop().time() - began >= RECONNECT_US_MAX / 1e6 - 0.1
        assert mine.states[-1].state.placement[LAB].number > first.number
        report = dict((await mine.client.state()).nodes.standings)
        assert report == {"n1": "steady", "n2": "suspected"}


COPIES = [
    FragmentSpec(STREAMS, f"root.{part}.{letter}", f"root.{part}")
    for part in range(2)
    for letter in "ab"
]


async def test_the_node_that_answers_more_is_asked_to_let_a_copy_resign(tmp_path: Path) -> None:
    async with (
        controller(tmp_path, specs_of=lambda _: COPIES) as address,
        node(address, "n1") as one,
        node(address, "n2") as two,
    ):
        for name in ("n1", "n2"):
            assert not (await one.client.request(JoinNode(name, 5))).response.refusal
        await eventually_async(
            lambda: bool(one.states) and len(one.states[-1].state.placement) == 4, "all is placed"
        )
        placed = one.states[-1].state.placement.values()
        by_node = {of: {e.number for e in placed if e.node == of} for of in ("n1", "n2")}
        assert {of: len(numbers) for of, numbers in by_node.items()} == {"n1": 2, "n2": 2}
        one.answering = by_node["n1"]
        one.ready, two.ready = by_node["n1"], by_node["n2"]
        await eventually_async(lambda: any(each.resign for each in one.states), "it is asked")
        (asked,) = (each.resign for each in one.states if each.resign)
        assert len(asked) == 1
        assert {*asked} < by_node["n1"]
        assert not any(each.resign for each in two.states)


@pytest.mark.parametrize("made", [True, False])
async def test_a_refused_move_is_a_problem_only_if_it_is_planned_again(made: bool) -> None:
    record = ControlObject(frozenset("a"), ControlState())
    record.apply(JoinNode("n1", 5), Stamp(1, 1, "a"))
    planned: list[None] = []
    requested: list[MoveFragment] = []
    nodes = ConnectedNodes(
        "a",
        specs,
        state=lambda: record.state,
        frame=MagicMock(),
        request=requested.append,
        planned=lambda: planned.append(None),
    )
    nodes.view(1, frozenset("a"))
    nodes.beat(create_autospec(FrameLink, instance=True), NodeBeat("n1", (), ()))
    running = asyncio.create_task(nodes.run())
    try:
        await eventually_async(lambda: bool(requested), "a move is requested")
        if made:
            record.apply(requested[0], Stamp(1, 2, "a"))
        nodes.refused("why")
        assert nodes.report().refusal == "", "not before it is planned again"
        plans = len(planned)
        await eventually_async(lambda: len(planned) > plans, "it plans again")
        assert nodes.report().refusal == ("" if made else "why")
        assert len(requested) == (1 if made else 2)
        nodes.changed()
        assert nodes.report().refusal == ""
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_tombstone_remains_until_the_node_reports_that_the_deletion_is_carried_out(
    tmp_path: Path,
) -> None:
    key = ("q", REGISTRATION)
    async with (
        controller(tmp_path, specs_of=fragment_specs) as address,
        node(address, "n1") as mine,
    ):
        for operation in (JoinNode("n1", 9), apply("q")):
            assert not (await mine.client.request(operation)).response.refusal
        await eventually_async(lambda: key in mine.states[-1].state.placement, "it is placed")
        assert not (await mine.client.request(DeleteQuery("q"))).response.refusal
    # A tombstone is dropped in a later view at the earliest.
    async with (
        controller(tmp_path, specs_of=fragment_specs) as address,
        node(address, "n1") as mine,
    ):
        await eventually_async(lambda: bool(mine.states), "it is connected")
        mine.ready.add(number := mine.states[-1].state.placement[key].number)

        async def is_ready() -> bool:
            return number in (await mine.client.state()).nodes.ready

        await eventually_async(is_ready, "the report is there")
        assert not (await mine.client.request(apply("r"))).response.refusal
        await eventually_async(
            lambda: ("r", REGISTRATION) in mine.states[-1].state.placement, "a plan follows"
        )
        assert mine.states[-1].state.has_tombstones()
        mine.ended.add(number)
        await eventually_async(lambda: not mine.states[-1].state.has_tombstones(), "forgotten")


async def test_a_state_whose_fragments_cannot_be_determined_ends_no_controller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_state: ControlState) -> list[FragmentSpec]:
        raise RecursionError("a circle")

    async with controller(tmp_path, specs_of=fails) as address, node(address, "n1") as mine:
        for operation in (JoinNode("n1", 9), apply("q")):
            assert not (await mine.client.request(operation)).response.refusal
        caplog.clear()
        assert not (await mine.client.request(DeleteQuery("q"))).response.refusal
        await eventually_async(lambda: "nothing can be placed" in caplog.text, "it is logged")
        assert (await mine.client.state()).state.has_tombstones()


async def test_what_cannot_be_placed_is_reported_with_the_reason(tmp_path: Path) -> None:
    async with controller(tmp_path) as address, node(address, "n1") as mine:
        await mine.client.request(JoinNode("n1", 5))
        await mine.client.request(DrainNode("n1"))

        async def is_reported() -> bool:
            return bool((await mine.client.state()).nodes.unplaced)

        await eventually_async(is_reported, "it is reported")
        (unplaced,) = (await mine.client.state()).nodes.unplaced
        assert unplaced[:2] == LAB


@pytest.mark.parametrize(
    ("name", "room", "text"), [("a b", 5, "'a b' is no name"), ("n1", -1, "room -1")]
)
async def test_a_node_that_the_record_cannot_have_ends_with_the_reason(
    tmp_path: Path, name: str, room: int, text: str
) -> None:
    async with controller(tmp_path / "a") as address:
        machine = NodeMachine(
            NodePlace(name, find_cluster("127.0.0.1:9", None, Role.ADMIN), tmp_path / "n")
        )
        with pytest.raises(UsageError, match=text):
            await Node(NodeConfig(name, [address], room, {}), machine).run()


async def test_an_operation_whose_check_fails_is_refused_and_the_controller_goes_on(
    tmp_path: Path,
) -> None:
    def admit(_operation: Operation) -> str:
        raise RecursionError("a circle")

    async with controller(tmp_path, admit=admit) as address, connect([address]) as client:
        response = (await client.request(JoinNode("n1", 1))).response
        assert "cannot be checked: RecursionError" in response.refusal
        await client.state()


@pytest.mark.parametrize("ahead_ms", [200, -200, 0])
async def test_a_clock_that_takes_more_than_half_a_margin_is_reported(
    tmp_path: Path, ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeMachine, "settle", AsyncMock())  # it would wait for Kafka
    cluster = find_cluster("127.0.0.1:9", None, Role.ADMIN)
    async with (
        controller(tmp_path / "a", specs_of=lambda _: (), ahead_us=1_000 * ahead_ms) as address,
        connect([address]) as client,
    ):
        assert not (await client.request(apply("q"))).response.refusal
        machine = NodeMachine(NodePlace("n1", cluster, tmp_path / "n"))
        made = Node(NodeConfig("n1", [address], 5, {}), machine)
        running = asyncio.create_task(made.run())

        async def report() -> NodeReport:
            return (await client.state()).nodes

        async def is_measured() -> bool:
            clocks = (await report()).clocks
            return bool(clocks) and (not ahead_ms or bool((await report()).problems))

        await eventually_async(is_measured, "the offset is reported")
        frame = await client.state()
        (clock,), problems = frame.nodes.clocks, dict(frame.nodes.problems)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    name, offset_us, error_us = clock
    assert name == "n1"
    assert offset_us == pytest.approx(-1_000 * ahead_ms, abs=20_000)
    assert error_us >= 0
    wrong = [text for text in overview_of({str(address): frame}).wrong if "clock" in text]
    if not ahead_ms:
        assert (problems, wrong) == ({}, [])
        return
    assert wrong == [f"node n1: {problems['n1']}"], "status says so"
    side = "behind" if ahead_ms > 0 else "ahead of"
    assert (
        f"ms {side} that of controller a; more than half the margin of query q (25ms)"
        in (problems["n1"])
    )
