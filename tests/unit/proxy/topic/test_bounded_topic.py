"""A topic that is read up to the end offsets at the start of a history, and then ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Fed
from tests.support.proxy_world import SPEC, S, World

from slackwater.model.errors import UsageError
from slackwater.primitives.eventclock import DataClock
from slackwater.proxy.inputs import parse_until
from slackwater.proxy.sensors import hand_over_end, inbox_of
from slackwater.proxy.topic.bounded import Bounded
from slackwater.proxy.topic.client import Fetched, Notice
from slackwater.proxy.topic.input import TopicInput
from slackwater.runtime.service.parts import ENDED


class History(Fed):
    """A topic of two partitions whose first holds readings; the second is empty."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *until: int) -> None:
        spec = replace(SPEC, topic=THEIRS, disorder_us=S)
        world = World(folder, DataClock(), spec=spec, clock="data")
        super().__init__(world, monkeypatch, partitions=2)
        self.bounded = Bounded(until, inbox_of(folder / "a", "room"))

    def start(self) -> None:
        self.brought = 0
        self.proxy = TopicInput(self.world.context(), THEIRS, self.bounded)
        self.proxy.begin()

    def end(self, at_s: int) -> None:
        hand_over_end(self.world.folder / "a", "room", "end", at_s * S)

    def has_ended(self) -> bool:
        return bool(self.proxy.detail()[ENDED])

    def boundaries_s(self) -> list[int]:
        return [self.log(partition)[-1].boundary // S for partition in (0, 1)]


def test_messages_behind_the_end_offset_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path, monkeypatch, 100, 0)
    history.put(range(900, 990))
    history.start()
    history.bring()
    history.world.run(history.proxy, 1)
    assert not history.has_ended()
    history.put(range(990, 1_050))
    history.put(range(900, 950), partition=1)
    history.bring()
    offsets = np.arange(50, dtype=np.int64)
    message = json.dumps({"node": "n", "ts": 901, "t": 1}).encode()
    history.client.waiting.append(Fetched(1, offsets, [message] * 50))
    history.world.run(history.proxy, 1)
    assert history.has_ended()
    assert (history.readings(), history.proxy.detail()["readings"]) == (100, 100)
    assert history.world.counts() == {}


def test_the_end_of_the_history_is_the_watermark_of_every_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path, monkeypatch, 100, 0)
    history.put(range(900, 1_000))
    history.start()
    history.end(1_200)
    history.world.run(history.proxy, 1)
    assert history.boundaries_s()[0] < 0, "an end that is known before all is read is no watermark"
    history.bring()
    history.world.run(history.proxy, 1)
    assert history.boundaries_s() == [1_200, 1_200]
    assert [path.name for path in inbox_of(tmp_path / "a", "room").iterdir()] == ["end.done"]


def test_a_history_whose_last_offset_is_a_marker_ends_at_the_end_of_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path, monkeypatch, 11, 0)
    history.put(range(900, 910))
    history.start()
    history.bring()
    history.world.run(history.proxy, 1)
    assert not history.has_ended()
    history.client.waiting = [Notice(0, "end", 11, "")]
    history.world.run(history.proxy, 1)
    assert history.has_ended()


def test_a_proxy_that_is_killed_reads_the_rest_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path, monkeypatch, 60, 0)
    history.put(range(900, 940))
    history.start()
    history.bring()
    history.world.run(history.proxy, 1)
    history.put(range(940, 1_000))
    history.start()
    history.bring()
    history.world.run(history.proxy, 1)
    assert history.has_ended()
    assert history.readings() == 60


def test_end_offsets_are_numbers() -> None:
    assert parse_until("12,0,7") == (12, 0, 7)
    with pytest.raises(UsageError, match="one offset for each partition"):
        parse_until("12,")
