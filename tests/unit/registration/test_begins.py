"""trace-49: the begin of a query is recorded when its processes are ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX
from tests.unit.control.test_admission import parsed

from slackwater.deployment.sharing import share
from slackwater.model.records import Heartbeat
from slackwater.registration import begins as module
from slackwater.registration.begins import AHEAD_US, WAIT_US_MAX, Begins
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, QueryState, Registry

ONE = "  one: {from: [a, b], window: {size: 1s}, aggregate: [avg], bound: 2s, replicas: 2}\n"
TWO = "  two: {from: [one], window: {size: 1m}, aggregate: [max], bound: 5s, replicas: 1}\n"
SAME = "  same: {from: [a, b], window: {size: 2s}, aggregate: [avg], bound: 2s, replicas: 2}\n"
ROWS = "  rows: {from: [b], where: y > 1, bound: 5s, replicas: 1}\n"
OF_ONE = (
    "proxy/a", "proxy/b", "orderer/one.0.a", "orderer/one.0.b", "aggregator/0", "aggregator/1",
    "root/one.0",
)  # fmt: skip
REST = ("orderer/two.0.a", "root/two.0")


class Clock(SystemClock):
    """Time passes when a test says so."""

    passed_us = 0

    def monotonic_us(self) -> int:
        return self.passed_us

    def now_us(self) -> int:
        return 1_000_000_000 + self.passed_us


class World:
    """A registry, and heartbeats that a test sets; ``ready``: the processes that are."""

    def __init__(self, *queries: str) -> None:
        broker = MemoryBroker()
        broker.create_topic("sw.registry")
        self.registry, self.clock = Registry(broker), Clock()
        deployment = share(parsed(*queries))
        self.names = [*deployment.queries]
        self.registry.publish_queries(
            *(
                QueryDefinition(*(name, 0, 0, 100, query), awaits_begin=True)
                for name, query in deployment.queries.items()
            )
        )
        self.beats: dict[str, Heartbeat] = {}
        self.begins = Begins(self.registry, self, self.clock)
        self.begins.register(self.names)

    def start(self, *processes: str, suppressed: int = 0, state: str = "STABLE") -> None:
        for process in processes:
            copy = "ab"[int(process[-1])] if process.startswith("aggregator/") else ""
            states = {f"{name}.0.{copy}": state for name in self.names if copy}
            beat = Heartbeat(process, 1, 0, 0, -1, True, states, detail={"mute": suppressed})
            self.beats[process] = beat

    def all(self) -> Mapping[str, Heartbeat]:
        return self.beats

    def ready(self, process: str) -> bool:
        return process in self.beats

    def look(self) -> list[str]:
        asyncio.run(self.begins.read())
        return self.begins.look()


@pytest.mark.parametrize("last", OF_ONE)
def test_all_copies_and_proxies_are_waited_for(last: str) -> None:
    world = World(ONE)
    world.start(*(process for process in OF_ONE if process != last))
    assert world.look() == []
    world.start(last)
    assert world.look() == ["one"]


@pytest.mark.parametrize("suppressed", ["orderer/one.0.b", "root/one.0"])
def test_a_copy_that_has_not_read_its_logs_is_waited_for(suppressed: str) -> None:
    world = World(ONE)
    world.start(*OF_ONE)
    world.start(suppressed, suppressed=1)
    assert world.look() == []


def test_an_aggregator_that_runs_without_the_fragment_is_waited_for() -> None:
    world = World(ONE)
    world.start(*OF_ONE)
    world.start("aggregator/1", state="UP_FAILURE")
    assert world.look() == []


def test_after_a_minute_one_copy_of_each_stage_suffices() -> None:
    world = World(ONE)
    world.start("orderer/one.0.b", "aggregator/1")
    world.clock.passed_us = WAIT_US_MAX
    assert world.look() == [], "without a root nothing can be answered"
    world.start("root/one.0")
    assert world.look() == ["one"]
    world.clock.passed_us -= 1
    assert world.look() == []


def test_a_query_without_a_window_has_no_aggregator() -> None:
    world = World(ROWS)
    world.start("proxy/b", "orderer/rows.0.a", "root/rows.0")
    assert world.look() == ["rows"]


def test_a_query_begins_after_those_that_it_reads() -> None:
    world = World(ONE, TWO)
    world.start(*OF_ONE[:-1], *REST)
    assert world.look() == [], "its source does not answer yet"
    world.start("root/one.0")
    assert world.look() == ["one", "two"]


def test_a_query_begins_after_the_one_whose_children_it_reads() -> None:
    world = World(ONE, SAME)
    world.start(*OF_ONE[:-1], "root/same.0")
    assert world.look() == []
    world.start("root/one.0")
    assert world.look() == ["one", "same"]


@pytest.mark.parametrize(("state", "begun"), [("running", ["same"]), ("deleted", ["one", "same"])])
def test_the_begin_of_children_is_recorded_here_only_if_nobody_else_does(
    state: QueryState, begun: list[str]
) -> None:
    """The query that has the children is registered by another machine, or has been deleted."""
    world = World(ONE, SAME)
    one = world.registry.all_queries()["one"]
    world.registry.publish_queries(replace(one, state=state))
    world.begins = Begins(world.registry, world, world.clock)
    world.begins.register(["same"])
    world.start(*OF_ONE[:-1], "root/same.0")
    assert world.look() == begun


def test_a_begin_is_recorded_once_and_what_has_begun_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    world = World(ONE, ROWS)
    world.registry.publish_begins({"rows": 7})

    recorded = threading.Event()
    publish = world.registry.publish_begins

    def publish_begins(begins_us: Mapping[str, int]) -> None:
        publish(begins_us)
        recorded.set()

    monkeypatch.setattr(world.registry, "publish_begins", publish_begins)

    async def run() -> None:
        running = asyncio.create_task(world.begins.run())
        world.start(*OF_ONE)
        assert await asyncio.to_thread(recorded.wait, WAIT_S_MAX)
        running.cancel()

    asyncio.run(run())
    assert world.registry.begins() == {"rows": 7, "one": world.clock.now_us() + AHEAD_US}
    world.begins.register(["one", "rows"])
    assert world.look() == []


def test_a_query_that_is_registered_later_can_be_taken_in_again() -> None:
    world = World(ROWS)
    world.begins.register(["later"])
    assert world.look() == []
    world.registry.publish_queries(
        QueryDefinition("later", 0, 0, 100, parsed(ROWS.replace("rows", "later")).queries["later"],
                        awaits_begin=True)
    )  # fmt: skip
    world.names.append("later")
    world.begins.register(["later"])
    world.start("proxy/b", "orderer/later.0.a", "root/later.0")
    assert world.look() == ["later"]


def test_a_query_that_awaits_no_begin_gets_none() -> None:
    world = World(ROWS)
    rows = parsed(ROWS).queries["rows"]
    world.registry.publish_queries(QueryDefinition("rows", 0, 0, 100, rows))
    world.start("proxy/b", "orderer/rows.0.a", "root/rows.0")
    assert world.look() == []
