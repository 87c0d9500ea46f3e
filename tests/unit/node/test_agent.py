"""The agent over a machine that is a value: what it carries out, retries, imports and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.unit.node.test_admission import ONE, THREE, TWO, parsed
from tests.waiting import eventually_async

from slackwater.model.deployment import Deployment
from slackwater.model.errors import EnvironmentProblem
from slackwater.node import agent as agents
from slackwater.node.agent import Agent
from slackwater.node.applied import AppliedQuery, Start, to_text
from slackwater.node.generations import as_generation
from slackwater.node.plan import State
from slackwater.protocols.iads.control_object import (
    ApplyQuery,
    ControlObject,
    DeleteQuery,
    Operation,
    PauseQuery,
    ResumeQuery,
)
from slackwater.protocols.iads.control_state import ControlState
from slackwater.protocols.iads.messages import Stamp
from slackwater.runtime.local.changes import with_query, without_queries
from slackwater.runtime.service.registry import QueryDefinition


class FakeMachine:
    """A stack whose changes take no time; it can be away, or lack a first reading."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.known = {
            name: QueryDefinition(name, 0, 0, 1, spec) for name, spec in deployment.queries.items()
        }
        self.is_away = self.is_empty = self.is_settled = False
        self.fails_with: Exception | None = None
        self.starts: dict[str, Start] = {}
        self.tries_in_vain = 0
        self.ready: set[str] = set()
        """New generations that can replace the earlier one."""
        self.asked_about: list[tuple[str, str]] = []
        self.retired: set[str] = set()

    def registered(self) -> Mapping[str, QueryDefinition]:
        if self.is_away:
            self.tries_in_vain += 1
            raise EnvironmentProblem("no broker answers")
        return dict(self.known)

    async def is_ready_to_replace(self, later: str, earlier: str) -> bool:
        await asyncio.sleep(0)
        self.asked_about.append((later, earlier))
        return later in self.ready

    def retire(self, registered: Mapping[str, QueryDefinition]) -> None:
        self.retired = {name for name, query in registered.items() if query.state == "deleted"}

    async def settle(self) -> None:
        if self.fails_with is not None:
            self.tries_in_vain += 1
            raise self.fails_with
        self.is_settled = True

    async def apply(self, added: Deployment, name: str, start: Start) -> bool:
        await asyncio.sleep(0)
        if self.is_empty:
            self.tries_in_vain += 1
            return False
        self.starts[name] = start
        self.deployment = with_query(self.deployment, added, name)
        spec = added.queries[name]
        self.known[name] = QueryDefinition(name, 0, 0, 1, spec, deployment=added)
        return True

    async def change_state(self, name: str, state: State) -> None:
        await asyncio.sleep(0)
        self.known[name] = replace(self.known[name], state=state)
        if state == "deleted":
            self.deployment = without_queries(self.deployment, {name})

    def states(self) -> dict[str, State]:
        return {name: query.state for name, query in self.known.items()}


