"""A stage for the papers' experiments: the product over logs in memory, on a virtual clock.

It consists of data sources, the sessions of an orderer and a root, and an aggregator; a log is a
list. Time is an argument in milliseconds; no protocol decision is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from typing import Any, Protocol

import numpy as np

from slackwater.codec.result_batches import ResultStream
from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.heads import StoredState
from slackwater.model.limits import NEVER
from slackwater.model.names import OrdererName
from slackwater.model.records import (
    BucketRecord,
    DeltaRecord,
    Kind,
    OrderedRecord,
    OrdererState,
    RootState,
    SourceColumns,
    SourceRecord,
)
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.expressions import compile_predicate
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneShare
from slackwater.primitives.rows import RowContents, Rows
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.line import PROCESS, LineName, Policy, Schedule
from slackwater.protocols.dpc.soutput.answers import Effect as Result
from slackwater.protocols.dpc.soutput.answers import (
    EmptyRun,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
    rows_of,
)
from slackwater.protocols.dpc.soutput.config import Commit, RootConfig
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.protocols.dpc.sunion.core import OrdererCore
from slackwater.protocols.dpc.sunion.join import SJoin
from slackwater.protocols.dpc.sunion.operators import Operators
from slackwater.sessions.effects import (
    Append,
    Effect,
    FetchEnds,
    FetchPositions,
    LogLine,
    Perform,
    Skipped,
    WriteState,
)
from slackwater.sessions.events import (
    CommitSucceeded,
    EndsFetched,
    PositionsFetched,
    Received,
    Record,
    RecordDelivered,
    Replayed,
    ReplayedTo,
)
from slackwater.sessions.orderer import OrdererSession
from slackwater.sessions.requests import (
    BeginIncarnation,
    Beginnings,
    ClaimPart,
    Ends,
    OpenTransactions,
    PrepareTransactions,
    Procedure,
    ReadOrdered,
    ReadOrdererStates,
    ReadPanes,
    ReadPart,
    ReadStates,
    Request,
)
from slackwater.sessions.root import RootSession

MS = 1_000
FIELDS = ("v",)


class Source:
    """A data source and its persistent log (DPC, section 2.2)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[SourceRecord] = []
        self.held: list[SourceRecord] | None = None
        self._next_id = 0
        self._append(Kind.START, -(2**62), np.zeros(0, np.int64), np.zeros(0), "k")

    def emit(
        self, times_ms: Iterable[float], boundary_ms: float, value: float = 1.0, key: str = "k"
    ) -> None:
        """Write readings at these times, followed by a boundary."""
        times = np.array([round(t * MS) for t in times_ms], np.int64)
        self._append(
            Kind.INSERTION if len(times) else Kind.BOUNDARY,
            round(boundary_ms * MS),
            times,
            np.full(len(times), value),
            key,
        )

    def disconnect(self) -> None:
        """Cut the link; the source continues and keeps its records."""
        self.held = []

    def reconnect(self) -> None:
        """Restore the link; the kept records arrive in order."""
        assert self.held is not None
        self.log += self.held
        self.held = None

    def _append(
        self, kind: Kind, boundary: int, times: np.ndarray, values: np.ndarray, key: str
    ) -> None:
        first = self._next_id
        self._next_id += len(times)
        record = SourceRecord(
            kind,
            self.name,
            inc=0,
            first_id=first,
            last_id=self._next_id - 1,
            boundary=boundary,
            stime_min=int(times.min()) if len(times) else boundary,
            stime_max=int(times.max()) if len(times) else boundary,
            columns=SourceColumns(times, np.zeros(len(times), np.int32), [key], FIELDS, (values,)),
        )
        (self.log if self.held is None else self.held).append(record)


