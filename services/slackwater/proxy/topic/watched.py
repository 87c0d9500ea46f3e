"""Watches the topic that a stream reads: its id, and its number of partitions.

A topic that is deleted and made again has another id, and offsets of the old one mean nothing in
it. The client fetches by id (Fetch version 13, Kafka 3.1), and learns of the new id from a metadata
response; then it reads on at the old offset. So messages that were returned after a metadata
response count only once the broker has confirmed that the id is still the same. Without such a
response, which is nearly always, nothing is asked. In addition the topic is looked at once a second
(``runtime/logs/described``): an idle topic, an old broker, or a partition that was added cause no
response.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.runtime.logs.described import Topics, TopicState
from slackwater.runtime.logs.transport import LogError, NoAnswerError

RECOUNT_EVERY_US: Final = 1_000_000


class TopicAwayError(EnvironmentProblem):
    """There is no such topic now."""


class TopicChangedError(SlackwaterError):
    """The topic is another one, or has more partitions, or was truncated.

    The stream is to be served anew, at once: it is no failure of the proxy.
    """


class Recount:
    """Looks for a greater number of source logs, for a proxy that did not find its last partitions.

    Only the stream's first proxy records them (rule-30). Another one that sees added partitions
    before that, and takes in those that are recorded, would not see them again.

    Args:
        taken_in: the number of logs that the proxy has.
        recorded: returns the recorded number, and asks the broker for it.
        now_us: returns a monotonic time.
    """

    def __init__(
        self, taken_in: int, recorded: Callable[[], int | None], now_us: Callable[[], int]
    ) -> None:
        self._taken_in, self._recorded, self._now_us = taken_in, recorded, now_us
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recount")
        self._asked: Future[int | None] | None = None
        self._due_us = now_us()

    def look(self) -> None:
        """Ask from time to time; ``TopicChangedError`` once more are recorded."""
        if self._asked is None:
            if self._now_us() >= self._due_us:
                self._due_us = self._now_us() + RECOUNT_EVERY_US
                self._asked = self._thread.submit(self._recorded)
            return
        if not self._asked.done():
            return
        try:
            found = self._asked.result()
        except LogError:
            found = None  # Kafka is unavailable
        self._asked = None
        if found is not None and found > self._taken_in:
            raise TopicChangedError(f"{found} partitions have been taken in, not {self._taken_in}")

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class WatchedTopic:
    """A topic as it was when its input was opened. Raises where it is found to be another one."""

    def __init__(self, topics: Topics, name: str, where: object) -> None:
        """Ask for the topic; ``TopicAwayError`` if it does not exist on ``where``."""
        self._topics, self._name, self._where = topics, name, where
        found = topics.describe(name)
        if found is None:
            raise self._away()
        self.state: TopicState = found
        self.recounts: list[Recount] = []
        """Of a proxy that lacks partitions which the topic has."""
        self._changes: Callable[[], int] = int
        self._confirmed = 0
        topics.watch(name)

    def _away(self) -> TopicAwayError:
        return TopicAwayError(f"topic {self._name} does not exist on {self._where}")

    def follow(self, changes: Callable[[], int]) -> None:
        """``changes`` counts the metadata responses that the client has received.

        Those before its first messages are no change.
        """
        self._changes = changes
        self._confirmed = -1

    @property
    def is_confirmed(self) -> bool:
        """Whether no metadata has arrived since the id was last confirmed."""
        return self._changes() == self._confirmed

    def confirm(self) -> bool:
        """Ask whether the topic is the same; False without an answer. Raises as ``look`` does."""
        before = self._changes()
        try:
            found = self._topics.describe(self._name)
        except NoAnswerError:
            return False
        self._compare(found)
        self._confirmed = before
        return True

    def look(self) -> None:
        """Compare the topic with what was seen last.

        Raises:
            TopicAwayError: it has been deleted.
            TopicChangedError: it was made again, or has more partitions.
        """
        for each in self.recounts:
            each.look()
        self._compare(self._topics.latest(self._name))

    def _compare(self, found: TopicState | None) -> None:
        if found is None:
            raise self._away()
        if found == self.state:
            return
        if found.id != self.state.id:
            raise TopicChangedError(f"topic {self._name} was deleted and made again")
        if found.partitions > self.state.partitions:
            raise TopicChangedError(f"topic {self._name} has {found.partitions} partitions now")

    def close(self) -> None:
        """End what it has begun."""
        for each in self.recounts:
            each.close()
