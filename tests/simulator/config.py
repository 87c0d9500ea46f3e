"""What is simulated: one deployment with one query, or with two, as plain values.

A ``WorldConfig`` describes query q and its surroundings. Where q is read by another query, p,
``reader`` is the same from p's point of view (trace-20): other inputs and windows, the same X.
Where another query, r, reads q's children (``deployment/sharing.py``), ``reader`` is r: other
windows and roots, all else the same.

``pace`` scales the times of the surroundings (restarts, heartbeats, state records): a world whose
bound is a tenth of a real one's lives ten times as fast, and has as many faults in a tenth of the
events. What the product itself fixes in real time is not scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tests.simulator.clock import MS, SECOND
from tests.simulator.readings import Habits

from slackwater.model.deployment import QuerySpec, WindowSpec, joined_fields
from slackwater.model.names import OrdererName, RootName
from slackwater.primitives.lateness import Lateness, Learning, Step
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.line import PROCESS, Policy
from slackwater.protocols.dpc.soutput.upstream import STALE_US_MAX
from slackwater.protocols.dpc.sunion.join import SJoin

FIELDS = ("x",)
"""Of every stream."""
ROW_BYTES = 600
"""At most, of a result: its text, and what holds it in memory."""
START_TIME_US = 1_000_000 * SECOND
"""When a world begins: a round number, so that traces can be read."""


AGGREGATE = ("count", "sum")
"""What is answered of each field: figures whose fold is exact, whatever its order."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Query p: it reads q, and perhaps streams of its own or streams that q reads too."""

    children: tuple[tuple[str, ...], ...] = (("q",),)
    replicas: int = 2
    parts: int = 1
    window_us: int = 1 * SECOND
    slide_us: int = 1 * SECOND
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Sharing:
    """Query r: it reads q's children, and has windows of its own."""

    window_us: int = 2 * SECOND
    slide_us: int = 2 * SECOND