@dataclass
class Settings:
    """Parameters of a query; all durations in milliseconds."""

    bound_ms: int = 2_000
    margin_ms: int = 50
    bucket_ms: int = 100
    window_ms: int = 100
    slide_ms: int | None = None
    policy: Policy = PROCESS
    rows: bool = False
    """A query without a window: it answers per bucket (trace-21)."""
    empty_wait_ms: int = 0
    where: str | None = None
    join_within_ms: int | None = None
    """Join of the first source with all others; None: their union."""
    before: int = 0
    """Number of stages of other queries before this one, in a chain."""
    stages: int = 2
    """Number of stages of the whole path."""
    reads: tuple[str, ...] = FIELDS
    """The fields of the sources."""
    lost_until_ms: int | None = None
    """Event time before which readings may be lost, of a site whose Kafka was (rule-37)."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The aggregated fields."""
        return self.reads if self.join_within_ms is None else ("left_v", "right_v")

    def operators(self, sources: int) -> Operators:
        """Return the operators of a query without a filter, over this number of sources."""
        join = None
        if self.join_within_ms is not None:
            sides = (True, *[False] * (sources - 1))
            join = SJoin(self.join_within_ms * MS, sides, FIELDS, FIELDS)
        where = compile_predicate(self.where, self.fields) if self.where else None
        return Operators(self.fields, where, None, KeyTable(), join=join, rows=self.rows)

    @property
    def grid(self) -> Grid:
        if self.rows:
            return Grid(self.bucket_ms * MS, WindowSpec(self.bucket_ms * MS, self.bucket_ms * MS))
        slide = self.slide_ms or self.window_ms
        return Grid(self.bucket_ms * MS, WindowSpec(self.window_ms * MS, slide * MS))

    def schedule(self, stage: int) -> Schedule:
        within = self.bound_ms - (self.stages - self.before - stage + 1) * self.margin_ms
        return Schedule(lambda e: e, within * MS)


class Input(Protocol):
    """A log that an orderer reads."""

    @property
    def name(self) -> str:
        """The name in the orderer's configuration."""
        ...

    @property
    def at(self) -> tuple[str, int]:
        """The place of the log."""
        ...

    @property
    def results(self) -> ResultStream | None:
        """The results that it reads; None for a source."""
        ...

    @property
    def end(self) -> int:
        """The current end."""
        ...

    def read(
        self, start: int, most: int = ...
    ) -> Sequence[tuple[int, SourceRecord] | tuple[int, bytes]]:
        """Return the records from ``start`` on."""
        ...


class SourceLog:
    """The log of a source as an input."""

    results = None

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.at = (f"sw.source.{source.name}", 0)
        self._source = source

    @property
    def end(self) -> int:
        return len(self._source.log)

    def read(self, start: int, most: int = 10**9) -> list[tuple[int, SourceRecord]]:
        return list(enumerate(self._source.log[start : start + most], start))


