"""The session of a delivery: reads a query's results in order, evaluates its alerts, commits.

It reads the three result topics of all parts from the positions that it has stored, puts the
records of a part into the order of ``seq`` (``delivery.merge``), cuts batches that are complete
(``delivery.batches``), and evaluates them (``delivery.evaluation``). The records of alerts and the
positions after their batches are in one transaction. Killed at any moment, the next one begins
where the last committed transaction has ended, so no record is lost, and none is there twice.

The transactional id is the fence, as that of a root (rule-27): who starts aborts the open
transaction of an older copy, and reads the records after that. A log of its own for each query,
with one writer, is why it sees all that is committed: an open transaction of another writer would
hide the end (trace-18).

Positions alone are committed at most every ten seconds: a batch without records is evaluated again
after a restart, with the same result. What is read faster than it is committed is parked, and read
again by the catch-up readers (rule-12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from slackwater.codec.results import check_result, parse_result
from slackwater.delivery.batches import BatchCutter, LastStart
from slackwater.delivery.evaluation import AlertEvaluator
from slackwater.delivery.merge import Cut, PartMerge
from slackwater.delivery.records import (
    POSITION_KEY,
    AlertRecord,
    DeliveryPosition,
    DeliveryRecord,
    decode_delivery,
)
from slackwater.delivery.rules import AlertRules
from slackwater.model.errors import MalformedRecordError, SupersededError
from slackwater.model.names import RESULT_KINDS, Names, ResultKind
from slackwater.model.records import Hole
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.sessions.effects import (
    CommitRecords,
    Effect,
    Fail,
    FetchEnds,
    FetchPositions,
    LogLine,
    Skipped,
)
from slackwater.sessions.events import (
    CommitFailed,
    CommitSucceeded,
    EarlierEnded,
    EndsFetched,
    HeartbeatReceived,
    HeartbeatReturned,
    HoleReported,
    IncarnationClaimed,
    LiveAt,
    PassedBy,
    PositionGone,
    PositionsFetched,
    Received,
    Record,
    RecordDelivered,
    Replayed,
    ReplayedTo,
    ResignRequested,
    SessionEvent,
)
from slackwater.sessions.requests import (
    Beginnings,
    Log,
    OpenTransactions,
    Procedure,
    ReadLatest,
)
from slackwater.sessions.session import Form, Report

GAP_WAIT_US: Final = 20_000
"""Time in which a transaction's records in other topics usually come, and between two requests."""
POSITION_PERIOD_US: Final = 10_000_000
UNCOMMITTED_RECORDS_MAX: Final = 10_000
_LINE: Final = LineName.STABLE
"""The line of the catch-up reader."""


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """``query`` is the name of the results; ``later`` is the ``later`` of its grid of windows."""

    fragment: str
    query: str
    parts: int
    rules: AlertRules
    later: LastStart
    names: Names
    placement: int


@dataclass(slots=True)
class _ResultLog:
    """One result log: the next offset, and that of the live consumer while it is parked."""

    kind: ResultKind
    next: int = 0
    live: int = 0
    is_parked: bool = False


@dataclass(slots=True)
class _Part:
    """A part's way from records to batches; ``ends_at``: when ends are asked for, us."""

    merge: PartMerge[tuple[ResultKind, int, Mapping[str, object]]]
    cutter: BatchCutter
    ends_at: int | None = None
    has_ends: bool = False


@dataclass(slots=True)
class _Uncommitted:
    """What the next transaction has: alert records, by log key the last one of each kind."""

    records: list[AlertRecord] = field(default_factory=list)
    has_position: bool = False


