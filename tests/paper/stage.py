"""A stage for the papers' experiments: the real cores over logs in memory, on a virtual clock.

Data sources, an orderer, an aggregator and a root, wired as the shells wire them, with no more
around them than a list for a log. Time is an argument in milliseconds; nothing here decides
anything about the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from slackwater.model.deployment import WindowSpec
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
from slackwater.primitives.deltas import Aggregates, KeyTable
from slackwater.primitives.expressions import compile_predicate
from slackwater.primitives.panes import Share
from slackwater.primitives.rows import RowContents, Rows
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc import root as dpc_root
from slackwater.protocols.dpc.answers import Effect as Result
from slackwater.protocols.dpc.answers import (
    EmptyRun,
    RecDone,
    StableWindow,
    TentativeWindow,
    Transaction,
    Undo,
)
from slackwater.protocols.dpc.join import SJoin
from slackwater.protocols.dpc.line import PROCESS, LineName, Policy, Schedule
from slackwater.protocols.dpc.operators import Operators
from slackwater.protocols.dpc.orderer import (
    Append,
    FetchEnds,
    OrdererConfig,
    OrdererCore,
    Recovered,
)
from slackwater.protocols.dpc.recovery import initial_state, recover
from slackwater.protocols.dpc.root import Commit, DeltaLog, RootConfig, RootCore

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

    def say(
        self, times_ms: Iterable[float], boundary_ms: float, value: float = 1.0, key: str = "k"
    ) -> None:
        """Readings at these times, and the promise behind them."""
        times = np.array([round(t * MS) for t in times_ms], np.int64)
        self._append(
            Kind.INSERTION if len(times) else Kind.BOUNDARY,
            round(boundary_ms * MS),
            times,
            np.full(len(times), value),
            key,
        )

    def disconnect(self) -> None:
        """The link is cut; the source goes on and keeps what it says."""
        self.held = []

    def reconnect(self) -> None:
        """What was held back arrives, in order."""
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
    """Of a query; all durations in milliseconds."""

    bound_ms: int = 2_000
    margin_ms: int = 50
    bucket_ms: int = 100
    window_ms: int = 100
    slide_ms: int | None = None
    policy: Policy = PROCESS
    rows: bool = False
    """A query without a window: its buckets are what is answered as one (R21)."""
    empty_wait_ms: int = 0
    where: str | None = None
    join_within_ms: int | None = None
    """Of the first source with all others; None: their union."""
    before: int = 0
    """Stages of other queries that a reading passes first, in a chain."""
    stages: int = 2
    """On the whole path."""
    reads: tuple[str, ...] = FIELDS
    """The fields of its sources."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What is aggregated."""
        return self.reads if self.join_within_ms is None else ("left_v", "right_v")

    def operators(self, sources: int) -> Operators:
        """Of a query without a filter, over so many sources."""
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


