"""One partition of a topic: its source log, and the offset at which its input begins.

A position is an offset of one topic id. The source log therefore names the topic and its id as the
*identity* of its input, in START, and a position that was written under another id is not used: the
topic was deleted and made again, and what it holds now is read from its beginning, as a
continuation of the stream. What lay between is lost, and a gap reports it.

Under one id, a position is an offset of what the leaders up to its leader epoch have written. Each
record has the epoch with the position, so a new client asks whether the log was truncated since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from slackwater.formats.positions import position_of, split_position
from slackwater.model.records import NO_EPOCH
from slackwater.protocols.dpc.source.scan import InputPosition
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.topic.watched import TopicChangedError
from slackwater.proxy.topicmemory import UNKNOWN_OFFSET, LostEnd, TopicMemory

_log = logging.getLogger(__name__)

UNKNOWN_READINGS: Final = 1
"""Readings that a gap counts if it is not known how many there were."""

TELLS_US_MAX: Final = 5_000_000
"""How long the client may take to find where a log was truncated."""

Change = Literal["", "made again", "truncated", "deleted"]
"""What happened to a partition while its messages were not read: ``truncated``: Kafka has lost some
that it had acknowledged; ``deleted``: retention has deleted unread messages."""


@dataclass(slots=True, eq=False)
class Partition:
    """One partition of the topic and its source log."""

    number: int
    log: SourceLog
    position: int = 0
    """Every message below this offset has been read."""
    elements_taken: int = 0
    """Elements of the message at ``position`` that are already in the log; 0 between messages."""
    epoch: int = NO_EPOCH
    """Leader epoch of the message before ``position`` or of a later one, if it is known."""
    begun: bool = False
    """Whether the partition has ever had a record."""
    is_present: bool = True
    """Whether the topic has the partition now; a topic that was made again may have fewer."""
    _is_compared: bool = True
    """Whether the client has compared the epoch of the position at its start."""
    _ends_before_since_us: int | None = None
    """Since when the partition is known to end before its position."""

    def seek(self, topic: str, extent: tuple[int, int], from_end: bool, memory: TopicMemory) -> int:
        """Seek to the position in the log, which has been taken over before ``extent`` was asked.

        See ``begin_at``. Returns how many messages retention has deleted unread.
        """
        found = begin_at(
            self.log.identity,
            identity_of(topic, self.number, ""),
            self.log.scan.positions,
            self.log.scan.started,
            extent,
            from_end=from_end,
            was_added=self.log.was_added,
            read_ends=memory.ends,
            truncated=memory.truncated.get(self.log.identity),
        )
        if found.change:
            memory.changes[found.change] += 1
            _log.warning("%s:%d: %s", topic, self.number, found.remark)
        if found.lost:
            self.log.core.lost(found.lost)
        # Until the client has compared the epoch, the end may be that of a log with other messages.
        self._is_compared = found.epoch == NO_EPOCH or bool(found.change)
        seen = memory.ends.get(self.log.identity, 0)
        memory.ends[self.log.identity] = extent[1] if self._is_compared else max(seen, found.offset)
        self.begun = extent[1] > 0
        self.position, self.elements_taken = found.offset, found.element
        self.log.core.position = position_of(found.offset, found.element)
        self.epoch = self.log.core.input_epoch = found.epoch
        self.log.core.input_identity = self.log.identity
        if found.is_first:
            self.log.append([self.log.core.first_position(self.log.inc)])
        return found.lost if found.change == "deleted" else 0

    def advance(self, position: int, epoch: int = NO_EPOCH) -> None:
        """Note that all below this offset has been read; ``epoch`` is that of the last message."""
        self.position, self.elements_taken, self.epoch = position, 0, epoch
        self._is_compared = True

    def note_end(self, read: int, end: int, now_us: int, memory: TopicMemory) -> bool:
        """Remember an end offset, for what a gap reports; ``read`` is the position before.

        Returns False if the partition ends before that position. It was truncated, and may have
        other messages already: the client is then given time to tell from which offset on.

        Raises:
            TopicChangedError: the client has not told it for ``TELLS_US_MAX``.
        """
        if end >= read:
            if self._is_compared:
                memory.ends[self.log.identity] = end
            self._ends_before_since_us = None
            return True
        if self._ends_before_since_us is None:
            self._ends_before_since_us = now_us
        if now_us - self._ends_before_since_us < TELLS_US_MAX:
            return False
        self.note_truncation(UNKNOWN_OFFSET, memory)
        raise TopicChangedError(
            f"{self.log.identity} ends at offset {end}, before {read}, which has been read"
        )

    def note_truncation(self, offset: int, memory: TopicMemory) -> bool:
        """Note where the log was truncated; False if no record came since it was noted."""
        return memory.note_truncation(self.log.identity, offset, self.epoch)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the input of a partition begins, and what happened to the partition before.

    ``lost`` is the number of messages that a gap reports; ``epoch`` that of the offset, if known.
    ``is_first``: the partition has never been read; what it held before is not the stream's.
    """

    offset: int
    element: int = 0
    change: Change = ""
    lost: int = 0
    epoch: int = NO_EPOCH
    is_first: bool = False

    @property
    def remark(self) -> str:
        """What happened, for the log."""
        match self.change:
            case "made again":
                return (
                    "the topic was deleted and made again; it is read from its beginning, and a gap"
                    f" of {self.lost} messages is reported"
                )
            case "truncated":
                return (
                    f"Kafka has truncated the log; it is read on from {self.offset}, and a gap of"
                    f" {self.lost} messages is reported"
                )
            case "deleted":
                return f"{self.lost} messages were deleted before they were read"
        return ""


