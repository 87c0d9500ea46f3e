"""The topics that streams read: topics of others, which are made again, grown, cut and truncated.

Sensors write their readings into the partitions of a topic. A topic can be deleted with its
messages and made again under its name, with another id; it can get partitions; retention deletes
messages that nobody has read; an unclean election removes the last messages of a partition, whose
offsets are then used again. What becomes of each message is in the history.

Readings arrive when somebody looks at the topic, so a topic has no events of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from math import isnan
from random import Random
from typing import NamedTuple

from tests.simulator.clock import Scheduler
from tests.simulator.kafka import Broker, Log
from tests.simulator.readings import Sensor, SensorReading

from slackwater.runtime.logs.described import TopicState
from slackwater.runtime.logs.transport import NoAnswerError, TopicMissingError


class Message(NamedTuple):
    """A message that a topic has accepted, and its place: id, partition and offset."""

    topic_id: str
    partition: int
    offset: int
    reading: SensorReading

    @property
    def place(self) -> tuple[str, int, int]:
        """Its place in the topic."""
        return self[:3]


@dataclass(slots=True)
class TopicHistory:
    """All messages of one topic; the sets hold places of messages that are no longer in it."""

    messages: list[Message] = field(default_factory=list)
    last_id: str = ""
    deleted: set[tuple[str, int, int]] = field(default_factory=set)
    """Deleted with the topic."""
    expired: set[tuple[str, int, int]] = field(default_factory=set)
    """Deleted by retention."""
    truncated: set[Message] = field(default_factory=set)
    """Lost by Kafka. Other messages may be at their places later."""
    began: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Where the stream begins: of each partition that the topic had then, its id and its offset."""

    def is_before_its_beginning(self, message: Message) -> bool:
        """Whether retention had deleted the message when the stream began."""
        topic_id, offset = self.began.get(message.partition, ("", 0))
        return message.topic_id == topic_id and message.offset < offset


