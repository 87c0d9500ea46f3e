"""A proxy that reads a topic wakes at cut points and for messages; between them it sleeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.proxy_world import SPEC, S, World
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import (
    THEIRS,
    Consumer,
    Fed,
    Message,
)

from slackwater.proxy import topic
from slackwater.proxy.shell import turn


def turns_of(world: World, fed: Fed, seconds: float, per_s: int = 0) -> int:
    """How often the proxy is woken while so many readings a second come."""
    turns, until = 0, world.now_us + round(seconds * S)
    while world.now_us < until:
        wake = turn(world.contexts[-1], fed.proxy, world.now_us)
        turns += 1
        assert turns < 10_000, "the proxy does not come to rest"
        due = (wake - world.now_us) * per_s // S
        fed.put([world.now_us // S] * due)
        fed.bring()
        world.now_us = max(wake, world.now_us)
    return turns


@pytest.mark.parametrize("per_s", [0, 100], ids=["at rest", "100 readings/s"])
def test_a_stream_with_little_to_read_wakes_at_the_cut_points_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_s: int
) -> None:
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, disorder_us=5 * S))
    fed = Fed(world, monkeypatch)
    fed.put(range(900, 1_000))
    fed.bring()
    fed.proxy.begin()
    turns_of(world, fed, 1)
    cut_points = 10 * 10
    assert turns_of(world, fed, 10, per_s) <= 2 * cut_points, "one asks for the end, one has it"
    assert fed.readings() >= 100 + 9 * per_s
    assert world.counts() == {}


def test_a_stream_with_much_to_read_wakes_for_a_batch_and_not_for_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, disorder_us=5 * S))
    fed = Fed(world, monkeypatch)
    fed.put(range(900, 1_000))
    fed.bring()
    fed.proxy.begin()
    turns_of(world, fed, 0.2)
    per_s = 50_000
    turns = turns_of(world, fed, 0.5, per_s)
    batches = per_s // topic.BATCH_MESSAGES // 2
    assert batches // 2 <= turns <= 4 * batches
    assert world.counts() == {}


@dataclass
class End:
    """What the client tells at the end of a partition."""

    at: int

    def error(self) -> Any:
        return KafkaError(KafkaError._PARTITION_EOF)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at


class OfTransactions(Consumer):
    """Tells the end as well."""

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("markers", "waits_ms"),
    [(0, [topic.FETCH_WAIT_MS]), (1, [topic.FETCH_WAIT_MS, topic.FETCH_WAIT_MARKERS_MS])],
    ids=["none", "a marker behind the last message"],
)
def test_an_end_behind_a_marker_is_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, markers: int, waits_ms: list[int]
) -> None:
    """A marker is never handed over: only a fetch that has waited in vain tells what is behind."""
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, disorder_us=5 * S))
    consumer, opened = OfTransactions(), []

    def open_(config: Mapping[str, Any]) -> Consumer:
        opened.append(config["fetch.wait.max.ms"])
        return consumer

    fed = Fed(world, monkeypatch, consumer)
    monkeypatch.setattr(topic, "Consumer", open_)
    monkeypatch.setattr(topic, "Message", Any)
    fed.proxy = topic.TopicInput(world.context(), THEIRS)
    fed.proxy.begin()
    partition = fed.proxy._partitions[0]
    kept = fed.proxy._without_events(
        partition,
        [Message(0, b"{}"), Message(1, b"{}"), End(2 + markers)],  # type: ignore[list-item]
    )
    assert [message.offset() for message in kept] == [0, 1]
    assert partition.position == (2 + markers)
    for _ in range(3):
        turn(world.contexts[-1], fed.proxy, world.now_us)
    assert opened == waits_ms
