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
from typing import Final, assert_never

from slackwater.codec.results import format_time
from slackwater.model.errors import SupersededError
from slackwater.model.records import (
    Heartbeat,
)
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.reconcile.downstream import read_position_key
from slackwater.protocols.dpc.soutput import config as dpc
from slackwater.protocols.dpc.soutput.answers import Answered, GapNote
from slackwater.protocols.dpc.soutput.config import Commit, RootConfig
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.decision import earliest
from slackwater.protocols.dpc.soutput.upstream import Switched
from slackwater.protocols.flux.pair import FOLLOWS, SUSPECT_US, Pair, PairRole
from slackwater.sessions.boundwatch import BoundWatch
from slackwater.sessions.claims import Claims
from slackwater.sessions.copy import OWN_RECORD_US, CopyOfPart, FencedError, stamped
from slackwater.sessions.effects import (
    Effect,
    Fail,
    FetchEnds,
    LogLine,
    Perform,
    Rebuild,
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
    RecordDelivered,
    Replayed,
    ReplayedTo,
    ResignRequested,
    SessionEvent,
)
from slackwater.sessions.following import is_able
from slackwater.sessions.merged_input import MergedInput
from slackwater.sessions.progress import read_progress
from slackwater.sessions.requests import (
    Beginnings,
    Ends,
    Log,
    Procedure,
)
from slackwater.sessions.root_logs import RootLogs
from slackwater.sessions.session import Form, Report
from slackwater.sessions.state_mover import StateMover

WATCH_PERIOD_US: Final = 50_000
FOLLOW_PERIOD_US: Final = 10_000
"""Interval at which a copy that follows looks whether its own heartbeats have returned."""


