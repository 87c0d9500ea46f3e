"""Three topics read as one stream, by the sequence number they share.

A part of a query writes its answers to three topics (stable, tentative, corrections) and numbers
them through: ``seq`` is contiguous per part *across* the topics. So a client can speak DPC: read
the tuples of section 4.1 of the paper as the one output stream they are. A consumer sees each topic
in its order but the three at their own pace, so a record may have to wait for its elder in another
topic. When is an elder that does not come not coming? Not after some time: a broker may be slow for
as long as it likes. But a transaction's records are all in the logs before the first of them can be
read, so: fetch the ends of the topics *after* the gap was noticed, read on to them, and what has
not come by then is in no log any more. It was cut by retention, and that is reported.

The ends must be those of all records, not only of the committed ones: the markers that commit a
transaction reach the topics one after the other, and a topic whose marker is still on its way ends,
for a reader of committed records, just before the record that is looked for.

Rejected: sorting by emission time, or a grace period. Both guess, and a guess that fails shows a
stable answer before the UNDO that makes room for it.

This is the pure core: no Kafka, no clock. ``slackwater.client.follow`` feeds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")

HELD_RECORDS_MAX = 10_000
"""Of one topic; a topic that is further ahead of the others is not read on (``PartMerge.full``)."""


@dataclass(frozen=True, slots=True)
class Delivered(Generic[R]):
    """A record in its place.

    ``repeat`` marks one whose ``seq`` lies below what was delivered before it: a second copy, or a
    record out of order. The writer's fence and transactions allow neither, so a repeat is a defect;
    it is delivered all the same, for a client that hides doubles hides them from a checker too.
    """

    part: int
    seq: int
    record: R
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """``first`` to ``last`` (inclusive) are in no topic any more: retention took them."""

    part: int
    first: int
    last: int


class PartMerge(Generic[R]):
    """Puts the records of one part in order.

    Who joins in the middle begins at ``next_seq``, behind all that any topic holds before the place
    at which it is read from. These places were not fetched at one instant, so what a topic brings
    below is dropped: its neighbours in another topic have been passed over. None means that no
    topic holds anything before: the first record is the smallest one seen once all topics have been
    read to a common instant.
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
        """A record waits for an elder: fetch the topics' ends now and give them to ``ends``."""
        return self._gap and self._targets is None

    def ends(self, targets: Mapping[str, int]) -> None:
        """Ends of the topics' logs, all records counted, observed after ``wants_ends`` rose."""
        if self.wants_ends:
            self._targets = dict(targets)

    def reached(self, topic: str, offset: int) -> None:
        """Everything of ``topic`` below ``offset`` has been offered (or was no record)."""
        self._reached[topic] = max(self._reached[topic], offset)

    def offer(self, topic: str, seq: int, record: R) -> None:
        """One record, as read; each topic in the order of its log."""
        if seq < self._first:
            return
        # The count of arrivals keeps the heap from ever comparing two records.
        heapq.heappush(self._held[topic], (seq, self._arrivals, record))
        self._arrivals += 1

    def drop_from(self, seq_max: int) -> list[tuple[str, int]]:
        """Forget what is held with a seq of ``seq_max`` or more: (topic, seq) of each."""
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
        """Whether so much of the topic waits for the others that it should not be read on.

        It never is the topic that holds what the others wait for: that one is not ahead. Until it
        is known where the stream begins all are read to their ends, however much that is.
        """
        return self.next_seq is not None and len(self._held[topic]) >= HELD_RECORDS_MAX

    @property
    def held(self) -> int:
        """How many records wait."""
        return sum(map(len, self._held.values()))

    def take(self) -> list[Delivered[R] | Cut]:
        """All that is in order by now."""
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
        """The topic that holds the smallest seq."""
        return min((h for h in self._held.values() if h), key=lambda h: h[0][0], default=None)

    def _elders_gone(self) -> bool:
        """No topic can still bring a smaller seq than the smallest that is held.

        A topic that holds a record holds its own smallest (its log is in order). The others must
        have been read to an end that was observed after the gap.
        """
        return all(bool(held) or self._at_end(topic) for topic, held in self._held.items())

    def _at_end(self, topic: str) -> bool:
        return self._targets is not None and self._reached[topic] >= self._targets.get(topic, 0)

    def _begin(self) -> bool:
        """Find where a stream that was joined in the middle begins; whether it has begun."""
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
