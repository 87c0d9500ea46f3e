"""What the machine of a node starts and ends, and in which order; on pretended processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.waiting import eventually_async
from tests.unit.control.test_admission import ONE, THREE, parsed
from tests.unit.machine.test_changes import hosted_of

from slackwater.control.control_state import Wanted
from slackwater.control.recorded import Assignment
from slackwater.deployment.sharing import share
from slackwater.machine.background import Background
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import Launch
from slackwater.machine.processes import Processes
from slackwater.model.deployment import Deployment
from slackwater.node import machine as module
from slackwater.node.machine import NodeMachine
from slackwater.protocols.flux.pair import ANSWERS


class FakeProcesses:
    """A supervisor and a listener: processes start and end at once; the disk can be full."""

    def __init__(self) -> None:
        self.specs: dict[str, ProcessSpec] = {}
        self.started: list[str] = []
        self.ready_now: set[str] = set()
        self.commands: list[tuple[str, str]] = []
        self.is_full = False
        self.beats: dict[str, Any] = {}
        """The latest heartbeats, by fragment."""

    async def start(self, spec: ProcessSpec) -> None:
        if self.is_full:
            raise OSError("no space left on device")
        assert spec.name not in self.specs
        self.started.append(spec.name)
        self.specs[spec.name] = spec

    async def end(self, name: str) -> None:
        del self.specs[name]

    def serve(self, spec: ProcessSpec) -> None:
        assert spec.name in self.specs
        self.specs[spec.name] = spec

    def processes(self) -> list[str]:
        return sorted(self.specs)

    def names(self) -> list[str]:
        return [part for name in self.specs for part in self.parts(name)]

    def parts(self, name: str) -> list[str]:
        return [*self.specs[name].parts] or [name]

    def process_of(self, part: str) -> str | None:
        return next((name for name, spec in self.specs.items() if part in spec.parts), None)

    def pids(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.specs)}

    def command(self, part: str, verb: str) -> None:
        self.commands.append((part, verb))

    def ready(self, name: str) -> bool:
        return name in self.ready_now

    def latest(self, name: str) -> Any:
        return self.beats.get(name)

    def wait_for(self, holds: Callable[[Any], bool], timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not holds(self) and time.monotonic() < until:
            time.sleep(0.001)
        return holds(self)

    def stayed_down_with(self, _name: str, _pid: int) -> None: ...

    @property
    def hosted(self) -> set[str]:
        return {
            part for name, s in self.specs.items() if name.startswith("host/") for part in s.parts
        }

    @property
    def aggregated(self) -> dict[str, set[str]]:
        kept = {name: s for name, s in self.specs.items() if name.startswith("aggregator/")}
        return {name: {*spec.fragments} for name, spec in kept.items()}


class FakePlace:
    """A place whose proxies are kept as a list."""

    prefix = "n1-"
    numbers = None

    def __init__(self) -> None:
        self.running = FakeProcesses()
        self.taken: list[tuple[set[str], set[str]]] = []
        self.proxies: set[str] = set()
        self.is_open = False
        """Whether its processes need no query first."""

    def open(self) -> Processes | None:
        return self.begin(Deployment("wall", {}, {}), Background()) if self.is_open else None

    def begin(self, _deployment: Deployment, _background: Background) -> Processes:
        processes = object.__new__(Processes)
        processes.supervisor = cast(Any, self.running)
        processes.listener = cast(Any, self.running)
        processes.transport = cast(Any, SimpleNamespace())
        processes.launch = Launch(cast(Any, "d.yaml"), "broker:1", cast(Any, "data"))
        return processes

    def take(self, deployment: Deployment, paused: Collection[str]) -> None:
        self.taken.append(({*deployment.queries}, {*paused}))

    async def settle_proxies(self, assigned: Collection[str], _deployment: Deployment) -> None:
        self.proxies = {*assigned}

    def registering(self, *_: object) -> Any:
        raise AssertionError("nothing is registered here")

    async def close(self) -> None: ...


class World:
    def __init__(self) -> None:
        self.place = FakePlace()
        self.running = self.place.running
        self.machine = NodeMachine(cast(Any, self.place))

    async def settle(
        self, recorded: Deployment, *, paused: str = "", registered: Collection[str] = ()
    ) -> None:
        """Settle with the fragments of all recorded queries placed here."""
        wanted = {n: Wanted.PAUSED if n == paused else Wanted.RUNNING for n in recorded.queries}
        kept = {n: query for n, query in recorded.queries.items() if n != paused}
        names = hosted_of(replace(recorded, queries=kept), {paused} - {""})
        proxies = {f"proxy/{stream}": 1 for stream in recorded.streams}
        assigned = Assignment(dict.fromkeys(names, 1), proxies, wanted)
        await self.machine.settle(assigned, recorded, registered)


@pytest.fixture(name="world")
def _world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    return World()


async def test_what_is_placed_runs_and_nothing_else(world: World) -> None:
    both = parsed(ONE, THREE)
    await world.settle(both)
    assert world.running.hosted == {*hosted_of(both)}
    assert world.place.proxies == {"proxy/a", "proxy/b"}
    await world.settle(parsed(ONE))
    assert world.running.hosted == {*hosted_of(parsed(ONE))}
    assert world.place.taken == [({"one", "three"}, set()), ({"one"}, set())]
    await world.machine.close()


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_record_without_a_query_is_carried_out_where_processes_need_none(
    world: World, is_open: bool
) -> None:
    """All queries of `up` were deleted, and it is started again: the last deletion may be left."""
    world.place.is_open = is_open
    world.machine.open()
    await world.settle(Deployment("wall", {}, {}))
    assert world.running.specs == {}
    assert world.place.taken == ([(set(), set())] if is_open else [])
    assert (world.machine._processes is not None) == is_open
    await world.settle(parsed(ONE))
    assert world.running.hosted == {*hosted_of(parsed(ONE))}
    await world.machine.close()


async def test_an_aggregator_gets_the_fragments_of_registered_queries_only(world: World) -> None:
    wide = ONE.replace("one:", "wide:").replace("size: 1s", "size: 4s")
    both = parsed(ONE, wide)
    await world.settle(both)
    assert world.running.aggregated == {"aggregator/n1-0": set()}, "it starts before they are"
    assert "orderer/wide.0.a" in world.running.hosted, "it waits for its registration"
    await world.settle(both, registered={"wide"})
    assert world.running.aggregated["aggregator/n1-0"] == {"wide.0.a"}
    await world.settle(both, registered={"one", "wide"})
    assert world.running.aggregated["aggregator/n1-0"] == {"wide.0.a", "one.0.a"}
    await world.machine.close()


async def test_copies_of_a_part_are_no_fragments_of_aggregators(world: World) -> None:
    """The rest of the name of ``root/one.0.a`` is that of an orderer."""
    await world.settle(parsed(ONE.replace("bound: ", "copies: 2, bound: ")), registered={"one"})
    assert {"root/one.0.a", "root/one.0.b"} <= world.running.hosted
    (spec,) = (s for n, s in world.running.specs.items() if n.startswith("aggregator/"))
    assert [*spec.fragments] == ["one.0.a"], "once, and the next one starts when it is ready"
    await world.machine.close()


async def test_shared_children_outlive_the_query_that_they_are_named_after(world: World) -> None:
    wide = ONE.replace("one:", "wide:").replace("size: 1s", "size: 4s")
    both = share(parsed(ONE, wide))
    await world.settle(both, registered={"one", "wide"})
    assert world.running.aggregated["aggregator/n1-0"] == {"one.0.a"}
    left = replace(both, queries={"wide": both.queries["wide"]})
    await world.settle(left, registered={"wide"})
    assert world.running.hosted == {"orderer/one.0.a", "orderer/one.0.b", "root/wide.0"}
    assert world.running.aggregated["aggregator/n1-0"] == {"one.0.a"}
    await world.machine.close()


@pytest.mark.parametrize("is_ready", [True, False])
async def test_the_next_aggregator_starts_when_the_one_before_it_is_ready(
    world: World, monkeypatch: pytest.MonkeyPatch, is_ready: bool
) -> None:
    """Or has not become ready in time. The hosts do not wait."""
    monkeypatch.setattr(module, "AGGREGATOR_S_MAX", 60.0 if is_ready else 0.01)
    one = parsed(ONE)
    await world.settle(one, registered={"one"})
    assert [*world.running.aggregated] == ["aggregator/n1-0"]
    assert world.running.hosted == {*hosted_of(one)}
    if is_ready:
        world.running.ready_now.add("aggregator/n1-0")

    async def both_run() -> bool:
        return [*world.running.aggregated] == ["aggregator/n1-0", "aggregator/n1-1"]

    await eventually_async(both_run, "the aggregator of the other replica runs")
    assert world.running.aggregated["aggregator/n1-1"] == {"one.0.b"}
    await world.machine.close()


async def test_an_aggregator_that_is_no_longer_wanted_is_not_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.settle(parsed(ONE), registered={"one"})
    await world.settle(parsed(THREE), registered={"three"})
    assert world.running.aggregated == {}, "a query without a window needs none"
    world.running.ready_now.add("aggregator/n1-0")
    assert world.machine._others is not None
    await asyncio.wait_for(world.machine._others, 10)
    assert world.running.aggregated == {}
    await world.machine.close()


async def test_a_paused_query_ends_and_is_told_to_the_place(world: World) -> None:
    both = parsed(ONE, THREE)
    await world.settle(both, registered={"one", "three"})
    await world.settle(both, paused="one", registered={"one", "three"})
    assert world.running.hosted == {*hosted_of(parsed(THREE))}
    assert world.place.taken[-1] == ({"one", "three"}, {"one"}), "a later generation must wait"
    await world.machine.close()


async def test_a_change_that_fails_is_complete_at_the_next_attempt(world: World) -> None:
    world.running.is_full = True
    with pytest.raises(OSError, match="no space"):
        await world.settle(parsed(ONE))
    world.running.is_full = False
    await world.settle(parsed(ONE))
    assert world.running.hosted == {*hosted_of(parsed(ONE))}
    await world.machine.close()


async def test_the_proxies_of_a_stream_learn(world: World) -> None:
    await world.settle(parsed(ONE))
    for name, parts in {"proxy": ("proxy/a", "proxy/b"), "proxy/1": ("proxy/b.1",)}.items():
        world.running.specs[name] = ProcessSpec(name, (), parts=parts)
    world.machine.learn(["b", "elsewhere"])
    assert world.running.commands == [("proxy/b", "learn"), ("proxy/b.1", "learn")]
    await world.machine.close()


@pytest.mark.parametrize("it_answers", [True, False])
async def test_a_generation_runs_until_its_successor_answers(
    world: World, monkeypatch: pytest.MonkeyPatch, it_answers: bool
) -> None:
    """Or for some seconds. Its aggregated fragments run on, too (rule-29)."""
    monkeypatch.setattr(module, "HAND_OVER_S_MAX", 60.0 if it_answers else 0.05)
    one = parsed(ONE)
    later = replace(one.queries["one"], name="one.g1")
    both = replace(one, queries={**one.queries, "one.g1": later})
    only = replace(one, queries={"one.g1": later})
    await world.settle(both, registered={"one", "one.g1"})
    await world.settle(only, registered={"one.g1"})
    if it_answers:
        assert world.running.hosted == {*hosted_of(both)}
        assert world.running.aggregated["aggregator/n1-0"] == {"one.0.a", "one.g1.0.a"}
        assert {*world.machine.ready()} == set(), "those of the record are reported, and no others"
        beat = SimpleNamespace(ready=True, detail={})
        world.running.beats["root/one.g1.0"] = beat

    async def it_has_ended() -> bool:
        return world.running.hosted == {*hosted_of(only)}

    await eventually_async(it_has_ended, "the earlier generation has ended")
    assert world.running.aggregated["aggregator/n1-0"] == {"one.g1.0.a"}
    await world.machine.close()


async def test_which_copies_answer_here_and_how_one_is_told_to_resign(world: World) -> None:
    await world.settle(parsed(ONE.replace("bound: ", "copies: 2, parts: 2, bound: ")))
    names = [f"root/one.{part}.{letter}" for part in (0, 1) for letter in "ab"]
    pids = world.running.pids()
    for name, answers in zip(names, (1, 0, 1, 0), strict=True):
        process = world.running.process_of(name)
        assert process is not None
        detail, pid = {ANSWERS: answers}, pids[process]
        world.running.beats[name] = SimpleNamespace(ready=True, pid=pid, detail=detail)
    world.running.beats["root/one.1.a"].pid = -1  # of a process that has ended
    assert world.machine.answering() == {"root/one.0.a"}
    world.machine.resign("root/one.0.a")
    assert world.running.commands == [("root/one.0.a", "resign")]
    await world.machine.close()
