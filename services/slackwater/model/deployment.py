"""The deployment: streams and queries as values that every process shares.

``slackwater.deployment.parse.load_deployment`` makes these values from the YAML file and checks
them; this module defines their shape and what follows from them alone. Processes that read the same
file must agree on everything that enters the logs (the order of fields and of streams, the lateness
of a query), so every derived value depends only on the file's order. A hash or an
alphabetical order would also agree; readers of the results expect the file's order.

All durations are whole microseconds. ``size``, ``slide``, ``disorder``, ``ahead`` and
``expect_every`` are event time, ``bound`` and ``margin`` wall time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from slackwater.model.alerts import AlertSpec
from slackwater.model.child_logs import LogGroups
from slackwater.model.http import HTTP_DEFAULT
from slackwater.model.http import HttpInputSpec as HttpInputSpec  # noqa: PLC0414 -- as WindowSpec
from slackwater.model.http import HttpListenSpec as HttpListenSpec  # noqa: PLC0414
from slackwater.model.kinds import deadlines_from
from slackwater.model.mqtt import MqttSpec
from slackwater.model.names import UNPREFIXED, Names, ProxyName, base_of, earliest_generation
from slackwater.model.row_fields import OfFields, columns_of_results, joined_fields, shown_of
from slackwater.model.sites import ChildrenAtSites, SiteSpec, UplinkSpec
from slackwater.model.topic import RegistrySpec as RegistrySpec  # noqa: PLC0414
from slackwater.model.topic import TopicFormat as TopicFormat  # noqa: PLC0414
from slackwater.model.topic import TopicFrom as TopicFrom  # noqa: PLC0414
from slackwater.model.topic import TopicPartitions as TopicPartitions  # noqa: PLC0414
from slackwater.model.topic import TopicSpec as TopicSpec  # noqa: PLC0414
from slackwater.model.windows import WindowSpec as WindowSpec  # noqa: PLC0414 -- exported here too

Clock = Literal["wall", "data"]
TimeUnit = Literal["s", "ms", "us", "ns", "iso"]
Fold = Literal["first", "second", "refuse"]
TimeFrom = Literal["record", "arrival"]
KeyFrom = Literal["record"]
FailurePolicy = Literal["delay", "process"]
StabilizationPolicy = Literal["suspend", "delay", "process"]
ResultsFormat = Literal["json", "avro", "avro-registry", "columns"]

KEY_JOIN: Final = "/"
TIME_JOIN: Final = " "
"""The texts between the parts of a key and of a time, unless others are declared."""

AHEAD_DEFAULT_US: Final = 60_000_000
"""Default of ``ahead``, unless ``disorder`` is longer."""
BOUND_TOLERANCE_US: Final = 250_000
"""A first answer counts as late from this long after X; the tolerance covers a consumer's delay."""
BUCKET_OF_WINDOWS_US: Final = 250_000
"""Bucket width of windowed queries. Buckets end where windows end, so no answer waits for a bucket,
and each bucket has a fixed cost. If wider, the last bucket would hold too much of a window."""
BUCKET_OF_JOINS_US: Final = 100_000
"""Bucket width of joins: a bucket's pairs are made at once and may far outnumber its readings."""
BUCKET_OF_ROWS_US: Final = 10_000
"""Bucket width without a window, where every reading waits for the end of its bucket."""


_TUPLES: Final = ("shared_by", "child_aggregates", "sites")
_PAIRS: Final = ("of_fields", "child_groups")
_UNSET: Final = ("alerts", "at", "children_of", "cut_windows", "had_alerts", "having", "uplink")
_OMITTED: Final = frozenset({*_TUPLES, *_PAIRS, *_UNSET})


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A numeric field ``name``, read from the column or JSON path ``source``.

    ``is_text``: a text, of which logs have the code (``model/text_codes.py``); for ``where`` only.
    """

    name: str
    source: str
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The source of a reading's key: exactly one is set.

    ``level``: of an MQTT topic, from 1. ``from_``: the key of the message's Kafka record. Several
    ``columns``, ``fields`` or ``levels`` are joined by the text ``join``.
    """

    column: str | None = None
    field: str | None = None
    value: str | None = None
    level: int | None = None
    from_: KeyFrom | None = None
    columns: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    join: str = KEY_JOIN

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns or fields of a reading that have the key; none if it is elsewhere."""
        one = self.column or self.field
        return self.columns or self.fields or (() if one is None else (one,))


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """The source of the event time: ``columns``, the JSON ``field`` or ``fields``.

    Several columns or fields are joined by the text ``join``.

    Exactly one of ``unit`` and ``format`` (strptime) defines the format, unless ``from_`` is set:
    the time is then that of the message's Kafka record, or of its arrival. A time without an offset
    is a local time of ``zone`` (a name of the IANA database); None: UTC. ``fold`` defines which of
    the two instants a local time means that occurs twice.
    """

    columns: tuple[str, ...] = ()
    field: str | None = None
    unit: TimeUnit | None = None
    format: str | None = None
    zone: str | None = None
    fold: Fold = "refuse"
    from_: TimeFrom | None = None
    fields: tuple[str, ...] = ()
    join: str = TIME_JOIN

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns or fields of a reading that have the time; none if it is elsewhere."""
        return self.columns or self.fields or (() if self.field is None else (self.field,))


