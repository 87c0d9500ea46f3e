"""Topics as they are now: their ids, and their numbers of partitions.

A Kafka topic can be deleted and made again under its name, and partitions can be added to it,
while others read it. An offset belongs to one topic id, so a reader must know the id. Kafka tells
it in metadata from version 10 on (Kafka 2.8), and librdkafka through DescribeTopics only. No reader
is told of added partitions. So all the topics of a process are asked for once a second, in one
request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from slackwater.runtime.logs.admin import admin_client
from slackwater.runtime.logs.cluster import Where
from slackwater.runtime.logs.transport import NoAnswerError

_log = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 1.0
ASK_TIMEOUT_S: Final = 5.0
NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that a broker without topic ids gives: sixteen bytes of zero, in base 64."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as a broker describes it; ``id`` is empty if the broker has no topic ids."""

    id: str
    partitions: int

    @property
    def mark(self) -> str:
        """What follows the place of a message, to tell it from one of another id: ``@<id>``."""
        return f"@{self.id}" if self.id else ""


class Topics(Protocol):
    """Describes topics."""

    def describe(self, topic: str) -> TopicState | None:
        """Ask the broker; None if there is no such topic. ``NoAnswerError`` after the time-out."""
        ...

    def watch(self, topic: str) -> None:
        """Look at this topic from now on."""
        ...

    def latest(self, topic: str) -> TopicState | None:
        """Return what was seen last; None if there was no such topic.

        Raises:
            KeyError: the topic has not been seen yet.
        """
        ...


class TopicObserver:
    """Looks at the watched topics of one cluster once a second, in a thread. Thread-safe."""

    def __init__(self, where: Where, after_look: Callable[[], None] = lambda: None) -> None:
        """``after_look`` is called in the thread after each look that was answered."""
        self._where, self._after_look = where, after_look
        self._client: Any = None
        self._seen: dict[str, tuple[float, TopicState | None]] = {}
        """By topic: when it was asked for, and the answer."""
        self._watched: set[str] = set()
        self._runs = False
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def describe(self, topic: str) -> TopicState | None:
        """Ask the broker; None if there is no such topic. ``NoAnswerError`` after the time-out."""
        return self._ask([topic])[topic]

    def describe_all(self, topics: Iterable[str]) -> Mapping[str, TopicState | None]:
        """Ask for these topics in one request; see ``describe``."""
        return self._ask(topics)

    def watch(self, topic: str) -> None:
        """Look at this topic from now on."""
        with self._lock:
            self._watched.add(topic)
            is_first, self._runs = not self._runs, True
        if is_first:
            threading.Thread(target=self._run, name="topics", daemon=True).start()

    def forget(self, topics: Iterable[str]) -> None:
        """Look at these topics no longer."""
        with self._lock:
            for topic in topics:
                self._watched.discard(topic)
                self._seen.pop(topic, None)

    def latest(self, topic: str) -> TopicState | None:
        """Return what was seen last; None if there was no such topic; see ``Topics``."""
        return self._seen[topic][1]

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            with self._lock:
                watched = sorted(self._watched)
            if not watched:
                continue
            try:
                self._ask(watched)
            except NoAnswerError as why:
                _log.debug("%s", why)
            else:
                self._after_look()

    def _ask(self, topics: Iterable[str]) -> Mapping[str, TopicState | None]:
        wanted = list(topics)
        if not wanted:
            return {}
        with self._lock:
            if self._client is None:
                self._client = admin_client(self._where)
            client = self._client
        asked_at = time.monotonic()
        futures = client.describe_topics(TopicCollection(wanted), request_timeout=ASK_TIMEOUT_S)
        found: dict[str, TopicState | None] = {}
        for name, future in futures.items():
            try:
                found[name] = _state(future.result(ASK_TIMEOUT_S + 1))
            except KafkaException as error:
                if error.args[0].code() not in _ABSENT:
                    why = error.args[0].str()
                    self._replace(client)
                    raise NoAnswerError(f"topic {name} is not described: {why}") from error
                found[name] = None
            except TimeoutError as error:
                why = f"in {ASK_TIMEOUT_S:g} s"
                self._replace(client)
                raise NoAnswerError(f"topic {name} is not described {why}") from error
        with self._lock:
            for name, state in found.items():
                if name not in self._seen or self._seen[name][0] <= asked_at:
                    self._seen[name] = asked_at, state
        return found

    def _replace(self, client: Any) -> None:
        """Ask with another client from now on.

        librdkafka sends the request to the broker that it took for the controller when it last
        asked. If that one is dead, each request of the same client waits in vain, until it asks for
        metadata again after five minutes (observed: a proxy that read nothing for three).
        """
        with self._lock:
            if self._client is client:
                self._client = None


_ABSENT: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def _state(described: Any) -> TopicState:
    topic_id = str(described.topic_id)
    return TopicState("" if topic_id == NO_ID else topic_id, len(described.partitions))
