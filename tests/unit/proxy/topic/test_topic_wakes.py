"""A proxy that reads a topic wakes at cut points and for messages; otherwise it sleeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from confluent_kafka import KafkaError
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Client, Fed
from tests.support.proxy_world import SPEC, S, World

from slackwater.proxy.shell import turn
from slackwater.proxy.topic import input as topic_input
from slackwater.proxy.topic.client import Fetched, Notice
from slackwater.proxy.topic.fetching import FETCH_WAIT_MARKERS_MS, FETCH_WAIT_MS
from slackwater.proxy.topic.objects import _in_order


def turns_of(world: World, fed: Fed, seconds: float, per_s: int = 0) -> int:
    """Return the number of wake-ups at this rate of readings."""
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
    assert turns_of(world, fed, 10, per_s) <= 2 * cut_points, "a request for the end, a response"
    assert fed.readings() >= 100 + 9 * per_s
    assert world.counts() == {}


def test_a_stream_that_promises_by_its_readings_asks_for_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = replace(SPEC, topic=THEIRS, disorder_us=S, expect_every_us=5 * S)
    world = World(tmp_path, spec=declared)
    fed = Fed(world, monkeypatch)
    fed.proxy.begin()
    monkeypatch.setattr("slackwater.proxy.topic.input._ask", None)  # requests fail
    fed.put(range(900, 1_000))
    fed.bring()
    cut_points = 10 * 10
    assert turns_of(world, fed, 10, 100) <= cut_points + 10
    assert fed.readings() >= 100 + 9 * 100
    assert fed.log()[-1].boundary >= 1_007 * S
    assert world.counts() == {}


def test_a_partition_that_was_empty_is_read_before_its_log_follows_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both partitions get their first readings; the client returns those of one of them first."""
    declared = replace(SPEC, topic=THEIRS, disorder_us=S, expect_every_us=5 * S)
    world = World(tmp_path, spec=declared)
    fed = Fed(world, monkeypatch, partitions=2)
    fed.proxy.begin()
    world.run(fed.proxy, 1)
    writer = world.broker.writer(world.failures.append)
    values = [b'{"node": "n", "ts": %d, "t": 1}' % at for at in range(900, 1_000)]
    for number in range(2):
        for value in values:
            writer.append(THEIRS.name, number, value)
    for number in range(2):
        fed.client.waiting = [Fetched(number, np.arange(100), values)]
        world.run(fed.proxy, 2)
    assert world.counts() == {}, "none is late"
    assert [log.core.next_id for log in fed.proxy.logs] == [100, 100]
    assert all(log.core.watermark == 998 * S for log in fed.proxy.logs)


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
    batches = per_s // topic_input.BATCH_MESSAGES // 2
    assert batches // 2 <= turns <= 4 * batches
    assert world.counts() == {}


@dataclass
class Message:
    """Output of the client library: a message, or the end of a partition."""

    at: int
    is_end: bool = False

    def error(self) -> Any:
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return b"{}"

    def leader_epoch(self) -> int | None:
        return self.at or None


def test_a_notice_stands_where_it_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.proxy.topic.objects.Message", Message)
    messages: Any = [Message(0), Message(4), Message(6, True), Message(6), Message(7, True)]
    first, end, second, last = _in_order(3, messages)
    assert not isinstance(first, Notice)
    assert not isinstance(second, Notice)
    assert (first.partition, first.offsets.tolist(), list(first.values)) == (3, [0, 4], [b"{}"] * 2)
    assert second.offsets.tolist() == [6]
    assert (first.epoch, second.epoch) == (4, 6), "that of the last message of each run"
    assert (end, last) == (Notice(3, "end", 6, ANY), Notice(3, "end", 7, ANY))


@pytest.mark.parametrize(
    ("markers", "waits_ms"),
    [
        (0, [FETCH_WAIT_MS]),
        (1, [FETCH_WAIT_MS, FETCH_WAIT_MARKERS_MS]),
    ],
    ids=["none", "a marker behind the last message"],
)
def test_an_end_behind_a_marker_is_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, markers: int, waits_ms: list[int]
) -> None:
    """A marker is not returned: only a fetch that has timed out shows the end behind it."""
    world = World(tmp_path, spec=replace(SPEC, topic=THEIRS, disorder_us=5 * S))
    client, opened = Client(), []

    def open_(_cluster: object, _topic: str, _group: str, wait_ms: int, _wanted: object) -> Client:
        opened.append(wait_ms)
        return client

    fed = Fed(world, monkeypatch, client)
    monkeypatch.setattr(topic_input, "open_client", open_)
    fed.proxy = topic_input.TopicInput(world.context(), THEIRS)
    fed.proxy.begin()
    if markers:
        fed.put([990])
        with world.broker.transaction() as transaction:
            transaction.append(THEIRS.name, 0, b'{"node": "n", "ts": 991, "t": 1}')
    else:
        fed.put([990, 991])
    fed.bring()
    client.waiting.append(Notice(0, "end", 2 + markers, ""))
    for _ in range(3):
        turn(world.contexts[-1], fed.proxy, world.now_us)
    assert fed.proxy._partitions[0].position == 2 + markers
    assert opened == waits_ms
