"""Follows a query's three result topics as one stream (dpc-17).

The shell around ``delivery.merge.PartMerge``: one reader of committed records (``isolation.level =
read_committed``; other readers see aborted answers whose ``seq`` is used again, trace-29), assigned
at explicit offsets without a consumer group. The offsets belong to the topics' ids: a topic that
was deleted and made again ends the following with an error (rule-32). A topic far ahead of the
others is paused. Each record is stamped with the time it was read: latency is measured at the
consumer, not at the writer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from slackwater.client.answers import BestAnswers, Change, CorrectionsDone, Undone, WindowAnswer
from slackwater.client.awaited_parts import AwaitedParts
from slackwater.client.frames import Frames
from slackwater.client.outage import OutageWatch
from slackwater.client.window_order import WindowOrder
from slackwater.codec.results import check_result, format_time, parse_result
from slackwater.delivery.merge import Cut, PartMerge
from slackwater.model.errors import MalformedRecordError, UsageError
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.runtime.logs.cluster import Where, find_cluster
from slackwater.runtime.logs.described import TopicObserver
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.topics import partition_count
from slackwater.runtime.logs.transport import (
    Log,
    NoAnswerError,
    PositionGoneError,
    RawRecord,
    Transport,
    last_records,
)
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.owntopics import Observer, OwnTopics, TopicLostError
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)

From = Literal["beginning", "end", "recent"]
KINDS: Final = frozenset({"stable", "tentative", "boundary", "undo", "rec_done", "gap"})
GAP_WAIT_US: Final = 20_000
"""Time within which a transaction's records in other topics usually arrive without a request."""
FETCH_WAIT_MS_MAX: Final = 250
"""At 50 ms the fetches of twenty followers of three topics took a tenth of a broker's CPU."""
POLL_RECORDS_MAX: Final = 2_000
RECENT_RECORDS: Final = 20_000
"""Offsets before the end at which ``recent`` begins, in each topic and part."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A result as read: ``record`` is its JSON object, ``seen_at`` wall time in us.

    ``offset`` is the record's offset in its topic.
    """

    record: dict[str, Any]
    seen_at: int
    offset: int
    repeat: bool = False

    def line(self) -> dict[str, Any]:
        """Return the object with ``seen_at``, as in a line of ``results.jsonl``."""
        return {**self.record, "seen_at": format_time(self.seen_at)}