class Orderer:
    """One replica of an orderer with its two logs: the product's session, in memory.

    State records are written where the rules require one at once, and otherwise only by ``save``.
    """

    records_per_read = 10**9
    """Positions of the live consumer."""
    caught_up_per_read = 20
    rounds_max = 1_000_000
    """Counters of a step: turns, and requests for the ends of logs."""
    others: Sequence[OrdererState] = ()
    """State records of other queries' orderers."""
    observe: Callable[[Record], None] = staticmethod(lambda _: None)
    """Called with each record that is read, before the session gets it."""
    _peers: Sequence[Orderer] = ()

    def __init__(
        self,
        sources: Sequence[Source],
        settings: Settings,
        *,
        child: int = 0,
        replica: int = 0,
        replicas: int = 1,
        query: str = "q",
        start_time: int = 0,
        others: Sequence[OrdererState] = (),
        peers: Sequence[Orderer] = (),
    ) -> None:
        self.sources, self.others, self._peers = sources, others, peers
        self.config = OrdererConfig(
            f"orderer/{query}.{child}.{'abc'[replica]}",
            child,
            replica,
            tuple(s.name for s in sources),
            tuple(s.name for s in sources),
            settings.grid,
            settings.schedule(1),
            policy=settings.policy,
            in_time_us=settings.schedule(1).answer_within_us,
            replicas=max(replicas, replica + 1),
            lost_until=NEVER if settings.lost_until_ms is None else settings.lost_until_ms * MS,
        )
        self._begin([SourceLog(source) for source in sources], settings, start_time)

    def _begin(self, inputs: Sequence[Input], settings: Settings, start_time: int = 0) -> None:
        self.settings, self._start_time = settings, start_time
        self.inputs = {of.at: of for of in inputs}
        self.logs: dict[LineName, list[OrderedRecord]] = {line: [] for line in LineName}
        _, _, query = self.config.fragment.partition("/")
        self._query = OrdererName.parse(query).query
        topic = f"sw.ordered.{query}"
        self._own = {(topic, 2 * self.config.replica + line): line for line in LineName}
        self.records: dict[str, OrdererState] = {}
        self.deaf_to: set[str] = set()
        """Inputs that the live consumer does not receive."""
        self.crash()

    def crash(self) -> None:
        """Lose all memory.

        Restart from the state record and the replica's own logs (section 4.5).
        """
        stable, live = self._own
        self.session = OrdererSession(
            self._query,
            self.config,
            self.settings.operators(len(self.sources)),
            sources=list(self.inputs),
            own=(stable, live),
            start_time=self._start_time,
            parts=1,
            results={
                i: of.results for i, of in enumerate(self.inputs.values()) if of.results is not None
            },
            save_period_us=2**62,
        )
        self.session._start = replace(self.session._start, unread_records_max=0)
        self._positions_wanted: tuple[tuple[str, int], ...] = ()
        self._carry_out(self._performed(self.session.start()), 0)
        self._read = dict(self.session.live_offsets)

    def _performed(self, procedure: Procedure[Any]) -> Any:
        """Run a procedure without any other event, and return its value."""
        answer = None
        while True:
            try:
                request = procedure.send(answer)
            except StopIteration as ended:
                return ended.value
            answer = self._answer(request)

    def _answer(self, request: Request) -> Any:
        match request:
            case Beginnings(logs):
                return dict.fromkeys(logs, 0)
            case Ends(logs):
                return {
                    at: len(self.logs[self._own[at]]) if at in self._own else self.inputs[at].end
                    for at in logs
                }
            case ReadStates():
                return {name: s for o in (*self._peers, self) for name, s in o.records.items()}
            case ReadOrdererStates():
                return list(self.others)
            case ReadOrdered(at, start, end):
                return list(enumerate(self.logs[self._own[at]]))[start:end]
            case BeginIncarnation(at, read_from, make_start):
                log = self.logs[self._own[at]]
                log.append(make_start(list(enumerate(log))[read_from:]))
                return len(log) - 1
        raise AssertionError(f"nothing here makes an orderer ask for {request}")

    @property
    def core(self) -> OrdererCore:
        """The lines and their cursors."""
        return self.session.core

    @property
    def saved(self) -> OrdererState:
        """The state record."""
        return self.records[self.config.fragment]

    def save(self) -> None:
        """Write the state record (rule-5)."""
        stable, live = (len(self.logs[line]) for line in LineName)
        self.records[self.config.fragment] = self.core.snapshot(stable, live)

    def listen(self) -> None:
        """Let the live consumer read, by default to the ends."""
        for at, of in self.inputs.items():
            if self.receives(of):
                for offset, record in of.read(self._read[at], self.records_per_read):
                    self._read[at] = offset + 1
                    self.observe(record)
                    self.session.take(Received(at, offset, record))
        wanted, self._positions_wanted = self._positions_wanted, ()
        if wanted:
            self.session.take(PositionsFetched({at: self._position(at) for at in wanted}))

    def receives(self, of: Input) -> bool:
        """Return whether the live consumer receives this log."""
        return of.name not in self.deaf_to

    def _position(self, at: tuple[str, int]) -> int:
        """Return the position: it passes invisible offsets once all earlier records were read."""
        of, read = self.inputs[at], self._read[at]
        return of.end if self.receives(of) and not of.read(read, 1) else read

    def step(self, now_ms: float, *, turns_max: int = 1_000_000) -> list[OrderedRecord]:
        """Run a step and return its records; few turns model a slow reconciliation.

        A turn that requests the ends of logs is not counted: the response comes at once.
        """
        now, written, turns = round(now_ms * MS), [], 0
        for _ in range(self.rounds_max):
            if turns >= turns_max:
                break
            for (line, at), offset in self.session.wanted().items():
                for place, record in self.inputs[at].read(offset, self.caught_up_per_read):
                    self.observe(record)
                    self.session.take(Replayed(line, at, place, record))
                self._has_caught_up(line, at)
            effects = self.session.step(now)
            asked, records = self._carry_out(effects, now)
            written += records
            turns += not asked
            if not effects and not self.session.busy:
                break
        return written

    def has_asked(self) -> None:
        """Whether it has requested the ends of its inputs."""

    def _has_caught_up(self, line: LineName, at: tuple[str, int]) -> None:
        wanted = self.session.wanted().get((line, at))
        if wanted is not None and not self.inputs[at].read(wanted, 1):
            self.session.take(ReplayedTo(line, at, self.inputs[at].end))

    def _carry_out(self, effects: Iterable[Effect], now: int) -> tuple[bool, list[OrderedRecord]]:
        """Execute effects; return whether ends were requested, and the records written."""
        asked, written = False, []
        for effect in effects:
            match effect:
                case Append(at, OrderedRecord() as record):
                    log = self.logs[self._own[at]]
                    log.append(record)
                    written.append(record)
                    self.session.take(RecordDelivered(at, len(log) - 1))
                case WriteState(_, state):
                    assert isinstance(state, OrdererState)
                    self.records[state.fragment] = state
                case FetchEnds(logs):
                    asked = True
                    self.session.take(EndsFetched({at: self.inputs[at].end for at in logs}, now))
                    self.has_asked()
                case FetchPositions(logs):
                    self._positions_wanted = logs
                case Skipped():
                    pass
                case _:
                    raise AssertionError(f"nothing here makes an orderer want {effect}")
        return asked, written


