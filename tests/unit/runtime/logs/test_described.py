"""The observer of topics: it asks again with another client where a request has no answer."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from slackwater.runtime.logs import described
from slackwater.runtime.logs.described import TopicObserver, TopicState
from slackwater.runtime.logs.transport import NoAnswerError


class Client:
    """An admin client whose requests have this outcome, or none."""

    def __init__(self, outcome: Exception | TopicState | None) -> None:
        self.outcome = outcome

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        future: Future[Any] = Future()
        if isinstance(self.outcome, Exception):
            future.set_exception(self.outcome)
        elif self.outcome is not None:
            partitions = [None] * self.outcome.partitions
            future.set_result(SimpleNamespace(topic_id=self.outcome.id, partitions=partitions))
        return dict.fromkeys(["t"], future)


SEEN = TopicState("first", 2)


@pytest.mark.parametrize(
    "dead",
    [None, KafkaException(KafkaError(KafkaError._TIMED_OUT))],
    ids=["no answer", "timed out in the library"],
)
def test_a_client_without_an_answer_is_replaced(
    monkeypatch: pytest.MonkeyPatch, dead: Exception | None
) -> None:
    """Librdkafka asks the broker that was the controller, also if it has died since."""
    clients = [Client(dead), Client(SEEN), Client(None)]
    monkeypatch.setattr(described, "admin_client", lambda _: clients.pop(0))
    monkeypatch.setattr(described, "ASK_TIMEOUT_S", -0.95)
    observer = TopicObserver("broker")
    with pytest.raises(NoAnswerError, match="topic t is not described"):
        observer.describe("t")
    assert observer.describe("t") == SEEN
    assert observer.describe("t") == SEEN, "by the client that answers"
    assert observer.latest("t") == SEEN


def test_an_absent_topic_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    clients = [Client(absent)]
    monkeypatch.setattr(described, "admin_client", lambda _: clients.pop(0))
    observer = TopicObserver("broker")
    assert observer.describe("t") is None
    assert observer.describe("t") is None