@dataclass(frozen=True)
class WorldConfig:
    """Times in us. ``children`` lists the inputs of each child."""

    children: tuple[tuple[str, ...], ...] = (("s1", "s2"),)
    replicas: int = 2
    parts: int = 1
    window_us: int = 1 * SECOND
    slide_us: int = 1 * SECOND
    w_us: int = 100 * MS
    bound_us: int = 2 * SECOND
    margin_us: int = 50 * MS
    policy: Policy = PROCESS
    disorder_us: int = 20 * MS
    disorder_more_us: dict[str, int] = field(default_factory=dict)
    """Of some streams: how much less they promise than the others."""
    expect_every_us: dict[str, int] = field(default_factory=dict)
    """Of those whose promises come from their readings alone."""
    learns: dict[str, int] = field(default_factory=dict)
    """Of those of them that learn it: what holds at first. What it may grow to is the former."""
    habits: Habits = field(default_factory=Habits)
    skew_us: dict[str, int] = field(default_factory=dict)
    """By process: how far its machine's clock is ahead."""
    start_time_us: int = START_TIME_US
    record_readings_max: int = 10_000
    piece_bytes_max: int = 8 << 20
    ahead_buckets_max: int = 600
    ahead_bytes_max: int = 256 << 20
    backlog_records_max: int = 1000
    backlog_rows_max: int = 100_000
    seek_period_us: int = 100 * MS
    pace: float = 1.0
    zombie_us: tuple[int, int] = (0, 400 * MS)
    """How long a process that was replaced works on."""
    record_us: int = 30
    """What it takes an orderer to read a record that it needs."""
    aggregate_us: int = 0
    """What it takes an aggregator's task to make the deltas of a record."""
    live_records_max: int = 100
    """Most records that an orderer's consumer gives it of one log at a time."""
    fetch_us: tuple[int, int] = (500, 4 * MS)
    restart_us: tuple[int, int] = (300 * MS, 900 * MS)
    stale_us: int = STALE_US_MAX
    """How long a root counts on a replica's last heartbeat; it wakes as often."""
    join_us: int = 0
    """Readings of the first stream and of the others are joined that are so close; 0: a union."""
    hosted: bool = False
    """Does an orderer's live consumer read its logs for others already when the orderer begins?"""
    rows: bool = False
    """Has the query no window (trace-21)? Then each bucket counts as one, and no aggregator reads
    it."""
    chain: Chain | None = None
    """Who reads the results."""
    sharing: Sharing | None = None
    """Who reads the children; a world has one of the two at most."""
    name: str = "q"
    reads: WorldConfig | None = None
    """Of p: the query whose results it reads."""
    children_of: str = ""
    """Of r: the query whose children it reads; empty: its own."""
    cut_windows: tuple[WindowSpec, ...] = ()
    """Of r: the windows of all queries that read them."""

    @cached_property
    def reader(self) -> WorldConfig | None:
        """The query that reads this one's results or children."""
        chain, sharing = self.chain, self.sharing
        if sharing is not None:
            assert chain is None, "a world has two queries at most"
            return replace(
                self, name="r", children_of=self.name, cut_windows=self.others, sharing=None,
                window_us=sharing.window_us, slide_us=sharing.slide_us,
            )  # fmt: skip
        if chain is None:
            return None
        return replace(
            self, name="p", reads=self, chain=None, join_us=0, children=chain.children,
            replicas=chain.replicas, parts=chain.parts, rows=chain.rows,
            window_us=self.w_us if chain.rows else chain.window_us,
            slide_us=self.w_us if chain.rows else chain.slide_us,
        )  # fmt: skip

    @property
    def queries(self) -> tuple[WorldConfig, ...]:
        """This one, and who reads it."""
        return (self,) if self.reader is None else (self, self.reader)

    @cached_property
    def grid(self) -> Grid:
        """Buckets and windows."""
        return Grid(self.w_us, WindowSpec(self.window_us, self.slide_us), self.others)

    @property
    def others(self) -> tuple[WindowSpec, ...]:
        """The windows of all queries that read the same children, if there are several."""
        if self.sharing is None:
            return self.cut_windows
        own = WindowSpec(self.window_us, self.slide_us)
        return own, WindowSpec(self.sharing.window_us, self.sharing.slide_us)

    @property
    def child_query(self) -> str:
        """The query that its children are named after."""
        return self.children_of or self.name

    @property
    def is_alone(self) -> bool:
        """Has the world no other query?"""
        return self.reader is None and self.reads is None and not self.children_of

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Streams and the query that is read, in the children's order."""
        return tuple(s for child in self.children for s in child)

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """All streams that the query itself reads, in the children's order."""
        return tuple(s for s in self.inputs if self.reads is None or s != self.reads.name)

    def logs_of(self, child: int) -> list[str]:
        """The logs that an orderer reads: of a part of a query two, as the product names them."""
        return [log for source in self.children[child] for log in self._logs(source)]

    def _logs(self, source: str) -> list[str]:
        if self.reads is None or source != self.reads.name:
            return [source]
        return [f"{source}/{p}{of}" for p in range(self.reads.parts) for of in ("", "/tentative")]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """All streams that its results come from (trace-20)."""
        above = () if self.reads is None else self.reads.sources
        return tuple(dict.fromkeys((*above, *self.streams)))

    @cached_property
    def all_streams(self) -> tuple[str, ...]:
        """Those of the whole deployment."""
        return self.sources if self.reader is None else self.reader.sources

    def fields_of(self, source: str) -> tuple[str, ...]:
        """What an input brings: a stream its field, a query each figure of its fields."""
        if self.reads is None or source != self.reads.name:
            return FIELDS
        if self.reads.rows:
            return self.reads.fields
        return tuple(f"{field}_{figure}" for field in self.reads.fields for figure in AGGREGATE)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """What is aggregated."""
        if self.join_us:
            return joined_fields(FIELDS, FIELDS)
        return tuple(dict.fromkeys(f for source in self.inputs for f in self.fields_of(source)))

    @property
    def join(self) -> SJoin | None:
        """Of the first stream with all others."""
        if not self.join_us:
            return None
        left_of = tuple(stream == self.streams[0] for stream in self.streams)
        return SJoin(self.join_us, left_of, FIELDS, FIELDS)

    @property
    def lateness_us(self) -> int:
        """rule-15: of all streams that the results come from, at most; a chain adds nothing."""
        return max(self.disorder_of(s) + self.expect_every_us.get(s, 0) for s in self.sources)

    def lateness(self, learned: Mapping[str, Iterable[Step]]) -> Lateness:
        """The same with what is recorded of the streams that learn."""
        every = self.expect_every_us | self.learns
        least = max(self.disorder_of(s) + every.get(s, 0) for s in self.sources)
        steps = [
            (step.from_us, self.disorder_of(stream) + step.expect_every_us)
            for stream in self.sources
            for step in learned.get(stream, ())
        ]
        return Lateness(least, steps)

    def learning_of(self, stream: str) -> Learning | None:
        """How a stream learns, in a hurry (decision 28); None if it does not."""
        first_us = self.learns.get(stream)
        if first_us is None:
            return None
        most_us = self.expect_every_us[stream]
        return Learning(first_us, most_us, max(1 * MS, (most_us - first_us) // 8), gaps_min=10)

    def disorder_of(self, stream: str) -> int:
        """How much less than its clock, or its largest reading, a stream promises."""
        return self.disorder_us + self.disorder_more_us.get(stream, 0)

    def habits_of(self, stream: str) -> Habits:
        """A stream's readings come as late as it promises them.

        Not where its promises are made from them: those would come late themselves.
        """
        if stream in self.expect_every_us:
            return self.habits
        more = self.disorder_more_us.get(stream, 0)
        return replace(self.habits, jitter_us=self.habits.jitter_us + more)

    @property
    def first_window(self) -> int:
        """The first window that holds E0."""
        return self.grid.first_window_holding(self.start_time_us)

    @property
    def skew_us_max(self) -> int:
        """How far the clocks of two machines are apart."""
        return max(self.skew_us.values(), default=0) - min(self.skew_us.values(), default=0)

    def paced(self, us: int) -> int:
        """A time of the surroundings in this world."""
        return round(us * self.pace)

    @property
    def stages(self) -> int:
        """Of the longest path: two for each query."""
        return 4 if self.chain is not None or self.reads is not None else 2

    def answer_within_us(self, stage: int) -> int:
        """The ladder of deadlines (trace-13): stage 1 orderer, 2 root; behind them who reads it."""
        stages = 2 if self.chain is None else 4
        return self.bound_us - (stages - stage + 1) * self.margin_us

    def orderer_name(self, child: int, replica: int) -> str:
        """As status prints it."""
        return OrdererName(self.child_query, child, replica).process

    @property
    def aggregator_names(self) -> list[str]:
        """One for each replica: fragments of two replicas run in different aggregators.

        See trace-19.
        """
        return [f"aggregator/{r}" for r in range(max(query.replicas for query in self.queries))]

    @property
    def orderer_names(self) -> list[str]:
        """All replicas of all children that it reads."""
        at = [(c, r) for c in range(len(self.children)) for r in range(self.replicas)]
        return [self.orderer_name(c, r) for c, r in at]

    @property
    def root_names(self) -> list[str]:
        """All parts."""
        return [RootName(self.name, p).process for p in range(self.parts)]

    @property
    def names(self) -> list[str]:
        """All processes, as status prints them; those of the reader last."""
        proxies = [f"proxy/{s}" for s in self.all_streams]
        own = [*proxies, *self.orderer_names, *self.aggregator_names, *self.root_names]
        reader = self.reader
        if reader is None:
            return own
        return list(dict.fromkeys([*own, *reader.orderer_names, *reader.root_names]))

    @property
    def query(self) -> QuerySpec:
        """The query, as what reads deployments knows it."""
        return QuerySpec(
            self.name, self.inputs, None, None,
            None if self.rows else WindowSpec(self.window_us, self.slide_us),
            () if self.rows else AGGREGATE, self.bound_us, self.margin_us, replicas=self.replicas,
            children=len(self.children), parts=self.parts, children_of=self.children_of,
            cut_windows=self.others,
        )  # fmt: skip


def spread(items: Sequence[str], children: int) -> tuple[tuple[str, ...], ...]:
    """Streams over children, neighbours together."""
    base, longer = divmod(len(items), children)
    found, at = [], 0
    for child in range(children):
        size = base + (child < longer)
        found.append(tuple(items[at : at + size]))
        at += size
    return tuple(found)
