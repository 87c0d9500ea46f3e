"""The deployment: what a user asks for, as values that every process shares.

``slackwater.deployment.parse.load_deployment`` makes these values from the YAML file and answers
for their correctness; here is only their shape, and what follows from them alone. Two processes
that read the same file must agree on everything that enters the logs (order of fields, which child
has which stream, how late a query runs), so every answer is a function of the file's order and of
nothing else. A hash or an alphabetical order would do as well for agreement; the file's order is
what a reader of the results expects to see.

All durations are whole microseconds. ``size``, ``slide``, ``disorder`` and ``expect_every`` are
event time, ``bound`` and ``margin`` wall time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from slackwater.model.names import UNPREFIXED, Names

Clock = Literal["wall", "data"]
TimeUnit = Literal["s", "ms", "us", "iso"]
TopicFormat = Literal["json", "avro"]
TopicFrom = Literal["beginning", "end"]
FailurePolicy = Literal["delay", "process"]
StabilizationPolicy = Literal["suspend", "delay", "process"]
ResultsFormat = Literal["json", "avro", "avro-registry", "columns"]

KEY_CHARS_MAX: Final = 65_536
"""A longer one is a slip, such as a quote that nobody closed."""

BOUND_TOLERANCE_US: Final = 250_000
"""A first answer is late when it comes so much later than X: a consumer's own delay is none."""
BUCKET_OF_WINDOWS_US: Final = 250_000
"""A window's answer waits for no bucket (buckets end where windows do), so they may be wide; what a
query costs is work for each bucket. Wider, and the last of a window would hold too much of it."""
BUCKET_OF_JOINS_US: Final = 100_000
"""A bucket's pairs are made all at once, and may be many times its readings."""
BUCKET_OF_ROWS_US: Final = 10_000
"""Without a window every reading waits for the end of its bucket."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A numeric field ``name``, read from the column or JSON path ``source``."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class KeySpec:
    """Where a reading's key comes from: exactly one of the three is set."""

    column: str | None = None
    field: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """Where the event time comes from: ``columns`` (joined by one blank) or the JSON ``field``.

    Exactly one of ``unit`` and ``format`` (strptime) says how to read it. Without an offset: UTC.
    """

    columns: tuple[str, ...] = ()
    field: str | None = None
    unit: TimeUnit | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class CsvSpec:
    """How a CSV file is written."""

    delimiter: str = ","
    decimal: str = "."


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """An existing topic that a proxy reads; ``from_`` is the file's ``from``."""

    name: str
    format: TopicFormat = "json"
    from_: TopicFrom = "beginning"


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One source of readings. ``expect_every_us`` None: its boundaries follow the clock.

    ``learns_gaps``: ``expect_every: auto``. Then ``expect_every_us`` is what holds at first, and
    what is recorded in the registry raises it (``primitives/lateness.py``).
    """

    name: str
    key: KeySpec
    time: TimeSpec
    fields: tuple[FieldSpec, ...]
    csv: CsvSpec = CsvSpec()
    topic: TopicSpec | None = None
    disorder_us: int = 0
    expect_every_us: int | None = None
    learns_gaps: bool = False

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of its fields, in the file's order."""
        return tuple(spec.name for spec in self.fields)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows [k * slide, k * slide + size) since the Unix epoch; 0 < slide <= size."""

    size_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Pairs of a ``left`` and a ``right`` reading of one key, at most ``within_us`` apart."""

    left: str
    right: str
    within_us: int


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """What to compute over which streams, and how long it may take (``bound_us`` is X).

    Without a ``window`` the readings themselves are the result, and nothing is aggregated
    (trace-21). ``select`` holds (name, expression) in the file's order; None keeps the input
    fields. With ``join`` the rows are pairs of readings of the two sources, without it readings.
    """

    name: str
    sources: tuple[str, ...]
    where: str | None
    select: tuple[tuple[str, str], ...] | None
    window: WindowSpec | None
    aggregate: tuple[str, ...]
    bound_us: int
    margin_us: int = 50_000
    failure_policy: FailurePolicy = "process"
    stabilization_policy: StabilizationPolicy = "process"
    replicas: int = 2
    children: int = 1
    parts: int = 1
    results_format: ResultsFormat = "json"
    join: JoinSpec | None = None

    def bucket_us(self, speed: float = 1.0) -> int:
        """The width w that it is registered with: event time, in whole us and at least 1."""
        if self.window is None:
            wall_us = BUCKET_OF_ROWS_US
        elif self.join is None:
            wall_us = BUCKET_OF_WINDOWS_US
        else:
            wall_us = BUCKET_OF_JOINS_US
        return max(1, int(wall_us * speed))

    def units(self, w_us: int) -> WindowSpec:
        """What is answered as one: its windows, or without a window its buckets of ``w_us``.

        A bucket is then a tumbling window, wherever windows are counted (S, T, UNDO, boundaries).
        """
        return WindowSpec(w_us, w_us) if self.window is None else self.window

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, for the registry."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QuerySpec:
        """The inverse of ``to_json``; a missing or unknown entry is a ``TypeError``."""
        values = dict(data)
        window, select, join = (values.get(name) for name in ("window", "select", "join"))
        values["window"] = None if window is None else WindowSpec(**window)
        values["select"] = None if select is None else tuple((n, e) for n, e in select)
        values["join"] = None if join is None else JoinSpec(**join)
        values["sources"] = tuple(values["sources"])
        values["aggregate"] = tuple(values["aggregate"])
        return cls(**values)


P = ParamSpec("P")
R = TypeVar("R")
_Query = Callable[Concatenate["Deployment", "str | QuerySpec", P], R]