class World:
    """An agent, its machine, and a record without a controller."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.agent = Agent(machine)
        self.record = ControlObject(frozenset({"up"}), ControlState())
        self._time = 0

    def request(self, operation: Operation, *, admitted: bool = True) -> str:
        refusal = self.agent.admit(operation)
        assert bool(refusal) != admitted, refusal
        if not refusal:
            self._time += 1
            assert not self.record.apply(operation, Stamp(1, self._time, "up")).refusal
            self.agent.record(self.record.state)
        return refusal

    def take(self, operation: Operation) -> None:
        """An operation that the agent requests."""
        self.request(operation)

    def apply(self, name: str, deployment: Deployment, start: Start = "now") -> None:
        self.request(ApplyQuery(name, to_text(AppliedQuery(name, deployment, start))))

    async def reaches(self, **states: State) -> None:
        running = asyncio.create_task(self.agent.run(self.take))
        try:
            await eventually_async(lambda: self.machine.states() == states, str(states), 20)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(name="world")
async def _world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(agents, "RETRY_S", 0.01)
    world = World(FakeMachine(parsed(ONE)))
    await world.agent.begin()
    for operation in world.agent.imports(world.record.state):
        world.request(operation)
    return world


async def test_what_runs_is_imported_and_nothing_is_done(world: World) -> None:
    assert world.record.state.live_queries() == ("one",)
    assert world.agent.imports(world.record.state) == []
    await world.reaches(one="running")
    assert world.machine.starts == {}


async def test_queries_are_applied_in_the_order_of_their_chain(world: World) -> None:
    world.apply("two", parsed(ONE, TWO), 5)
    world.apply("three", parsed(ONE, THREE), "beginning")
    await world.reaches(one="running", two="running", three="running")
    assert world.machine.starts == {"two": 5, "three": "beginning"}


async def test_a_query_can_read_one_that_is_recorded_and_not_running_yet(world: World) -> None:
    text = TWO.replace("two", "four").replace("[one]", "[two]").replace("5s", "9s")
    world.apply("two", parsed(ONE, TWO))
    world.apply("four", parsed(ONE, TWO, text))
    await world.reaches(one="running", two="running", four="running")


async def test_pause_resume_and_delete(world: World) -> None:
    world.apply("two", parsed(ONE, TWO))
    world.request(PauseQuery("two"))
    await world.reaches(one="running", two="paused")
    world.request(ResumeQuery("two"))
    await world.reaches(one="running", two="running")
    assert "is read by two" in world.request(DeleteQuery("one"), admitted=False)
    world.request(DeleteQuery("two"))
    await world.reaches(one="running", two="deleted")
    world.request(DeleteQuery("one"))
    await world.reaches(one="deleted", two="deleted")


async def test_while_kafka_is_away_operations_are_recorded_and_wait(world: World) -> None:
    world.machine.is_away = True
    world.apply("three", parsed(ONE, THREE))
    running = asyncio.create_task(world.agent.run(world.take))
    await eventually_async(lambda: world.machine.tries_in_vain >= 2, "it is tried", 20)
    assert world.machine.states() == {"one": "running"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    world.machine.is_away = False
    world.agent.record(world.record.state)
    await world.reaches(one="running", three="running")


async def test_a_query_without_a_first_reading_is_tried_again(world: World) -> None:
    world.machine.is_empty = True
    world.apply("three", parsed(ONE, THREE))
    running = asyncio.create_task(world.agent.run(world.take))
    await eventually_async(lambda: world.machine.tries_in_vain >= 2, "it is tried", 20)
    world.machine.is_empty = False
    await eventually_async(lambda: "three" in world.machine.states(), "it is applied", 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_record_that_was_lost_is_filled_from_what_runs(world: World) -> None:
    world.apply("two", parsed(ONE, TWO))
    world.request(PauseQuery("two"))
    await world.reaches(one="running", two="paused")
    again = World(world.machine)
    await again.agent.begin()
    for operation in again.agent.imports(again.record.state):
        again.request(operation)
    await again.reaches(one="running", two="paused")
    assert {q.wanted for q in again.record.state.queries.values()} == {"running", "paused"}


async def test_a_query_that_the_file_no_longer_has_is_left_stopped(world: World) -> None:
    world.machine.deployment = without_queries(world.machine.deployment, {"one"})
    world.request(PauseQuery("one"), admitted=False)
    await world.reaches(one="running")
    assert world.machine.starts == {}


@pytest.mark.parametrize("error", [OSError("no space"), EnvironmentProblem("away"), KeyError("x")])
async def test_what_is_left_of_a_failed_change_is_tried_again_whatever_failed(
    world: World, error: Exception
) -> None:
    """The change is registered, so nothing is found to be done but this."""
    world.machine.fails_with = error
    running = asyncio.create_task(world.agent.run(world.take))
    try:
        await eventually_async(lambda: world.machine.tries_in_vain > 2, "it is tried again", 20)
        assert not world.machine.is_settled
        world.machine.fails_with = None
        await eventually_async(lambda: world.machine.is_settled, "it is settled", 20)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_new_generation_replaces_the_earlier_one_when_it_is_ready(world: World) -> None:
    changed, name = as_generation(parsed(ONE.replace("2s", "3s")), "one", world.record.state)
    world.apply(name, changed)
    running = asyncio.create_task(world.agent.run(world.take))
    machine = world.machine
    await eventually_async(lambda: len(machine.asked_about) >= 2, "it is asked again", 20)
    assert machine.states() == {"one": "running", "one.g1": "running"}
    machine.ready.add("one.g1")
    await eventually_async(lambda: machine.states()["one"] == "deleted", "it is replaced", 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert world.record.state.live_queries() == ("one.g1",)
    assert world.machine.retired == {"one"}


async def test_a_query_that_cannot_start_does_not_keep_a_change_from_its_end(world: World) -> None:
    changed, name = as_generation(parsed(ONE.replace("2s", "3s")), "one", world.record.state)
    world.apply(name, changed)
    await world.reaches(**{"one": "running", "one.g1": "running"})  # type: ignore[arg-type]
    world.machine.ready.add("one.g1")
    world.machine.is_empty = True
    world.apply("three", parsed(ONE, THREE))
    running = asyncio.create_task(world.agent.run(world.take))
    states = world.machine.states
    await eventually_async(lambda: states()["one"] == "deleted", "it is replaced", 20)
    assert "three" not in states()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_paused_query_is_not_replaced(world: World) -> None:
    changed, name = as_generation(parsed(ONE.replace("2s", "3s")), "one", world.record.state)
    world.request(PauseQuery("one"))
    refused = world.request(ApplyQuery(name, to_text(AppliedQuery(name, changed))), admitted=False)
    assert "is paused" in refused, "though the registry does not have it yet"
    world.request(ResumeQuery("one"))
    world.apply(name, changed)
    world.request(PauseQuery("one.g1"))
    world.machine.ready.add("one.g1")
    await world.reaches(**{"one": "running", "one.g1": "paused"})  # type: ignore[arg-type]


async def test_a_deletion_that_was_not_carried_out_is_not_imported(world: World) -> None:
    changed, name = as_generation(parsed(ONE.replace("2s", "3s")), "one", world.record.state)
    world.apply(name, changed)
    await world.reaches(**{"one": "running", "one.g1": "running"})  # type: ignore[arg-type]
    world.request(DeleteQuery("one.g1"))  # and `up` ends before it is carried out
    again = Agent(world.machine)
    await again.begin()
    assert again.imports(world.record.state) == []
    assert not again.may_forget(world.record.state), "else it would be imported"
    await world.reaches(**{"one": "running", "one.g1": "deleted"})  # type: ignore[arg-type]
    await again.begin()
    assert again.may_forget(world.record.state)


async def test_a_change_can_be_cancelled(world: World) -> None:
    changed, name = as_generation(parsed(ONE.replace("2s", "3s")), "one", world.record.state)
    world.apply(name, changed)
    world.request(DeleteQuery("one.g1"))
    await world.reaches(one="running")
    again, name = as_generation(parsed(ONE.replace("2s", "4s")), "one", world.record.state)
    assert name == "one.g2"
    world.apply(name, again)
    running = asyncio.create_task(world.agent.run(world.take))
    await eventually_async(lambda: "one.g2" in world.machine.states(), "it is changed again", 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
