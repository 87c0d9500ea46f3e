"""A running stack as the machine of a node: what is started, and what is never ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.control.test_admission import ONE, THREE, parsed

from slackwater.control.control_state import Wanted
from slackwater.control.recorded import Assignment
from slackwater.deployment.fragments import fragments_of
from slackwater.deployment.stored import read_stored
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch
from slackwater.machine.placed_proxies import AddedProxies
from slackwater.machine.stack import Stack
from slackwater.model.deployment import Deployment
from slackwater.node import stack_machine
from slackwater.node.stack_machine import StackMachine
from slackwater.runtime.service.registry import QueryDefinition


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

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *queries: str) -> None:
        running = parsed(*queries)
        self.processes: dict[str, ProcessSpec] = {}
        """The processes of added proxies."""
        launch = Launch(folder / "d.yaml", "broker:1", folder)
        self.stack = SimpleNamespace(
            deployment=running, paused=frozenset(), supervisor=self, launch=launch,
            added=AddedProxies(self, launch, {"a", "b"}, folder),
            set_queries=self._set_queries, declared_streams={"a", "b"},
        )  # fmt: skip
        self.fragments = FakeFragments()
        self.fragments.hosts = fragments_of(running)
        monkeypatch.setattr(stack_machine, "Fragments", lambda *_: self.fragments)
        self.machine = StackMachine(cast(Stack, self.stack), {})

    def _set_queries(self, deployment: Deployment, paused: Iterable[str]) -> None:
        self.stack.deployment, self.stack.paused = deployment, frozenset(paused)

    async def start(self, spec: ProcessSpec) -> None:
        assert spec.name not in self.processes
        self.processes[spec.name] = spec

    async def end(self, name: str) -> None:
        del self.processes[name]

    async def settle(
        self, recorded: Deployment, *placed: str, paused: str = "", registered: str = ""
    ) -> None:
        """Settle with the fragments of these recorded queries placed here."""
        wanted = {n: Wanted.PAUSED if n == paused else Wanted.RUNNING for n in placed}
        names = [
            name
            for name in fragments_of(recorded)
            if any(re.search(rf"/{q}\.\d", name) for q in placed if q != paused)
        ]
        proxies = {f"proxy/{stream}": 1 for stream in recorded.streams}
        assigned = Assignment(dict.fromkeys(names, 1), proxies, wanted)
        await self.machine.settle(assigned, recorded, {registered} - {""})


@pytest.fixture(name="world")
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch, ONE, THREE)


async def test_what_runs_goes_on_until_all_of_it_is_placed(world: World) -> None:
    running = world.fragments.hosts
    both = parsed(ONE, THREE)
    await world.settle(both)
    await world.settle(both, "one")
    assert sorted(world.fragments.hosts) == sorted(running)
    await world.settle(both, "one", "three")
    assert sorted(world.fragments.hosts) == sorted(running)
    await world.settle(parsed(ONE), "one")
    assert {*world.fragments.hosts} == {*fragments_of(parsed(ONE))}
    assert {*world.stack.deployment.queries} == {"one"}


async def test_a_query_that_is_recorded_late_goes_on_until_it_is_placed(world: World) -> None:
    running = world.fragments.hosts
    await world.settle(parsed(ONE), "one")
    assert sorted(world.fragments.hosts) == sorted(running), "three is not recorded"
    assert {*world.stack.deployment.queries} == {"one", "three"}
    await world.settle(parsed(ONE, THREE), "one")
    assert sorted(world.fragments.hosts) == sorted(running), "three is not placed"
    await world.settle(parsed(ONE, THREE), "one", "three")
    assert sorted(world.fragments.hosts) == sorted(running)
    await world.settle(parsed(ONE), "one")
    assert {*world.fragments.hosts} == {*fragments_of(parsed(ONE))}, "it is deleted"
    assert {*world.stack.deployment.queries} == {"one"}


async def test_a_query_that_is_deleted_before_it_was_placed_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version has recorded the deletion, and has not carried it out."""
    world = World(tmp_path, monkeypatch, ONE, THREE)
    running = world.fragments.hosts
    await world.settle(parsed(ONE), "one")
    assert sorted(world.fragments.hosts) == sorted(running)
    spec = world.stack.deployment.queries["three"]
    deleted = {"three": QueryDefinition("three", 0, 0, 1, spec, state="deleted")}
    monkeypatch.setattr(StackMachine, "definitions", deleted)
    await world.settle(parsed(ONE), "one")
    assert {*world.fragments.hosts} == {*fragments_of(parsed(ONE))}


async def test_the_roots_of_a_new_generation_wait_though_the_earlier_one_is_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` has been started again during a change."""
    world = World(tmp_path, monkeypatch, ONE)
    one = world.stack.deployment
    later = replace(one.queries["one"], name="one.g1")
    both = replace(one, queries={**one.queries, "one.g1": later})
    world.stack.deployment = both
    world.machine = StackMachine(cast(Stack, world.stack), {})
    await world.settle(both, "one")
    assert "orderer/one.g1.0.a" in world.fragments.hosts
    assert "root/one.g1.0" not in world.fragments.hosts


async def test_an_aggregator_gets_the_fragments_of_registered_queries_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, ONE)
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


def with_streams(*names: str) -> Deployment:
    """The running deployment, and streams that its file does not have."""
    running = parsed(ONE, THREE)
    added = {name: replace(running.streams["b"], name=name) for name in names}
    return replace(running, streams={**running.streams, **added})


def parts(world: World) -> dict[str, tuple[str, ...]]:
    return {name: spec.parts for name, spec in world.processes.items()}


async def test_the_proxy_of_an_added_stream_reads_a_file_of_the_record(world: World) -> None:
    await world.settle(with_streams("c", "d"), "one", "three")
    assert parts(world) == {"proxy/added-0": ("proxy/c", "proxy/d")}
    (spec,) = world.processes.values()
    file = Path(spec.command[spec.command.index("--deployment") + 1])
    assert {*read_stored(file).streams} == {"a", "b", "c", "d"}
    assert {*world.stack.deployment.streams} == {"a", "b", "c", "d"}
    await world.settle(with_streams("c", "d", "e"), "one", "three")
    assert parts(world) == {
        "proxy/added-0": ("proxy/c", "proxy/d"),
        "proxy/added-1": ("proxy/e",),
    }
    await world.settle(with_streams("d", "e"), "one", "three")
    assert parts(world) == {"proxy/added-0": ("proxy/d",), "proxy/added-1": ("proxy/e",)}
    await world.settle(with_streams(), "one", "three")
    assert parts(world) == {}
    assert {*world.stack.deployment.streams} == {"a", "b"}


def test_proxies_of_the_streams_of_the_stack_learn(world: World) -> None:
    world.machine.learn(["b", "elsewhere"])
    assert world.fragments.learned == ["b"]
