"""The orderer's shell: logs in, effects out. It holds no rule; those are in ``protocols.dpc``.

The live consumer is Faust's agent; a catch-up reader for each line reads beside it from parked
positions. Each turn of the loop takes what there is to read, then steps the core (input before
timers, R11), then carries out the effects in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from slackwater.codec.records import decode_ordered, decode_source, encode_ordered
from slackwater.codec.result_batches import Assembler, ResultStream
from slackwater.model.errors import MalformedRecordError, SlackwaterError
from slackwater.model.records import (
    Kind,
    OrderedRecord,
    OrdererState,
    Position,
    RootState,
    SourceRecord,
)
from slackwater.protocols.dpc.downstream import word_of
from slackwater.protocols.dpc.line import LineName
from slackwater.protocols.dpc.operators import Operators
from slackwater.protocols.dpc.orderer import (
    Append,
    Effect,
    FetchEnds,
    OrdererConfig,
    OrdererCore,
    Recovered,
    SaveState,
)
from slackwater.protocols.dpc.recovery import SoleWriter, first_state, recover, say_again
from slackwater.protocols.dpc.root import answered_by_all
from slackwater.protocols.dpc.staggering import Word
from slackwater.runtime.catchup import CatchUpReader, Gone
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.faust_worker import Positions
from slackwater.runtime.heartbeats import (
    HeartbeatListener,
    HeartbeatSender,
    interval_s,
    replica_interval_s,
)
from slackwater.runtime.kafka import KafkaTransport, start_incarnation
from slackwater.runtime.state import read_states, write_orderer_state
from slackwater.runtime.topics import (
    ResultKind,
    ordered_partition,
    ordered_topic,
    results_topic,
    source_topic,
)
from slackwater.runtime.transport import (
    Isolation,
    Log,
    RawRecord,
    extents,
    read_to_end,
)
from slackwater.runtime.turns import Turns

_log = logging.getLogger(__name__)

SAVE_PERIOD_US = 1_000_000
HEARTBEAT_PERIOD_US = 20_000
WRITE_S_MAX = 10.0
CATCH_UP_RECORDS_MAX = 20
CATCH_UP_PREFETCH_KIB = 8 * 1024
CATCH_UP_ROWS_MAX = 2_000
"""Of a result topic, where a row is a record: a few milliseconds."""


class SupersededError(SlackwaterError):
    """Somebody else writes this fragment's logs, or a reader saw a hole in them: start again."""


@dataclass(slots=True)
class _Pending:
    """A state record that waits until what it accounts for is in the logs."""

    state: OrdererState
    appended: int