@dataclass(frozen=True, slots=True)
class CsvSpec:
    """The CSV dialect of a file; ``skip_lines``: the number of lines before its header."""

    delimiter: str = ","
    decimal: str = "."
    skip_lines: int = 0


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One source of readings; without ``expect_every_us`` its watermark follows the clock.

    ``learns_gaps``: ``expect_every: auto``. Then ``expect_every_us`` is the initial value, and
    steps recorded in the registry raise it (``primitives/lateness.py``).

    ``site``: fragments that read the stream prefer nodes with this label; empty: any node.
    """

    name: str
    key: KeySpec
    time: TimeSpec
    fields: tuple[FieldSpec, ...]
    csv: CsvSpec = CsvSpec()
    topic: TopicSpec | None = None
    mqtt: MqttSpec | None = None
    http: HttpInputSpec | None = None
    disorder_us: int = 0
    ahead_us: int = AHEAD_DEFAULT_US
    """How far a reading may be ahead of its proxy's clock; of no effect with ``clock: data``."""
    expect_every_us: int | None = None
    learns_gaps: bool = False
    site: str = ""
    missing: tuple[str, ...] = ()
    """Texts and numbers that stand for a missing value; see ``model/meanings.py``."""
    values: tuple[tuple[str, float], ...] = ()
    """Texts that are values, with their numbers."""
    elsewhere: bool = False
    """Whether it is read at a site with a Kafka of its own: here are no proxy and no logs of it."""

    @property
    def proxy_names(self) -> tuple[ProxyName, ...]:
        """The stream's proxies here."""
        shares = 0 if self.elsewhere else 1 if self.topic is None else self.topic.proxies
        return tuple(ProxyName(self.name, share) for share in range(shares))

    @property
    def counter(self) -> str | None:
        """Path of the counter of the devices that send to its topic, or over HTTP."""
        of_topic = None if self.topic is None else self.topic.sequence
        return of_topic if self.http is None else self.http.sequence

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of its fields, in the file's order; texts are the last."""
        return tuple(spec.name for spec in self.fields)


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Pairs of a ``left`` and a ``right`` reading of one key, at most ``within_us`` apart."""

    left: str
    right: str
    within_us: int


@dataclass(frozen=True, slots=True)
class QuerySpec(ChildrenAtSites):
    """A query: its sources, its computation, and its bound (``bound_us`` is X).

    Without a ``window`` the result is the readings themselves, without aggregation. ``select``
    holds (name, expression) in the file's order; None keeps the input fields. With ``join`` the
    rows are pairs of readings of the two sources, otherwise readings. See trace-21.
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
    copies: int = 1
    """Roots of each part: with two, one answers and the other one follows (rule-27)."""
    mergers: int = 0
    """Copies of the merger of each child; without one the roots merge the deltas (rule-36)."""
    results_format: ResultsFormat = "json"
    join: JoinSpec | None = None
    children_of: str = ""
    """The query whose children it reads; empty: its own. See ``deployment/sharing.py``."""
    cut_windows: tuple[WindowSpec, ...] = ()
    """The windows of all queries that read the same children, if there are several."""
    shared_by: tuple[str, ...] = ()
    """The queries that were new together and read the same children, if there are several."""
    child_aggregates: tuple[str, ...] = ()
    """What the deltas serve, if queries may join its children later; empty: they may not."""
    of_fields: OfFields = ()
    """By field, the aggregates in its rows, in order; empty: all fields have all of them."""
    child_groups: LogGroups = ()
    """The logs of each child, if the file names them; see ``model/child_logs.py``."""
    having: str | None = None
    """The condition on the figures of a row; see ``primitives/having.py``."""
    alerts: tuple[AlertSpec, ...] = ()
    had_alerts: bool = False
    """An earlier definition had rules: somebody has to end what stands of them."""
    sites: tuple[str, ...] = ()
    """At the centre, by child: the site whose Kafka has its logs; empty: this Kafka."""
    uplink: UplinkSpec | None = None
    """At a site: where its merged panes are sent."""
    at: str = ""
    """In a file, the site that has the whole query; empty in what runs at one place."""

    @property
    def delivers(self) -> bool:
        """Whether it has a delivery, which evaluates its alerts or ends those of before."""
        return bool(self.alerts) or self.had_alerts

    @property
    def child_query(self) -> str:
        """Name of the query that its children, orderers and aggregated fragments, belong to."""
        return self.children_of or self.name

    @property
    def has_children(self) -> bool:
        """Whether the children that it reads are its own."""
        return self.child_query == self.name

    def shown(self, fields: Iterable[str]) -> OfFields:
        """The fields of a row, of these, with the aggregates of each."""
        return shown_of(fields, self.aggregate, self.of_fields)

    def bucket_us(self, speed: float = 1.0) -> int:
        """The bucket width w for registration: event time, in whole us and at least 1."""
        wall_us = BUCKET_OF_WINDOWS_US if self.join is None else BUCKET_OF_JOINS_US
        return max(1, int((BUCKET_OF_ROWS_US if self.window is None else wall_us) * speed))

    def units(self, w_us: int) -> WindowSpec:
        """The units of answers: its windows, or buckets of ``w_us`` without a window.

        A bucket then counts as a tumbling window in S, T, UNDO and boundaries.
        """
        return WindowSpec(w_us, w_us) if self.window is None else self.window

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, for the registry; some unset fields are omitted."""
        values = dataclasses.asdict(self)
        values["window"] = None if self.window is None else self.window.to_json()
        values["cut_windows"] = tuple(window.to_json() for window in self.cut_windows)
        values["alerts"] = tuple(alert.to_json() for alert in self.alerts)
        return {k: v for k, v in values.items() if v or k not in _OMITTED}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QuerySpec:
        """The inverse of ``to_json``; a missing or unknown entry is a ``TypeError``."""
        values = dict(data)
        window, select, join = (values.get(name) for name in ("window", "select", "join"))
        values["window"] = None if window is None else WindowSpec(**window)
        values["select"] = None if select is None else tuple((n, e) for n, e in select)
        values["join"] = None if join is None else JoinSpec(**join)
        values["cut_windows"] = tuple(WindowSpec(**each) for each in values.get("cut_windows", ()))
        for name in _TUPLES:
            values[name] = tuple(values.get(name, ()))
        for name in _PAIRS:
            values[name] = tuple((of, tuple(names)) for of, names in values.get(name, ()))
        values["sources"] = tuple(values["sources"])
        values["aggregate"] = tuple(values["aggregate"])
        values["alerts"] = tuple(AlertSpec.from_json(each) for each in values.get("alerts", ()))
        values["uplink"] = values.get("uplink") and UplinkSpec.from_json(values["uplink"])
        return cls(**values)


P = ParamSpec("P")
R = TypeVar("R")
_Query = Callable[Concatenate["Deployment", "str | QuerySpec", P], R]


def _once_a_query(method: _Query[P, R]) -> _Query[P, R]:
    """Caches a method per query: the number of paths through shared sources can be exponential."""

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
    """A deployment file; methods take a query by name or as a (registered) value."""

    clock: Clock
    streams: Mapping[str, StreamSpec]
    queries: Mapping[str, QuerySpec]
    names: Names = UNPREFIXED
    http: HttpListenSpec = HTTP_DEFAULT
    sites: Mapping[str, SiteSpec] = field(default_factory=dict)
    """Sites with a Kafka of their own; none in what runs at one place (``deployment/sites.py``)."""
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cache of derived values."""

    @property
    def is_posted(self) -> bool:
        """Whether readings of any stream come over HTTP."""
        return any(stream.http is not None for stream in self.streams.values())

    def streams_of(self, query: str | QuerySpec) -> tuple[str, ...]:
        """Names of the query's sources, streams or queries, in the order of its ``from``."""
        return self._spec(query).sources

    def queries_of(self, query: str | QuerySpec) -> tuple[str, ...]:
        """The queries that it reads, by their own names: the links of a chain (trace-20)."""
        read = map(self.query_read, self.streams_of(query))
        return tuple(found.name for found in read if found is not None)

    def query_read(self, source: str) -> QuerySpec | None:
        """The query whose results a source is; None if the source is a stream.

        The results of all generations of a query are read under its name. Of several generations it
        is the earliest: the next one answers after that has ended (rule-29).
        """
        if source in self.streams:
            return None
        name = source if source in self.queries else earliest_generation(source, self.queries)
        return None if name is None else self.queries[name]

    @_once_a_query
    def source_streams(self, query: str | QuerySpec) -> tuple[str, ...]:
        """The streams that reach the query, through other queries too, each named once."""
        found: dict[str, None] = {}
        for name in self.streams_of(query):
            read = self.query_read(name)
            found |= dict.fromkeys((name,) if read is None else self.source_streams(read))
        return tuple(found)

    def lateness_us(self, query: str | QuerySpec) -> int:
        """How long after wall(e) the normal time of e lies, in event time (rule-15).

        The watermark of a stream within its limits has passed e by wall(e + its ``disorder`` + its
        ``expect_every``); the lateness is the largest of these sums over the source streams. A
        chain adds nothing: a row of a window has the window's end as its event time and arrives
        when that is due. If a stream learns its ``expect_every`` this is the minimum; see
        ``lateness_of``.
        """
        sources = [self.streams[name] for name in self.source_streams(query)]
        return max(s.disorder_us + (s.expect_every_us or 0) for s in sources)

    @_once_a_query
    def input_fields(self, query: str | QuerySpec) -> tuple[str, ...]:
        """The fields in ``where`` and ``select``: all of the sources, in order of appearance.

        A join has the fields of its rows: ``left_<f>`` and ``right_<f>``.
        """
        join = self._spec(query).join
        if join is not None:
            return joined_fields(self.fields_of(join.left), self.fields_of(join.right))
        names = (n for source in self.streams_of(query) for n in self.fields_of(source))
        return tuple(dict.fromkeys(names))

    def fields_of(self, source: str) -> tuple[str, ...]:
        """The fields of a source, a stream's own or those of a query's results (trace-20).

        A windowed query has one field for each figure, ``temperature_avg``; names of figures
        contain no ``_``, so the names are unique.
        """
        query = self.query_read(source)
        if query is None:
            return self.streams[source].field_names
        fields = self.output_fields(query)
        return fields if query.window is None else columns_of_results(query.shown(fields))

    def output_fields(self, query: str | QuerySpec) -> tuple[str, ...]:
        """The fields of the result: those of ``select``, otherwise all input fields."""
        spec = self._spec(query)
        if spec.select is None:
            return self.input_fields(spec)
        return tuple(name for name, _ in spec.select)

    def in_order(self) -> tuple[QuerySpec, ...]:
        """All queries in topological order, each after those that it reads."""
        return tuple(sorted(self.queries.values(), key=self.stages))

    @_once_a_query
    def stages(self, query: str | QuerySpec) -> int:
        """Stages with a deadline on the longest path to the query's results."""
        return deadlines_from() + max(map(self.stages, self.queries_of(query)), default=0)

    def connected(self, *of: str | QuerySpec) -> Deployment:
        """The part that the fragments of some queries need.

        All queries that they read or that read them, through others too, and their streams.
        """
        queries, waiting = dict[str, QuerySpec](), [self._spec(query) for query in of]
        while waiting:
            spec = waiting.pop()
            if spec.name not in queries:
                queries[spec.name] = spec
                waiting += [self.queries[name] for name in self.queries_of(spec)]
                waiting += self._readers(spec)
        read = {name for spec in queries.values() for name in spec.sources}
        streams = {name: stream for name, stream in self.streams.items() if name in read}
        part = Deployment(self.clock, streams, queries, self.names, self.http)
        return part if part.is_posted else dataclasses.replace(part, http=HttpListenSpec())

    def bound_us(self, query: str | QuerySpec) -> int:
        """The effective X: the least bound of the query and all chained on it (trace-13)."""
        return self.bound_of(query).bound_us

    @_once_a_query
    def bound_of(self, query: str | QuerySpec) -> QuerySpec:
        """The query with the smallest bound among itself and all queries chained on it."""
        spec = self._spec(query)
        readers = (self.bound_of(reader) for reader in self._readers(spec))
        return min([spec, *readers], key=lambda each: each.bound_us)

    @_once_a_query
    def deadline_us(self, query: str | QuerySpec, kind: str = "") -> int:
        """Wall time from normal time to the deadline of its fragments of a kind, or to the first.

        It is X less one margin for each stage from this one to the end of the path, minimized over
        all paths: an answer must reach a reading query by that query's first deadline (rule-15).
        """
        spec = self._spec(query)
        needed = [self.deadline_us(reader) for reader in self._readers(spec)]
        return min([spec.bound_us, *needed]) - deadlines_from(kind) * spec.margin_us

    def bound_at(self, query: str | QuerySpec) -> QuerySpec:
        """The query whose bound determines the first deadline: itself, or one chained on it."""
        spec = self._spec(query)
        first = min(self._readers(spec), key=self.deadline_us, default=spec)
        if first is spec or spec.bound_us <= self.deadline_us(first):
            return spec
        return self.bound_at(first)

    def _readers(self, query: QuerySpec) -> list[QuerySpec]:
        name = base_of(query.name)  # all generations of a query have the same readers
        return [other for other in self.queries.values() if name in other.sources]

    def _spec(self, query: str | QuerySpec) -> QuerySpec:
        return self.queries[query] if isinstance(query, str) else query