class Follower:
    """Reads a query's results with each ``poll``, ordered by ``seq`` within a part."""

    def __init__(
        self,
        transport: Transport,
        query: str,
        parts: int,
        from_: From = "beginning",
        clock: SystemClock | None = None,
        observe: Callable[[Callable[[], None]], Observer] | None = None,
        order: WindowOrder[Seen | Cut] | None = None,
    ) -> None:
        """Begin; ``observe`` makes the observer of the topics' ids.

        ``order``: the one order over all parts, if they are to be merged.

        Raises:
            TopicLostError: a topic is not the one that the deployment has recorded.
        """
        assert parts >= 1
        self.query = query
        self.cuts: list[Cut] = []
        self._transport = transport
        self._clock = clock or SystemClock()
        self._kinds: dict[str, str] = {
            transport.names.results(query, kind): kind for kind in RESULT_KINDS
        }
        self._lost: TopicLostError | None = None
        self._own = self._own_topics(observe)
        if self._own is not None:
            self._own.use(query, self._kinds)
        self._order = order
        self._gaps: dict[int, int] = {}
        self._paused: dict[Log, int] = {}
        logs = [(topic, part) for topic in self._kinds for part in range(parts)]
        self._present = transport.end_offsets(logs, isolation="read_committed")
        begins, first = transport.beginning_offsets(logs), dict.fromkeys(range(parts), 0)
        if from_ != "beginning":
            back = 0 if from_ == "end" else RECENT_RECORDS
            oldest = begins
            begins = {log: max(at, self._present[log] - back) for log, at in oldest.items()}
            first = self._next_seqs(oldest, begins)
        topics = list(self._kinds)
        self._merges = [PartMerge[Seen](p, topics, first.get(p)) for p in range(parts)]
        self._reader = transport.reader(
            isolation="read_committed", fetch_wait_ms_max=FETCH_WAIT_MS_MAX
        )
        self._reader.assign(begins)
        for log, offset in begins.items():
            self._merges[log[1]].reached(log[0], offset)

    @property
    def repeats(self) -> int:
        """Number of duplicate or out-of-order records; must be zero."""
        return sum(merge.repeats for merge in self._merges)

    @property
    def has_begun(self) -> bool:
        """Whether any result was committed when the follower was created."""
        return any(self._present.values())

    @property
    def at_present(self) -> bool:
        """Whether all results committed when the follower was created have been returned."""
        is_given = self._order is None or not self._order.held
        return is_given and all(self._is_at_present(merge) for merge in self._merges)

    def end_at_present(self) -> None:
        """With one order: read no part beyond its present end, and let no other one wait for it."""
        for merge in self._merges:
            if self._order is not None and self._is_at_present(merge):
                self._order.end(merge.part)
                self._pause_or_resume(merge)

    def poll(self, timeout_s: float = 0.1) -> list[Seen | Cut]:
        """Return the next records in order; wait only if there are none.

        Raises:
            TopicLostError: a topic has been deleted, or deleted and made again.
        """
        if self._lost is not None:
            raise self._lost
        try:
            raw = self._reader.poll(POLL_RECORDS_MAX, timeout_s)
        except PositionGoneError as gone:
            self._check()
            self._reader.assign(self._transport.beginning_offsets([gone.log]))
            return []
        now = self._clock.now_us()
        for record in raw:
            self._offer(record, now)
        out: list[Seen | Cut] = []
        for merge in self._merges:
            for topic in self._kinds:
                merge.reached(topic, self._position((topic, merge.part)))
            for item in self._take(merge):
                if self._order is None:
                    out.append(item)
                else:
                    read = item.record if isinstance(item, Seen) else None
                    self._order.offer(merge.part, item, read)
        if self._order is not None:
            out = self._order.take()
        for merge in self._merges:
            self._pause_or_resume(merge)
        return out

    def parts_watch(self) -> AwaitedParts:
        """Return a watch of the parts for which others wait in the order of windows."""
        order = self._order
        return AwaitedParts(
            self.query, lambda: None if order is None else order.awaited, self._clock.monotonic_us
        )

    def outage_watch(self) -> OutageWatch:
        """Return a watch of its broker."""

        def ask(within_s: float) -> object:
            return self._transport.end_offsets(list(self._present)[:1], timeout_s=within_s)

        return OutageWatch(self.query, ask, self._clock.monotonic_us)

    def close(self) -> None:
        """Close the reader."""
        if self._own is not None:
            self._own.close()
        self._reader.close()

    def _own_topics(
        self, observe: Callable[[Callable[[], None]], Observer] | None
    ) -> OwnTopics | None:
        if observe is None:
            return None

        def lost(_: str, error: TopicLostError) -> None:
            self._lost = error

        return OwnTopics(Registry(self._transport), self._transport.names, observe, lost)

    def _check(self) -> None:
        """Ask whether the topics are the same, as something is amiss; see ``poll``."""
        if self._own is not None:
            with contextlib.suppress(NoAnswerError):  # the next look finds it
                self._own.use(self.query, self._kinds)

    def _next_seqs(
        self, beginnings: Mapping[Log, int], starts: Mapping[Log, int]
    ) -> dict[int, int]:
        """Return per part the seq after all records that its topics hold before these offsets."""
        last = last_records(self._transport, beginnings, starts, isolation="read_committed")
        ends = self._transport.end_offsets(beginnings)
        behind: dict[int, int] = {}
        for raw in last:
            record = self._parsed(raw)
            if record is not None and record["seq"] < self._seqs_max(raw.partition, ends):
                behind[raw.partition] = max(behind.get(raw.partition, 0), record["seq"] + 1)
        return behind

    def _offer(self, raw: RawRecord, now: int) -> None:
        record = self._parsed(raw)
        if record is not None:
            self._merges[raw.partition].offer(
                raw.topic, record["seq"], Seen(record, now, raw.offset)
            )

    def _take(self, merge: PartMerge[Seen]) -> Iterator[Seen | Cut]:
        for item in merge.take():
            if isinstance(item, Cut):
                self._check()
                self.cuts.append(item)
                yield item
            else:
                yield replace(item.record, repeat=item.repeat)
        if not merge.wants_ends:
            self._gaps.pop(merge.part, None)
            return
        now = self._clock.monotonic_us()
        since = self._gaps.setdefault(merge.part, now)
        if now - since >= GAP_WAIT_US:
            logs = [(topic, merge.part) for topic in self._kinds]
            try:
                ends = self._transport.end_offsets(logs, timeout_s=1.0)
            except NoAnswerError:
                return  # broker unavailable: missing records may still arrive
            for topic, seq in merge.drop_from(self._seqs_max(merge.part, ends)):
                reason = "a result whose seq is larger than the number of results"
                SKIPPED.note(topic, merge.part, ends[topic, merge.part], reason, f"seq {seq}")
            merge.ends({log[0]: end for log, end in ends.items()})

    @staticmethod
    def _seqs_max(part: int, ends: Mapping[Log, int]) -> int:
        """Return a bound on a part's seqs: each took an offset in one of the three topics."""
        return sum(end for log, end in ends.items() if log[1] == part)

    def _parsed(self, raw: RawRecord) -> dict[str, Any] | None:
        """Parse a record; None if it is not a result. A damaged result is reported as cut."""
        where = f"{raw.topic}:{raw.partition}:{raw.offset}"
        try:
            record = parse_result(raw.value, where)
            check_result(record, self.query, raw.partition, where)
        except MalformedRecordError as error:
            SKIPPED.note(*raw.log, raw.offset, "not a result of its part", error.reason)
            return None
        return record

    def _position(self, log: Log) -> int:
        return self._paused[log] if log in self._paused else self._reader.position(log)

    def _is_at_present(self, merge: PartMerge[Seen]) -> bool:
        """Whether all of a part has been read that was committed when the follower was created."""
        ends = ((log, end) for log, end in self._present.items() if log[1] == merge.part)
        return not merge.held and all(self._position(log) >= end for log, end in ends)

    def _waits_in_order(self, part: int) -> bool:
        """Whether a part is not read on since others are behind it, or since it has ended."""
        order = self._order
        return order is not None and (order.full(part) or order.has_ended(part))

    def _pause_or_resume(self, merge: PartMerge[Seen]) -> None:
        waits = self._waits_in_order(merge.part)
        for topic in self._kinds:
            log = (topic, merge.part)
            is_to_pause = waits or merge.full(topic)
            if is_to_pause and log not in self._paused:
                self._paused[log] = self._reader.position(log)
                self._reader.unassign([log])
            elif log in self._paused and not is_to_pause:
                self._reader.assign({log: self._paused.pop(log)})