class Orderer:
    """One replica of an orderer, and the two logs it writes."""

    def __init__(
        self,
        sources: Sequence[Source],
        settings: Settings,
        *,
        child: int = 0,
        replica: int = 0,
        replicas: int = 1,
    ) -> None:
        self.sources = sources
        self.settings = settings
        self.logs: dict[LineName, list[OrderedRecord]] = {line: [] for line in LineName}
        self.config = OrdererConfig(
            f"orderer/q.{child}.{'abc'[replica]}",
            child,
            replica,
            tuple(s.name for s in sources),
            tuple(s.name for s in sources),
            settings.grid,
            settings.schedule(1),
            policy=settings.policy,
            in_time_us=settings.schedule(1).answer_within_us,
            replicas=max(replicas, replica + 1),
        )
        self.saved = initial_state(self.config, 0, [0] * len(sources))
        self.core = self._start(self.saved)

    def _start(self, state: OrdererState) -> OrdererCore:
        stable, live = self.logs[LineName.STABLE], self.logs[LineName.LIVE]
        recovered = recover(
            state,
            list(enumerate(stable))[state.stable_offset :],
            list(enumerate(live))[state.live_offset :],
        )
        inc = len(stable)
        start = self.start_record(inc, recovered)
        stable.append(start)
        live.append(start)
        operators = self.settings.operators(len(self.sources))
        ends = {i: len(s.log) for i, s in enumerate(self.sources)}
        core = OrdererCore(self.config, operators, state, recovered, inc=inc, mute_until=ends)
        self._read = list(core.live_offsets)
        return core

    def start_record(self, inc: int, recovered: Recovered) -> OrderedRecord:
        """What begins an incarnation."""
        return OrderedRecord(
            Kind.START,
            self.config.child,
            self.config.replica,
            inc,
            recovered.frontier.bucket_start,
            recovered.frontier.bucket_start,
            first_id=recovered.next_id,
            frontier=recovered.frontier,
        )

    def crash(self, state: OrdererState | None = None) -> None:
        """Memory is gone; it starts again from its state record and its own logs (section 4.5)."""
        self.core = self._start(self.saved if state is None else state)

    def save(self) -> None:
        """Write the state record (rule 5)."""
        stable, live = (len(self.logs[line]) for line in LineName)
        self.saved = self.core.snapshot(stable, live)

    def listen(self) -> None:
        """The live consumer reads on to the ends."""
        for i, source in enumerate(self.sources):
            while self._read[i] < len(source.log):
                self.core.receive(i, self._read[i], source.log[self._read[i]])
                self._read[i] += 1

    def step(self, now_ms: float, *, turns_max: int = 1_000_000) -> list[OrderedRecord]:
        """What it writes at this time; few turns make a slow reconciliation.

        A turn that asks for the ends of logs is not counted: the answer comes at once.
        """
        now, written, turns = round(now_ms * MS), [], 0
        while turns < turns_max:
            for (line, stream), offset in self.core.wanted().items():
                log = self.sources[stream].log
                for at in range(offset, min(offset + 20, len(log))):
                    self.core.catch_up(line, stream, at, log[at])
            effects = self.core.step(now)
            for effect in effects:
                match effect:
                    case Append(line, record):
                        self.logs[line].append(record)
                        written.append(record)
                    case FetchEnds(streams):
                        ends = {i: len(self.sources[i].log) for i in streams}
                        self.core.ends(ends, now)
            turns += not any(isinstance(effect, FetchEnds) for effect in effects)
            if not effects and not self.core.busy:
                break
        return written


def aggregated(record: OrderedRecord, seq: int) -> DeltaRecord:
    """Fargo's child node, for a single part: one record in, one record out (rule 19)."""
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
    """What a root without an aggregator reads: the ordered record, by its offset (R21)."""
    return replace(record, seq=seq)


@dataclass(frozen=True)
class Said:
    """One effect of a committed transaction, and when it was committed."""

    at_ms: float
    transaction: int
    effect: Result[Share[Any]]


