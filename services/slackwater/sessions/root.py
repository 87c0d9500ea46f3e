"""A root's session: one copy of one part, from its take-over to its end, without I/O.

The rules of windows and answers are ``protocols.dpc.soutput.core``'s. Here is what surrounds them:
the start, which is also the take-over (rule-27), transactions one at a time and what a failed one
means (rule-24), which records of a log its orderer cannot have written, and whether answers are in
time.

Only one copy of a part may answer. Kafka's transactional id of the part is the fence: a copy that
starts to use it aborts the older copy's open transaction, and the older copy's next commit fails.
So a copy fences first, and then reads the state from which it continues. A host fences twice, first
to find out where to read from, then to commit; between the two another copy may have been placed,
so the state is read once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from slackwater.model.errors import SlackwaterError
from slackwater.model.names import OrdererName
from slackwater.model.records import (
    BucketRecord,
    DeltaRecord,
    Heartbeat,
    Hole,
    Kind,
    OrderedRecord,
    RootState,
)
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.reconcile.downstream import read_position_key
from slackwater.protocols.dpc.soutput import config as dpc
from slackwater.protocols.dpc.soutput.answers import GapNote
from slackwater.protocols.dpc.soutput.config import (
    Commit,
    DeltaLog,
    RootConfig,
    fits,
    initial_state,
    stays_down,
)
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.delta_cursor import damaged_delta
from slackwater.protocols.dpc.soutput.upstream import Switched
from slackwater.sessions.boundwatch import BoundWatch
from slackwater.sessions.effects import Effect, Fail, FetchEnds, LogLine, Perform, Refute, Skipped
from slackwater.sessions.requests import (
    PROBE_TIMEOUT_US,
    TIMEOUT_US,
    Beginnings,
    Ends,
    Fence,
    Isolation,
    Log,
    OpenTransactions,
    Procedure,
    ReadRootState,
)
from slackwater.sessions.session import Form, Record, Report

WATCH_PERIOD_US: Final = 50_000


class SupersededRootError(SlackwaterError):
    """Another copy has a greater placement number: this one stays down (trace-17)."""


class RootSession:
    """Session of one copy of one root part.

    Args:
        config: configuration of the core.
        windowed: whether it reads the aggregators' deltas. A query without a window has none: its
            root reads what the orderers wrote (trace-21).
    """

    def __init__(self, config: RootConfig, *, windowed: bool) -> None:
        self._config = config
        self._form: Form = "deltas" if windowed else "ordered"
        self._ordered_at = {log: _ordered_place(config, log) for log in config.logs}
        deltas = config.topics.deltas(config.query, config.part)
        self._places: dict[DeltaLog, Log] = (
            {log: (deltas, log.partition(config.replicas)) for log in config.logs}
            if windowed
            else self._ordered_at
        )
        self._log_at = {place: log for log, place in self._places.items()}
        self._orderers = {
            OrdererName(config.query, child, replica).process: (child, replica)
            for child in range(len(config.children))
            for replica in range(config.replicas)
        }
        self._watch = BoundWatch(config.bound_us, config.grid, config.schedule.normal_time)
        self._watched_at = 0
        self._core: RootCore | None = None
        self._restored: RootState | None = None
        self._opens = self._is_open = False
        """Transactions are being opened; they are open."""
        self._in_flight: Commit | None = None
        self._queued: list[Effect] = []
        """What input has called for since the last step."""
        self._is_ending = False
        self._looks_at_claim = False
        self._now = 0
        self._switches = self._gaps = 0

    @property
    def core(self) -> RootCore:
        """The lines and their cursors; there is none before the start."""
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
        """The part's delta logs, or the orderers' own."""
        return dict.fromkeys(self._log_at, self._form)

    @property
    def isolation(self) -> Isolation:
        """Its inputs have no transactions."""
        return "read_uncommitted"

    @property
    def listens_to(self) -> Sequence[str]:
        """All replicas of all children (Table II)."""
        return tuple(self._orderers)

    # Start and take-over: rule-27.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Fence earlier copies of this part, then read the progress of its answers."""
        config, logs = self._config, tuple(self._log_at)
        found: RootState | None = yield self._newest()
        if found is not None and stays_down(found, config.placement):
            raise SupersededRootError(
                f"{self.fragment} was placed under number {found.placement}; "
                f"number {config.placement} stays down"
            )
        yield Fence()
        self._restored = yield self._newest()
        state = self._restored or initial_state(config)
        ends = yield Ends(logs)
        core = RootCore(
            config, state, suppress_until={self._log_at[at]: end for at, end in ends.items()}
        )
        beginnings = yield Beginnings(logs)
        core.begin_at({self._log_at[at]: offset for at, offset in beginnings.items()})
        self._core = core
        return [
            LogLine(
                f"placement {config.placement} goes on: S={state.stable_from}"
                f" T={state.answered_to} seq={state.next_seq}"
            )
        ]

    def _newest(self, timeout_us: int = TIMEOUT_US) -> ReadRootState:
        config = self._config
        return ReadRootState(config.query, config.part, partial(fits, config), timeout_us)

    def _open(self) -> Procedure[None]:
        """From now on this copy can commit, unless another one has answered meanwhile."""
        yield OpenTransactions()
        if (yield self._newest()) != self._restored:
            # That copy has just been fenced off, and this one knows less than the log.
            self._fail(f"{self.fragment} was answered by another copy meanwhile")
        self._is_open = not self._is_ending

    def _fail(self, reason: str) -> None:
        self._is_ending = True
        self._queued.append(Fail(reason))

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Start offsets of the live consumer."""
        return {self._places[log]: offset for log, offset in self.core.live_offsets.items()}

    def live_at(self, log: Log, offset: int) -> None:
        """The live consumer is there already; the cursors are not."""
        self.core.live_at(self._log_at[log], offset)

    # Input.

    def needs(self, _log: Log, _offset: int) -> bool:
        """Each record has a seq, and none may be passed over (rule-10)."""
        return True

    def receive(self, log: Log, offset: int, record: Record) -> int | None:
        """A record of the live consumer; see ``Session``.

        A replica that comes back writes seconds of buckets at once, and the others' live ones stand
        among them: while a transaction is under way a turn for each would only keep them waiting.
        """
        self.core.receive(self._log_at[log], offset, self._record(log, offset, record))
        return None if self.core.awaits_commit else 0

    def _record(self, log: Log, offset: int, record: Record) -> BucketRecord:
        """The record, with its seq; VOID where it is none, or none that its orderer wrote.

        What the orderers wrote counts by its offset, as a delta by the offset of what it was made
        of. The incarnation is the offset of a START before it in the stable log (rule-6): whoever
        believed a greater one would drop all that follows.
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
        why = "a record that its orderer cannot have written"
        self._queued.append(Skipped(log, offset, why, found))
        return replace(record, kind=Kind.VOID)

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Start offsets of the catch-up readers."""
        wanted = self.core.wanted()
        return {(line, self._places[log]): offset for (line, log), offset in wanted.items()}

    def catch_up(self, line: LineName, log: Log, offset: int, record: Record) -> None:
        """A record for a parked cursor."""
        self.core.catch_up(line, self._log_at[log], offset, self._record(log, offset, record))

    def caught_up_to(self, line: LineName, log: Log, position: int) -> None:
        """Without transactions in a log, its records tell how far it has been read."""

    def position_gone(self, line: LineName, log: Log, beginning: int) -> None:
        """Retention took the record that a parked cursor needs next (rule-28)."""
        self.core.position_gone(line, self._log_at[log], beginning)

    def ends(self, ends: Mapping[Log, int | None], asked_at: int) -> None:
        """The broker's answer to ``FetchEnds``."""
        self.core.ends({self._log_at[log]: end for log, end in ends.items()}, asked_at)

    def positions(self, positions: Mapping[Log, int]) -> None:
        """Never asked for."""

    def delivered(self, log: Log, offset: int) -> None:
        """Never: it writes in transactions only."""

    def on_heartbeat(self, beat: Heartbeat, received_at: int) -> None:
        """Update the state that a replica reports of itself (trace-34)."""
        of = self._orderers.get(beat.process)
        if of is None:
            return
        child, replica = of
        topic = self._config.topics.ordered(self._config.query, child)
        state = LineState.of(beat.states.get(topic))
        if state is not None:
            self.core.update_replica(child, replica, state, received_at)

    def claimed(self, inc: int) -> None:
        """Look whether that copy has answered; if not, the next transaction tells (decision 51)."""
        if inc > self.inc and not self._looks_at_claim:
            self._looks_at_claim = True
            self._queued.append(Perform(self._look_at_claim(inc)))

    def _look_at_claim(self, inc: int) -> Procedure[None]:
        try:
            found: RootState | None = yield self._newest(PROBE_TIMEOUT_US)
        except SlackwaterError:
            self._looks_at_claim = False
            return  # the broker is away: it is claimed again
        if found is not None and found.placement > self.inc:
            self._fail(f"{self.fragment} runs elsewhere: this copy ends")
        else:
            self._queued.append(Refute(inc))

    @property
    def hole(self) -> Hole | None:
        """Always None: transactions are atomic, so no hole is visible."""
        return None

    def hole_reported(self) -> None:
        """Never: it has no hole."""

    def committed(self, now: int) -> None:
        """The transaction under way is in the log."""
        commit, self._in_flight = self._in_flight, None
        assert commit is not None, "no transaction is under way"
        self._watch.committed(commit.transaction.effects, now)
        self._gaps += sum(isinstance(effect, GapNote) for effect in commit.transaction.effects)
        self.core.committed(now)

    def commit_failed(self, why: str) -> None:
        """Restart: the transaction may still be in the log, and the log decides (rule-24)."""
        self._fail(f"{self.fragment}: {why}")

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """One step of the core, once transactions are open."""
        self._now = now
        effects, self._queued = self._queued, []
        if any(isinstance(effect, Refute) for effect in effects):
            self._looks_at_claim = False  # until it is refuted, the same claim is made each turn
        if self._is_ending:
            return effects
        if not self._is_open:
            if not self._opens:
                self._opens = True
                effects.append(Perform(self._open()))
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
        """Where the ordered logs begin and end; no answer is one too."""
        places = tuple(self._ordered_at[log] for log in logs)
        spans: dict[DeltaLog, tuple[int, int]] = {}
        try:
            begin = yield Beginnings(places, PROBE_TIMEOUT_US)
            end = yield Ends(places, timeout_us=PROBE_TIMEOUT_US)
            spans = {log: (begin[at], end[at]) for log, at in zip(logs, places, strict=True)}
        except SlackwaterError:
            pass  # the core asks again
        self.core.ordered(spans)

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        return bool(self._queued) or (self._is_open and not self._is_ending and self.core.busy)

    @property
    def wake_at(self) -> int | None:
        """When a window is due; not before it can be answered."""
        return self.core.wake_at if self._is_open and not self._is_ending else None

    @property
    def state(self) -> str:
        """Of its results: who is mute has nothing to offer yet."""
        return (
            LineState.UP_FAILURE.value
            if self.core.suppress_tentative
            else self.core.line.state.value
        )

    def report(self) -> Report:
        """The state of its results, the holes that it sees, how far it has come, and counters."""
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
    return config.topics.ordered(config.query, log.child), 2 * log.replica + log.line


def _switch_text(switch: Switched) -> str:
    """In words that a measurement can read: section 5.1's two times, in ms."""
    return (
        f"switched from replica {switch.replica} of child {switch.child}:"
        f" heard {(switch.detected_at - switch.last_seen) / 1000:.1f} ms before it was given up,"
        f" answered {(switch.answered_at - switch.detected_at) / 1000:.1f} ms after"
    )
