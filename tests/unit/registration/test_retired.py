"""Topics of deleted queries: which they are, and when they are deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.waiting import eventually_async
from tests.unit.control.test_admission import ONE, parsed

from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import UNPREFIXED
from slackwater.model.records import Heartbeat
from slackwater.registration import retired
from slackwater.registration.retired import RetiredTopics, retired_topics
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, QueryState

SPEC = replace(parsed(ONE).queries["one"], children=2, parts=2)
OF_ONE = {
    "sw.ordered.one.0", "sw.ordered.one.1", "sw.deltas.one.0", "sw.deltas.one.1", "sw.panes.one"
}  # fmt: skip


def registered(**states: QueryState) -> dict[str, QueryDefinition]:
    """``one``, its generation ``later``, and ``reader``, which reads its children."""
    names = {"one": "one", "later": "one.g1", "reader": "reader"}
    found = {}
    for of, state in states.items():
        spec = replace(SPEC, name=names[of], children_of="one" if of == "reader" else "")
        found[spec.name] = QueryDefinition(spec.name, 0, 0, 1, spec, state=state)
    return found


def heartbeats(**detail: int) -> HeartbeatListener:
    """A listener to one aggregator, with these details."""
    named = {name.replace("_", " "): value for name, value in detail.items()}
    beat = Heartbeat("aggregator/0", 1, 0, 0, -1, ready=True, states={}, detail=named)
    return cast(HeartbeatListener, SimpleNamespace(all=lambda: {"aggregator/0": beat}))


def test_logs_of_a_deleted_query_are_retired_and_results_and_states_stay() -> None:
    assert retired_topics(registered(one="running"), UNPREFIXED) == {}
    assert retired_topics(registered(one="paused"), UNPREFIXED) == {}
    assert retired_topics(registered(one="deleted"), UNPREFIXED) == {"one": OF_ONE}


def test_a_later_generation_does_not_need_them_and_a_reader_of_its_children_does() -> None:
    both = registered(one="deleted", later="running")
    assert retired_topics(both, UNPREFIXED) == {"one": OF_ONE}
    assert retired_topics(both | registered(reader="running"), UNPREFIXED) == {}
    assert retired_topics(both | registered(reader="deleted"), UNPREFIXED) == {
        "one": OF_ONE,
        "reader": {"sw.panes.reader"},
    }
    reader = registered(reader="running")["reader"].spec
    assert retired_topics(both, UNPREFIXED, [reader]) == {}, "it is about to be registered"


async def test_they_are_deleted_once_after_the_grace_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[list[str]] = []

    def delete(cluster: object, topics: list[str]) -> list[str]:
        tries.append(topics)
        if len(tries) == 1:
            raise EnvironmentProblem("no broker answers")
        return topics

    monkeypatch.setattr(retired, "delete_topics", delete)
    transport = cast(Any, SimpleNamespace(names=UNPREFIXED, cluster=None))
    topics = RetiredTopics(transport, heartbeats(), grace_s=0.05)
    running = asyncio.create_task(topics.run())
    topics.read(registered(one="running"))
    topics.read(registered(one="deleted"))
    assert tries == []
    await eventually_async(lambda: len(tries) == 2, "they are deleted at the second try", 20)
    topics.read(registered(one="deleted"))
    topics.read(registered(one="deleted", later="deleted"))
    await eventually_async(lambda: len(tries) == 3, "those of the next one, too", 20)
    assert [set(each) for each in tries[:2]] == [OF_ONE, OF_ONE]
    assert set(tries[2]) == {name.replace(".one", ".one.g1") for name in OF_ONE}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_query_that_is_read_again_keeps_its_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted: list[str] = []
    monkeypatch.setattr(retired, "delete_topics", lambda _, topics: deleted.extend(topics))
    transport = cast(Any, SimpleNamespace(names=UNPREFIXED, cluster=None))
    topics = RetiredTopics(transport, heartbeats(), 0.05)
    running = asyncio.create_task(topics.run())
    topics.read(registered(one="deleted", later="deleted"))
    topics.read(registered(one="deleted", later="running"))
    await eventually_async(lambda: bool(deleted), "the others are deleted", 20)
    assert set(deleted) == OF_ONE
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_topics_that_an_aggregator_still_reads_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Spark query may serve other fragments, and would fail."""
    deleted: list[str] = []
    monkeypatch.setattr(retired, "delete_topics", lambda _, topics: deleted.extend(topics))
    transport = cast(Any, SimpleNamespace(names=UNPREFIXED, cluster=None))
    listener = heartbeats(**{"reads one.0.a": 1, "reads nothing": 1, "fragments": 3})
    topics = RetiredTopics(transport, listener, 0.05)
    running = asyncio.create_task(topics.run())
    topics.read(registered(one="deleted", later="deleted"))
    later = {name.replace(".one", ".one.g1") for name in OF_ONE}
    await eventually_async(lambda: set(deleted) == later, "the others are deleted", 20)
    monkeypatch.setattr(listener, "all", dict)
    await eventually_async(lambda: set(deleted) == later | OF_ONE, "it is free now", 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
