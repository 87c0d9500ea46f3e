"""Topics of others whose ids and partitions a test changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory import MemoryBroker

from slackwater.proxy.topic import input as topic_input
from slackwater.proxy.topic import source_logs, watched
from slackwater.proxy.topic.client import TopicClient
from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.logs.transport import NoAnswerError


class ChangingTopics:
    """Describes topics as the test has set them."""

    def __init__(self) -> None:
        self.states: dict[str, TopicState | None] = {}
        self.seen: dict[str, TopicState | None] = {}
        """What was seen last; ``look`` brings it up to date."""
        self.is_away = False
        """Whether the broker does not answer."""
        self.asked = 0

    def describe(self, topic: str) -> TopicState | None:
        self.asked += 1
        if self.is_away:
            raise NoAnswerError("the broker is away")
        self.seen[topic] = self.states.get(topic)
        return self.seen[topic]

    def watch(self, topic: str) -> None: ...

    def latest(self, topic: str) -> TopicState | None:
        return self.seen[topic]

    def look(self) -> None:
        self.seen |= self.states


def replace_broker(
    monkeypatch: pytest.MonkeyPatch,
    broker: MemoryBroker,
    opened: Callable[[], TopicClient],
    threads: Callable[[], Any],
) -> None:
    """Let a topic's input use a broker in memory, and this client."""

    def ensure(_where: object, layouts: list[Any]) -> None:
        for layout in layouts:
            broker.grow_topic(layout.name, 1)

    monkeypatch.setattr(source_logs, "ensure_topics", ensure)
    monkeypatch.setattr(topic_input, "open_client", lambda *_: opened())
    for module in (topic_input, watched):
        monkeypatch.setattr(module, "ThreadPoolExecutor", lambda *_, **__: threads())
