"""Creates topics and starts deployments for tests on a real broker, with tests' time limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka.admin import AdminClient
from tests.support.waiting import WAIT_S_MAX

from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Where
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics
from slackwater.stack.stack_thread import StackThread

V = TypeVar("V")
SENDS_ONCE: Final[dict[str, Any]] = {"enable.idempotence": True, "max.in.flight": 1}
"""A producer whose records arrive once and in order, also when the broker is killed. With several
requests in flight, the refusal of one partition's request can make librdkafka write a record of
another partition twice (its issue 4953, open)."""


def make_topics(
    where: Where, names: Iterable[str], partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create topics; all exist with a leader on return."""
    specs = [TopicLayout(name, partitions, config or {}) for name in names]
    ensure_topics(where, specs, WAIT_S_MAX)


def asked(where: Where, request: Callable[[AdminClient], Future[V]]) -> V:
    """Return the response to a repeatable request to the controller."""
    answers = Admin(where).ask(lambda client: {"": request(client)}, WAIT_S_MAX)
    assert not answers.refused, answers.refused
    assert not answers.missing, answers.missing
    return answers.given[""]


def started(stack: StackThread) -> StackThread:
    """Start a deployment and return it; after a failure it is stopped again."""
    try:
        stack.open()
        stack.start_up()
    except BaseException:
        stack.stop()
        raise
    return stack
