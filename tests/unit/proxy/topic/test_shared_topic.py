"""A topic whose partitions are divided among several proxies."""

from __future__ import annotations

from collections.abc import Iterable
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

from slackwater.codec import decode_source
from slackwater.model.errors import DeploymentError, SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.records import Gap, SourceRecord
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.topic import source_logs
from slackwater.proxy.topic.client import Fetched
from slackwater.proxy.topic.input import TopicInput
from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.parts import PROXIES, WATERMARK
from slackwater.runtime.service.registry import Registry

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


class Divided:
    """A topic that gets partitions, whose stream gets a second proxy at its next start."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, proxies: int, partitions: int
    ) -> None:
        self.topic = replace(THEIRS, from_="end")
        self.world = World(folder, spec=DECLARED)
        self.client = Client()
        self.world.broker.create_topic(THEIRS.name, 0)
        self.world.broker.create_topic("sw.registry")
        replace_broker(monkeypatch, self.world.broker, lambda: self.client, AtOnce)
        self.grow(partitions)
        self.declare(proxies)

    def declare(self, proxies: int) -> None:
        self.topic = replace(self.topic, proxies=proxies)
        self.world.spec = replace(DECLARED, topic=self.topic)

    def grow(self, partitions: int) -> None:
        self.world.broker.grow_topic(THEIRS.name, partitions)
        self.world.topics.states[THEIRS.name] = TopicState("first", partitions)

    def begin(self, share: int) -> TopicInput:
        """Let this proxy begin, once more."""
        context = self.world.context(str(share), share=share)
        proxy = TopicInput(context, self.topic)
        proxy.begin()
        return proxy

    def put(self, partition: int, times: Iterable[int]) -> None:
        """Write readings at these seconds."""
        writer = self.world.broker.writer(self.world.failures.append)
        for at in times:
            message = b'{"node": "n", "ts": %d, "t": 1}' % at
            writer.append(THEIRS.name, partition, message)

    def bring(self, proxy: TopicInput, partition: int, first: int = 0) -> None:
        """Let the proxy read a partition from an offset on."""
        raw = read_to_end(self.world.broker, (THEIRS.name, partition), first)
        offsets, values = zip(*((of.offset, of.value) for of in raw), strict=True)
        self.client.waiting = [Fetched(partition, np.array(offsets, np.int64), list(values))]
        self.world.run(proxy, 1)

    def log(self, partition: int) -> list[SourceRecord]:
        raw = read_to_end(self.world.broker, (f"sw.source.room.{partition}", 0))
        return [decode_source(of.value) for of in raw]


@pytest.mark.parametrize("records", [1, 1_000], ids=["from its end", "in one"])
def test_a_proxy_that_is_added_with_its_partition_begins_where_the_first_log_tells_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """What came since the partition was added is the stream's, and nothing is before a bucket.

    The first of three messages has been deleted; the second one is below the watermark that the
    first log had when no bucket waited for the new one.
    """
    monkeypatch.setattr(source_logs, "TELLING_RECORDS", records)
    divided = Divided(tmp_path, monkeypatch, proxies=1, partitions=1)
    first = divided.begin(0)
    divided.put(0, range(900, 910))
    divided.bring(first, 0)
    divided.grow(2)
    divided.declare(2)
    divided.put(1, [910, 905, 911])
    divided.world.broker.delete_records({(THEIRS.name, 1): 1})
    Registry(divided.world.broker).publish_partitions("room", 2)
    divided.world.broker.grow_topic("sw.source.room.1", 1)
    with pytest.raises(SlackwaterError, match="does not tell of partition 1 yet"):
        divided.begin(1)
    assert divided.log(1) == []
    first = divided.begin(0)
    divided.put(0, range(910, 930))
    divided.bring(first, 0, 10)
    for _ in range(2):
        second = divided.begin(1)
        assert [log.core.watermark // S for log in second.logs] == [908]
        assert [log.core.position for log in second.logs] == [1]
    divided.bring(second, 1, 1)
    assert sum(record.readings for record in divided.log(1)) == 1
    assert divided.world.counts() == {"late": 1}
    assert [gap for record in divided.log(1) for gap in record.gap] == [Gap("room.1", 1)]


def test_a_proxy_that_begins_after_the_first_one_begins_where_the_topic_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own partition was there from the beginning, another one has been added since."""
    divided = Divided(tmp_path, monkeypatch, proxies=2, partitions=2)
    divided.begin(0)
    divided.grow(4)
    for partition in (1, 3):
        divided.put(partition, range(900, 905))
        divided.world.broker.delete_records({(THEIRS.name, partition): 3})
    assert [log.name for log in divided.begin(0).logs] == ["room.0"], "room.1 may be ahead"
    second = divided.begin(1)
    assert [log.core.position for log in second.logs] == [5]
    assert [log.name for log in divided.begin(0).logs] == ["room.0", "room.2"]
    second = divided.begin(1)
    assert [log.core.position for log in second.logs] == [5, 3]
    assert {log.core.watermark for log in second.logs} == {NEVER}


def test_partitions_of_a_first_start_are_not_added_whichever_proxy_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = Divided(tmp_path, monkeypatch, proxies=2, partitions=2)
    divided.put(1, range(900, 905))
    with monkeypatch.context() as dying:
        dying.setattr(SourceLog, "append", lambda *_: None)
        divided.begin(0)  # START alone
    assert [log.core.position for log in divided.begin(1).logs] == [5]
