"""Chains of queries for the papers' experiments: stages whose sources are the results of others.

The real cores, the real text of the results, and result topics as Kafka keeps them: what a
transaction wrote, and behind it in each partition a marker that takes an offset and that no reader
sees. The chained orderer is wired as its shell is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.paper.stage import FIELDS, MS, Orderer, Root, Said, Settings, Source, label

from slackwater.codec.result_batches import Assembler, ResultStream
from slackwater.model.records import OrderedRecord, OrdererState
from slackwater.primitives.panes import Share
from slackwater.protocols.dpc.answers import Transaction
from slackwater.protocols.dpc.line import LineName
from slackwater.protocols.dpc.orderer import Append, FetchEnds, OrdererConfig, OrdererCore
from slackwater.protocols.dpc.recovery import initial_state, recover
from slackwater.root.results import ResultsWriter
from slackwater.runtime.topics import ResultKind

AGGREGATE = ("count", "sum", "avg")


class Topics:
    """The three result topics of a root with one part."""

    def __init__(self, name: str, root: Root, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.records: dict[ResultKind, list[tuple[int, bytes]]] = {
            "stable": [],
            "tentative": [],
            "corrections": [],
        }
        self.ends = dict.fromkeys(self.records, 0)
        self.root = root
        root.on_commit = self.commit
        slide = settings.slide_ms or settings.window_ms
        self.stream = ResultStream(name, 0, settings.fields, AGGREGATE, slide * MS)

    def commit(self, transaction: Transaction[Share[Any]]) -> None:
        """Append what a transaction holds, and its markers."""
        keys = self.root.core.keys
        writer = ResultsWriter(self.name, 0, self.settings.fields, AGGREGATE, keys)
        written: set[ResultKind] = set()
        for kind, lines in writer.lines(transaction, 0):
            written.add(kind)
            for _, value in lines:
                self.records[kind].append((self.ends[kind], value))
                self.ends[kind] += 1
        for kind in written:
            self.ends[kind] += 1

    def between(self, kind: ResultKind, start: int, most: int = 10**9) -> list[tuple[int, bytes]]:
        """What a reader of committed records gets from an offset on."""
        return [(at, value) for at, value in self.records[kind] if at >= start][:most]


@dataclass(frozen=True)
class Log:
    """One log of a chained orderer."""

    name: str
    source: Source | None = None
    topics: Topics | None = None
    kind: ResultKind = "stable"

    @property
    def end(self) -> int:
        if self.source is not None:
            return len(self.source.log)
        assert self.topics is not None
        return self.topics.ends[self.kind]


class Chained(Orderer):
    """An orderer that reads streams and queries."""

    def __init__(
        self, sources: Sequence[Source], queries: Sequence[Topics], settings: Settings
    ) -> None:
        self.inputs = [Log(s.name, source=s) for s in sources]
        promises = {}
        for topics in queries:
            grid = topics.settings.grid
            promises[len(self.inputs)] = grid.window_end(grid.first_window_holding(0)) - 1
            kinds: tuple[ResultKind, ...] = ("stable", "tentative")
            self.inputs += [Log(topics.name, topics=topics, kind=kind) for kind in kinds]
        self.settings = settings
        self.sources = [*sources, *(Source(t.name) for t in queries)]
        self.logs = {line: [] for line in LineName}
        self.rows_per_read = 10**9
        self.deaf_to: set[ResultKind] = set()
        self.config = OrdererConfig(
            "orderer/b.0.a",
            0,
            0,
            tuple(log.name for log in self.inputs),
            tuple(log.name for log in self.inputs),
            settings.grid,
            settings.schedule(1),
            results=promises,
        )
        self.saved = initial_state(self.config, 0, [0] * len(self.inputs))
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
        ends = {i: log.end for i, log in enumerate(self.inputs)}
        operators = self.settings.operators(len(self.sources))
        core = OrdererCore(self.config, operators, state, recovered, inc=inc, mute_until=ends)
        self._read = list(core.live_offsets)
        self._arriving = {
            i: Assembler(log.topics.stream)
            for i, log in enumerate(self.inputs)
            if log.topics is not None
        }
        return core

    def listen(self) -> None:
        for i, log in enumerate(self.inputs):
            if log.source is not None:
                while self._read[i] < log.end:
                    self.core.receive(i, self._read[i], log.source.log[self._read[i]])
                    self._read[i] += 1
                continue
            assert log.topics is not None
            if log.kind in self.deaf_to:
                continue
            for at, value in log.topics.between(log.kind, self._read[i], self.rows_per_read):
                batch = self._arriving[i].take(at, value)
                if batch is not None:
                    self.core.receive_results(i, batch)
                self._read[i] = at + 1
            if not log.topics.between(log.kind, self._read[i]) and self._arriving[i].is_between:
                self._read[i] = log.end
                self.core.read_to(i, log.end)

    def step(self, now_ms: float, *, turns_max: int = 1_000) -> list[OrderedRecord]:
        now, written = round(now_ms * MS), []
        for _ in range(turns_max):
            for (line, i), offset in self.core.wanted().items():
                self._catch_up(line, i, offset)
            effects = self.core.step(now)
            for effect in effects:
                match effect:
                    case Append(line, record):
                        self.logs[line].append(record)
                        written.append(record)
                    case FetchEnds(logs):
                        self.core.ends({i: self.inputs[i].end for i in logs}, now)
                        self.listen()
            if not effects and not self.core.busy:
                break
        return written

    def _catch_up(self, line: LineName, i: int, offset: int) -> None:
        log = self.inputs[i]
        if log.source is not None:
            for at in range(offset, min(offset + 200, log.end)):
                self.core.catch_up(line, i, at, log.source.log[at])
            return
        assert log.topics is not None
        assembler = Assembler(log.topics.stream)
        for at, value in log.topics.between(log.kind, offset):
            batch = assembler.take(at, value)
            if batch is not None:
                self.core.catch_up_results(line, i, batch)
        self.core.caught_up_to(line, i, log.end)


@dataclass
class Chain:
    """Query a over some sources, b over a and others of its own; both with one X."""

    names: tuple[str, ...] = ("s1", "s2")
    others: tuple[str, ...] = ()
    a: Settings = field(default_factory=Settings)
    b: Settings = field(default_factory=Settings)
    tick_ms: int = 50
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.a = replace(self.a, stages=4)
        reads = tuple(f"v_{figure}" for figure in AGGREGATE)
        self.b = replace(
            self.b, before=2, stages=4, reads=(*FIELDS, *reads) if self.others else reads
        )
        self.sources = {name: Source(name) for name in (*self.names, *self.others)}
        self.a_orderer = Orderer([self.sources[n] for n in self.names], self.a)
        self.a_root = Root([self.a_orderer], self.a)
        self.topics = Topics("a", self.a_root, self.a)
        self.b_orderer = Chained([self.sources[n] for n in self.others], [self.topics], self.b)
        self.b_root = Root([self.b_orderer], self.b)
        self.dead: set[str] = set()

    def run_to(self, end_ms: int) -> None:
        """Every source says one reading a tick, as long as time goes on."""
        while self.now_ms < end_ms:
            for i, source in enumerate(self.sources.values()):
                source.say([self.now_ms + 1], self.now_ms + self.tick_ms, value=float(i + 1))
            self.now_ms += self.tick_ms
            self.work()

    def work(self) -> None:
        """All stages do what is due now, but the dead."""
        for name, stage in (
            ("a_orderer", self.a_orderer),
            ("a_root", self.a_root),
            ("b_orderer", self.b_orderer),
            ("b_root", self.b_root),
        ):
            if name not in self.dead:
                stage.listen()
                stage.step(self.now_ms)

    @property
    def said(self) -> list[Said]:
        """Everything a consumer of b has seen."""
        return self.b_root.said


def missing_of(said: Said) -> tuple[str, ...]:
    """What a tentative answer names."""
    assert label(said.effect) == "tentative"
    return tuple(getattr(said.effect, "missing", ()))