def aggregated(record: OrderedRecord, seq: int) -> DeltaRecord:
    """Fargo's child node, for a single part: one record in, one record out (rule-19)."""
    spans = list(pairwise(record.offsets.astype(int).tolist()))

    def figure(of: Callable[[np.ndarray], float], of_nothing: float) -> np.ndarray:
        columns = []
        for values in record.values:
            there = [v[~np.isnan(v)] for v in (values[a:b] for a, b in spans)]
            columns.append([of(v) if len(v) else of_nothing for v in there])
        return np.array(columns, float).reshape(len(record.fields), len(record.keys))

    return DeltaRecord(
        record.kind,
        record.child,
        record.replica,
        record.inc,
        record.bucket_start,
        record.bucket_end,
        seq,
        record.piece,
        record.pieces,
        record.first_id,
        record.last_id,
        record.frontier,
        record.missing,
        record.gap,
        record.keys,
        0,
        record.fields,
        figure(len, 0.0),
        figure(np.sum, 0.0),
        figure(lambda v: float(np.sum((v - v.mean()) ** 2)), 0.0),
        figure(np.min, np.nan),
        figure(np.max, np.nan),
    )


def passed_on(record: OrderedRecord, seq: int) -> BucketRecord:
    """The input of a root without an aggregator: the ordered record, by its offset (trace-21)."""
    return replace(record, seq=seq)


@dataclass(frozen=True)
class Emitted:
    """One effect of a committed transaction, and its commit time."""

    at_ms: float
    transaction: int
    effect: Result[PaneShare[Any]]