class Follow:
    """A followed query: iterate over it for records, use ``answers`` for the resulting state.

    Each record is the JSON object of the topic with ``seen_at`` added, ordered by ``seq`` within
    its part. Iteration ends only with ``until_end``, at the end observed when it began; ``close``
    (or the ``with`` statement) ends it from outside.
    """

    def __init__(
        self,
        follower: Follower,
        kinds: frozenset[str],
        until_end: bool,
        answers: BestAnswers,
        callbacks: Mapping[str, Callable[..., None] | None],
    ) -> None:
        self.answers = answers
        self._follower = follower
        self._kinds = kinds
        self._until_end = until_end
        self._callbacks = callbacks
        self._closed = False
        self._logged_dropped = False
        self._logged_early = False

    @property
    def repeats(self) -> int:
        """Number of duplicate or out-of-order records. Must be zero; none is hidden."""
        return self._follower.repeats

    @property
    def has_begun(self) -> bool:
        """Whether any result was committed when following began."""
        return self._follower.has_begun

    @property
    def cuts(self) -> list[Cut]:
        """Ranges of ``seq`` that retention deleted before they were read."""
        return self._follower.cuts

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            watch = self._follower.outage_watch()
            parts = self._follower.parts_watch()
            while not self._closed:
                items = self._follower.poll()
                watch.polled(len(items))
                parts.polled()
                for item in items:
                    if isinstance(item, Cut):
                        self.answers.cut(item.part)
                        _log.warning(
                            "results of %s, part %d: seq %d to %d are in none of its topics",
                            *(self._follower.query, item.part, item.first, item.last),
                        )
                    else:
                        self._apply(item)
                        if item.record["kind"] in self._kinds:
                            yield item.line()
                if self._until_end:
                    self._follower.end_at_present()
                    if self._follower.at_present:
                        return
        finally:
            self.close()

    def close(self) -> None:
        """Stop following."""
        if not self._closed:
            self._closed = True
            self._follower.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _apply(self, item: Seen) -> None:
        if item.repeat:
            return  # counted and returned, but an answer is reported once
        change = self.answers.apply(item.record, item.seen_at)
        if change is not None:
            self._call(change)
        if self.answers.tentative_dropped and not self._logged_dropped:
            self._logged_dropped = True
            _log.warning(
                "more than %d tentative answers of %s, or %d rows: the oldest are no longer kept",
                *(self.answers.tentative_windows_max, self._follower.query, self.answers.rows_max),
            )
        if self.answers.measures.n_early and not self._logged_early:
            self._logged_early = True
            _log.warning(
                "stable answers of %s, part %d, came before their windows had ended: this clock is"
                " behind, or the query reads a file that has ended",
                *(self._follower.query, item.record["part"]),
            )

    def _call(self, change: Change) -> None:
        name: str
        match change:
            case WindowAnswer():
                name = change.label
            case Undone():
                name = "undo"
            case CorrectionsDone():
                name = "rec_done"
        callback = self._callbacks.get(name)
        if callback is not None:
            callback(change)


