"""The session of an orderer: one replica of a child, without I/O.

``protocols.dpc.sunion.core`` has the rules of buckets and lines. This module has the rest: the
start (rule-6, rule-25, rule-26), state records (rule-5), detection of other writers (rule-6),
replay after a hole (rule-11), and the assembly of windows from the result rows of other queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from slackwater.codec.result_batches import ResultStream
from slackwater.model.names import OrdererName, part_names
from slackwater.model.records import (
    Heartbeat,
    Hole,
    OrderedRecord,
    OrdererState,
    ResultBatch,
    SourceRecord,
)
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.reconcile.downstream import read_position_key
from slackwater.protocols.dpc.reconcile.staggering import PeerStatus
from slackwater.protocols.dpc.sunion.config import (
    WITHHELD,
    Emit,
    OrdererConfig,
    SaveState,
)
from slackwater.protocols.dpc.sunion.core import OrdererCore
from slackwater.protocols.dpc.sunion.operators import Operators
from slackwater.protocols.flux.pair import ANSWERS
from slackwater.sessions.deliveries import Deliveries
from slackwater.sessions.effects import (
    Append,
    Effect,
    Fail,
    FetchEnds,
    FetchPositions,
    Perform,
    Rebuild,
    Refute,
    Skipped,
    WriteState,
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
from slackwater.sessions.orderer_inputs import LogReadings
from slackwater.sessions.orderer_start import Begun, OrdererStart, start_record
from slackwater.sessions.other_writers import ALONE, look_at_claim, look_between
from slackwater.sessions.requests import Ends, Isolation, Log, Procedure, StoreState
from slackwater.sessions.session import Form, Report

SAVE_PERIOD_US: Final = 1_000_000
GATHER_US_MAX: Final = 20_000
"""How long a record that does not complete a bucket may wait for a turn. All streams send a record
at about the same time; a turn for each but the last would have no effect."""


class OrdererSession:
    """Session of one incarnation of one orderer replica.

    Args:
        query: name of the query.
        config: configuration of the core.
        operators: the query's operators; not shared with another session.
        sources, own: the logs that it reads, as in ``config.logs``; its stable log and live log.
        start_time: event time at which the query starts, us.
        readers, parts: the queries whose roots read its logs (``query`` if empty); parts of each.
        results: by index, the sources that are result topics of another query.
        save_period_us: interval between state records.
        lag_us: how long a complete bucket may wait for a turn in normal operation, while another
            replica works: all are due at the same time, and readers need the bucket from one.
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
        readers: Sequence[str] = (),
        results: Mapping[int, ResultStream] | None = None,
        save_period_us: int = SAVE_PERIOD_US,
        lag_us: int = 0,
    ) -> None:
        self._query, self._config, self._operators = query, config, operators
        self._sources, self._own = tuple(sources), own
        self._results = dict(results or {})
        # Source logs have no transactions.
        self._isolation: Isolation = "read_committed" if self._results else "read_uncommitted"
        self._save_period_us, self._lag_us = save_period_us, lag_us
        self._stream_of = {log: i for i, log in enumerate(self._sources)}
        self._peers = _peers(query, config)
        self._start = OrdererStart(
            config, query, tuple(readers) or (query,), parts, self._sources, own, start_time
        )
        read_by = [(of, part) for of in self._start.readers for part in range(parts)]
        self._roots = {
            name.process: number for number, of in enumerate(read_by) for name in part_names(*of)
        }
        self._readings = LogReadings(config.logs, self._results, self._skip)
        self._started: tuple[OrdererCore, Deliveries] | None = None
        self.inc = -1
        """Offset of the session's START in the stable log; -1 before the start."""
        self._saved_at: int | None = None
        self._queued: list[Effect] = []
        """Effects caused by input since the last step."""
        self._is_ending = self._asks_positions = self._looks_between = self._looks_at_claim = False

    def _skip(self, stream: int, offset: int, found: str) -> None:
        log = self._sources[stream]
        self._queued.append(Skipped(log, offset, "not a result of its part", found))

    @property
    def core(self) -> OrdererCore:
        """The lines and their cursors; available after the start."""
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
        """Source logs and result topics of other queries, with the form of their records."""
        forms: dict[Log, Form] = {
            log: "results" if i in self._results else "source"
            for i, log in enumerate(self._sources)
            if i not in self._config.withheld
        }
        return forms

    @property
    def listens_to(self) -> Sequence[str]:
        """The other replicas of the child and the query's roots."""
        return (*self._peers, *self._roots)

    # Start: rule-25.

    def start(self) -> Procedure[Sequence[Effect]]:
        """Read the session's logs to their ends, and start a new incarnation there."""
        begun: Begun = yield from self._start.begin()
        self.inc = begun.inc
        # Fetched after START: nothing tentative is emitted until these ends are read (trace-6).
        ends = yield Ends(self._sources, self._isolation)
        core = OrdererCore(
            self._config,
            self._operators,
            begun.state,
            begun.recovered,
            inc=self.inc,
            suppress_until={self._stream_of[log]: ends[log] for log in self.inputs},
        )
        core.logs.inputs.begin_at(dict(enumerate(begun.beginnings)))
        self._started = core, Deliveries(self.inc, begun.live_from)
        return [self._append(LineName.LIVE, start_record(self._config, self.inc, begun.recovered))]

    @property
    def live_offsets(self) -> Mapping[Log, int]:
        """Offsets at which the live consumer starts."""
        offsets = zip(self._sources, self.core.logs.live_offsets, strict=True)
        return {log: offset for log, offset in offsets if log in self.inputs}

    # Input.

    def take(self, event: SessionEvent) -> int | None:
        """Take an event; see ``Session``. It has no transactions, and hands nothing over."""
        match event:
            case Received():
                return self._receive(event)
            case Replayed(line, log, offset, record):
                self._replay(line, log, offset, record)
            case ReplayedTo(line, log, position):
                self._replayed_to(line, self._stream_of[log], position)
            case RecordDelivered(log, offset):
                self._deliveries.delivered(LineName(self._own.index(log)), offset)
            case HeartbeatReceived(beat, received_at):
                self._observe(beat, received_at)
            case EndsFetched(ends, asked_at):
                self._ends(ends, asked_at)
            case PositionsFetched(positions):
                self._positions(positions)
            case PassedBy(log, offset):
                self.core.logs.inputs.pass_by(self._stream_of[log], offset)
            case LiveAt(log, offset):
                self._live_at(log, offset)
            case PositionGone(line, log, beginning):  # retention deleted the next record (rule-28)
                self.core.logs.inputs.position_gone(line, self._stream_of[log], beginning)
            case IncarnationClaimed(inc):
                self._claimed(inc)
            case HoleReported():
                self._end_after_hole()
            case CommitSucceeded() | CommitFailed() | HeartbeatReturned():
                pass
            case ResignRequested() | EarlierEnded():
                pass
            case _:
                assert_never(event)
        return None

    def _live_at(self, log: Log, offset: int) -> None:
        """Set the live consumer's position; cursors elsewhere are parked (rule-12)."""
        stream = self._stream_of[log]
        self.core.logs.inputs.live_at(stream, offset)
        self._readings.arriving[stream].restart(offset)

    def needs(self, log: Log, offset: int) -> bool:
        """Return whether a record is used."""
        return self.core.logs.inputs.needs(self._stream_of[log], offset)

    def _receive(self, event: Received) -> int | None:
        """Take a record of the live consumer; a row that completes no window needs no turn."""
        stream = self._stream_of[event.log]
        record: Any = event.record
        taken = self._readings.arriving[stream].take(event.offset, record)
        if taken is None:
            return None
        if not self._lacks_logs(stream, taken):
            self.core.logs.receive(stream, event.offset, taken)
        return 0 if stream in self._results else self._may_wait_us()

    def _lacks_logs(self, stream: int, record: SourceRecord | ResultBatch) -> bool:
        """Whether the stream has more logs than are read: the session is then rebuilt (rule-30)."""
        name = self._config.names[stream]
        lacks = name in self._config.coming and record.partitions > self._config.coming[name]
        if lacks and not self._is_ending:
            self._is_ending = True
            self._queued.append(Rebuild(f"{name} has {record.partitions} source logs now"))
        return self._is_ending

    def _may_wait_us(self) -> int:
        """Return how long a record may wait for a turn, us."""
        if not self.core.is_in_normal_operation:
            return 0
        return GATHER_US_MAX if self.core.awaits_input else self.core.stagger.lag_us(self._lag_us)

    def wanted(self) -> Mapping[tuple[LineName, Log], int]:
        """Return the start offsets of the catch-up readers.

        In a result topic this is the offset after those rows of a window that have been read.
        """
        return {
            (line, self._sources[i]): self._readings.replaying[line, i].resume(offset)
            for (line, i), offset in self.core.wanted().items()
        }

    def _replay(self, line: LineName, log: Log, offset: int, record: Any) -> None:
        """Take a record for a parked cursor."""
        stream = self._stream_of[log]
        cursor = self.core.logs.cursors(line)[stream]
        taken = self._readings.at(cursor, line, stream).take(offset, record)
        if taken is not None and not self._lacks_logs(stream, taken):
            self.core.logs.catch_up(line, stream, offset, taken)

    def _replayed_to(self, line: LineName, stream: int, position: int) -> None:
        """Take a reader's position in a result topic, which may be after a marker (trace-11)."""
        cursor = self.core.logs.cursors(line)[stream]
        if self._readings.at(cursor, line, stream).is_between:
            self.core.logs.inputs.caught_up_to(line, stream, position)

    def _ends(self, ends: Mapping[Log, int | None], asked_at: int) -> None:
        """Take the answer to ``FetchEnds``; for its cursors a withheld log ends at 0."""
        read = {self._stream_of[log]: end if log in self.inputs else 0 for log, end in ends.items()}
        self.core.ends(read, asked_at)

    def _positions(self, positions: Mapping[Log, int]) -> None:
        """Take the answer to ``FetchPositions``."""
        self._asks_positions = False
        for log, position in positions.items():
            stream = self._stream_of[log]
            if self._readings.arriving[stream].is_between:
                self.core.logs.inputs.read_to(stream, position)

    def _observe(self, beat: Heartbeat, received_at: int) -> None:
        """Take peers' catch-up states (dpc-12) and roots' read positions (trace-33)."""
        self.core.stagger.observe(received_at)
        if beat.process in self._peers:
            status = PeerStatus.of(beat.detail)
            if status is not None:
                self.core.stagger.update(self._peers[beat.process], status, received_at)
        elif beat.process in self._roots and beat.detail.get(ANSWERS, 1):
            read_to = beat.detail.get(read_position_key(self._config.child, self._config.replica))
            if read_to is not None:
                self.core.downstream.update(self._roots[beat.process], read_to, received_at)

    def _claimed(self, inc: int) -> None:
        """Check in the log whether a greater incarnation has started (decision 51)."""
        if inc > self.inc and not self._looks_at_claim:
            self._looks_at_claim = True
            self._queued.append(Perform(self._look_at_claim(inc)))

    def _look_at_claim(self, inc: int) -> Procedure[None]:
        found = yield from look_at_claim(self.fragment, self._own[LineName.STABLE], inc)
        if found is None:
            self._looks_at_claim = False
        else:
            self._queued.append(found)

    @property
    def hole(self) -> Hole:
        """The form in which roots report a hole in this session's stable log."""
        topic, partition = self._own[LineName.STABLE]
        return Hole(topic, partition, self.inc)

    def _end_after_hole(self) -> None:
        """End, after writing the state record from which the next incarnation starts (rule-11)."""
        if not self._is_ending:
            self._is_ending = True
            self._queued.append(Perform(self._begin_after_results()))

    def _begin_after_results(self) -> Procedure[None]:
        """Store a state record that continues from the end of the results, and end (rule-11)."""
        snapshot = self.core.snapshot(*self._deliveries.ends)
        state: OrdererState = yield from self._start.after_results(snapshot)
        yield StoreState(self._query, state)
        where = ":".join(map(str, self._own[LineName.STABLE]))
        self._queued.append(Fail(f"a reader reported a hole in {where}; restarting to replay it"))

    # Output.

    def step(self, now: int) -> Sequence[Effect]:
        """Step the core; check for other writers and write the state record when due."""
        effects, self._queued = self._queued, []
        if any(isinstance(effect, Refute) for effect in effects):
            self._looks_at_claim = False  # a claim is repeated by heartbeats until refuted
        if self._is_ending:
            return effects
        for effect in self.core.step(now):
            match effect:
                case Emit(line, record):
                    effects.append(self._append(line, record))
                case ProbeEnds(streams):
                    logs = tuple(self._sources[i] for i in streams)
                    effects.append(FetchEnds(logs, self._isolation))
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
        """Return effects that write state records, and that read foreign records in the log."""
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
            deliveries.keep(self.core.snapshot(*deliveries.ends))
        return effects

    def _look_between(self, ranges: Sequence[tuple[int, int]]) -> Procedure[None]:
        """Read foreign records of the stable log; end if they are another writer's."""
        found = yield from look_between(self.fragment, self._own[LineName.STABLE], ranges)
        self._looks_between = False
        if found is ALONE:
            self._deliveries.accept_others(len(ranges))
        elif found is not None:
            self._queued.append(found)

    @property
    def busy(self) -> bool:
        """Whether more work is due immediately."""
        looks = bool(self._deliveries.others) and not self._looks_between
        return bool(self._queued) or (not self._is_ending and (looks or self.core.busy))

    @property
    def wake_at(self) -> int | None:
        """Time of the live line's next deadline, us; None while the session ends."""
        return None if self._is_ending else self.core.wake_at

    @property
    def state(self) -> str:
        """DPC state of the output; UP_FAILURE while tentative output is suppressed."""
        state = LineState.UP_FAILURE if self.core.suppress_tentative else self.core.line.state
        return state.value

    def report(self) -> Report:
        """Report the state of the output, holes in the inputs, and counters."""
        core = self.core
        return Report(
            ready=True,
            states={self._own[LineName.STABLE][0]: self.state},
            holes=core.holes,
            detail=_counters(core) | _withheld(self._config),
        )


def _peers(query: str, config: OrdererConfig) -> dict[str, int]:
    """Return the other replicas of the child, by the names of their processes."""
    return {
        OrdererName(query, config.child, replica).process: replica
        for replica in range(config.replicas)
        if replica != config.replica
    }


def _withheld(config: OrdererConfig) -> dict[str, int]:
    withheld = Counter(config.names[log] for log in sorted(config.withheld))
    return {WITHHELD + stream: logs for stream, logs in withheld.items()}


def _counters(core: OrdererCore) -> dict[str, int]:
    return {
        "stable_to": core.line.stable_next,
        "live_to": core.line.live_next,
        "readings": core.counters.readings,
        "tentative_buckets": core.counters.tentative,
        "forks": core.counters.forks,
        "mute": int(core.suppress_tentative),
        **core.stagger.status().counters(),
    }
