"""What the gateway reads: a query's changes once, its registration, its end; all in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory import MemoryBroker
from tests.unit.client.test_client_follow import broker, root, write
from tests.unit.exporter.test_exporter import defined
from tests.unit.machine.test_layout import query

from slackwater.gateway import sources
from slackwater.gateway.hub import Hub
from slackwater.gateway.outbox import Outbox
from slackwater.gateway.sentences import status_json
from slackwater.gateway.sources import Sources
from slackwater.model.names import Names
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.registry import Registry
from slackwater.status.overview import Overview
from slackwater.status.processes import Picture


class NoControls:
    def look(self) -> Overview | None:
        return None


class Heartbeats:
    """No process runs."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def all(self) -> dict[str, Any]:
        return {}

    def wait_for(self, *_: object) -> bool:
        return False


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 -- what it waits for is another thread's
            await asyncio.sleep(0.02)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    made = broker()
    made.create_topic(Names().registry)
    monkeypatch.setattr(sources, "KafkaTransport", lambda *_: made)
    monkeypatch.setattr(sources, "HeartbeatListener", Heartbeats)
    monkeypatch.setattr(sources, "partition_counts", lambda _, topics: dict.fromkeys(topics, 1))
    monkeypatch.setattr(sources, "partition_count", lambda *_: 1)
    monkeypatch.setattr(sources, "POLL_S", 0.05)
    return made


async def test_a_registered_query_is_read_shown_and_ended(memory: MemoryBroker) -> None:
    _, first, second = root()
    write(memory, first)
    hub, of = Hub(), Sources(Cluster("memory:1"), Names(), contextlib.nullcontext(NoControls()))
    of.start(hub, asyncio.get_running_loop())
    try:
        definition = defined(query("climate", "s"))
        Registry(memory).publish_queries(definition)
        await until(lambda: (feed := hub.feed("climate")) is not None and len(feed.ring) > 0)
        feed = hub.feed("climate")
        assert feed is not None
        await until(lambda: feed.ring.positions.get(0) == first[-1]["seq"])
        outbox = Outbox()
        hub.join(outbox, "climate", None)
        write(memory, second)
        await until(lambda: feed.ring.positions.get(0) == second[-1]["seq"])
        assert b"event: change" in outbox.take()
        hub.leave(outbox)
        status = await hub.fresh_status(of.look_once)
        (shown,) = status["queries"]
        assert (shown["query"], shown["state"]) == ("climate", "starting")
        assert status["kafka"]
        Registry(memory).publish_queries(defined(query("climate", "s"), "deleted"))
        await until(lambda: hub.feed("climate") is None)
    finally:
        of.stop()


async def test_the_first_status_has_the_queries(memory: MemoryBroker) -> None:
    Registry(memory).publish_queries(defined(query("climate", "s")))
    hub, of = Hub(), Sources(Cluster("memory:1"), Names(), contextlib.nullcontext(NoControls()))
    of.start(hub, asyncio.get_running_loop())
    try:
        status = await hub.fresh_status(of.look_once)
        assert [each["query"] for each in status["queries"]] == ["climate"]
    finally:
        of.stop()


def test_the_problems_are_those_of_the_verdict() -> None:
    picture = Picture((), late={"climate": "LATE"})
    found = status_json({}, picture, Overview(()), 0, kafka_answers=True)
    assert not found["well"]
    assert found["problems"] == ["query climate is LATE"]