class DeliverySession:
    """One delivery, for all parts of a query; see ``Session``."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.config = config
        names, query = config.names, config.query
        self._log: Log = (names.alerts(query), 0)
        self._logs = {
            (names.results(query, kind), part): _ResultLog(kind)
            for part in range(config.parts)
            for kind in RESULT_KINDS
        }
        self._topics = {kind: names.results(query, kind) for kind in RESULT_KINDS}
        self._evaluator: AlertEvaluator | None = None
        self._parts: list[_Part] = []
        self._uncommitted = _Uncommitted()
        self._in_flight = False
        self._commits = 0
        self._committed_at = 0
        self._queued: list[Effect] = []
        self._is_ending = False
        self._is_due = True

    # What it is.

    @property
    def fragment(self) -> str:
        """Name of the fragment."""
        return self.config.fragment

    @property
    def inc(self) -> int:
        """Placement number."""
        return self.config.placement

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """The result logs of all parts."""
        return dict.fromkeys(self._logs, "results")

    @property
    def listens_to(self) -> Sequence[str]:
        """No heartbeats are needed."""
        return ()

    # Start.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Fence older copies, then read what the last transaction has left."""
        yield OpenTransactions()
        stored = [*self._decoded((yield ReadLatest(self._log)))]
        config = self.config
        number = max((r.placement for r in stored if isinstance(r, DeliveryPosition)), default=-1)
        if number > config.placement:
            why = f"{config.fragment} runs elsewhere with placement {number}; ending this copy"
            raise SupersededError(why, config.placement)
        evaluator = self._evaluator = AlertEvaluator(config.rules, config.later, stored)
        beginnings = yield Beginnings(tuple(self._logs))
        for (topic, part), log in self._logs.items():
            stored_at = evaluator.part(part).offsets.get(log.kind, 0)
            log.next = log.live = max(stored_at, beginnings[topic, part])
        for part in range(config.parts):
            at = evaluator.part(part)
            merge = PartMerge[tuple[ResultKind, int, Mapping[str, object]]](
                part, [*self._topics.values()], at.next_seq
            )
            self._parts.append(_Part(merge, BatchCutter(part, at, config.later)))
        for (topic, part), log in self._logs.items():
            self._parts[part].merge.reached(topic, log.next)
        self._uncommitted.records += evaluator.begin()
        self._uncommitted.has_position = True  # the first transaction has the placement number
        return [LogLine(f"placement {config.placement} continues with {evaluator.known} counts")]

    def _decoded(self, values: Mapping[bytes, bytes]) -> Sequence[DeliveryRecord]:
        found: list[DeliveryRecord] = []
        for value in values.values():
            try:
                found.append(decode_delivery(value, self._log[0]))
            except MalformedRecordError as error:
                self._queued.append(Skipped(self._log, 0, "not a record of alerts", error.reason))
        return found

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Offsets at which the live consumer starts."""
        return {log: of.next for log, of in self._logs.items()}

    # Input.

    def take(self, event: SessionEvent) -> int | None:
        """Take an event; see ``Session``."""
        match event:
            case Received(log, offset, record):
                self._offer(log, offset, record)
                self._logs[log].live = self._logs[log].next
                return 0
            case PassedBy(log, offset):
                self._logs[log].live = offset + 1
            case LiveAt(log, offset):
                self._logs[log].live = offset
                self._logs[log].is_parked = offset > self._logs[log].next
            case Replayed(_, log, offset, record):
                self._offer(log, offset, record)
            case ReplayedTo(_, log, position):
                self._replayed_to(log, position)
            case PositionGone(_, log, beginning):
                self._logs[log].next = max(self._logs[log].next, beginning)
                self._reached(log)
            case EndsFetched(ends, _):
                self._take_ends(ends)
                return 0
            case PositionsFetched(positions):
                self._take_positions(positions)
                return 0
            case CommitSucceeded():
                self._in_flight, self._commits = False, self._commits + 1
            case CommitFailed(why):
                self._is_ending = True
                self._queued.append(Fail(f"{self.fragment}: {why}"))
            case RecordDelivered() | HeartbeatReceived() | HeartbeatReturned():
                pass
            case HoleReported() | IncarnationClaimed() | ResignRequested() | EarlierEnded():
                pass  # a claim is refuted or confirmed by the fence
            case _:
                assert_never(event)
        return None

    def needs(self, log: Log, offset: int) -> bool:
        """Whether the log is attached, and the record not yet read."""
        of = self._logs[log]
        return not of.is_parked and offset >= of.next

    def _offer(self, log: Log, offset: int, record: Record) -> None:
        """Pass a record to the merge of its part; a log that is far ahead is parked."""
        of, (topic, part) = self._logs[log], log
        if offset < of.next:
            return
        of.next = offset + 1
        assert isinstance(record, bytes), "results are passed as bytes"
        where = f"{topic}:{part}:{offset}"
        try:
            result = parse_result(record, where)
            check_result(result, self.config.query, part, where)
        except MalformedRecordError as error:
            skipped = Skipped(log, offset, "not a result of its part", error.reason)
            self._queued.append(skipped)
        else:
            self._parts[part].merge.offer(topic, result["seq"], (of.kind, offset, result))
        self._is_due = True
        if self._is_full(log):
            of.is_parked = True

    def _is_full(self, log: Log) -> bool:
        """Whether a log is not read on: it is far ahead of the others, or of the transactions."""
        topic, part = log
        is_full = len(self._uncommitted.records) >= UNCOMMITTED_RECORDS_MAX
        return is_full or self._parts[part].merge.full(topic)

    def _replayed_to(self, log: Log, position: int) -> None:
        of = self._logs[log]
        of.next = max(of.next, position)
        of.is_parked = of.next < of.live
        self._reached(log)

    def _reached(self, log: Log) -> None:
        topic, part = log
        self._parts[part].merge.reached(topic, self._logs[log].next)
        self._is_due = True

    def _take_ends(self, ends: Mapping[Log, int | None]) -> None:
        """Take the ends of a part's logs, after a gap in its ``seq`` was seen."""
        part = self._parts[next(iter(ends))[1]]
        part.ends_at = None
        known = {log[0]: end for log, end in ends.items() if end is not None}
        if len(known) == len(ends):
            seqs_max = sum(known.values())  # each result took an offset in one of the topics
            for topic, seq in part.merge.drop_from(seqs_max):
                reason = "a result whose seq is larger than the number of results"
                log = (topic, part.cutter.part)
                self._queued.append(Skipped(log, known[topic], reason, f"seq {seq}"))
            part.merge.ends(known)
            part.has_ends = True

    def _take_positions(self, positions: Mapping[Log, int]) -> None:
        for log, position in positions.items():
            if log in self._logs and not self._logs[log].is_parked:
                topic, part = log
                self._parts[part].merge.reached(topic, position)
        for part_ in self._parts:
            part_.ends_at = None
        self._is_due = True

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return where the catch-up readers begin: in parked logs that may be read on."""
        parked = {log: of for log, of in self._logs.items() if of.is_parked}
        return {(_LINE, log): of.next for log, of in parked.items() if not self._is_full(log)}

    @property
    def hole(self) -> Hole | None:
        """Its log can have none."""
        return None

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """Evaluate what is in order, and commit when the last transaction has been."""
        effects, self._queued = self._queued, []
        if self._is_ending:
            return effects
        self._is_due = False
        for part in self._parts:
            self._evaluate(part)
            effects += self._look_for_gaps(part, now)
        effects += self._committed(now)
        return effects

    def _evaluate(self, part: _Part) -> None:
        assert self._evaluator is not None, "it has not been started"
        for item in part.merge.take():
            if isinstance(item, Cut):
                part.cutter.skip(item.last + 1)
            elif not item.repeat:
                batch = part.cutter.offer(*item.record)
                if batch is not None:
                    self._uncommitted.records += self._evaluator.take(batch)
                    self._uncommitted.has_position = True
        if not part.merge.held:
            part.ends_at, part.has_ends = None, False

    def _look_for_gaps(self, part: _Part, now: int) -> Sequence[Effect]:
        """Ask for ends once a record waits for earlier ones, then for positions until it is clear.

        A record that no topic has below those ends was deleted by retention.
        """
        if part.merge.wants_ends:
            part.has_ends = False
        elif not part.has_ends:
            return ()
        if part.ends_at is None:
            part.ends_at = now + GAP_WAIT_US
        if now < part.ends_at:
            return ()
        part.ends_at = now + POSITION_PERIOD_US  # again, if there is no answer
        logs = tuple((topic, part.cutter.part) for topic in self._topics.values())
        return [FetchPositions(logs) if part.has_ends else FetchEnds(logs)]

    def _committed(self, now: int) -> Sequence[Effect]:
        """Return the next transaction, if one is due."""
        waiting = self._uncommitted
        is_due = waiting.records or now - self._committed_at >= POSITION_PERIOD_US
        if self._in_flight or not waiting.has_position or not is_due:
            return ()
        assert self._evaluator is not None, "it has not been started"
        position = self._evaluator.position(self.config.placement)
        records = [(record.log_key, record.encode()) for record in waiting.records]
        self._uncommitted = _Uncommitted()
        self._in_flight, self._committed_at = True, now
        return [CommitRecords(self._log, (*records, (POSITION_KEY, position.encode())))]

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        return bool(self._queued) or (self._is_due and not self._is_ending)

    @property
    def wake_at(self) -> int | None:
        """When a gap is looked at again, or positions are due, us."""
        times = [part.ends_at for part in self._parts if part.ends_at is not None]
        if self._uncommitted.has_position and not self._in_flight:
            times.append(self._committed_at + POSITION_PERIOD_US)
        return min(times, default=None)

    @property
    def state(self) -> str:
        """Its records are exact functions of the results."""
        return LineState.STABLE.value

    def report(self) -> Report:
        """Report what has been committed."""
        known = 0 if self._evaluator is None else self._evaluator.known
        return Report(
            ready=self._commits > 0,
            states={self._log[0]: self.state},
            detail={"commits": self._commits, "counts": known},
        )
