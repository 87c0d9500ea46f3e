"""Sends requests to a cluster's controller, and repeats each until it is answered.

An admin request first waits, inside the client library, for a connection to the controller. This
wait can last until its time-out of 60 s although the same broker answers all other requests at once
(observed). A request without an answer after ``ASK_AGAIN_S`` is therefore sent again by a new
client with a connection of its own. The first request stays pending, and the first answer to either
counts, so the late answer of a slow broker counts, too.

Requests must be repeatable. The creation of a topic is: the second answer is that the topic exists,
which the caller treats as success. The rejected alternative, a shorter time-out and then a new
attempt, would abandon each request shortly before a slow broker answers it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from slackwater.runtime.logs.cluster import Where, confluent_client

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ASK_AGAIN_S = 5.0
_PAUSE_S = 0.5

_TRANSIENT = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
"""Errors not caused by the request itself: a repetition may succeed."""


@dataclass(slots=True)
class Responses(Generic[K, V]):
    """Results of a request by key; each key is in exactly one of the three."""

    given: dict[K, V] = field(default_factory=dict)
    refused: dict[K, KafkaError] = field(default_factory=dict)
    missing: dict[K, str] = field(default_factory=dict)
    """Keys without an answer in time, with the reason."""


def admin_client(where: Where) -> AdminClient:
    """Return a client that logs nothing; its errors are raised as exceptions."""
    quiet: dict[str, Any] = {"reconnect.backoff.max.ms": 500, "log_level": 2}
    return AdminClient(confluent_client(where) | quiet)


@dataclass(frozen=True, slots=True)
class _PendingRequest(Generic[K, V]):
    """One request. Its client must live as long as the futures."""

    client: AdminClient
    futures: Mapping[K, Future[V]]

    @property
    def pending(self) -> bool:
        return not all(future.done() for future in self.futures.values())


class Admin:
    """Sends requests to one cluster. For one thread."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._client = admin_client(where)

    def ask(
        self, request: Callable[[AdminClient], Mapping[K, Future[V]]], timeout_s: float
    ) -> Responses[K, V]:
        """Send a repeatable request until each of its keys has an answer or the time is over."""
        deadline = time.monotonic() + timeout_s
        answers = Responses[K, V]()
        asked: list[_PendingRequest[K, V]] = []
        while True:
            asked.append(_PendingRequest(self._client, request(self._client)))
            for key in asked[-1].futures:
                if key not in answers.given and key not in answers.refused:
                    answers.missing.setdefault(key, "no answer")
            _collect(asked, answers, min(deadline, time.monotonic() + ASK_AGAIN_S))
            if not answers.missing or time.monotonic() >= deadline:
                return answers
            asked = [one for one in asked if one.pending]
            self._client = admin_client(self._where)

    def list_topics(self, timeout_s: float) -> Mapping[str, Any]:
        """Return the topics in a broker's metadata; ``KafkaException`` after the time-out."""
        deadline = time.monotonic() + timeout_s
        patience_s = ASK_AGAIN_S
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            try:
                return self._client.list_topics(timeout=min(patience_s, left_s)).topics
            except KafkaException as error:
                left_s = deadline - time.monotonic()
                if error.args[0].code() not in _TRANSIENT or left_s <= 0:
                    raise
                time.sleep(min(_PAUSE_S, left_s))
            # This call blocks, so attempts cannot overlap; each gets more time than the previous.
            patience_s *= 2
            self._client = admin_client(self._where)


def _collect(asked: list[_PendingRequest[K, V]], answers: Responses[K, V], until_s: float) -> None:
    """Collect answers until the given time, or until none is missing."""
    while True:
        pending: list[Future[V]] = []
        for one in asked:
            for key in answers.missing.keys() & one.futures.keys():
                if one.futures[key].done():
                    _take(key, one.futures[key], answers)
                else:
                    pending.append(one.futures[key])
        left_s = until_s - time.monotonic()
        if not answers.missing or left_s <= 0:
            return
        if not pending:  # all attempts have failed with an error that allows a repetition
            time.sleep(min(_PAUSE_S, left_s))
            return
        wait(pending, left_s, FIRST_COMPLETED)


def _take(key: K, future: Future[V], answers: Responses[K, V]) -> None:
    error = future.exception()
    if error is None:
        answers.given[key] = future.result()
    elif not isinstance(error, KafkaException):
        raise error
    elif error.args[0].code() in _TRANSIENT:
        answers.missing[key] = str(error.args[0].str())
        return
    else:
        answers.refused[key] = error.args[0]
    del answers.missing[key]
