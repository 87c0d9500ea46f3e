"""A running stack as the machine of a node: what is started, and what is never ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.node.test_admission import ONE, THREE, parsed

from slackwater.model.deployment import Deployment
from slackwater.node import stack_machine
from slackwater.node.recorded import Assignment
from slackwater.node.stack_machine import StackMachine
from slackwater.protocols.iads.control_state import Wanted
from slackwater.runtime.local.layout import fragments_of
from slackwater.runtime.local.stack import Stack


class FakeFragments:
    """Processes that start and end at once; the disk can be full."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.aggregated: set[str] = set()
        self.learned: list[str] = []
        self.is_full = False

    async def settle_aggregators(self, wanted: Mapping[str, Sequence[str]]) -> None:
        self.aggregated = {each for has in wanted.values() for each in has}

    async def settle_hosts(self, wanted: Iterable[str]) -> None:
        if self.is_full:
            raise OSError("no space left on device")
        self.hosts = [*wanted]

    def learn(self, streams: list[str], _deployment: Deployment) -> None:
        self.learned += streams


class World:
    """A stack that runs query ``one``, and its machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *queries: str) -> None:
        running = parsed(*queries)
        self.stack = SimpleNamespace(
            deployment=running, paused=frozenset(), late=SimpleNamespace(names=frozenset()),
            supervisor=None, launch=None, set_queries=self._set_queries,
        )  # fmt: skip
        self.fragments = FakeFragments()
        self.fragments.hosts = fragments_of(running)
        monkeypatch.setattr(stack_machine, "Fragments", lambda *_: self.fragments)
        self.machine = StackMachine(cast(Stack, self.stack), {})

    def _set_queries(self, deployment: Deployment, paused: Iterable[str]) -> None:
        self.stack.deployment, self.stack.paused = deployment, frozenset(paused)

    async def settle(
        self, recorded: Deployment, *placed: str, paused: str = "", registered: str = ""
    ) -> None:
        """Settle with the fragments of these recorded queries placed here."""
        wanted = {n: Wanted.PAUSED if n == paused else Wanted.RUNNING for n in placed}
        names = [n for n in fragments_of(recorded) for q in placed if f"/{q}." in n and q != paused]
        assigned = Assignment(dict.fromkeys(names, 1), {}, wanted)
        await self.machine.settle(assigned, recorded, {registered} - {""})


@pytest.fixture(name="world")
def _world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch, ONE, THREE)


async def test_what_runs_goes_on_until_all_of_it_is_placed(world: World) -> None:
    running = world.fragments.hosts
    both = parsed(ONE, THREE)
    await world.settle(parsed(ONE))
    await world.settle(both)
    await world.settle(both, "one")
    assert world.fragments.hosts == running
    await world.settle(both, "one", "three")
    assert sorted(world.fragments.hosts) == sorted(running)
    await world.settle(parsed(ONE), "one")
    assert {*world.fragments.hosts} == {*fragments_of(parsed(ONE))}
    assert {*world.stack.deployment.queries} == {"one"}


async def test_what_is_not_registered_yet_goes_on(world: World) -> None:
    running = world.fragments.hosts
    world.stack.late.names = frozenset({"three"})
    await world.settle(parsed(ONE), "one")
    assert sorted(world.fragments.hosts) == sorted(running)
    assert {*world.stack.deployment.queries} == {"one", "three"}


async def test_an_aggregator_gets_the_fragments_of_registered_queries_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, ONE)
    wide = ONE.replace("one:", "wide:").replace("size: 1s", "size: 4s")
    both = parsed(ONE, wide)
    await world.settle(both, "one", "wide")
    assert world.fragments.aggregated == {"one.0.a", "one.0.b"}
    assert "orderer/wide.0.a" in world.fragments.hosts, "it waits for its registration"
    await world.settle(both, "one", "wide", registered="wide")
    assert world.fragments.aggregated == {"one.0.a", "one.0.b", "wide.0.a", "wide.0.b"}
    await world.settle(both, "one", "wide")
    assert "wide.0.a" in world.fragments.aggregated, "an agent that has begun again knows less"


async def test_a_paused_query_ends_and_stays_in_the_stack(world: World) -> None:
    both = parsed(ONE, THREE)
    await world.settle(both, "one", "three")
    await world.settle(both, "one", "three", paused="one")
    assert {*world.fragments.hosts} == {*fragments_of(parsed(THREE))}
    assert world.fragments.aggregated == set()
    assert world.stack.paused == {"one"}, "a later generation of it must wait"
    assert {*world.stack.deployment.queries} == {"one", "three"}


async def test_a_change_that_fails_is_complete_at_the_next_attempt(world: World) -> None:
    both = parsed(ONE, THREE)
    await world.settle(both, "one", "three")
    world.fragments.is_full = True
    with pytest.raises(OSError, match="no space"):
        await world.settle(parsed(ONE), "one")
    world.fragments.is_full = False
    await world.settle(parsed(ONE), "one")
    assert {*world.fragments.hosts} == {*fragments_of(parsed(ONE))}


def test_proxies_of_the_streams_of_the_stack_learn(world: World) -> None:
    world.machine.learn(["b", "elsewhere"])
    assert world.fragments.learned == ["b"]
