"""A topic whose partitions are divided among several proxies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import (
    THEIRS,
    AtOnce,
    Client,
)
from tests.support.proxy_world import SPEC, S, World
from tests.support.topic_world import replace_broker

from slackwater.model.errors import DeploymentError
from slackwater.proxy.topic.client import Fetched
from slackwater.proxy.topic.input import TopicInput
from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.service.parts import PROXIES, WATERMARK

SHARED = replace(THEIRS, proxies=2)
DECLARED = replace(SPEC, topic=SHARED, disorder_us=S, expect_every_us=5 * S)
PARTITIONS = 3


class Shared:
    """Two proxies of a stream, each with the other's heartbeats."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, partitions: int = PARTITIONS
    ) -> None:
        self.world = World(folder, spec=DECLARED)
        self.clients: list[Client] = []
        self.world.broker.create_topic(THEIRS.name, partitions)
        self.world.broker.create_topic("sw.registry")
        self.world.topics.states[THEIRS.name] = TopicState("first", partitions)
        replace_broker(monkeypatch, self.world.broker, self._client, AtOnce)
        contexts = [self.world.context(data=str(share), share=share) for share in range(2)]
        self.proxies = [TopicInput(context, SHARED) for context in contexts]
        for share, context in enumerate(contexts):
            context.watermark_elsewhere = partial(self._watermark, 1 - share)
        for proxy in self.proxies:
            proxy.begin()

    def _client(self) -> Client:
        self.clients.append(Client())
        return self.clients[-1]

    def _watermark(self, share: int) -> int | None:
        return self.proxies[share].detail().get(WATERMARK)

    def put(self, partition: int, times: range) -> None:
        """Deliver readings to the proxy that has this partition."""
        writer = self.world.broker.writer(self.world.failures.append)
        values = [b'{"node": "n", "ts": %d, "t": 1}' % at for at in times]
        for value in values:
            writer.append(THEIRS.name, partition, value)
        fetched = Fetched(partition, np.arange(len(values)), values)
        self.clients[partition % 2].waiting.append(fetched)

    def run(self, share: int, seconds: float) -> None:
        proxy = self.proxies[share]
        until = self.world.now_us + round(seconds * S)
        while self.world.now_us < until:
            wake = proxy.step(self.world.now_us)
            self.world.now_us = min(max(wake, self.world.now_us + 1), until)

    def watermarks(self, share: int) -> dict[str, int]:
        return {log.name: log.core.watermark // S for log in self.proxies[share].logs}


def test_each_partition_has_one_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(tmp_path, monkeypatch)
    names = [[log.name for log in proxy.logs] for proxy in shared.proxies]
    assert names == [["room.0", "room.2"], ["room.1"]]
    for partition in range(PARTITIONS):
        shared.put(partition, range(900, 1_000))
    for share in range(2):
        shared.run(share, 1)
    assert [proxy.detail()["readings"] for proxy in shared.proxies] == [200, 100]
    assert [proxy.detail()[PROXIES] for proxy in shared.proxies] == [2, 2]
    assert shared.world.counts() == {}


def test_a_proxy_whose_partitions_are_all_empty_follows_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its source log would delay all queries, although the stream is not silent."""
    shared = Shared(tmp_path, monkeypatch)
    shared.put(0, range(900, 1_000))
    shared.run(0, 1)
    shared.run(1, 1)
    assert shared.watermarks(0) == {"room.0": 998, "room.2": 998}
    assert shared.watermarks(1) == {"room.1": 998}
    assert WATERMARK not in shared.proxies[1].detail(), "it has none of its own"


def test_a_partition_that_was_empty_is_read_before_its_log_follows_another_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(tmp_path, monkeypatch)
    shared.put(0, range(900, 1_000))
    shared.run(0, 1)
    shared.put(1, range(900, 1_000))
    brought, shared.clients[1].waiting = shared.clients[1].waiting, []
    shared.run(1, 1)
    assert shared.watermarks(1)["room.1"] < 900, "the messages in the topic have not been read"
    shared.clients[1].waiting = brought
    shared.run(1, 1)
    assert shared.watermarks(1) == {"room.1": 998}
    assert shared.world.counts() == {}, "none is late"


def test_too_few_partitions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeploymentError, match="theirs has 1 partitions, too few for the 2 proxies"):
        Shared(tmp_path, monkeypatch, partitions=1)