class InputTopic:
    """One topic, whose only writers are the sensors of a stream."""

    def __init__(
        self, stream: str, seed: int, partitions: int, broker: Broker, sensor: Sensor
    ) -> None:
        self.name = stream
        self.history = TopicHistory()
        self._rng = Random(f"topic/{stream}/{seed}")
        self._broker, self._sensor = broker, sensor
        self._ids = 0
        self._begun_with = 0
        """The number of partitions when the first one began."""
        self._written_from = -1
        """Time until which a partition has no leader, and accepts no messages."""
        self._state: TopicState | None = None
        self._logs: list[Log[bytes]] = []
        self._led: list[dict[int, int]] = []
        """Of each partition: by leader epoch, the offset at which it begins."""
        self.make(partitions)

    @property
    def _scheduler(self) -> Scheduler:
        return self._broker.scheduler

    def state(self) -> TopicState | None:
        """Return the topic as the broker describes it; None while there is none."""
        if not self._broker.up:
            raise NoAnswerError("the broker is away")
        return self._state

    @property
    def is_away(self) -> bool:
        """Whether there is no such topic."""
        return self._state is None

    def log(self, partition: int) -> Log[bytes]:
        """Return a partition with the messages that have arrived; errors as from Kafka."""
        if not self._broker.up:
            raise NoAnswerError("the broker is away")
        self._fill()
        if partition >= len(self._logs):
            raise TopicMissingError(f"topic {self.name} has no partition {partition}")
        return self._logs[partition]

    def leader_epoch(self, partition: int) -> int:
        """Return the epoch of a partition's present leader."""
        return max(self._led[partition])

    def epoch_of(self, partition: int, offset: int) -> int:
        """Return the leader epoch in which the message at this offset was written."""
        return max(epoch for epoch, begin in self._led[partition].items() if begin <= offset)

    def end_of_epoch(self, partition: int, epoch: int) -> int:
        """Return where the messages of this epoch and of earlier ones end (KIP-320)."""
        later = [begin for other, begin in self._led[partition].items() if other > epoch]
        return min(later, default=self._logs[partition].end)

    def begin(
        self, unread: Collection[int], read: Collection[int], count: int, *, has_begun: bool
    ) -> None:
        """Note that a process ``read``s these partitions; ``unread`` have no record yet.

        A stream begins with its first record; a process that died before has changed nothing.

        Args:
            unread: those of them without a record.
            read: the partitions of the process.
            count: the number of partitions that it knows.
            has_begun: whether the first partition has a record. Of partitions that were added since
                all messages are the stream's, also if their proxy is a new one.
        """
        if len(unread) < len(read):
            begins: Collection[int] = self.history.began
        else:
            known = self._begun_with if has_begun and 0 not in read else count
            begins = [number for number in read if number < known]
        for number in {*unread}.intersection(begins):
            self.history.began[number] = self.history.last_id, self.log(number).beginning
            if number == 0:
                self._begun_with = count

    # Changes.

    def make(self, partitions: int) -> None:
        """Create the topic."""
        self._ids += 1
        self._state = TopicState(f"{self.name}-{self._ids}", partitions)
        self._logs = [Log(f"{self.name}:{p}") for p in range(partitions)]
        self._led = [{0: 0} for _ in range(partitions)]
        self.history.last_id = self._state.id

    def delete(self) -> None:
        """Delete the topic with its messages."""
        self._fill()
        for number, log in enumerate(self._logs):
            self.history.deleted |= self._places(number, log.beginning, log.end)
        self._state, self._logs = None, []

    def grow(self, more: int) -> None:
        """Add partitions."""
        self._fill()
        if self._state is None:
            return
        first = self._state.partitions
        self._state = TopicState(self._state.id, first + more)
        self._logs += [Log(f"{self.name}:{first + i}") for i in range(more)]
        self._led += [{0: 0} for _ in range(more)]

    def expire(self, keep: int) -> None:
        """Delete all but the last messages of each partition, as retention does."""
        self._fill()
        for number, log in enumerate(self._logs):
            beginning = max(log.beginning, log.end - keep)
            self.history.expired |= self._places(number, log.beginning, beginning)
            log.cut(beginning)

    def truncate(self, count: int, until: int) -> None:
        """Lose the last messages of each partition; accept none until then.

        With 0 the new leader has all messages.
        """
        self._fill()
        latest = {message.place: message for message in self.history.messages}
        for number, log in enumerate(self._logs):
            end = max(log.beginning, log.end - count)
            self.history.truncated |= {latest[p] for p in self._places(number, end, log.end)}
            log.lose_end(end)
            epoch = self.leader_epoch(number) + 1
            led = self._led[number]
            self._led[number] = {e: begin for e, begin in led.items() if begin < end} | {epoch: end}
        self._written_from = max(self._written_from, until)

    def accept(self) -> None:
        """Accept messages in all partitions from now on."""
        self._written_from = -1

    def _places(self, partition: int, start: int, end: int) -> set[tuple[str, int, int]]:
        if self._state is None:
            return set()
        return {(self._state.id, partition, offset) for offset in range(start, end)}

    def _fill(self) -> None:
        """Append the readings that have arrived since the last call."""
        state, now = self._state, self._scheduler.now
        if state is None or not self._broker.up or now < self._written_from:
            return
        for reading in self._sensor.until(now):
            number = self._rng.randrange(state.partitions)
            offset = self._logs[number].append(encoded(reading))
            self.history.messages.append(Message(state.id, number, offset, reading))


def encoded(reading: SensorReading) -> bytes:
    """Return the message of a reading."""
    value = None if isnan(reading.value) else reading.value
    return json.dumps({"k": reading.key, "t": reading.stime, "x": value}).encode()


def decoded(payload: str) -> SensorReading:
    """Return the reading of a message."""
    of = json.loads(payload)
    return SensorReading(of["t"], of["k"], float("nan") if of["x"] is None else of["x"])


class ObservedTopics:
    """Describes topics as the observer of a process does: one look in each period."""

    def __init__(self, topics: dict[str, InputTopic], scheduler: Scheduler, every_us: int) -> None:
        self._topics, self._scheduler, self._every_us = topics, scheduler, every_us
        self._seen: dict[str, tuple[int, TopicState | None]] = {}

    def describe(self, topic: str) -> TopicState | None:
        """Ask the broker; None for a topic of slackwater's own, whose id is not modelled."""
        found = self._topics[topic].state() if topic in self._topics else None
        self._seen[topic] = self._scheduler.now, found
        return found

    def watch(self, topic: str) -> None:
        """Do nothing: a look needs no thread here."""

    def latest(self, topic: str) -> TopicState | None:
        """Return what was seen last."""
        at, found = self._seen[topic]
        if self._scheduler.now - at < self._every_us:
            return found
        try:
            return self.describe(topic)
        except NoAnswerError:
            return found