class RootSession:
    """Session of one copy of one root part.

    Args:
        config: configuration of the core.
        windowed: whether the root reads aggregators' deltas. In a query without a window it reads
            the orderers' logs instead (trace-21).
        suspect_us: the silence of the other copy after which this one takes over.
    """

    hole: Final = None
    """Transactions are atomic, so the results have no hole."""

    def __init__(self, config: RootConfig, *, windowed: bool, suspect_us: int = SUSPECT_US) -> None:
        self.config = config
        self._logs = RootLogs(config, windowed=windowed)
        self._watch = BoundWatch(config.bound_us, config.grid, config.schedule.normal_time)
        self._core: RootCore | None = None
        self._copy = CopyOfPart(config, suspect_us)
        self.mover = StateMover(config, windowed=windowed)
        self._merged = MergedInput(config)
        self._in_flight: Commit | None = None
        self._queued: list[Effect] = []
        """Effects caused by input since the last step."""
        self._claims = Claims(config.process, config.placement, self._copy)
        self._is_ending = False
        self._now = self._watched_at = 0
        self._switches = self._gaps = 0
        self._look_at: int | None = None  # when a merged pane may be missing

    @property
    def core(self) -> RootCore:
        """The lines and their cursors; available after the start."""
        assert self._core is not None, "the start has not been run"
        return self._core

    @property
    def fragment(self) -> str:
        """Name of the fragment."""
        return self.config.process

    @property
    def pair(self) -> Pair:
        """The role of this copy, and what it knows of the other one."""
        return self._copy.pair

    @property
    def inc(self) -> int:
        """Placement number of this copy."""
        return self.config.placement

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """The part's delta logs, or the orderers' logs, with the form of their records.

        A copy that follows another one, or an earlier generation, also reads the state records.
        """
        states: dict[Log, Form] = {self._copy.states: "states"} if self._copy.reads_states else {}
        merged: dict[Log, Form] = dict.fromkeys(self._merged.at, "merged")
        return dict.fromkeys(self._logs.at, self._logs.form) | merged | states

    @property
    def listens_to(self) -> Sequence[str]:
        """All replicas of all children (Table II), and the other copy."""
        return (*self._logs.orderers, *self._copy.others)

    # Start and take-over: rule-27.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Read the progress of the part's answers, of which a copy that runs may give more."""
        config, copy = self.config, self._copy
        logs = (*self._logs.at, *self._merged.at)
        yield from copy.check_number()
        if copy.reads_states:
            self._states_from = (yield Ends((copy.states,), "read_committed"))[copy.states]
        yield from self.mover.read()
        found = yield from read_progress(config)
        found.check(config)
        copy.began(found)
        state = found.state(config)
        moved = yield from self.mover.install(state)
        ends = yield Ends(logs)
        unread = {log: ends[at] for at, log in self._logs.at.items()}
        core = self._core = RootCore(config, state, suppress_until=unread, moved=moved)
        beginnings = yield Beginnings(logs)
        core.begin_at({log: beginnings[at] for at, log in self._logs.at.items()})
        self._merged.continue_at(state, beginnings, ends)
        yield from copy.store_number(state)
        return []

    def _take_over(self) -> Procedure[None]:
        """Fence the copy that answers, adopt its last answers, and answer from then on."""
        try:
            found, tenure = yield from self._copy.take_over(self.core)
        except SupersededError as error:
            self._fail(str(error))  # it was placed during this start; the next one stays down
            return
        except FencedError as error:
            yield from self._look_after(str(error))
            return
        self._queued.append(_continues(self.inc, tenure.term, self.core.answers.state))
        if not found.has_begun:
            self._watch.began(self._now)

    def _look_after(self, why: str) -> Procedure[None]:
        """End after a failed transaction; a copy that was fenced is built again, and follows."""
        self._end_with((yield from self._copy.after_failure()))
        self._fail(f"{self.fragment}: {why}")

    def _fail(self, reason: str) -> None:
        self._end_with(Fail(reason))

    def _end_with(self, end: Fail | Rebuild | None) -> None:
        """End the session with this effect; the first one counts."""
        if end is not None and not self._is_ending:
            self._is_ending = True
            self._queued.append(end)

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Offsets at which the live consumer starts."""
        offsets = {self._logs.places[log]: offset for log, offset in self.core.live_offsets.items()}
        offsets |= self._merged.live_offsets
        if self._copy.reads_states:
            offsets[self._copy.states] = self._states_from
        return offsets

    # Input.

    def take(self, event: SessionEvent) -> int | None:
        """Take an event; see ``Session``. A root needs each record, and appends to no log."""
        match event:
            case Received():
                return self._receive(event)
            case Replayed(_, log, offset, record) if log in self._merged.at:
                self._merged.replayed(self.core, log, offset, record, self._now)
            case Replayed(line, log, offset, record):
                taken = self._logs.checked(log, offset, record)
                self.core.catch_up(line, self._logs.at[log], offset, taken)
            case HeartbeatReceived(beat, received_at):
                self._observe(beat, received_at)
            case HeartbeatReturned(sent_at):
                self.pair.returned(sent_at)
            case EndsFetched(ends, asked_at):
                self.core.ends({self._logs.at[log]: end for log, end in ends.items()}, asked_at)
            case CommitSucceeded(now):
                self._committed(now)
            case CommitFailed(why):
                self._commit_failed(why)
            case LiveAt(log, offset) if log in self._merged.at:
                self._merged.live_at(log, offset)
            case LiveAt(log, offset):
                self._live_at(log, offset)
            case PositionGone(_, log, beginning) if log in self._merged.at:
                self._merged.position_gone(log, beginning)
            case PositionGone(line, log, beginning):
                self._position_gone(line, log, beginning)
            case IncarnationClaimed(inc):
                self._queued += self._claims.noted(inc)
            case ResignRequested(now):
                return 0 if not self._is_ending and self._copy.resign(now) else None
            case RecordDelivered():
                self.mover.delivered()
            case EarlierEnded():
                self._copy.earlier.ended()
            case PassedBy(log, offset):
                self.core.resting.pass_by(self._logs.at[log], offset)
            case ReplayedTo() | PositionsFetched() | HoleReported():
                pass  # a hole is that of another fragment
            case _:
                assert_never(event)
        return None

    def _live_at(self, log: Log, offset: int) -> None:
        """Set the live consumer's position; cursors elsewhere are parked (rule-12)."""
        if log in self._logs.at:
            self.core.live_at(self._logs.at[log], offset)
        elif offset > self._states_from:
            self._queued.append(Perform(self._read_progress()))

    def needs(self, log: Log, _offset: int) -> bool:
        """Return whether a record counts: each has a seq (rule-10), unless its child rests."""
        return log not in self._logs.at or self.core.resting.needs(self._logs.at[log])

    def _receive(self, event: Received) -> int | None:
        """Take a record of the live consumer.

        No turn is needed while a transaction is in flight. A replica that restarts writes several
        seconds of buckets at once; a turn for each would delay live buckets of other replicas.
        """
        at, offset, record = event.log, event.offset, event.record
        if at in self._merged.at:
            self._merged.receive(self.core, at, offset, record, self._now)
        elif (log := self._logs.at.get(at)) is None:
            self._end_with(self._copy.take_state(self.core, record, self._now))
            return None if self._copy.may_wait(self.core) and not self._is_ending else 0
        else:
            self.core.receive(log, offset, self._logs.checked(at, offset, record))
        return None if self.core.awaits_commit else 0

    def _read_progress(self) -> Procedure[None]:
        """Read the state records that a live consumer had read before it read for this copy."""
        found = yield from read_progress(self.config)
        self._end_with(self._copy.take_state(self.core, found.latest, self._now))

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return the start offsets of the catch-up readers."""
        wanted = self.core.wanted()
        found = {(line, self._logs.places[log]): offset for (line, log), offset in wanted.items()}
        return found | self._merged.wanted(self.core)

    def _position_gone(self, line: LineName, log: Log, beginning: int) -> None:
        """Move a parked cursor to ``beginning``: retention deleted its next record (rule-28).

        A follower starts again from the state record: what it lacks has been answered.
        """
        if not self._copy.answers and self._copy.reads_states:
            self._end_with(Rebuild(f"{log[0]}:{log[1]} now begins at {beginning}"))
            return
        self.core.position_gone(line, self._logs.at[log], beginning)

    def _observe(self, beat: Heartbeat, received_at: int) -> None:
        """Take the state of a replica's output from its heartbeat (trace-34)."""
        self._copy.on_heartbeat(beat, received_at)
        if (reported := self._logs.state_in(beat)) is not None:
            self.core.update_replica(*reported, received_at)

    def _committed(self, now: int) -> None:
        """Record that the transaction in flight is committed."""
        commit, self._in_flight = self._in_flight, None
        assert commit is not None, "no transaction is in progress"
        self._watch.committed(commit.transaction.effects, now)
        self._gaps += sum(isinstance(effect, GapNote) for effect in commit.transaction.effects)
        self.core.committed(now)
        self.pair.answered()

    def _commit_failed(self, why: str) -> None:
        """End the session; its restart reads in the log whether the commit succeeded (rule-24)."""
        if self._copy.is_alone:
            self._fail(f"{self.fragment}: {why}")
        else:
            self._queued.append(Perform(self._look_after(why)))

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """Step the core, once transactions are open."""
        self._now = now
        self._end_with(self._claims.refused())
        self._queued += [*self._logs.skipped(), *self._merged.skipped(), *self._claims.refuted()]
        effects, self._queued = [*self._queued, *self._copy.alarms(), *self.mover.lines()], []
        if self._is_ending:
            return effects
        self._look_at = self._merged.step(self.core, now)
        if self._copy.is_due(now):
            effects.append(self._copy.recorded(self.core.state, now))
        if self._copy.is_leaving:
            self._end_with(self._copy.in_vain(now))
            idle = self._in_flight is None
            return effects + self._copy.last_effects(self.core.state, now, is_idle=idle)
        if not self._copy.answers:
            self._copy.following.attend(self.core, now)
            if (cause := self._copy.cause(now, is_ready=self.is_ready)) is not None:
                self._copy.begin_take_over(self.core)
                effects += [*self._copy.reported(cause), Perform(self._take_over())]
            elif self._copy.is_to_prepare(is_ready=self.is_ready):
                effects.append(Perform(self._copy.prepare()))
            return effects
        effects += self.mover.step(self.core, self.pair.tenure.term, now)
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
                effect = replace(effect, state=stamped(effect.state, self.pair.tenure.answered()))
                self._in_flight = effect
                self._watch.committing(self._now)
                return effect
            case ProbeEnds(logs):
                return FetchEnds(tuple(self._logs.places[log] for log in logs))
            case dpc.FetchOrdered(logs):
                return Perform(self._logs.look_at_ordered(self.core, logs))
            case Switched():
                self._switches += 1
                return LogLine(_switch_text(effect))

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        if self._queued or self._is_ending or self._copy.is_leaving:
            return bool(self._queued)
        return self._copy.answers and (self.core.busy or self.mover.is_busy)

    @property
    def wake_at(self) -> int | None:
        """Time of the next deadline, us; None while it takes over and while it ends."""
        if self._is_ending or self.pair.role is PairRole.TAKING_OVER:
            return None
        if self._copy.is_leaving:
            return self._now + FOLLOW_PERIOD_US
        if self._copy.answers:
            return earliest(self.core.wake_at, self._look_at)
        if self._copy.earlier.is_followed:
            return earliest(self._now + OWN_RECORD_US, self._look_at)
        return max(self.pair.silent_at(is_ready=self.is_ready), self._now + FOLLOW_PERIOD_US)

    @property
    def is_ready(self) -> bool:
        """Whether it answers, or could answer at once."""
        if self._copy.answers:
            return self.core.connected
        follows = not self._copy.is_alone or self._copy.follows
        return follows and is_able(self.core)

    @property
    def state(self) -> str:
        """DPC state of the results; UP_FAILURE while tentative output is suppressed.

        ``FOLLOWS`` of a copy that gives no results.
        """
        if self._copy.follows:
            return FOLLOWS
        is_suppressed = self.core.suppress_tentative
        return (LineState.UP_FAILURE if is_suppressed else self.core.line.state).value

    def report(self) -> Report:
        """Report the state of the results, holes in the inputs, progress, and counters."""
        config, core = self.config, self.core
        return Report(
            ready=self.is_ready,
            states={config.topics.results(config.query, "stable"): self.state},
            holes=core.holes if self._copy.answers else (),
            detail={
                **_progress_of(core),
                "switches": self._switches,
                "gaps": self._gaps,
                **self._copy.detail(),
                **self.mover.detail(core),
                **self._merged.detail(core),
                **self._watch.detail(self._now),
                **{read_position_key(*of): to for of, to in core.read_to.items()},
            },
        )


def _progress_of(core: RootCore) -> dict[str, int]:
    """Return the counters that show how far the answers are."""
    answered = core.answers.state
    return {
        "stable_from": answered.stable_from,
        "answered_to": answered.answered_to,
        "epoch": answered.epoch,
        "seq": answered.next_seq,
        "keys": len(core.keys),
        "mute": int(core.suppress_tentative),
    }


def _continues(inc: int, term: int, state: Answered) -> LogLine:
    """Return the log line of a root that has taken over."""
    return LogLine(
        f"placement {inc} continues in term {term}: exact to {format_time(state.stable_from)},"
        f" answered to {format_time(state.answered_to)}"
    )


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
