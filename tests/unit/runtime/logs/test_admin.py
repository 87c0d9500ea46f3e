"""A request to the controller without a response is repeated, by another client."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.logs import admin, topics
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.topics import TopicLayout

FOR_EVER_S = 600.0
NO_ANSWER = object()

KeyedAnswer = object
"""``NO_ANSWER``, the code of an error, or the request's result."""


def settled(answer: KeyedAnswer) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    elif answer is not NO_ANSWER:
        future.set_result(answer)
    return future


class Cluster:
    """Each request gets the next of these responses; after them, none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: KeyedAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[Future[Any]] = []
        self.listed: dict[str, int] = {}
        self.listings: list[int] = []
        monkeypatch.setattr(admin, "admin_client", lambda where: self.client())
        monkeypatch.setattr(admin, "ASK_AGAIN_S", 0.001)
        monkeypatch.setattr(admin, "_PAUSE_S", 0.001)

    def client(self) -> SimpleNamespace:
        return SimpleNamespace(
            create_topics=lambda new: {one.topic: self.next(self.made(one)) for one in new},
            create_partitions=lambda new: {one.topic: self.next(self.grown(one)) for one in new},
            ask=lambda: {"key": self.next(lambda: None)},
            list_topics=self.list_topics,
        )

    def next(self, done: Callable[[], None]) -> Future[Any]:
        answer = self.answers.pop(0) if self.answers else NO_ANSWER
        if answer is None:
            done()
        self.asked.append(settled(answer))
        return self.asked[-1]

    def made(self, new: Any) -> Callable[[], None]:
        return lambda: self.listed.update({new.topic: new.num_partitions})

    def grown(self, new: Any) -> Callable[[], None]:
        return lambda: self.listed.update({new.topic: new.new_total_count})

    def list_topics(self, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        if self.listings:
            raise KafkaException(KafkaError(self.listings.pop(0)))
        part = SimpleNamespace(leader=1)
        shown = {
            name: SimpleNamespace(error=None, partitions=dict.fromkeys(range(parts), part))
            for name, parts in self.listed.items()
        }
        return SimpleNamespace(topics=shown)


def test_a_topic_is_made_though_the_first_request_never_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, NO_ANSWER, None)
    topics.ensure_topics("b:1", [TopicLayout("t", 3, {})], FOR_EVER_S)
    assert cluster.listed == {"t": 3}
    assert [future.done() for future in cluster.asked] == [False, True]


def test_the_first_request_made_it_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, NO_ANSWER, KafkaError.TOPIC_ALREADY_EXISTS)
    listings = iter([{}, {"t": 3}])
    show = cluster.list_topics

    def list_topics(timeout: float) -> SimpleNamespace:
        cluster.listed = next(listings)
        return show(timeout)

    monkeypatch.setattr(cluster, "list_topics", list_topics)
    topics.ensure_topics("b:1", [TopicLayout("t", 3, {})], FOR_EVER_S)
    assert len(cluster.asked) == 2


def test_a_topic_grows_though_the_first_request_never_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, NO_ANSWER, None)
    cluster.listed = {"t": 1}
    topics.ensure_topics("b:1", [TopicLayout("t", 3, {"cleanup.policy": "compact"})], FOR_EVER_S)
    assert cluster.listed == {"t": 3}


def test_what_passes_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, KafkaError._TIMED_OUT, KafkaError.NOT_CONTROLLER, 7.0)
    answers = Admin("b:1").ask(lambda client: client.ask(), FOR_EVER_S)  # type: ignore[attr-defined]
    assert answers.given == {"key": 7.0}
    assert (answers.refused, answers.missing) == ({}, {})
    assert len(cluster.asked) == 3


def test_a_refusal_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, KafkaError.INVALID_REPLICATION_FACTOR)
    with pytest.raises(EnvironmentProblem, match="topic t cannot be created"):
        topics.ensure_topics("b:1", [TopicLayout("t", 3, {})], FOR_EVER_S)
    assert len(cluster.asked) == 1


def test_an_answer_to_the_first_request_counts_while_a_second_one_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)

    def ask(client: Any) -> dict[str, Future[Any]]:
        asked: dict[str, Future[Any]] = client.ask()
        if len(cluster.asked) == 3:
            cluster.asked[0].set_result("late")
        return asked

    assert Admin("b:1").ask(ask, FOR_EVER_S).given == {"key": "late"}


def test_the_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    with pytest.raises(EnvironmentProblem, match=r"topic t was not created within .*no answer"):
        topics.ensure_topics("b:1", [TopicLayout("t", 3, {})], 0.02)
    assert cluster.asked


def test_a_listing_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.listed = {"t": 3}
    cluster.listings = [KafkaError._TIMED_OUT, KafkaError._TRANSPORT]
    assert topics.partition_count("b:1", "t", FOR_EVER_S) == 3
    assert not cluster.listings


def test_a_listing_that_is_refused_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.listings = [KafkaError._AUTHENTICATION, KafkaError._TIMED_OUT]
    with pytest.raises(EnvironmentProblem, match="no broker answers on b:1"):
        topics.partition_count("b:1", "t", FOR_EVER_S)
    assert len(cluster.listings) == 1