class Root:
    """One copy of the root over some orderers, and its committed transactions."""

    commit_ms = 0.0
    """How long a transaction takes; the time passes during a step."""
    window_ms = 0.0
    """How long each of its windows takes in addition."""
    free_at_ms = 0.0
    """When the last step's transactions were in the log."""
    observe: Callable[[Record], None] = staticmethod(lambda _: None)
    """Called with each record that is read, before the session gets it."""

    def __init__(
        self,
        orderers: Sequence[Orderer],
        settings: Settings,
        query: str = "q",
        start_time: int = 0,
        others: Mapping[int, RootState] | None = None,
    ) -> None:
        """Start a root; ``others`` are the state records of the query's other generations."""
        self.orderers = {(o.config.child, o.config.replica): o for o in orderers}
        children = 1 + max(child for child, _ in self.orderers)
        replicas = 1 + max(replica for _, replica in self.orderers)
        self.config = RootConfig(
            f"root/{query}.0",
            query,
            0,
            -1,
            tuple(tuple(s.name for s in self.orderers[c, 0].sources) for c in range(children)),
            replicas,
            settings.fields,
            settings.grid,
            settings.schedule(2),
            start_time=start_time,
            bound_us=settings.bound_ms * MS,
            policy=settings.policy,
            contents=RowContents if settings.rows else Aggregates,
            empty_wait_us=settings.empty_wait_ms * MS,
        )
        self._read_as: Callable[[OrderedRecord, int], Record] = (
            passed_on if settings.rows else aggregated
        )
        self._windowed = not settings.rows
        self.emitted: list[Emitted] = []
        self.transactions = 0
        self.on_commit: Callable[[Commit], None] = lambda _: None
        self.state: RootState | None = None
        self.others = dict(others or {})
        self.crash()

    def crash(self) -> None:
        """Lose all memory; the state record of the last transaction is in the log."""
        self.config = replace(self.config, placement=self.config.placement + 1)
        self.session = RootSession(self.config, windowed=self._windowed)
        orderers = [self.orderers[log.child, log.replica] for log in self.config.logs]
        self._logs = {
            at: orderer.logs[log.line]
            for at, orderer, log in zip(
                self.session.inputs, orderers, self.config.logs, strict=True
            )
        }
        self._performed(self.session.start())
        self._carry_out(self.session.step(0), 0)  # transactions are opened before anything else
        self._read = dict(self.session.live_offsets)

    @property
    def core(self) -> RootCore:
        """The lines and their cursors."""
        return self.session.core

    def _performed(self, procedure: Procedure[Any]) -> Any:
        """Run a procedure without any other event, and return its value."""
        try:
            request = procedure.send(None)
            while True:
                if isinstance(request, Beginnings | Ends) and not self._logs.keys() >= {
                    *request.logs
                }:
                    # Ends of the ordered logs are set by tests, with ``core.ordered``.
                    request = procedure.throw(SlackwaterError("nobody answers"))
                else:
                    request = procedure.send(self._answer(request))
        except StopIteration as ended:
            return ended.value

    def _answer(self, request: Request) -> Any:
        match request:
            case Beginnings(logs):
                return dict.fromkeys(logs, 0)
            case Ends(logs):
                return {at: len(self._logs[at]) for at in logs}
            case ReadPart():
                return self.state, self.others
            case ReadPanes():
                return StoredState()
            case PrepareTransactions() | OpenTransactions():
                return None
            case ClaimPart(state):
                self.state = state
                return None
        raise AssertionError(f"nothing here makes a root ask for {request}")

    def listen(self) -> None:
        """Let the live consumer read to the ends."""
        for at, records in self._logs.items():
            while (offset := self._read[at]) < len(records):
                record = self._read_as(records[offset], offset)
                self.observe(record)
                self.session.take(Received(at, offset, record))
                self._read[at] = offset + 1

    def step(self, now_ms: float, *, transactions_max: int = 1_000) -> list[Emitted]:
        """Run a step and return its transactions."""
        first = len(self.emitted)
        for _ in range(transactions_max):
            for (line, at), wanted in self.session.wanted().items():
                records = self._logs[at]
                for offset in range(wanted, min(wanted + 200, len(records))):
                    record = self._read_as(records[offset], offset)
                    self.observe(record)
                    self.session.take(Replayed(line, at, offset, record))
            effects = self.session.step(round(now_ms * MS))
            for effect in effects:
                if isinstance(effect, Commit):
                    windows = len(rows_of(effect.transaction))
                    now_ms += self.commit_ms + windows * self.window_ms
            self.free_at_ms = now_ms
            self._carry_out(effects, now_ms)
            if not effects and not self.session.busy:
                break
        return self.emitted[first:]

    def _carry_out(self, effects: Iterable[Effect], now_ms: float) -> None:
        now = round(now_ms * MS)
        for effect in effects:
            match effect:
                case Commit(transaction, state):
                    self.emitted += [
                        Emitted(now_ms, self.transactions, e) for e in transaction.effects
                    ]
                    self.transactions += 1
                    self.on_commit(effect)
                    self.state = state
                    self.session.take(CommitSucceeded(now))
                case FetchEnds(logs):
                    self.session.take(EndsFetched({at: len(self._logs[at]) for at in logs}, now))
                case Perform(procedure):
                    self._performed(procedure)
                case LogLine() | Skipped():
                    pass
                case _:
                    raise AssertionError(f"nothing here makes a root want {effect}")


