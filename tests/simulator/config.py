"""The simulated deployment, with one or two queries, as plain values.

A ``WorldConfig`` describes query q and its environment. If another query, p, reads q, ``reader`` is
the configuration of p (trace-20): other inputs and windows, the same X. If another query, r, reads
q's children (``deployment/sharing.py``), ``reader`` is r: other windows and roots, all else equal.

``pace`` scales the times of the environment (restarts, heartbeats, state records): a run with a
tenth of the usual bound is ten times as fast, and has as many faults in a tenth of the events.
Real-time constants of the product are not scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product

from tests.simulator.clock import MS, SECOND
from tests.simulator.readings import Habits

from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.model.kinds import UPLINKS
from slackwater.model.names import MergerName, OrdererName, ProxyName, UplinkName, copy_names
from slackwater.model.row_fields import joined_fields
from slackwater.primitives.lateness import Lateness, Learning, Step
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.line import PROCESS, Policy
from slackwater.protocols.dpc.soutput.config import HELD_READ_US_MAX
from slackwater.protocols.dpc.soutput.upstream import STALE_US_MAX
from slackwater.protocols.dpc.sunion.join import SJoin

FIELDS = ("x",)
"""The fields of every stream."""
ROW_BYTES = 600
"""Maximum size of a row of a result: its text, and the objects in memory."""
START_TIME_US = 1_000_000 * SECOND
"""Start time of a run: a round number, for readable traces."""


AGGREGATE = ("count", "sum")
"""The computed aggregates of each field; their merge is exact in any order."""


@cache
def _orderer_name(query: str, child: int, replica: int) -> str:
    """Return the process's name; a root needs those of all its replicas in each turn."""
    return OrdererName(query, child, replica).process


@dataclass(frozen=True, slots=True)
class Chain:
    """Query p: it reads q, and perhaps streams of its own or streams that q also reads."""

    children: tuple[tuple[str, ...], ...] = (("q",),)
    replicas: int = 2
    parts: int = 1
    window_us: int = 1 * SECOND
    slide_us: int = 1 * SECOND
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Sharing:
    """Query r: it reads q's children, and has its own windows.

    ``joins_us``: when it is applied, from the start of the run; 0: together with q (trace-50).
    """

    window_us: int = 2 * SECOND
    slide_us: int = 2 * SECOND
    joins_us: int = 0

    def starts_at(self, q: WorldConfig) -> int:
        """Return E0: that of q, or r's next window when it is applied."""
        if not self.joins_us:
            return q.start_time_us
        grid = Grid(q.w_us, WindowSpec(self.window_us, self.slide_us))
        return grid.window_end(grid.last_window_holding(q.start_time_us + self.joins_us))


@dataclass(frozen=True, slots=True)
class Added:
    """Query v: it is applied at run time, and has children of its own over some of q's streams.

    ``joins``: it is applied as by the command line, so it reads q's children if it can (trace-50).
    """

    children: tuple[tuple[str, ...], ...] = (("s1",),)
    replicas: int = 1
    parts: int = 1
    window_us: int = 1 * SECOND
    slide_us: int = 1 * SECOND
    rows: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Machines:
    """Controllers and nodes, and the network between them."""

    controllers: tuple[str, ...] = ("a", "b", "c")
    nodes: tuple[str, ...] = ("n1", "n2", "n3")
    delay_us: int = 1 * MS
    loss: float = 0.0
    """Share of messages between controllers that are lost."""


