"""Three controllers as processes: killed, restarted, cut apart and merged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.controllers import Cluster, controllers
from tests.support.definitions import apply
from tests.support.waiting import eventually_async

from slackwater.control.control_object import (
    ControlResponse,
    DeleteQuery,
    JoinNode,
    LeaveController,
    MoveFragment,
    Operation,
    PauseQuery,
)
from slackwater.controller.client import ControlClient, connect
from slackwater.controller.links import ResponseFrame
from slackwater.controller.store import open_store
from slackwater.protocols.iads.messages import SavedMembership, Stamp

OPERATIONS = 99
"""In each half of a split network, beside those on the entry that both change."""


def saved(folder: Path) -> SavedMembership:
    """What a controller that does not run has saved."""
    store = open_store(folder, folder.name)
    store.close()
    return store.saved


async def request(cluster: Cluster, name: str, operation: Operation) -> ResponseFrame:
    async with connect([cluster.address(name)]) as client:
        return await client.request(operation)


async def test_an_operation_at_one_controller_is_in_the_state_of_all(tmp_path: Path) -> None:
    async with controllers(tmp_path, "a", "b", "c") as cluster:
        assert (await request(cluster, "a", apply("climate"))).response.refusal == ""
        assert (await request(cluster, "b", PauseQuery("climate"))).response.refusal == ""
        assert (await request(cluster, "c", PauseQuery("door"))).response.known == ("climate",)
        state = (await cluster.agreed("a", "b", "c")).state
        assert state.queries["climate"].wanted == "paused"


async def test_killed_controllers_leave_the_others_answering_and_come_back_with_all(
    tmp_path: Path,
) -> None:
    async with controllers(tmp_path, "a", "b", "c") as cluster:
        await request(cluster, "c", apply("climate"))
        await request(cluster, "c", JoinNode("n1", 3))
        first = await request(cluster, "c", MoveFragment("climate", "orderer.0.a", "n1"))
        view_number = (await cluster.agreed("a", "b", "c")).view_number
        async with connect([cluster.address("a")]) as client:
            cluster.kill("c")
            answered = await client.request(PauseQuery("climate"))
            assert answered.response == ControlResponse()
            cluster.kill("b")
            answered = await client.request(DeleteQuery("climate"))
            assert answered.response == ControlResponse()
            await client.request(apply("doors"))
        cluster.kill("a")
        lives = {}
        for name in ("a", "b", "c"):
            lives[name] = saved(tmp_path / name).incarnation
            cluster.start(name)
        merged = await cluster.agreed("a", "b", "c")
        assert merged.view_number > view_number
        assert merged.state.live_queries() == ("doors",)
        again = await request(cluster, "b", MoveFragment("doors", "orderer.0.a", "n1"))
        assert again.response.number > first.response.number
        for name in ("a", "b", "c"):
            cluster.kill(name)
            found = saved(tmp_path / name)
            assert found.incarnation == lives[name] + 1
            assert found.view_number >= merged.view_number


async def test_a_controller_that_has_left_keeps_no_entry_of_a_deleted_query(tmp_path: Path) -> None:
    async with controllers(tmp_path, "a", "b", "c") as cluster:
        await request(cluster, "a", apply("climate"))
        refused = (await request(cluster, "a", LeaveController("c"))).response.refusal
        assert refused == "controller c runs: stop it first"
        cluster.kill("c")
        await cluster.agreed("a", "b")
        await request(cluster, "a", DeleteQuery("climate"))
        unknown = (await request(cluster, "a", LeaveController("d"))).response
        assert unknown.known == ("a", "b", "c")
        assert (await request(cluster, "b", LeaveController("c"))).response == ControlResponse()
        # Tombstones are dropped in the next view: the last member that is left has persisted it.
        cluster.kill("b")
        cluster.start("b")

        async def is_dropped() -> bool:
            frame = await cluster.agreed("a", "b")
            return "climate" not in frame.state.queries

        await eventually_async(is_dropped, "the deleted query is forgotten")


@pytest.mark.parametrize(
    "split_s", [pytest.param(0, id="short"), pytest.param(30, id="full", marks=pytest.mark.drill)]
)
async def test_a_split_network_diverges_and_merges_and_names_what_is_overridden(
    tmp_path: Path, split_s: float
) -> None:
    """Both halves get operations all the time that they are apart."""
    async with controllers(tmp_path, "a", "b", "c") as cluster:
        await request(cluster, "a", JoinNode("n1", 9))
        cluster.cut("a", "b")
        cluster.cut("a", "c")
        alone, pair = await asyncio.gather(cluster.agreed("a"), cluster.agreed("b", "c"))
        assert alone.members == ("a",)
        assert pair.members == ("b", "c")
        async with (
            connect([cluster.address("a")]) as one,
            connect([cluster.address("b")]) as other,
        ):

            async def request_all(client: ControlClient, definition: str) -> Stamp:
                for n in range(OPERATIONS):
                    operation = apply(f"{client.controller}-{n}")
                    assert not (await client.request(operation)).response.refusal
                    await asyncio.sleep(split_s / OPERATIONS)
                return (await client.request(apply("climate", definition))).stamp

            requested = (request_all(one, "x > 1"), request_all(other, "x > 2"))
            stamps = dict(zip("ab", await asyncio.gather(*requested), strict=True))
            moves = [
                await client.request(MoveFragment("climate", "orderer.0.a", "n1"))
                for client in (one, other)
            ]
            assert len({m.response.number for m in moves}) == 2
            cluster.heal()
            merged = await cluster.agreed("a", "b", "c")
            queries = merged.state.queries
            assert {f"{c}-{n}" for c in "ab" for n in range(OPERATIONS)} <= queries.keys()
            winner = queries["climate"].definition
            loser, won = (
                (one, "b") if winner == apply("climate", "x > 2").definition else (other, "a")
            )
            await loser.state()  # frames are in order: its refresh is here
            named = {s for refresh in loser.refreshes for s in refresh.overridden}
            assert stamps[loser.controller] in named
            assert queries["climate"].stamp == stamps[won]