class Client(Frames):
    """Follows the results of queries, or reads them as tables.

    >>> import slackwater
    >>> for record in slackwater.Client("127.0.0.1:9092").follow("climate"):  # doctest: +SKIP
    ...     print(record["kind"], record)

    ``kafka_config`` is a Kafka client properties file for a secured cluster; the file may also
    contain the address.

    The callbacks get a ``WindowAnswer`` (``on_stable``, ``on_tentative``), an ``Undone``
    (``on_undo``) or a ``CorrectionsDone`` (``on_rec_done``), in the order of the stream.
    """

    def __init__(
        self,
        bootstrap: Where | None = None,
        *,
        prefix: str = "",
        kafka_config: Path | str | None = None,
        tentative_windows_max: int = 10_000,
        on_stable: Callable[[WindowAnswer], None] | None = None,
        on_tentative: Callable[[WindowAnswer], None] | None = None,
        on_undo: Callable[[Undone], None] | None = None,
        on_rec_done: Callable[[CorrectionsDone], None] | None = None,
    ) -> None:
        config = None if kafka_config is None else Path(kafka_config)
        self._cluster = find_cluster(bootstrap, config, Role.CLIENT)
        self._names = Names(prefix)
        self._tentative_windows_max = tentative_windows_max
        self._callbacks: dict[str, Callable[..., None] | None] = {
            "stable": on_stable,
            "tentative": on_tentative,
            "undo": on_undo,
            "rec_done": on_rec_done,
        }

    def follow(
        self,
        query: str,
        *,
        kinds: Collection[str] | None = None,
        from_: From = "beginning",
        until_end: bool = False,
        by_window: bool = False,
    ) -> Follow:
        """Return the query's records as one stream; ``kinds`` selects record kinds, default all.

        Without ``by_window`` records are in order within each part, and come as soon as they can be
        read. With it all parts are in one order (window, part, seq), which is the same in each
        reading: a window comes when every part has answered it, and what a part writes after its
        answer, such as an UNDO and what replaces the revoked answers, comes after this window. It
        may come one window later than without ``by_window``. While a part does not answer, nothing
        of later windows comes; the others are read at most 10,000 records ahead. With ``until_end``
        the windows that not all parts have answered come at the end. Latencies and the callbacks
        refer to the time at which a record was read, in both cases.

        ``EnvironmentProblem`` is raised if the broker does not answer or the query does not exist.
        """
        wanted = KINDS if kinds is None else frozenset(kinds)
        if unknown := wanted - KINDS:
            known = ", ".join(sorted(KINDS))
            raise UsageError(f"unknown kind {', '.join(sorted(unknown))}: choose among {known}")
        parts = partition_count(self._cluster, self._names.results(query, "stable"))
        transport = KafkaTransport(self._cluster, self._names)
        observe = partial(TopicObserver, self._cluster)
        order: WindowOrder[Seen | Cut] | None = WindowOrder(range(parts)) if by_window else None
        follower = Follower(transport, query, parts, from_, observe=observe, order=order)
        answers = BestAnswers(self._tentative_windows_max)
        return Follow(follower, wanted, until_end, answers, self._callbacks)