@dataclass
class Stage:
    """Sources, an orderer, a root, and the clock."""

    names: tuple[str, ...] = ("s1", "s2", "s3")
    settings: Settings = field(default_factory=Settings)
    tick_ms: int = 50
    turns_max: int = 1_000_000
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.sources = {name: Source(name) for name in self.names}
        self.orderer = Orderer(list(self.sources.values()), self.settings)
        self.root = Root([self.orderer], self.settings)

    def run_to(self, end_ms: int) -> None:
        """Run to a time; every source has one reading per tick."""
        while self.now_ms < end_ms:
            for i, source in enumerate(self.sources.values()):
                source.emit([self.now_ms + 1], self.now_ms + self.tick_ms, value=float(i))
            self.now_ms += self.tick_ms
            self.work()

    def work(self) -> None:
        """Let both stages do the due work."""
        self.orderer.listen()
        self.orderer.step(self.now_ms, turns_max=self.turns_max)
        self.root.listen()
        self.root.core.update_replica(0, 0, self.orderer.core.line.state, self.now_ms * MS)
        self.root.step(self.now_ms)

    @property
    def emitted(self) -> list[Emitted]:
        """All records read by a consumer."""
        return self.root.emitted


def readings(root: Root, emitted: Iterable[Emitted]) -> list[tuple[str, float, str, float]]:
    """The output of a query without a window: (label, stime ms, key, value), in order."""
    reported: list[tuple[str, float, str, float]] = []
    for one in emitted:
        if isinstance(one.effect, StableWindow | TentativeWindow) and one.effect.content:
            rows = one.effect.content.slice
            assert isinstance(rows, Rows)
            keys = root.core.keys.names(rows.index)
            stimes = (rows.stimes / MS).tolist()
            reported += zip(repeat(label(one.effect)), stimes, keys, rows.values[0].tolist())
    return reported


def label(effect: Result[PaneShare[Any]]) -> str:
    """Return a one-word label of a record."""
    match effect:
        case StableWindow() | EmptyRun(stable=True):
            return "stable"
        case TentativeWindow() | EmptyRun(stable=False):
            return "tentative"
        case Undo():
            return "undo"
        case RecDone():
            return "rec_done"
        case _:
            return "gap"


def labels(emitted: Iterable[Emitted]) -> list[str]:
    """Return the labels in order; repeated ones once."""
    reported: list[str] = []
    for one in emitted:
        text = label(one.effect)
        if not reported or reported[-1] != text:
            reported.append(text)
    return reported


def first_answers(emitted: Iterable[Emitted]) -> dict[int, Emitted]:
    """Return the first answer of each window, by its start (ms)."""
    first: dict[int, Emitted] = {}
    for one in emitted:
        if isinstance(one.effect, StableWindow | TentativeWindow):
            first.setdefault(one.effect.window_start // MS, one)
    return first


def stable_answers(emitted: Iterable[Emitted]) -> dict[int, tuple[float, float]]:
    """Return (count, sum) of stable answers by window start (ms); a second one is an error."""
    found: dict[int, tuple[float, float]] = {}
    for one in emitted:
        if isinstance(one.effect, StableWindow):
            assert one.effect.content is not None
            figures = one.effect.content.slice
            start = one.effect.window_start // MS
            assert start not in found, "a stable answer was repeated"
            found[start] = (float(figures.count.sum()), float(figures.sum.sum()))
    return found
