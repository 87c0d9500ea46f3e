"""Chains of queries for the papers' experiments: stages whose sources are the results of others.

The result lines are the real ones, and result topics are as in Kafka: in each partition a
transaction's records are followed by a marker, which takes an offset and is invisible to readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.paper.stage import (
    FIELDS,
    MS,
    Emitted,
    Input,
    Orderer,
    Root,
    Settings,
    Source,
    SourceLog,
    label,
)

from slackwater.codec.result_batches import ResultStream
from slackwater.codec.results import ResultHead
from slackwater.host.results import ResultsWriter
from slackwater.model.names import ResultKind
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.protocols.dpc.sunion.config import OrdererConfig

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
        self.aggregate: tuple[str, ...] = AGGREGATE
        self.generation = 0
        self.stream = ResultStream(name, 0, settings.fields, AGGREGATE, slide * MS)

    def replaced_by(
        self, root: Root, generation: int, aggregate: tuple[str, ...] = AGGREGATE
    ) -> None:
        """Take the results of the query's later generation from now on (rule-29)."""
        self.root, self.generation, self.aggregate = root, generation, aggregate
        root.on_commit = self.commit

    def commit(self, commit: Commit) -> None:
        """Append the records of a transaction, and its markers."""
        head = ResultHead(self.name, 0, self.generation)
        writer = ResultsWriter(head, self.settings.fields, self.aggregate)
        written: set[ResultKind] = set()
        for kind, lines in writer.lines(commit, 0):
            written.add(kind)
            for _, value in lines:
                self.records[kind].append((self.ends[kind], value))
                self.ends[kind] += 1
        for kind in written:
            self.ends[kind] += 1

    def between(self, kind: ResultKind, start: int, most: int = 10**9) -> list[tuple[int, bytes]]:
        """Return the records from an offset on, for a reader of committed records."""
        return [(at, value) for at, value in self.records[kind] if at >= start][:most]


class TopicLog:
    """One of a query's result topics, as an input of an orderer."""

    def __init__(self, topics: Topics, kind: ResultKind) -> None:
        self.name = topics.name if kind == "stable" else f"{topics.name}/{kind}"
        self.at = (f"sw.results.{topics.name}.{kind}", 0)
        self.results = topics.stream
        self._topics, self._kind = topics, kind

    @property
    def end(self) -> int:
        return self._topics.ends[self._kind]

    def read(self, start: int, most: int = 10**9) -> list[tuple[int, bytes]]:
        return self._topics.between(self._kind, start, most)


class Chained(Orderer):
    """An orderer that reads streams and queries."""

    caught_up_per_read = 10**9
    rounds_max = 1_000

    def __init__(
        self,
        sources: Sequence[Source],
        queries: Sequence[Topics],
        settings: Settings,
        query: str = "b",
    ) -> None:
        inputs: list[Input] = [SourceLog(source) for source in sources]
        watermarks = {}
        for topics in queries:
            grid = topics.settings.grid
            watermarks[len(inputs)] = grid.window_end(grid.first_window_holding(0)) - 1
            inputs += [TopicLog(topics, "stable"), TopicLog(topics, "tentative")]
        self.sources = [*sources, *(Source(t.name) for t in queries)]
        self.config = OrdererConfig(
            f"orderer/{query}.0.a",
            0,
            0,
            tuple(log.name for log in inputs),
            tuple(log.name.partition("/")[0] for log in inputs),
            settings.grid,
            settings.schedule(1),
            results=watermarks,
        )
        self._begin(inputs, settings)

    def has_asked(self) -> None:
        self.listen()


@dataclass
class Chain:
    """Query a over some sources, b over a and other sources; both with one X."""

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
        """Run to a time; every source has one reading per tick."""
        while self.now_ms < end_ms:
            for i, source in enumerate(self.sources.values()):
                source.emit([self.now_ms + 1], self.now_ms + self.tick_ms, value=float(i + 1))
            self.now_ms += self.tick_ms
            self.work()

    def work(self) -> None:
        """Let all running stages do the due work."""
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
    def emitted(self) -> list[Emitted]:
        """All records read by a consumer of b."""
        return self.b_root.emitted


def missing_of(emitted: Emitted) -> tuple[str, ...]:
    """Return the missing streams of a tentative answer."""
    assert label(emitted.effect) == "tentative"
    return tuple(getattr(emitted.effect, "missing", ()))
