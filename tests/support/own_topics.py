"""An observer of a deployment's own topics: their ids are those that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.logs.transport import NoAnswerError
from slackwater.runtime.service.registry_entries import TOPIC_ID_CHARS_MAX


class SeenTopics:
    """Describes topics, and looks at watched ones when the test calls ``look``.

    A topic whose id was never set has the id that its name ends with.
    """

    def __init__(self, after_look: Callable[[], None] = lambda: None) -> None:
        self._after_look = after_look
        self.ids: dict[str, str | None] = {}
        self.watched: set[str] = set()
        self.is_away = self.is_closed = False
        self._seen: dict[str, TopicState | None] = {}

    def __call__(self, after_look: Callable[[], None]) -> SeenTopics:
        """Serve as the factory that ``OwnTopics`` calls."""
        self._after_look = after_look
        return self

    def describe_all(self, topics: Iterable[str]) -> Mapping[str, TopicState | None]:
        if self.is_away:
            raise NoAnswerError("the broker is away")
        return {topic: self._state(topic) for topic in topics}

    def _state(self, topic: str) -> TopicState | None:
        id_ = self.ids.get(topic, topic[-TOPIC_ID_CHARS_MAX:])
        return None if id_ is None else TopicState(id_, 1)

    def watch(self, topic: str) -> None:
        self.watched.add(topic)

    def forget(self, topics: Iterable[str]) -> None:
        self.watched.difference_update(topics)

    def latest(self, topic: str) -> TopicState | None:
        return self._seen[topic]

    def close(self) -> None:
        self.is_closed = True

    def look(self) -> None:
        self._seen = {topic: self._state(topic) for topic in self.watched}
        self._after_look()
