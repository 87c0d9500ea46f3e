"""Merges three topics into one stream by their shared sequence number.

A part of a query writes its answers to three topics (stable, tentative, corrections), numbered by
one sequence: ``seq`` is contiguous per part *across* the topics. So a client can follow DPC's
protocol, with the tuples of section 4.1 of the paper as one output stream. A consumer reads each
topic in order but the three at different speeds, so a record may have to wait for earlier records
in another topic. A time-out cannot decide that an earlier record is lost, since a broker may be
slow for any length of time. But all records of a transaction are in the logs before the first can
be read. So the end offsets of the topics are fetched *after* the gap was detected, and a record
that has not arrived once these are reached is in no log: it was deleted by retention, and is
reported as cut.

The end offsets must count all records, not only committed ones: commit markers reach the topics one
after the other, and for a reader of committed records a topic without its marker ends just before
the missing record.

Rejected: sorting by emission time, or a grace period. Both are heuristics, and a failure would show
a stable answer before the UNDO that precedes it.

This is the pure core, without Kafka or clock; ``slackwater.client.follow`` is a shell of it, and
``slackwater.sessions.delivery`` uses it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")

HELD_RECORDS_MAX = 10_000
"""Maximum records held per topic; a topic further ahead is paused (``PartMerge.full``)."""


@dataclass(frozen=True, slots=True)
class Delivered(Generic[R]):
    """A record in order.

    ``repeat`` marks a record whose ``seq`` is below that of an earlier one: a duplicate, or out of
    order. The writer's fencing and transactions exclude both, so a repeat is a defect; it is
    delivered all the same, since a client that hid duplicates would hide them from a checker.
    """

    part: int
    seq: int
    record: R
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Seqs ``first`` to ``last`` (inclusive) are in no topic: retention deleted their records."""

    part: int
    first: int
    last: int


class PartMerge(Generic[R]):
    """Orders the records of one part.

    A stream joined in the middle begins at ``next_seq``, after all records before the offset at
    which each topic is read from. These offsets were not fetched at one instant, so lower records
    of a topic are dropped: their neighbours in another topic have been skipped. None means that no
    topic holds earlier records: the first record is the smallest one seen once all topics have been
    read up to a common instant.
    """

    def __init__(self, part: int, topics: Sequence[str], next_seq: int | None = 0) -> None:
        self.part = part
        self.next_seq = next_seq
        self._first = next_seq or 0
        self.repeats = 0
        self.cut = 0
        self._held: dict[str, list[tuple[int, int, R]]] = {topic: [] for topic in topics}
        self._reached = dict.fromkeys(topics, 0)
        self._targets: dict[str, int] | None = None
        self._gap = False
        self._arrivals = 0

    @property
    def wants_ends(self) -> bool:
        """Whether a record waits for earlier ones; then fetch end offsets and call ``ends``."""
        return self._gap and self._targets is None

    def ends(self, targets: Mapping[str, int]) -> None:
        """Accept end offsets, all records counted, observed after ``wants_ends`` became true."""
        if self.wants_ends:
            self._targets = dict(targets)

    def reached(self, topic: str, offset: int) -> None:
        """Accept that everything of ``topic`` below ``offset`` was offered or was no record."""
        self._reached[topic] = max(self._reached[topic], offset)

    def offer(self, topic: str, seq: int, record: R) -> None:
        """Accept one record; each topic in log order."""
        if seq < self._first:
            return
        # The arrival count ensures that the heap never compares two records.
        heapq.heappush(self._held[topic], (seq, self._arrivals, record))
        self._arrivals += 1

    def drop_from(self, seq_max: int) -> list[tuple[str, int]]:
        """Discard held records with a seq of ``seq_max`` or more; return (topic, seq) of each."""
        dropped = [
            (topic, seq)
            for topic, held in self._held.items()
            for seq, _, _ in held
            if seq >= seq_max
        ]
        if dropped:
            for held in self._held.values():
                held[:] = [item for item in held if item[0] < seq_max]
                heapq.heapify(held)
        return dropped

    def full(self, topic: str) -> bool:
        """Whether the topic is so far ahead of the others that it should be paused.

        Never true of a topic with the record that the others wait for. Until the stream's
        beginning is known, all topics are read to their ends, whatever the amount.
        """
        return self.next_seq is not None and len(self._held[topic]) >= HELD_RECORDS_MAX

    @property
    def held(self) -> int:
        """Number of records held."""
        return sum(map(len, self._held.values()))

    def take(self) -> list[Delivered[R] | Cut]:
        """Return all records that are in order."""
        out: list[Delivered[R] | Cut] = []
        if self.next_seq is None and not self._begin():
            return out
        while heap := self._smallest():
            assert self.next_seq is not None, "the stream has a beginning by now"
            seq = heap[0][0]
            if seq > self.next_seq:
                if not self._elders_gone():
                    self._gap = True
                    break
                out.append(Cut(self.part, self.next_seq, seq - 1))
                self.cut += seq - self.next_seq
                self._advance(seq)
            _, _, record = heapq.heappop(heap)
            repeat = seq < self.next_seq
            self.repeats += repeat
            if not repeat:
                self._advance(seq + 1)
            out.append(Delivered(self.part, seq, record, repeat))
        return out

    def _smallest(self) -> list[tuple[int, int, R]] | None:
        """Return the topic that holds the smallest seq."""
        return min((h for h in self._held.values() if h), key=lambda h: h[0][0], default=None)

    def _elders_gone(self) -> bool:
        """Whether no topic can still deliver a seq below the smallest one held.

        A topic that holds a record holds its smallest (its log is ordered). The others must have
        been read up to an end offset observed after the gap.
        """
        return all(bool(held) or self._at_end(topic) for topic, held in self._held.items())

    def _at_end(self, topic: str) -> bool:
        return self._targets is not None and self._reached[topic] >= self._targets.get(topic, 0)

    def _begin(self) -> bool:
        """Find the beginning of a stream joined in the middle; return whether it has begun."""
        heap = self._smallest()
        if heap is None:
            return False
        if not all(self._at_end(topic) for topic in self._held):
            self._gap = True
            return False
        self._advance(heap[0][0])
        return True

    def _advance(self, next_seq: int) -> None:
        self.next_seq = next_seq
        self._gap, self._targets = False, None