def identity_of(topic: str, partition: int, topic_id: str) -> str:
    """Return the identity of a partition's input; without an id if the broker has none."""
    return f"topic:{topic}:{partition}" + (f":{topic_id}" if topic_id else "")


def begin_at(
    identity: str,
    nameless: str,
    positions: Mapping[str, InputPosition],
    started: Iterable[str],
    extent: tuple[int, int],
    *,
    from_end: bool,
    was_added: bool,
    read_ends: Mapping[str, int],
    truncated: LostEnd | None = None,
) -> Beginning:
    """Return where the input of a partition begins.

    Args:
        identity: identity of the input now.
        nameless: the same without the topic's id, as earlier versions wrote it.
        positions: position by identity, as recovered from the source log; by ``""`` that of records
            of earlier versions whose START retention has deleted.
        started: the identities that the log's START records name, in order. A topic that was made
            again before it had a message read has no position.
        extent: the offsets [beginning, end) that the partition holds now.
        from_end: whether an input that has never been read begins at its end.
        was_added: whether the partition was added to a topic that was being read. All messages that
            it ever had are then the stream's (rule-30).
        read_ends: by identity, the largest end offset that this process has seen.
        truncated: where the log was truncated since, as this process was told. It is used only for
            a position of the same leader epoch: another writer may have continued meanwhile.
    """
    beginning, end = extent
    named = [of for of in dict.fromkeys([*positions, *started, *read_ends]) if of]
    earlier = [of for of in named if of.startswith(f"{nameless}:") and of != identity]
    owner = _owner_of_unnamed(identity, nameless, earlier, read_ends)
    found = dict(positions)
    if "" in found:
        found.setdefault(owner, found.pop(""))
    known = found.get(identity)
    if known is None and earlier:
        last = next((of for of in reversed(earlier) if of in found), None)
        read = 0 if last is None else split_position(found[last].position)[0]
        unread = 0 if last is None else read_ends.get(last, 0) - read
        # What retention has deleted of the topic that is there now was the stream's as well.
        return Beginning(beginning, 0, "made again", max(UNKNOWN_READINGS, unread) + beginning)
    known = found.get(nameless) if known is None else known
    if known is None and was_added:
        known = InputPosition(0)
    if known is None:
        return Beginning(end if from_end else beginning, is_first=True)
    offset, element = split_position(known.position)
    is_valid = truncated is not None and truncated.epoch == known.epoch
    truncated_at = truncated.offset if truncated is not None and is_valid else None
    if truncated_at is not None and truncated_at != UNKNOWN_OFFSET:
        unread = max(0, read_ends.get(identity, 0) - max(offset, truncated_at))
        offset, element = min((offset, element), (truncated_at, 0))
        if offset >= beginning:
            # The epoch ends where the log was truncated: it is that of the offset or a later one.
            return Beginning(offset, element, "truncated", unread, known.epoch)
        return Beginning(beginning, 0, "truncated", beginning - offset + unread)
    if offset < beginning:
        return Beginning(beginning, 0, "deleted", beginning - offset)
    if truncated_at == UNKNOWN_OFFSET or (offset > end and known.epoch == NO_EPOCH):
        # How many of the messages before the position, or before the end, are new is not known.
        return Beginning(min(offset, end), 0, "truncated", UNKNOWN_READINGS)
    # The client tells whether the log was truncated, and where, also if it is shorter.
    return Beginning(offset, element, epoch=known.epoch)


def _owner_of_unnamed(
    identity: str, nameless: str, earlier: Sequence[str], read_ends: Mapping[str, int]
) -> str:
    """Return the identity of a position of an earlier version whose START retention has deleted.

    It is the one that this process has read last. A new process takes it for the present one,
    unless the log names another: a proxy that finds a topic made again writes START.
    """
    seen = [of for of in read_ends if of.startswith(f"{nameless}:")]
    if seen:
        return seen[-1]
    return earlier[-1] if earlier else identity
