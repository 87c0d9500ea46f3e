"""An orderer's session: one replica of a child, from its start to its end, without I/O.

The rules of buckets and lines are ``protocols.dpc.sunion.core``'s. Here is what surrounds them: the
start (rule-6, rule-25, rule-26), state records (rule-5), who else writes the logs (rule-6), sending
again after a hole (rule-11), and the windows of other queries' results, put together from their
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, cast

from slackwater.codec.result_batches import Assembler, ResultStream
from slackwater.model.errors import SlackwaterError
from slackwater.model.names import OrdererName, RootName
from slackwater.model.records import (
    Heartbeat,
    Hole,
    Kind,
    OrderedRecord,
    OrdererState,
    RootState,
    SourceRecord,
)
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import LINES, LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.reconcile.downstream import read_position_key
from slackwater.protocols.dpc.reconcile.staggering import PeerStatus
from slackwater.protocols.dpc.soutput.config import answered_by_all
from slackwater.protocols.dpc.sunion.config import Emit, OrdererConfig, Recovered, SaveState
from slackwater.protocols.dpc.sunion.core import OrdererCore
from slackwater.protocols.dpc.sunion.operators import Operators
from slackwater.protocols.dpc.sunion.recovery import first_state, is_within, recover, replay_from
from slackwater.sessions.deliveries import Deliveries
from slackwater.sessions.effects import (
    Append,
    Effect,
    Fail,
    FetchEnds,
    FetchPositions,
    Perform,
    Refute,
    Skipped,
    WriteState,
)
from slackwater.sessions.requests import (
    PROBE_TIMEOUT_US,
    BeginIncarnation,
    Beginnings,
    Ends,
    FindIncarnation,
    Isolation,
    Log,
    Ordered,
    Procedure,
    ReadOrdered,
    ReadStates,
    State,
    StoreState,
)
from slackwater.sessions.session import Form, Record, Report

SAVE_PERIOD_US: Final = 1_000_000
GATHER_US_MAX: Final = 20_000
"""A record that does not complete a bucket waits so long for a turn: all streams have one at about
the same time, and a turn for each would do nothing."""


class OrdererSession:
    """Session of one incarnation of one orderer replica.

    Args:
        query: name of the query.
        config: configuration of the core.
        operators: of the query; not shared with another session.
        sources: locations of the configured logs.
        own: locations of its stable and its live log.
        e0: the query's start.
        parts: of the query's results.
        results: those of the sources that are result topics of another query, by their number.
        save_period_us: between two state records.
        lag_us: in normal operation a complete bucket may wait so long for its turn. All replicas
            are due at the same moment, and their consumers need the bucket of one.
    """

    def __init__(
        self,
        query: str,
        config: OrdererConfig,
        operators: Operators,
        *,
        sources: Sequence[Log],
        own: tuple[Log, Log],
        start_time: int,
        parts: int,
        results: Mapping[int, ResultStream] | None = None,
        save_period_us: int = SAVE_PERIOD_US,
        lag_us: int = 0,
    ) -> None:
        self._query = query
        self._config = config
        self._operators = operators
        self._sources = tuple(sources)
        self._own = own
        self._start_time = start_time
        self._parts = parts
        self._results = dict(results or {})
        self._save_period_us = save_period_us
        self._lag_us = lag_us
        self._stream_of = {log: i for i, log in enumerate(self._sources)}
        self._peers = {
            OrdererName(query, config.child, replica).process: replica
            for replica in range(config.replicas)
            if replica != config.replica
        }
        self._roots = {RootName(query, part).process: part for part in range(parts)}
        self._arriving = {i: self._assembler(i) for i in self._results}
        self._replaying = {(line, i): self._assembler(i) for line in LINES for i in self._results}
        self._started: tuple[OrdererCore, Deliveries] | None = None
        self.inc = -1
        """The offset of its START in the stable log."""
        self._saved_at: int | None = None
        self._queued: list[Effect] = []
        """What input has called for since the last step."""
        self._is_ending = False
        self._asks_positions = self._looks_between = self._looks_at_claim = False

    def _assembler(self, stream: int) -> Assembler:
        of = self._results[stream]
        return Assembler(of, of.name, partial(self._pass_over, self._sources[stream]))

    def _pass_over(self, log: Log, offset: int, found: str) -> None:
        self._queued.append(Skipped(log, offset, "no result of its part", found))

    @property
    def core(self) -> OrdererCore:
        """The lines and their cursors; there is none before the start."""
        assert self._started is not None, "the start has not been run"
        return self._started[0]

    @property
    def _deliveries(self) -> Deliveries:
        assert self._started is not None, "the start has not been run"
        return self._started[1]

    @property
    def fragment(self) -> str:
        """Name of the fragment."""
        return self._config.fragment

    @property
    def inputs(self) -> Mapping[Log, Form]:
        """Source logs, and result topics of other queries."""
        forms: dict[Log, Form] = {
            log: "results" if i in self._results else "source"
            for i, log in enumerate(self._sources)
        }
        return forms

    @property
    def isolation(self) -> Isolation:
        """Rows of an aborted transaction are no results; source logs have no transactions."""
        return "read_committed" if self._results else "read_uncommitted"

    @property
    def listens_to(self) -> Sequence[str]:
        """The other replicas of the child, and the query's roots."""
        return (*self._peers, *self._roots)

    # Start: rule-25.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Find where the own logs end, and begin a new incarnation behind."""
        beginnings = yield Beginnings((*self._sources, *self._own))
        source_beginnings = [beginnings[log] for log in self._sources]
        state: OrdererState = yield from self._state(source_beginnings)
        stable_log, live_log = self._own
        # Retention may have been at the own logs, too.
        live_from = max(state.live_offset, beginnings[live_log])
        live: Sequence[Ordered] = yield ReadOrdered(live_log, live_from)
        found: list[Recovered] = []

        def make_start(stable: Sequence[Ordered]) -> OrderedRecord:
            found.append(recover(state, stable, live))
            return self._start_record(-1, found[0])

        stable_from = max(state.stable_offset, beginnings[stable_log])
        self.inc = yield BeginIncarnation(stable_log, stable_from, make_start)
        recovered = found[0]
        # Asked for behind START: until these ends are read nothing tentative is emitted (trace-6).
        ends = yield Ends(self._sources, self.isolation)
        core = OrdererCore(
            self._config,
            self._operators,
            state,
            recovered,
            inc=self.inc,
            suppress_until={i: ends[log] for log, i in self._stream_of.items()},
        )
        core.logs.begin_at(source_beginnings)
        self._started = core, Deliveries(self.inc, live_from)
        return [self._append(LineName.LIVE, self._start_record(self.inc, recovered))]

    def _state(self, beginnings: Sequence[int]) -> Procedure[OrdererState]:
        """Its state record; a new replica's is made of what others have written (rule-26)."""
        config = self._config
        ends = yield Ends(self._sources)
        source_ends = [ends[log] for log in self._sources]

        def fits(state: State) -> bool:
            """An older one of its own leads to the same output; one beyond the logs to none."""
            if state.fragment != config.fragment or not isinstance(state, OrdererState):
                return True
            return is_within(state, config.logs, source_ends)

        states = yield ReadStates(self._query, self._parts, fits)
        mine = states.get(config.fragment)
        if isinstance(mine, OrdererState):
            return mine
        own_begin, own_end = (yield Beginnings(self._own)), (yield Ends(self._own))
        siblings = self.fragment.rpartition(".")[0]
        peers = [s for name, s in states.items() if name.rpartition(".")[0] == siblings]
        return first_state(
            config,
            beginnings,
            start_time=self._start_time,
            own=[(own_begin[log], own_end[log]) for log in self._own],
            peers=[peer for peer in peers if isinstance(peer, OrdererState)],
            answered_to=self._answered_to(states),
        )

    def _answered_to(self, states: Mapping[str, State]) -> int | None:
        found = [states.get(root) for root in self._roots]
        return answered_by_all(s if isinstance(s, RootState) else None for s in found)

    def _start_record(self, inc: int, recovered: Recovered) -> OrderedRecord:
        at = recovered.frontier
        return OrderedRecord(
            Kind.START,
            self._config.child,
            self._config.replica,
            inc,
            at.bucket_start,
            at.bucket_start,
            first_id=recovered.next_id,
            last_id=recovered.next_id - 1,
            frontier=at,
        )

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Start offsets of the live consumer."""
        return dict(zip(self._sources, self.core.logs.live_offsets, strict=True))

    def live_at(self, log: Log, offset: int) -> None:
        """Accept the live consumer's position; cursors elsewhere are parked (rule-12)."""
        stream = self._stream_of[log]
        self.core.logs.live_at(stream, offset)
        if stream in self._arriving:
            self._arriving[stream].restart(offset)

    # Input.

    def needs(self, log: Log, offset: int) -> bool:
        """Whether a record is used; all result rows are, since a window needs all its rows."""
        stream = self._stream_of[log]
        return stream in self._arriving or self.core.logs.needs(stream, offset)

    def receive(self, log: Log, offset: int, record: Record) -> int | None:
        """A record of the live consumer; see ``Session``.

        A row alone needs no turn.
        """
        stream = self._stream_of[log]
        assembler = self._arriving.get(stream)
        if assembler is None:
            self.core.logs.receive(stream, offset, self._source_record(stream, record))
            return self._may_wait_us()
        batch = assembler.take(offset, cast(bytes, record))
        if batch is not None:
            self.core.logs.receive_results(stream, batch)
        return None if batch is None else 0

    def _may_wait_us(self) -> int:
        """An incomplete bucket waits for the other streams, a complete one for ``lag_us``."""
        if not self.core.is_in_normal_operation:
            return 0
        return GATHER_US_MAX if self.core.awaits_input else self._lag_us

    def _source_record(self, stream: int, record: Record) -> SourceRecord:
        """What cannot be read may have held anything (trace-15)."""
        assert record is None or isinstance(record, SourceRecord)
        return record or SourceRecord.void(self._config.logs[stream])

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Where the catch-up readers are to read; of results, behind what is held of a window."""
        return {
            (line, self._sources[i]): self._replaying[line, i].resume(offset)
            if i in self._results
            else offset
            for (line, i), offset in self.core.wanted().items()
        }

    def catch_up(self, line: LineName, log: Log, offset: int, record: Record) -> None:
        """A record for a parked cursor."""
        stream = self._stream_of[log]
        assembler = self._replaying.get((line, stream))
        if assembler is None:
            self.core.logs.catch_up(line, stream, offset, self._source_record(stream, record))
            return
        batch = assembler.take(offset, cast(bytes, record))
        if batch is not None:
            self.core.logs.catch_up_results(line, stream, batch)

    def caught_up_to(self, line: LineName, log: Log, position: int) -> None:
        """Where transactions have left markers, only a reader's position tells (trace-11)."""
        stream = self._stream_of[log]
        assembler = self._replaying.get((line, stream))
        if assembler is not None and assembler.is_between:
            self.core.logs.caught_up_to(line, stream, position)

    def position_gone(self, line: LineName, log: Log, beginning: int) -> None:
        """Retention took the record that a parked cursor needs next (rule-28)."""
        self.core.logs.position_gone(line, self._stream_of[log], beginning)

    def ends(self, ends: Mapping[Log, int | None], asked_at: int) -> None:
        """The broker's answer to ``FetchEnds``."""
        self.core.ends({self._stream_of[log]: end for log, end in ends.items()}, asked_at)

    def positions(self, positions: Mapping[Log, int]) -> None:
        """The answer to ``FetchPositions``."""
        self._asks_positions = False
        for log, position in positions.items():
            stream = self._stream_of[log]
            if stream in self._arriving and self._arriving[stream].is_between:
                self.core.logs.read_to(stream, position)

    def delivered(self, log: Log, offset: int) -> None:
        """The next record of an own log is in it."""
        self._deliveries.delivered(LineName(self._own.index(log)), offset)

    def committed(self, now: int) -> None:
        """Not called: orderers write no transactions."""

    def commit_failed(self, why: str) -> None:
        """Never: it has no transactions."""

    def on_heartbeat(self, beat: Heartbeat, received_at: int) -> None:
        """Whose turn it is to catch up (dpc-12), and how far the roots have read (trace-33)."""
        if beat.process in self._peers:
            status = PeerStatus.of(beat.detail)
            if status is not None:
                self.core.stagger.update(self._peers[beat.process], status, received_at)
        elif beat.process in self._roots:
            read_to = beat.detail.get(read_position_key(self._config.child, self._config.replica))
            if read_to is not None:
                self.core.downstream.update(self._roots[beat.process], read_to, received_at)

    def claimed(self, inc: int) -> None:
        """Look in the log whether it is true (decision 51)."""
        if inc > self.inc and not self._looks_at_claim:
            self._looks_at_claim = True
            self._queued.append(Perform(self._look_at_claim(inc)))

    def _look_at_claim(self, inc: int) -> Procedure[None]:
        try:
            has_begun = yield FindIncarnation(self._own[LineName.STABLE], inc)
        except SlackwaterError:
            self._looks_at_claim = False
            return  # the broker is away: it is claimed again
        if has_begun:
            self._queued.append(Fail(f"{self.fragment} runs elsewhere: this one ends"))
        else:
            self._queued.append(Refute(inc))

    @property
    def hole(self) -> Hole:
        """The hole in the stable log, in the form that roots report."""
        topic, partition = self._own[LineName.STABLE]
        return Hole(topic, partition, self.inc)

    def hole_reported(self) -> None:
        """Nothing more is written but the state of which the next incarnation begins."""
        if not self._is_ending:
            self._is_ending = True
            self._queued.append(Perform(self._begin_after_results()))

    def _begin_after_results(self) -> Procedure[None]:
        """The next start goes on where the results end (rule-11)."""
        log = self._own[LineName.STABLE]
        beginnings = yield Beginnings(self._sources)
        states = yield ReadStates(self._query, self._parts)
        own: Sequence[Ordered] = yield ReadOrdered(log)
        ends = yield Ends((log,))
        state = replay_from(
            self._config,
            self._snapshot(),
            [beginnings[source] for source in self._sources],
            start_time=self._start_time,
            answered_to=self._answered_to(states),
            own_log=[record for _, record in own],
            own_end=ends[log],
        )
        yield StoreState(self._query, state)
        place = f"{log[0]}:{log[1]}"
        self._queued.append(Fail(f"a reader sees a hole in {place}: sending again"))

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """One step of the core, and what is to be done about the own logs."""
        effects, self._queued = self._queued, []
        if any(isinstance(effect, Refute) for effect in effects):
            self._looks_at_claim = False  # until it is refuted, the same claim is made each turn
        if self._is_ending:
            return effects
        for effect in self.core.step(now):
            match effect:
                case Emit(line, record):
                    effects.append(self._append(line, record))
                case ProbeEnds(streams):
                    effects.append(FetchEnds(tuple(self._sources[i] for i in streams)))
                case SaveState():
                    self._saved_at = now - self._save_period_us
        if self.core.logs.asks_positions and not self._asks_positions:
            self._asks_positions = True
            effects.append(FetchPositions(tuple(self._sources[i] for i in self._results)))
        effects += self._look_after_logs(now)
        return effects

    def _append(self, line: LineName, record: OrderedRecord) -> Append:
        self._deliveries.appended()
        return Append(self._own[line], record)

    def _look_after_logs(self, now: int) -> list[Effect]:
        """State records, once what they account for is in the logs; and whose else is there."""
        effects: list[Effect] = []
        deliveries = self._deliveries
        if deliveries.others and not self._looks_between:
            self._looks_between = True
            effects.append(Perform(self._look_between(deliveries.others)))
        if (state := deliveries.take()) is not None:
            effects.append(WriteState(self._query, state))
        if self._saved_at is None:
            self._saved_at = now
        if not deliveries.is_waiting and now - self._saved_at >= self._save_period_us:
            self._saved_at = now
            deliveries.keep(self._snapshot())
        return effects

    def _snapshot(self) -> OrdererState:
        return self.core.snapshot(*self._deliveries.ends)

    def _look_between(self, stretches: Sequence[tuple[int, int]]) -> Procedure[None]:
        """Somebody else has written in the stable log: a writer, or somebody who is none."""
        log = self._own[LineName.STABLE]
        found: list[Ordered] = []
        try:
            for start, end in stretches:
                found += yield ReadOrdered(log, start, end, PROBE_TIMEOUT_US)
        except SlackwaterError:
            return  # the broker is away: look again
        finally:
            self._looks_between = False
        if found:
            why = f"somebody else writes the log of {self.fragment}: this one ends"
            self._queued.append(Fail(why))
        else:
            self._deliveries.acquit(len(stretches))

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        looks = bool(self._deliveries.others) and not self._looks_between
        return bool(self._queued) or (not self._is_ending and (looks or self.core.busy))

    @property
    def wake_at(self) -> int | None:
        """When the live line has something to do; an ending session has not."""
        return None if self._is_ending else self.core.wake_at

    @property
    def state(self) -> str:
        """Of its output: who is mute has nothing stable to offer yet."""
        return (
            LineState.UP_FAILURE.value
            if self.core.suppress_tentative
            else self.core.line.state.value
        )

    def report(self) -> Report:
        """The state of its output, the holes that it sees, and counters."""
        core = self.core
        return Report(
            ready=True,
            states={self._own[LineName.STABLE][0]: self.state},
            holes=core.holes,
            detail={
                "stable_to": core.line.stable_next,
                "live_to": core.line.live_next,
                "readings": core.counters.readings,
                "tentative_buckets": core.counters.tentative,
                "forks": core.counters.forks,
                "mute": int(core.suppress_tentative),
                **core.stagger.status().counters(),
            },
        )
