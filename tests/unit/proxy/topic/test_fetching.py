"""When a topic's client is paused between cut points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from slackwater.proxy.topic.client import NO_EPOCHS, Fetched, Notice
from slackwater.proxy.topic.fetching import (
    PAUSED_MESSAGES_MAX,
    PAUSED_MESSAGES_MIN,
    PAUSED_US_MIN,
    Fetching,
)

NOW_US, CUT_US = 1_000_000, 1_250_000


@dataclass
class Client:
    """Returns what is put into it, and keeps a list of its calls."""

    calls: list[str] = field(default_factory=list)
    waiting: list[Fetched | Notice] = field(default_factory=list)
    ends: Mapping[int, int] | None = None

    def assign(self, positions: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS) -> None:
        self.calls.append(f"assign {dict(positions)}")

    def read(self, _wait_s: float) -> Sequence[Fetched | Notice]:
        self.calls.append("read")
        found, self.waiting = self.waiting, []
        return found

    def release(self) -> None: ...

    def metadata_count(self) -> int:
        return 0

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self, _timeout_s: float) -> Mapping[int, int] | None:
        self.calls.append("resume")
        return self.ends

    def close(self) -> None:
        self.calls.append("close")


def fetched(*numbers: int) -> list[Fetched | Notice]:
    return [
        Fetched(partition, np.arange(number), [b""] * number)
        for partition, number in enumerate(numbers)
    ]


def opened(client: Client) -> Fetching:
    fetching = Fetching(lambda _wait_ms: client, 1)
    fetching.assign({0: 0})
    return fetching


@pytest.mark.parametrize(
    ("read", "until_us", "pauses"),
    [
        ((0,), CUT_US, False),
        ((PAUSED_MESSAGES_MIN - 1,), CUT_US, False),
        ((PAUSED_MESSAGES_MIN,), CUT_US, True),
        ((2, 3), CUT_US, True),
        ((PAUSED_MESSAGES_MAX,), CUT_US, True),
        ((PAUSED_MESSAGES_MAX + 1,), CUT_US, False),
        ((25,), NOW_US + PAUSED_US_MIN - 1, False),
    ],
)
def test_a_topic_is_paused_where_fetches_are_many_and_small(
    read: tuple[int, ...], until_us: int, pauses: bool
) -> None:
    client = Client(waiting=fetched(*read))
    fetching = opened(client)
    fetching.read(0)
    fetching.pause_until(NOW_US, until_us)
    assert fetching.is_paused == pauses == ("pause" in client.calls)


def test_messages_of_several_reads_count_until_the_cut_point() -> None:
    client = Client()
    fetching = opened(client)
    for _ in range(PAUSED_MESSAGES_MIN):
        client.waiting = fetched(1)
        fetching.read(0)
    fetching.pause_until(NOW_US, CUT_US)
    assert fetching.is_paused
    fetching.resume(0.1)
    client.waiting = fetched(1)
    fetching.read(0)
    fetching.pause_until(NOW_US, CUT_US)
    assert not fetching.is_paused, "one message since the cut point"


@pytest.mark.parametrize("ends", [None, {0: 7}])
def test_a_paused_client_is_not_read_until_it_is_resumed(ends: Mapping[int, int] | None) -> None:
    client = Client(waiting=fetched(25), ends=ends)
    fetching = opened(client)
    fetching.read(0)
    fetching.pause_until(NOW_US, CUT_US)
    client.waiting = fetched(3)
    assert not fetching.read(0.1)
    assert fetching.resume(0.1) == ends
    assert not fetching.is_paused
    assert len(fetching.read(0)) == 1
    assert client.calls == ["assign {0: 0}", "read", "pause", "resume", "read"]


def test_assigning_ends_a_pause() -> None:
    client = Client(waiting=fetched(25))
    fetching = opened(client)
    fetching.read(0)
    fetching.pause_until(NOW_US, CUT_US)
    fetching.assign({0: 25})
    assert not fetching.is_paused
