"""The session of a root: one copy of one part, without I/O.

``protocols.dpc.soutput.core`` has the rules of windows and answers. This module has the rest: the
start, which is also the take-over (rule-27), one transaction at a time and the handling of a failed
one (rule-24), rejection of records that their orderer cannot have written, and the check that
answers are in time.

Only one copy of a part may answer. The part's transactional id in Kafka is the fence: if a copy
starts to use it, the open transaction of the older copy is aborted, and the next commit of the
older copy fails. A copy therefore fences before it reads the state from which it continues. It
fences once, when it has built its core and its logs are being read: until then the older copy
answers. The core adopts what that copy has answered meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from slackwater.codec.results import format_time
from slackwater.model.errors import SlackwaterError, SupersededError
from slackwater.model.names import OrdererName
from slackwater.model.records import (
    BucketRecord,
    DeltaRecord,
    Heartbeat,
    Hole,
    Kind,
    OrderedRecord,
)
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.reconcile.downstream import read_position_key
from slackwater.protocols.dpc.soutput import config as dpc
from slackwater.protocols.dpc.soutput.answers import GapNote
from slackwater.protocols.dpc.soutput.config import Commit, DeltaLog, RootConfig
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.delta_cursor import damaged_delta
from slackwater.protocols.dpc.soutput.upstream import Switched
from slackwater.sessions.boundwatch import BoundWatch
from slackwater.sessions.effects import Effect, Fail, FetchEnds, LogLine, Perform, Refute, Skipped
from slackwater.sessions.progress import read_progress
from slackwater.sessions.requests import (
    PROBE_TIMEOUT_US,
    Beginnings,
    ClaimPart,
    Ends,
    Isolation,
    Log,
    OpenTransactions,
    Procedure,
)
from slackwater.sessions.session import Form, Record, Report

WATCH_PERIOD_US: Final = 50_000


class RootSession:
    """Session of one copy of one root part.

    Args:
        config: configuration of the core.
        windowed: whether the root reads aggregators' deltas. In a query without a window it reads
            the orderers' logs instead (trace-21).
    """

    def __init__(self, config: RootConfig, *, windowed: bool) -> None:
        self._config = config
        self._form: Form = "deltas" if windowed else "ordered"
        self._ordered_at = {log: _ordered_place(config, log) for log in config.logs}
        deltas = config.topics.deltas(config.child_query, config.part)
        self._places: dict[DeltaLog, Log] = (
            {log: (deltas, log.partition(config.replicas)) for log in config.logs}
            if windowed
            else self._ordered_at
        )
        self._log_at = {place: log for log, place in self._places.items()}
        self._orderers = {
            OrdererName(config.child_query, child, replica).process: (child, replica)
            for child in range(len(config.children))
            for replica in range(config.replicas)
        }
        self._watch = BoundWatch(config.bound_us, config.grid, config.schedule.normal_time)
        self._watched_at = 0
        self._core: RootCore | None = None
        self._opens = self._is_open = False
        """Whether transactions are being opened, and whether they are open."""
        self._in_flight: Commit | None = None
        self._queued: list[Effect] = []
        """Effects caused by input since the last step."""
        self._is_ending = False
        self._looks_at_claim = False
        self._now = 0
        self._switches = self._gaps = 0

    @property
    def core(self) -> RootCore:
        """The lines and their cursors; available after the start."""
        assert self._core is not None, "the start has not been run"
        return self._core

    @property
    def config(self) -> RootConfig:
        """Configuration of the core."""
        return self._config

    @property
    def fragment(self) -> str:
        """Name of the fragment."""
        return self._config.fragment

    @property
    def inc(self) -> int:
        """Placement number of this copy."""
        return self._config.placement

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """The part's delta logs, or the orderers' logs, with the form of their records."""
        return dict.fromkeys(self._log_at, self._form)

    @property
    def isolation(self) -> Isolation:
        """``read_uncommitted``: the inputs have no transactions."""
        return "read_uncommitted"

    @property
    def listens_to(self) -> Sequence[str]:
        """All replicas of all children (Table II)."""
        return tuple(self._orderers)

    # Start and take-over: rule-27.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Read the progress of the part's answers, of which a copy that runs may give more."""
        config, logs = self._config, tuple(self._log_at)
        found = yield from read_progress(config)
        found.check(config)
        state = found.state(config)
        ends = yield Ends(logs)
        core = RootCore(
            config, state, suppress_until={self._log_at[at]: end for at, end in ends.items()}
        )
        beginnings = yield Beginnings(logs)
        core.begin_at({self._log_at[at]: offset for at, offset in beginnings.items()})
        self._core = core
        return []

    def _take_over(self) -> Procedure[None]:
        """Fence the copy that answers, adopt its last answers, and enable commits.

        Copies that were placed earlier stay down from here on, even before this one's first answer
        (trace-41).
        """
        config = self._config
        yield OpenTransactions()
        found = yield from read_progress(config)
        try:
            found.check(config)
        except SupersededError as error:
            self._fail(str(error))  # it was placed during this start; the next one stays down
            return
        state = found.state(config)
        self.core.follow(state)
        self._queued.append(
            LogLine(
                f"placement {config.placement} continues: exact to"
                f" {format_time(state.stable_from)}, answered to {format_time(state.answered_to)}"
            )
        )
        if not found.has_begun:
            self._watch.began(self._now)
        if (claim := found.claim(config)) is not None:
            yield ClaimPart(claim)
        self._is_open = not self._is_ending

    def _fail(self, reason: str) -> None:
        self._is_ending = True
        self._queued.append(Fail(reason))

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Offsets at which the live consumer starts."""
        return {self._places[log]: offset for log, offset in self.core.live_offsets.items()}

    def live_at(self, log: Log, offset: int) -> None:
        """Set the live consumer's position; cursors elsewhere are parked (rule-12)."""
        self.core.live_at(self._log_at[log], offset)

    # Input.

    def needs(self, _log: Log, _offset: int) -> bool:
        """Return True: each record has a seq, and none may be skipped (rule-10)."""
        return True

    def receive(self, log: Log, offset: int, record: Record) -> int | None:
        """Take a record of the live consumer.

        No turn is needed while a transaction is in flight. A replica that restarts writes several
        seconds of buckets at once; a turn for each would delay live buckets of other replicas.
        """
        self.core.receive(self._log_at[log], offset, self._record(log, offset, record))
        return None if self.core.awaits_commit else 0

    def _record(self, log: Log, offset: int, record: Record) -> BucketRecord:
        """Return the record with its seq; VOID for one that its orderer cannot have written.

        The seq of an orderer's record is its offset; that of a delta is the offset of the record
        from which it was made. An incarnation is the offset of an earlier START in the stable log
        (rule-6). A record with a greater incarnation must be rejected: it would make the reader
        drop all records that follow.
        """
        of = self._log_at[log]
        if record is None:
            if self._form == "deltas":
                return damaged_delta(of.child, of.replica)
            return OrderedRecord(Kind.VOID, of.child, of.replica, 0, 0, 0, seq=offset)
        assert isinstance(record, DeltaRecord | OrderedRecord)
        if isinstance(record, OrderedRecord):
            record = replace(record, seq=offset)
        has_begun = of.line is LineName.LIVE or record.inc <= record.seq
        if (record.child, record.replica) == (of.child, of.replica) and has_begun:
            return record
        found = f"child {record.child}, replica {record.replica}, incarnation {record.inc}"
        why = "record that its orderer cannot have written"
        self._queued.append(Skipped(log, offset, why, found))
        return replace(record, kind=Kind.VOID)

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return the start offsets of the catch-up readers."""
        wanted = self.core.wanted()
        return {(line, self._places[log]): offset for (line, log), offset in wanted.items()}

    def catch_up(self, line: LineName, log: Log, offset: int, record: Record) -> None:
        """Take a record for a parked cursor."""
        self.core.catch_up(line, self._log_at[log], offset, self._record(log, offset, record))

    def caught_up_to(self, line: LineName, log: Log, position: int) -> None:
        """Do nothing: in a log without transactions the records show the reader's position."""

    def position_gone(self, line: LineName, log: Log, beginning: int) -> None:
        """Move a parked cursor to ``beginning``: retention deleted its next record (rule-28)."""
        self.core.position_gone(line, self._log_at[log], beginning)

    def ends(self, ends: Mapping[Log, int | None], asked_at: int) -> None:
        """Take the answer to ``FetchEnds``."""
        self.core.ends({self._log_at[log]: end for log, end in ends.items()}, asked_at)

    def positions(self, positions: Mapping[Log, int]) -> None:
        """Do nothing: roots do not request positions."""

    def delivered(self, log: Log, offset: int) -> None:
        """Do nothing: roots write in transactions only."""

    def on_heartbeat(self, beat: Heartbeat, received_at: int) -> None:
        """Take the state of a replica's output from its heartbeat (trace-34)."""
        of = self._orderers.get(beat.process)
        if of is None:
            return
        child, replica = of
        topic = self._config.topics.ordered(self._config.child_query, child)
        state = LineState.of(beat.states.get(topic))
        if state is not None:
            self.core.update_replica(child, replica, state, received_at)

    def claimed(self, inc: int) -> None:
        """Check whether a copy with a greater placement has committed (decision 51)."""
        if inc > self.inc and not self._looks_at_claim:
            self._looks_at_claim = True
            self._queued.append(Perform(self._look_at_claim(inc)))

    def _look_at_claim(self, inc: int) -> Procedure[None]:
        try:
            found = (yield from read_progress(self._config, PROBE_TIMEOUT_US)).own
        except SlackwaterError:
            self._looks_at_claim = False
            return  # no answer: the check is repeated at the next claim
        if found is not None and found.placement > self.inc:
            self._fail(
                f"{self.fragment} runs elsewhere with placement {found.placement}; ending this copy"
            )
        else:
            self._queued.append(Refute(inc))

    @property
    def hole(self) -> Hole | None:
        """None: transactions are atomic, so the results have no hole."""
        return None

    def hole_reported(self) -> None:
        """Do nothing: roots have no hole."""

    def committed(self, now: int) -> None:
        """Record that the transaction in flight is committed."""
        commit, self._in_flight = self._in_flight, None
        assert commit is not None, "no transaction is in progress"
        self._watch.committed(commit.transaction.effects, now)
        self._gaps += sum(isinstance(effect, GapNote) for effect in commit.transaction.effects)
        self.core.committed(now)

    def commit_failed(self, why: str) -> None:
        """End the session; its restart reads in the log whether the commit succeeded (rule-24)."""
        self._fail(f"{self.fragment}: {why}")

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """Step the core, once transactions are open."""
        self._now = now
        effects, self._queued = self._queued, []
        if any(isinstance(effect, Refute) for effect in effects):
            self._looks_at_claim = False  # a claim is repeated by heartbeats until refuted
        if self._is_ending:
            return effects
        if not self._is_open:
            if not self._opens:
                self._opens = True
                effects.append(Perform(self._take_over()))
            return effects
        effects += [self._effect(effect) for effect in self.core.step(now)]
        if now - self._watched_at >= WATCH_PERIOD_US:
            self._watched_at = now
            line = self._watch.look(self.core.answers.state.answered_to, now)
            effects += [LogLine(line, is_warning=True)] if line is not None else []
        return effects

    def _effect(self, effect: dpc.Effect) -> Effect:
        match effect:
            case Commit():
                assert self._in_flight is None, "one transaction at a time"
                self._in_flight = effect
                self._watch.committing(self._now)
                return effect
            case ProbeEnds(logs):
                return FetchEnds(tuple(self._places[log] for log in logs))
            case dpc.FetchOrdered(logs):
                return Perform(self._look_at_ordered(logs))
            case Switched():
                self._switches += 1
                return LogLine(_switch_text(effect))

    def _look_at_ordered(self, logs: Sequence[DeltaLog]) -> Procedure[None]:
        """Fetch the first and the end offsets of ordered logs, and pass them to the core."""
        places = tuple(self._ordered_at[log] for log in logs)
        spans: dict[DeltaLog, tuple[int, int]] = {}
        try:
            begin = yield Beginnings(places, PROBE_TIMEOUT_US)
            end = yield Ends(places, timeout_us=PROBE_TIMEOUT_US)
            spans = {log: (begin[at], end[at]) for log, at in zip(logs, places, strict=True)}
        except SlackwaterError:
            pass  # no answer: the core repeats the request
        self.core.ordered(spans)

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        return bool(self._queued) or (self._is_open and not self._is_ending and self.core.busy)

    @property
    def wake_at(self) -> int | None:
        """Time of the next deadline, us; None before transactions are open and while ending."""
        return self.core.wake_at if self._is_open and not self._is_ending else None

    @property
    def state(self) -> str:
        """DPC state of the results; UP_FAILURE while tentative output is suppressed."""
        return (
            LineState.UP_FAILURE.value
            if self.core.suppress_tentative
            else self.core.line.state.value
        )

    def report(self) -> Report:
        """Report the state of the results, holes in the inputs, progress, and counters."""
        config, core = self._config, self.core
        answered = core.answers.state
        return Report(
            ready=self._is_open and core.connected,
            states={config.topics.results(config.query, "stable"): self.state},
            holes=core.holes,
            detail={
                "stable_from": answered.stable_from,
                "answered_to": answered.answered_to,
                "epoch": answered.epoch,
                "seq": answered.next_seq,
                "keys": len(core.keys),
                "switches": self._switches,
                "gaps": self._gaps,
                "mute": int(core.suppress_tentative),
                **self._watch.detail(self._now),
                **{read_position_key(*of): to for of, to in core.read_to.items()},
            },
        )


def _ordered_place(config: RootConfig, log: DeltaLog) -> Log:
    return config.topics.ordered(config.child_query, log.child), 2 * log.replica + log.line


def _switch_text(switch: Switched) -> str:
    """Return the log line of a switch, with the two times of DPC section 5.1 in ms.

    The DPC experiments (``bench/paper_dpc``) parse this line.
    """
    silent_us = switch.detected_at - switch.last_seen
    return (
        f"switched from replica {switch.replica} of child {switch.child}:"
        f" last heartbeat {silent_us / 1000:.1f} ms before it was given up,"
        f" answered {(switch.answered_at - switch.detected_at) / 1000:.1f} ms after"
    )