def _once_a_query(method: _Query[P, R]) -> _Query[P, R]:
    """Works it out once for each query: where queries share sources, the ways to them multiply."""

    @functools.wraps(method)
    def call(self: Deployment, query: str | QuerySpec, /, *args: P.args, **kwargs: P.kwargs) -> R:
        spec = self.queries[query] if isinstance(query, str) else query
        place = (method.__name__, spec, args)
        if place not in self.known:
            self.known[place] = method(self, spec, *args, **kwargs)
        found: R = self.known[place]
        return found

    return call


@dataclass(frozen=True, slots=True)
class Deployment:
    """A whole deployment file. Helpers take a query by name or as a (registered) value."""

    clock: Clock
    streams: Mapping[str, StreamSpec]
    queries: Mapping[str, QuerySpec]
    names: Names = UNPREFIXED
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What follows from these alone and was asked for before."""

    def streams_of(self, query: str | QuerySpec) -> tuple[str, ...]:
        """Names of what the query reads, streams or queries, in the order of its ``from``."""
        return self._spec(query).sources

    def queries_of(self, query: str | QuerySpec) -> tuple[str, ...]:
        """The queries among its sources: the links of a chain (trace-20)."""
        return tuple(name for name in self.streams_of(query) if name in self.queries)

    @_once_a_query
    def source_streams(self, query: str | QuerySpec) -> tuple[str, ...]:
        """The streams that reach the query, through other queries too, each named once."""
        found: dict[str, None] = {}
        for name in self.streams_of(query):
            found |= dict.fromkeys(self.source_streams(name) if name in self.queries else (name,))
        return tuple(found)

    def lateness_us(self, query: str | QuerySpec) -> int:
        """How much later than wall(e) the normal time of e lies, in event time (rule-15).

        With a stream that learns its ``expect_every`` it is the least: ``lateness_of`` has all.

        A stream that keeps its word has passed e by wall(e + its ``disorder`` + its
        ``expect_every``): the largest of these sums over its source streams. A chain adds nothing:
        a row of a window has the window's end as its event time, and is there when that is due.
        """
        sources = [self.streams[name] for name in self.source_streams(query)]
        return max(s.disorder_us + (s.expect_every_us or 0) for s in sources)

    @_once_a_query
    def input_fields(self, query: str | QuerySpec) -> tuple[str, ...]:
        """What ``where`` and ``select`` see: all fields of the sources, in order of appearance.

        Of a join those of its rows: ``left_<f>`` and ``right_<f>``.
        """
        join = self._spec(query).join
        if join is not None:
            return joined_fields(self.fields_of(join.left), self.fields_of(join.right))
        names = (n for source in self.streams_of(query) for n in self.fields_of(source))
        return tuple(dict.fromkeys(names))

    def fields_of(self, source: str) -> tuple[str, ...]:
        """What a source brings: a stream its fields, a query those of its results (trace-20).

        With a window one for each figure, ``temperature_avg``; figures have no ``_`` in their
        names, so that no two of them meet.
        """
        if source not in self.queries:
            return self.streams[source].field_names
        query, fields = self.queries[source], self.output_fields(source)
        if query.window is None:
            return fields
        return tuple(f"{field}_{figure}" for field in fields for figure in query.aggregate)

    def output_fields(self, query: str | QuerySpec) -> tuple[str, ...]:
        """The fields of the result: those of ``select``, else all input fields."""
        spec = self._spec(query)
        if spec.select is None:
            return self.input_fields(spec)
        return tuple(name for name, _ in spec.select)

    def child_streams(self, query: str | QuerySpec, child: int) -> tuple[str, ...]:
        """The child's share of the query's streams: runs of neighbours, the first ones longer."""
        spec = self._spec(query)
        assert 0 <= child < spec.children, f"query {spec.name} has no child {child}"
        base, longer = divmod(len(spec.sources), spec.children)
        start = child * base + min(child, longer)
        return spec.sources[start : start + base + (child < longer)]

    def in_order(self) -> tuple[QuerySpec, ...]:
        """All queries, each behind those that it reads."""
        return tuple(sorted(self.queries.values(), key=self.stages))

    @_once_a_query
    def stages(self, query: str | QuerySpec) -> int:
        """SUnions on the longest way of a reading to its results: two for each query of a chain."""
        return 2 + max((self.stages(name) for name in self.queries_of(query)), default=0)

    def bound_us(self, query: str | QuerySpec) -> int:
        """The X that holds for it: the smallest bound among itself and all chained on it.

        See trace-13.
        """
        return self.bound_of(query).bound_us

    @_once_a_query
    def bound_of(self, query: str | QuerySpec) -> QuerySpec:
        """The query whose bound that is."""
        spec = self._spec(query)
        readers = (self.bound_of(reader) for reader in self._readers(spec))
        return min([spec, *readers], key=lambda each: each.bound_us)

    @_once_a_query
    def deadline_us(self, query: str | QuerySpec, stage: int) -> int:
        """Wall time from normal time to the deadline of its orderer (1) or its root (2).

        rule-15: X less one margin for each stage from this one to the end of the path, on the path
        that leaves the least. What reads a query must have its answer by its own first deadline.
        """
        spec = self._spec(query)
        assert 1 <= stage <= 2, f"query {spec.name} has no stage {stage}"
        needed = [self.deadline_us(reader, 1) for reader in self._readers(spec)]
        return min([spec.bound_us, *needed]) - (3 - stage) * spec.margin_us

    def _readers(self, query: QuerySpec) -> list[QuerySpec]:
        return [other for other in self.queries.values() if query.name in other.sources]

    def _spec(self, query: str | QuerySpec) -> QuerySpec:
        return self.queries[query] if isinstance(query, str) else query


def joined_fields(left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
    """The fields of a joined row."""
    return (*(f"left_{name}" for name in left), *(f"right_{name}" for name in right))