@dataclass(frozen=True)
class WorldConfig:
    """Times in us. ``children`` lists the inputs of each child."""

    children: tuple[tuple[str, ...], ...] = (("s1", "s2"),)
    replicas: int = 2
    parts: int = 1
    head_us: int = 0
    """A root stores its state when reading again would take as long; 0: it never does."""
    copies: int = 1
    """Copies of each part, of this query and of the other one."""
    held_read_us: int = HELD_READ_US_MAX
    """How long it may take to read what a copy that follows holds."""
    compare_us: int = 1 * SECOND
    """Event time in which copies compare the panes of one state record; 0: all panes."""
    mergers: int = 0
    """Copies of the merger of each child, of this query and of the other one."""
    sites: bool = False
    """Whether each child is at a site, and the root at the centre (``uplinks.py``).

    ``sharing`` is then what the sites answer themselves, over the same windows.
    """
    children_a_site: int = 1
    """How many children are at one site, in order; the last site may have fewer."""
    window_us: int = 1 * SECOND
    slide_us: int = 1 * SECOND
    w_us: int = 100 * MS
    bound_us: int = 2 * SECOND
    margin_us: int = 50 * MS
    policy: Policy = PROCESS
    disorder_us: int = 20 * MS
    disorder_more_us: dict[str, int] = field(default_factory=dict)
    """By stream: additional lag of its watermark."""
    expect_every_us: dict[str, int] = field(default_factory=dict)
    """By stream whose watermark derives from readings alone: ``expect_every``."""
    learns: dict[str, int] = field(default_factory=dict)
    """By stream that learns ``expect_every``: the initial value; ``expect_every_us`` has the
    maximum."""
    habits: Habits = field(default_factory=Habits)
    skew_us: dict[str, int] = field(default_factory=dict)
    """By process: offset of its machine's clock."""
    start_time_us: int = START_TIME_US
    begins_after_us: int = 0
    """When its begin is recorded, from the start of the run (trace-49); 0: it has none."""
    record_readings_max: int = 10_000
    piece_bytes_max: int = 8 << 20
    ahead_buckets_max: int = 600
    ahead_bytes_max: int = 256 << 20
    backlog_records_max: int = 1000
    backlog_rows_max: int = 100_000
    seek_period_us: int = 100 * MS
    pace: float = 1.0
    zombie_us: tuple[int, int] = (0, 400 * MS)
    """Range of the time for which a replaced process continues."""
    record_us: int = 30
    """Time for an orderer to process a record."""
    aggregate_us: int = 0
    """Time for an aggregator's task to compute the deltas of a record."""
    live_records_max: int = 100
    """Maximum records of one log per poll of an orderer's consumer."""
    fetch_us: tuple[int, int] = (500, 4 * MS)
    restart_us: tuple[int, int] = (300 * MS, 900 * MS)
    stale_us: int = STALE_US_MAX
    """Time for which a replica's last heartbeat is valid for a root; also the root's timer."""
    join_us: int = 0
    """Maximum distance of joined readings of the first stream and the others; 0: a union."""
    hosted: bool = False
    """Whether an orderer's live consumer already reads its logs for others when the orderer
    starts."""
    rows: bool = False
    """Whether the query has no window (trace-21); then buckets take the place of windows, and there
    is no aggregator."""
    count_min: int = 0
    """``having``: a row has at least this many values of its first field (trace-58); 0: any."""
    chain: Chain | None = None
    """The reader of the results."""
    sharing: Sharing | None = None
    """The reader of the children; a run has at most one of the two."""
    added: Added | None = None
    """With machines: a query that is applied at run time."""
    history_speed: int = 0
    """With ``clock: data``: how fast event time passes, in the readings; 0: wall time."""
    topics: dict[str, int] = field(default_factory=dict)
    """By stream that reads a topic: the number of its partitions at first."""
    by_log: bool = False
    """Whether the children are groups of logs (rule-33): a stream may be in several of them."""
    shares: dict[str, int] = field(default_factory=dict)
    """By stream whose topic several proxies read: their number."""
    name: str = "q"
    reads: WorldConfig | None = None
    """For p: the query whose results it reads."""
    machines: Machines | None = None
    """Nodes and controllers; None: the supervisor of one machine runs all."""
    children_of: str = ""
    """For r: the query whose children it reads; empty: its own."""
    cut_windows: tuple[WindowSpec, ...] = ()
    """For r: the windows of all queries that read them."""

    @cached_property
    def reader(self) -> WorldConfig | None:
        """The query that reads this one's results or children, or is applied at run time."""
        chain, sharing, added = self.chain, self.sharing, self.added
        if added is not None:
            assert chain is None, "a run has at most two queries"
            assert sharing is None, "a run has at most two queries"
            return replace(
                self, name="v", added=None, join_us=0, children=added.children, by_log=False,
                replicas=added.replicas, parts=added.parts, rows=added.rows,
                window_us=self.w_us if added.rows else added.window_us,
                slide_us=self.w_us if added.rows else added.slide_us,
            )  # fmt: skip
        if sharing is not None:
            assert chain is None, "a run has at most two queries"
            return replace(
                self, name="r", children_of=self.name, cut_windows=self.others, sharing=None,
                window_us=sharing.window_us, slide_us=sharing.slide_us,
                start_time_us=sharing.starts_at(self),
                sites=False, mergers=0 if self.sites else self.mergers,
            )  # fmt: skip
        if chain is None:
            return None
        return replace(
            self, name="p", reads=self, chain=None, join_us=0, children=chain.children,
            by_log=False,
            replicas=chain.replicas, parts=chain.parts, rows=chain.rows,
            window_us=self.w_us if chain.rows else chain.window_us,
            slide_us=self.w_us if chain.rows else chain.slide_us,
        )  # fmt: skip

    @property
    def queries(self) -> tuple[WorldConfig, ...]:
        """This query and its reader."""
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
        """The query after which the children are named."""
        return self.children_of or self.name

    @property
    def is_alone(self) -> bool:
        """Whether there is no other query."""
        return self.reader is None and self.reads is None and not self.children_of

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Streams and the query that is read, in the children's order."""
        return tuple(dict.fromkeys(s for child in self.children for s in child))

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams that the query itself reads, in the children's order."""
        return tuple(s for s in self.inputs if self.reads is None or s != self.reads.name)

    def logs_of(self, child: int) -> list[str]:
        """Return the logs of an input: two for a part of a query, with the product's names."""
        return [log for source in self.children[child] for log in self._logs(source)]

    def _logs(self, source: str) -> list[str]:
        if self.reads is None or source != self.reads.name:
            return [source]
        return [f"{source}/{p}{of}" for p in range(self.reads.parts) for of in ("", "/tentative")]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """All streams from which its results derive (trace-20)."""
        above = () if self.reads is None else self.reads.sources
        return tuple(dict.fromkeys((*above, *self.streams)))

    @cached_property
    def all_streams(self) -> tuple[str, ...]:
        """The streams of the whole deployment."""
        if self.reader is None or self.added is not None:
            return self.sources  # the added query reads some of them
        return self.reader.sources

    def fields_of(self, source: str) -> tuple[str, ...]:
        """Return the fields of an input: one for a stream, one per figure and field for a query."""
        if self.reads is None or source != self.reads.name:
            return FIELDS
        if self.reads.rows:
            return self.reads.fields
        return tuple(f"{field}_{figure}" for field in self.reads.fields for figure in AGGREGATE)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The aggregated fields."""
        if self.join_us:
            return joined_fields(FIELDS, FIELDS)
        return tuple(dict.fromkeys(f for source in self.inputs for f in self.fields_of(source)))

    def join(self, of_logs: Sequence[str]) -> SJoin | None:
        """The join of the first stream with all others; ``of_logs``: the stream of each log."""
        if not self.join_us:
            return None
        left_of = tuple(stream == self.streams[0] for stream in of_logs)
        return SJoin(self.join_us, left_of, FIELDS, FIELDS)

    @property
    def lateness_us(self) -> int:
        """Maximum lateness over all streams of the results; a chain adds none (rule-15)."""
        return max(self.disorder_of(s) + self.expect_every_us.get(s, 0) for s in self.sources)

    def lateness(self, learned: Mapping[str, Iterable[Step]]) -> Lateness:
        """Return the lateness with the recorded steps of learning streams."""
        every = self.expect_every_us | self.learns
        least = max(self.disorder_of(s) + every.get(s, 0) for s in self.sources)
        steps = [
            (step.from_us, self.disorder_of(stream) + step.expect_every_us)
            for stream in self.sources
            for step in learned.get(stream, ())
        ]
        return Lateness(least, steps)

    def learning_of(self, stream: str) -> Learning | None:
        """Return the learning parameters, on the short time scale (decision 28), or None."""
        first_us = self.learns.get(stream)
        if first_us is None:
            return None
        most_us = self.expect_every_us[stream]
        return Learning(first_us, most_us, max(1 * MS, (most_us - first_us) // 8), gaps_min=10)

    def disorder_of(self, stream: str) -> int:
        """Return the lag of a stream's watermark behind its clock or largest reading."""
        return self.disorder_us + self.disorder_more_us.get(stream, 0)

    def habits_of(self, stream: str) -> Habits:
        """Return the delays of a stream's readings: up to the lag of its watermark.

        Streams whose watermarks derive from readings have none: their watermarks would lag too.
        """
        if stream in self.expect_every_us:
            return self.habits
        speed = max(self.history_speed, 1)
        more = self.disorder_more_us.get(stream, 0)
        return replace(self.habits, jitter_us=self.habits.jitter_us + more, speed=speed)

    def event_us(self, wall_us: int) -> int:
        """Return the event time of a reading that comes in at this time."""
        passed_us = (wall_us - START_TIME_US) * max(self.history_speed, 1)
        return START_TIME_US + passed_us

    @property
    def begin_us(self) -> int | None:
        """The recorded begin; None if there is none."""
        return self.start_time_us + self.begins_after_us if self.begins_after_us else None

    @property
    def first_window(self) -> int:
        """Start of the first window that contains E0."""
        return self.grid.first_window_holding(self.start_time_us)

    @property
    def skew_us_max(self) -> int:
        """Maximum difference of the clocks of two machines."""
        return max(self.skew_us.values(), default=0) - min(self.skew_us.values(), default=0)

    def paced(self, us: int) -> int:
        """Scale a time of the environment."""
        return round(us * self.pace)

    @property
    def stages(self) -> int:
        """Stages of the longest path: two for each query."""
        return 4 if self.chain is not None or self.reads is not None else 2

    def answer_within_us(self, stage: int) -> int:
        """Return the deadlines (trace-13): 1 is the orderer, 2 the root, then the reader's."""
        stages = 2 if self.chain is None else 4
        return self.bound_us - (stages - stage + 1) * self.margin_us

    def orderer_name(self, child: int, replica: int) -> str:
        """Return the process's name, as in ``status``."""
        return _orderer_name(self.child_query, child, replica)

    @property
    def aggregator_names(self) -> list[str]:
        """Names, one per replica: fragments of two replicas run in different aggregators.

        See trace-19.
        """
        return [f"aggregator/{r}" for r in range(max(query.replicas for query in self.queries))]

    @property
    def orderer_names(self) -> list[str]:
        """Names of all replicas of all children that it reads."""
        at = [(c, r) for c in range(len(self.children)) for r in range(self.replicas)]
        return [self.orderer_name(c, r) for c, r in at]

    @property
    def root_names(self) -> list[str]:
        """Names of all copies of all parts."""
        parts = range(self.parts)
        return [of.process for p in parts for of in copy_names(self.name, p, self.copies)]

    @property
    def merger_names(self) -> list[str]:
        """Names of all copies of the mergers of all children."""
        at = product(range(len(self.children)), range(0 if self.rows else self.mergers))
        return [MergerName(self.name, child, copy).process for child, copy in at]

    @property
    def uplink_names(self) -> list[str]:
        """Names of all copies of the uplinks of all sites."""
        at = product(range(len(self.site_children)), range(UPLINKS))
        return [UplinkName(self.name, site, copy).process for site, copy in at]

    @property
    def site_children(self) -> list[tuple[int, ...]]:
        """The children of each site; none without sites."""
        all_ = tuple(range(len(self.children) if self.sites else 0))
        return [
            all_[first : first + self.children_a_site]
            for first in range(0, len(all_), self.children_a_site)
        ]

    def proxy_names(self, stream: str) -> list[ProxyName]:
        """Names of the proxies of a stream."""
        return [ProxyName(stream, share) for share in range(self.shares.get(stream, 1))]

    @property
    def names(self) -> list[str]:
        """Names of all processes, as in ``status``; those of the reader last."""
        proxies = [name.process for s in self.all_streams for name in self.proxy_names(s)]
        own = [*proxies, *self.orderer_names, *self.aggregator_names]
        own += [*self.merger_names, *self.uplink_names, *self.root_names]
        reader = self.reader
        if reader is None:
            return own
        others = [*reader.orderer_names, *reader.merger_names, *reader.root_names]
        return list(dict.fromkeys([*own, *others]))

    @property
    def placed_names(self) -> list[str]:
        """Names of all that controllers place, but the registration."""
        proxies = [f"proxy/{stream}" for stream in self.streams]
        return [*proxies, *self.orderer_names, *self.root_names]

    @property
    def having(self) -> str | None:
        """The condition on the figures of a row; None if there is none."""
        return f"{self.fields[0]}_count >= {self.count_min}" if self.count_min else None

    @property
    def query(self) -> QuerySpec:
        """The query as a value of the deployment."""
        return QuerySpec(
            self.name, self.inputs, None, None,
            None if self.rows else WindowSpec(self.window_us, self.slide_us),
            () if self.rows else AGGREGATE, self.bound_us, self.margin_us, replicas=self.replicas,
            children=len(self.children), parts=self.parts, children_of=self.children_of,
            cut_windows=self.others, having=None if self.rows else self.having,
            mergers=0 if self.rows else self.mergers,
        )  # fmt: skip


def spread(items: Sequence[str], children: int) -> tuple[tuple[str, ...], ...]:
    """Distribute streams over children, neighbours together."""
    base, longer = divmod(len(items), children)
    found, at = [], 0
    for child in range(children):
        size = base + (child < longer)
        found.append(tuple(items[at : at + size]))
        at += size
    return tuple(found)