class OrdererShell:
    """One fragment on one broker.

    Args:
        transport: where the logs are.
        query: name of the query.
        config: what the core is told.
        operators: of the query.
        e0: the query's start.
        parts: of the query's results.
        end_timeout_us: how long the broker may take to name an end (half a margin, R11).
        observe: told of (boundary, now), where the event clock follows the data (R12).
        results: the logs that are result topics of another query, by their number.
    """

    def __init__(
        self,
        transport: KafkaTransport,
        query: str,
        config: OrdererConfig,
        operators: Operators,
        *,
        e0: int,
        parts: int,
        end_timeout_us: int,
        observe: Callable[[int, int], None] | None = None,
        results: Mapping[int, ResultStream] | None = None,
    ) -> None:
        self._observe = observe
        self._results = dict(results or {})
        # Rows of an aborted transaction are no results. Source logs have no transactions.
        self.isolation: Isolation = "read_committed" if self._results else "read_uncommitted"
        self.positions = Positions() if self._results else None
        self._transport = transport
        self._query = query
        self._config = config
        self._e0 = e0
        self._parts = parts
        self._clock = SystemClock()
        self._end_timeout_s = end_timeout_us / 1e6
        self._sources = [self._log_of(i) for i in range(len(config.logs))]
        self._stream_of = {log: i for i, log in enumerate(self._sources)}
        topic = ordered_topic(query, config.child)
        self._own = [
            (topic, ordered_partition(config.replica, live=bool(line))) for line in LineName
        ]
        self._writer = transport.writer(self._fatal)
        self._failed: str | None = None
        # The loop itself holds its tasks weakly: one that nobody else holds may vanish half done.
        self._tasks: set[asyncio.Task[None]] = set()
        self._appended = 0
        self._delivered = 0
        self._pending: _Pending | None = None
        self._saved_at = 0
        self._said_at = 0
        self._said_state = ""
        self._turns = Turns()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heartbeats = HeartbeatSender(
            transport.bootstrap,
            config.fragment,
            interval_s=replica_interval_s if config.replicas > 1 else interval_s,
            owner_speaks=True,
        ).start()
        self._core = self._start(operators)
        self._listener = HeartbeatListener(transport).start()
        self._catch_up = [
            CatchUpReader(transport, prefetch_kib_max=CATCH_UP_PREFETCH_KIB) for _ in LineName
        ]
        self._catch_up_results = [
            CatchUpReader(
                transport, isolation="read_committed", prefetch_kib_max=CATCH_UP_PREFETCH_KIB
            )
            for _ in LineName
        ]
        self._arriving = {i: Assembler(of, str(of.name)) for i, of in self._results.items()}
        self._replaying = {
            (line, i): Assembler(of, str(of.name))
            for line in LineName
            for i, of in self._results.items()
        }
        self._handled: dict[Log, int] = {}
        self._asking_positions = False

    def _log_of(self, stream: int) -> Log:
        """Where a log of the config lies."""
        results = self._results.get(stream)
        if results is None:
            return source_topic(self._config.logs[stream]), 0
        kind: ResultKind = "stable" if stream in self._config.results else "tentative"
        return results_topic(results.query, kind), results.part

    # Start: rule 25.

    def _start(self, operators: Operators) -> OrdererCore:
        config = self._config
        begin = self._transport.beginning_offsets(self._sources)
        beginnings = [begin[log] for log in self._sources]
        state = self._state(beginnings)
        stable: list[tuple[int, OrderedRecord]] = []
        live = [
            (raw.offset, record)
            for raw in read_to_end(
                self._transport, self._own[LineName.LIVE], self._held(LineName.LIVE, state)
            )
            if (record := _header(raw)) is not None
        ]
        found: list[Recovered] = []

        def visit(raw: RawRecord) -> None:
            record = _header(raw)
            if record is not None:
                stable.append((raw.offset, record))

        def make_start() -> bytes:
            found.append(recover(state, stable, live))
            return encode_ordered(self._start_record(-1, found[0]))

        inc = start_incarnation(
            self._transport,
            self._writer,
            self._own[LineName.STABLE],
            make_start,
            read_from=self._held(LineName.STABLE, state),
            visit=visit,
        )
        recovered = found[0]
        self._sole = SoleWriter(inc + 1)
        self._append(LineName.LIVE, self._start_record(inc, recovered))
        ends = self._transport.end_offsets(self._sources, isolation=self.isolation)
        mute_until = {i: ends[log] for log, i in self._stream_of.items()}
        self._heartbeats.update(inc=inc, states={self._own[0][0]: "UP_FAILURE"})
        _log.info("incarnation %d goes on from %s", inc, recovered.frontier)
        self._inc = inc
        core = OrdererCore(config, operators, state, recovered, inc=inc, mute_until=mute_until)
        core.begin_at(beginnings)
        return core

    def _state(self, beginnings: Sequence[int]) -> OrdererState:
        """Its state record; a new replica's is made of what others have written (rule 26)."""
        config = self._config
        states = read_states(self._transport, self._query, self._parts)
        mine = states.get(config.fragment)
        if isinstance(mine, OrdererState) and [s.stream for s in mine.streams] == [*config.logs]:
            return mine
        own = extents(self._transport, self._own)
        siblings = config.fragment.rpartition(".")[0]
        return first_state(
            config,
            beginnings,
            e0=self._e0,
            own=[own[log] for log in self._own],
            peers=[
                state
                for name, state in states.items()
                if isinstance(state, OrdererState) and name.rpartition(".")[0] == siblings
            ],
            answered_to=self._answered_to(states),
        )

    def _answered_to(self, states: Mapping[str, OrdererState | RootState]) -> int | None:
        found = [states.get(f"root/{self._query}.{part}") for part in range(self._parts)]
        return answered_by_all(s if isinstance(s, RootState) else None for s in found)

    def _say_again(self) -> None:
        """A reader sees a hole: the next start goes on where the results end (rule 11)."""
        log = self._own[LineName.STABLE]
        begin = self._transport.beginning_offsets(self._sources)
        states = read_states(self._transport, self._query, self._parts)
        own = [_header(raw) for raw in read_to_end(self._transport, log)]
        state = say_again(
            self._config,
            self._snapshot(),
            [begin[source] for source in self._sources],
            e0=self._e0,
            answered_to=self._answered_to(states),
            own_log=[record for record in own if record is not None],
            own_end=self._transport.end_offsets([log])[log],
        )
        write_orderer_state(self._writer, self._query, state)
        self._writer.await_delivered(WRITE_S_MAX)

    def _held(self, line: LineName, state: OrdererState) -> int:
        """Where to read the own log from: the state's offset, or what is left of the log."""
        wanted = state.stable_offset if line is LineName.STABLE else state.live_offset
        log = self._own[line]
        return max(wanted, self._transport.beginning_offsets([log])[log])

    def _start_record(self, inc: int, recovered: Recovered) -> OrderedRecord:
        config = self._config
        at: Position = recovered.frontier
        return OrderedRecord(
            Kind.START,
            config.child,
            config.replica,
            inc,
            at.bucket_start,
            at.bucket_start,
            first_id=recovered.next_id,
            last_id=recovered.next_id - 1,
            frontier=at,
        )

    # The loop.

    @property
    def live_offsets(self) -> dict[Log, int]:
        """Where the live consumer begins."""
        return dict(zip(self._sources, self._core.live_offsets, strict=True))

    def on_record(self, log: Log, offset: int, value: bytes) -> None:
        """A record from the live consumer."""
        stream = self._stream_of[log]
        if stream in self._results:
            self._handled[log] = offset
            batch = self._arriving[stream].take(offset, value)
            if batch is None:
                return  # a window's rows say nothing yet: no turn for each of them
            self._core.receive_results(stream, batch)
        elif self._core.needs(stream, offset):
            self._core.receive(stream, offset, self._decoded(log, offset, value))
        self._turns.wake()

    def _decoded(self, log: Log, offset: int, value: bytes) -> SourceRecord:
        """A record of a source log; whoever reads it, its promise may turn the event clock."""
        record = _source(log, offset, value)
        if self._observe is not None and record.kind is not Kind.VOID:
            self._observe(record.boundary, self._clock.now_us())
        return record

    async def run(self) -> None:
        """Step the core for ever."""
        self._loop = asyncio.get_running_loop()
        while True:
            read = self._read_parked() | self._read_parked_results()
            self._ask_positions()
            now = self._clock.now_us()
            for effect in self._core.step(now):
                self._do(effect, now)
            self._look_after(now)
            if read or self._core.busy:
                await asyncio.sleep(0)  # the live consumer first
                continue
            awaited = bool(self._core.wanted()) or self._asking_positions
            await self._turns.wait(now, self._core.wake_at, parked=awaited)

    def _read_parked(self) -> bool:
        """Feed the parked cursors, at most one small batch each."""
        wanted = self._core.wanted()
        read = False
        for line in LineName:
            positions = {
                self._sources[stream]: offset
                for (of, stream), offset in wanted.items()
                if of is line and stream not in self._results
            }
            found = self._catch_up[line].read(positions, CATCH_UP_RECORDS_MAX)
            if isinstance(found, Gone):
                self._position_gone(line, found)
                continue
            for raw in found:
                record = self._decoded(raw.log, raw.offset, raw.value)
                self._core.catch_up(line, self._stream_of[raw.log], raw.offset, record)
                read = True
        return read

    def _read_parked_results(self) -> bool:
        """The same for result topics, where a window is what counts, and a row is a record."""
        if not self._results:
            return False
        wanted = self._core.wanted()
        read = False
        for line in LineName:
            reader = self._catch_up_results[line]
            mine = [i for of, i in wanted if of is line and i in self._results]
            positions = {
                self._sources[i]: self._replaying[line, i].resume(wanted[line, i]) for i in mine
            }
            found = reader.read(positions, CATCH_UP_ROWS_MAX)
            if isinstance(found, Gone):
                self._position_gone(line, found)
                continue
            for raw in found:
                stream = self._stream_of[raw.log]
                batch = self._replaying[line, stream].take(raw.offset, raw.value)
                if batch is not None:
                    self._core.catch_up_results(line, stream, batch)
            for stream in mine:
                if self._replaying[line, stream].is_between:
                    position = reader.position(self._sources[stream])
                    self._core.caught_up_to(line, stream, position)
            read = read or bool(found)
        return read

    def _ask_positions(self) -> None:
        """Learn how far the live consumer is, where the end of a log may be a marker (R11)."""
        if self.positions is None or self._asking_positions or not self._core.asks_positions:
            return
        self._asking_positions = True
        self._start_task(self._note_positions(self.positions))

    async def _note_positions(self, positions: Positions) -> None:
        try:
            for log, (position, handed) in (await positions.ask()).items():
                stream = self._stream_of[log]
                if stream not in self._results or not self._arriving[stream].is_between:
                    continue
                if self._handled.get(log, -1) >= handed:
                    self._core.read_to(stream, position)
        finally:
            self._asking_positions = False
            self._turns.wake()

    def _position_gone(self, line: LineName, gone: Gone) -> None:
        self._core.position_gone(line, self._stream_of[gone.log], gone.beginning)

    # Effects.

    def _do(self, effect: Effect, now: int) -> None:
        match effect:
            case Append(line, record):
                self._append(line, record)
            case FetchEnds(streams):
                self._start_task(self._fetch_ends(streams))
            case SaveState():
                self._saved_at = 0

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _append(self, line: LineName, record: OrderedRecord) -> None:
        self._appended += 1
        report = self._on_live if line is LineName.LIVE else self._on_stable
        self._writer.append(*self._own[line], encode_ordered(record), None, report)

    def _on_live(self, _offset: int) -> None:
        self._delivered += 1

    def _on_stable(self, offset: int) -> None:
        if not self._sole.delivered(offset):
            self._fatal(f"somebody else writes the log of {self._config.fragment}: this one ends")
            return  # not counted, so no state record goes out that takes it into account
        self._delivered += 1

    async def _fetch_ends(self, streams: Sequence[int]) -> None:
        asked_at = self._clock.now_us()
        logs = [self._sources[stream] for stream in streams]
        ends = await self._transport.end_offsets_async(
            logs, isolation=self.isolation, timeout_s=self._end_timeout_s
        )
        self._core.ends(
            {s: None if ends is None else ends[self._sources[s]] for s in streams}, asked_at
        )
        self._turns.wake()

    # State records and heartbeats.

    def _look_after(self, now: int) -> None:
        if self._failed is not None:
            raise SupersededError(self._failed)
        if self._pending is not None and self._delivered >= self._pending.appended:
            write_orderer_state(self._writer, self._query, self._pending.state)
            self._pending = None
        if self._pending is None and now - self._saved_at >= SAVE_PERIOD_US:
            self._saved_at = now
            self._pending = _Pending(self._snapshot(), self._appended)
        if now - self._said_at >= HEARTBEAT_PERIOD_US or self._line_state != self._said_state:
            self._said_at = now
            self._say()

    def _snapshot(self) -> OrdererState:
        offsets = [self._writer.delivered_to(*log) or self._inc for log in self._own]
        return self._core.snapshot(*offsets)

    @property
    def _line_state(self) -> str:
        return "UP_FAILURE" if self._core.mute else self._core.line.state.value

    def _say(self) -> None:
        core, (topic, partition) = self._core, self._own[LineName.STABLE]
        state = self._said_state = self._line_state
        counters = core.counters
        self._heartbeats.update(
            ready=True,
            states={topic: state},
            holes=core.holes,
            detail={
                "stable_to": core.line.stable_next,
                "live_to": core.line.live_next,
                "readings": counters.readings,
                "tentative_buckets": counters.tentative,
                "forks": counters.forks,
                **core.stagger.word().counters(),
            },
        )
        self._hear_peers()
        self._hear_roots()
        if self._listener.superseded(self._config.fragment, self._inc):
            raise SupersededError(f"{self._config.fragment} runs elsewhere: this one ends")
        if self._listener.hole_in(topic, partition, self._inc):
            self._say_again()
            raise SupersededError(f"a reader sees a hole in {topic}:{partition}: sending again")

    def _hear_peers(self) -> None:
        """Whose turn it is to catch up is agreed on in the heartbeats (D12)."""
        config, now = self._config, self._clock.now_us()
        for replica in range(config.replicas):
            name = f"orderer/{self._query}.{config.child}.{chr(ord('a') + replica)}"
            heard = self._listener.heard(name, now)
            if replica == config.replica or heard is None:
                continue
            beat, heard_at = heard
            word = Word.of(beat.detail)
            if word is not None:
                self._core.stagger.heard(replica, word, heard_at)

    def _hear_roots(self) -> None:
        """How far they have come in this replica's stable log (R33)."""
        mine, now = word_of(self._config.child, self._config.replica), self._clock.now_us()
        for part in range(self._parts):
            heard = self._listener.heard(f"root/{self._query}.{part}", now)
            if heard is not None and mine in heard[0].detail:
                beat, heard_at = heard
                self._core.downstream.says(part, beat.detail[mine], heard_at)

    def _fatal(self, why: str) -> None:
        self._failed = why
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._turns.wake)


def _source(log: Log, offset: int, value: bytes) -> SourceRecord:
    """A reading's record; one that cannot be read is a gap, if it held what no other does."""
    try:
        return decode_source(value, f"{log[0]}:{log[1]}:{offset}")
    except MalformedRecordError as error:
        _log.error("%s", error)
        return SourceRecord.void(log[0])


def _header(raw: RawRecord) -> OrderedRecord | None:
    """A record of the own log; one that cannot be read counts for nothing."""
    try:
        return decode_ordered(raw.value, f"{raw.topic}:{raw.partition}:{raw.offset}")
    except MalformedRecordError as error:
        _log.error("%s", error)
        return None