class Root:
    """One copy of the root over some orderers, and what it has committed."""

    def __init__(self, orderers: Sequence[Orderer], settings: Settings) -> None:
        self.orderers = {(o.config.child, o.config.replica): o for o in orderers}
        children = 1 + max(child for child, _ in self.orderers)
        replicas = 1 + max(replica for _, replica in self.orderers)
        self.config = RootConfig(
            "root/q.0",
            "q",
            0,
            0,
            tuple(tuple(s.name for s in self.orderers[c, 0].sources) for c in range(children)),
            replicas,
            settings.fields,
            settings.grid,
            settings.schedule(2),
            e0=0,
            policy=settings.policy,
            contents=RowContents if settings.rows else Aggregates,
            empty_wait_us=settings.empty_wait_ms * MS,
        )
        self._read_as: Callable[[OrderedRecord, int], BucketRecord] = (
            passed_on if settings.rows else aggregated
        )
        self.said: list[Said] = []
        self.transactions = 0
        self.on_commit: Callable[[Transaction[Share[Any]]], None] = lambda _: None
        self.state = dpc_root.initial_state(self.config)
        self.core = self._start(self.state)

    def _start(self, state: RootState) -> RootCore:
        ends = {log: len(self._log(log)) for log in self.config.logs}
        core = RootCore(self.config, state, mute_until=ends)
        self._read = dict(core.live_offsets)
        return core

    def crash(self) -> None:
        """Memory is gone; the state record of the last transaction is in the log."""
        self.core = self._start(self.state)

    def _log(self, log: DeltaLog) -> list[OrderedRecord]:
        return self.orderers[log.child, log.replica].logs[log.line]

    def listen(self) -> None:
        """The live consumer reads on to the ends."""
        for log in self.config.logs:
            records = self._log(log)
            while self._read[log] < len(records):
                at = self._read[log]
                self.core.receive(log, at, self._read_as(records[at], at))
                self._read[log] = at + 1

    def step(self, now_ms: float, *, transactions_max: int = 1_000) -> list[Said]:
        """What it commits at this time."""
        first = len(self.said)
        for _ in range(transactions_max):
            for (line, log), offset in self.core.wanted().items():
                records = self._log(log)
                for at in range(offset, min(offset + 200, len(records))):
                    self.core.catch_up(line, log, at, self._read_as(records[at], at))
            effects = self.core.step(round(now_ms * MS))
            for effect in effects:
                match effect:
                    case Commit(transaction, state):
                        self.said += [
                            Said(now_ms, self.transactions, e) for e in transaction.effects
                        ]
                        self.transactions += 1
                        self.on_commit(transaction)
                        self.state = state
                        self.core.committed()
                    case dpc_root.FetchEnds(logs):
                        ends = {log: len(self._log(log)) for log in logs}
                        self.core.ends(ends, round(now_ms * MS))
            if not effects and not self.core.busy:
                break
        return self.said[first:]


@dataclass
class Stage:
    """Sources, an orderer and a root, and the hands of the clock."""

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
        """Every source says one reading a tick, as long as time goes on."""
        while self.now_ms < end_ms:
            for i, source in enumerate(self.sources.values()):
                source.say([self.now_ms + 1], self.now_ms + self.tick_ms, value=float(i))
            self.now_ms += self.tick_ms
            self.work()

    def work(self) -> None:
        """Both stages do what is due now."""
        self.orderer.listen()
        self.orderer.step(self.now_ms, turns_max=self.turns_max)
        self.root.listen()
        self.root.core.replica_says(0, 0, self.orderer.core.line.state, self.now_ms * MS)
        self.root.step(self.now_ms)

    @property
    def said(self) -> list[Said]:
        """Everything a consumer has seen."""
        return self.root.said


def readings(root: Root, said: Iterable[Said]) -> list[tuple[str, float, str, float]]:
    """What a query without a window has said: (label, stime ms, key, value), in order."""
    told: list[tuple[str, float, str, float]] = []
    for one in said:
        if isinstance(one.effect, StableWindow | TentativeWindow) and one.effect.content:
            rows = one.effect.content.slice
            assert isinstance(rows, Rows)
            keys = root.core.keys.names(rows.index)
            stimes = (rows.stimes / MS).tolist()
            told += zip(repeat(label(one.effect)), stimes, keys, rows.values[0].tolist())
    return told


def label(effect: Result[Share[Any]]) -> str:
    """One word for what a consumer sees."""
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


def labels(said: Iterable[Said]) -> list[str]:
    """The labels in their order, runs of the same one told once."""
    told: list[str] = []
    for one in said:
        word = label(one.effect)
        if not told or told[-1] != word:
            told.append(word)
    return told


def first_answers(said: Iterable[Said]) -> dict[int, Said]:
    """Window start (ms) -> the first answer it got."""
    first: dict[int, Said] = {}
    for one in said:
        if isinstance(one.effect, StableWindow | TentativeWindow):
            first.setdefault(one.effect.window_start // MS, one)
    return first


def stable_answers(said: Iterable[Said]) -> dict[int, tuple[float, float]]:
    """Window start (ms) -> (count, sum) of its stable answer; a second one is an error."""
    found: dict[int, tuple[float, float]] = {}
    for one in said:
        if isinstance(one.effect, StableWindow):
            assert one.effect.content is not None
            figures = one.effect.content.slice
            start = one.effect.window_start // MS
            assert start not in found, "a stable answer was repeated"
            found[start] = (float(figures.count.sum()), float(figures.sum.sum()))
    return found
