"""Builds the session of an orderer, one replica of a child, from its fragment name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from slackwater.codec.result_batches import ResultStream
from slackwater.host.fragment import Fragment
from slackwater.host.known import RegistryView
from slackwater.model.child_logs import ChildLogs
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import UsageError
from slackwater.model.limits import NEVER
from slackwater.model.names import Names, OrdererName, ResultKind, base_of, generation_of
from slackwater.model.text_codes import text_fields
from slackwater.primitives.aggregates import others_of, states_of
from slackwater.primitives.calendars import Calendar
from slackwater.primitives.expressions import compile_predicate, compile_projection
from slackwater.primitives.key_table import ORDERER_KEPT_KEYS_MIN, KeyTable
from slackwater.protocols.common.line import Policy, Schedule
from slackwater.protocols.dpc.sunion.config import OrdererConfig
from slackwater.protocols.dpc.sunion.join import SJoin
from slackwater.protocols.dpc.sunion.operators import BucketPiece, Operators
from slackwater.protocols.dpc.sunion.shared_buckets import SharedBuckets
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ordered_partition, piece_bytes_max
from slackwater.runtime.service.normaltime import NormalTime
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.sessions.orderer import OrdererSession
from slackwater.sessions.requests import Log


def make(name: str, known: RegistryView, transport: KafkaTransport) -> Fragment:
    """Make the orderer ``name`` (QUERY.CHILD.REPLICA); waits until its query is registered.

    Raises:
        UsageError: there is no such orderer.
    """
    of = OrdererName.parse(name)
    definition = known.query(of.query)
    if not definition.spec.has_children:
        raise UsageError(
            f"query {of.query} reads the children of query {definition.spec.child_query}:"
            f" there is no orderer {name}"
        )
    deployment = known.deployment_of(of.query)
    child_logs = known.query(definition.spec.child_query).logs_of_children
    logs = list(inputs(deployment, child_logs, of.child, known, definition))
    same = bucket_contents_key(deployment, definition.spec, logs)
    time = known.normal_time(definition.spec, awaits_begin=definition.awaits_begin)
    shared = known.join_buckets(same)

    def close() -> None:
        known.leave_buckets(same)
        known.leave_time(of.query, time)

    try:
        session = make_session(of, definition, time, known, logs, shared, transport.names)
    except BaseException:
        close()
        raise
    names = transport.names
    own = {names.ordered(of.query, of.child), names.state(of.query), names.registry}
    return Fragment(
        session,
        definition.spec.margin_us // 2,
        frozenset(own.union(topic for topic, _ in session.inputs)),
        observe=time.observe if known.follows_data else None,
        close=close,
    )


def bucket_contents_key(
    deployment: Deployment, spec: QuerySpec, logs: Sequence[SourceInput]
) -> Hashable:
    """Key of bucket contents: orderers with equal keys make the same buckets of their logs."""
    return (
        tuple(log.name for log in logs),
        deployment.input_fields(spec),
        spec.where,
        spec.select,
        spec.join,
        spec.window is None,
        others_of(spec.aggregate),
        states_of(spec.aggregate),
    )


def make_session(
    of: OrdererName,
    definition: QueryDefinition,
    time: NormalTime,
    known: RegistryView,
    logs: Sequence[SourceInput],
    shared: SharedBuckets[list[BucketPiece]],
    names: Names,
) -> OrdererSession:
    """Make the orderer's session."""
    deployment = known.deployment_of(of.query)
    readers = known.readers(of.query)
    config = replace(
        config_of(of, deployment, definition, time, logs, names, readers),
        placement=known.recorded_placement(of.process),
    )
    topic = names.ordered(of.query, of.child)
    return OrdererSession(
        of.query,
        config,
        operators_of(deployment, definition.spec, config.names, shared),
        sources=[log.place(names) for log in logs],
        own=(
            (topic, ordered_partition(of.replica, live=False)),
            (topic, ordered_partition(of.replica, live=True)),
        ),
        start_time=definition.e0_us,
        parts=definition.spec.parts,
        readers=[reader.name for reader in readers],
        results={i: log.results for i, log in enumerate(logs) if log.results is not None},
        lag_us=lag_us(definition.spec, of.replica),
    )


def lag_us(spec: QuerySpec, replica: int) -> int:
    """Delay (us) of a replica's buckets, so that replicas do not work at the same time.

    The delays are spread over the length of a bucket. They are at most a tenth of the bound, so
    that buckets of the other replicas are in time if the first replica has failed.
    """
    return min(replica * spec.bucket_us() // spec.replicas, spec.bound_us // 10)


def config_of(
    of: OrdererName,
    deployment: Deployment,
    definition: QueryDefinition,
    time: NormalTime,
    logs: Sequence[SourceInput],
    names: Names,
    readers: Sequence[QuerySpec] = (),
) -> OrdererConfig:
    """Configuration of the orderer's core; ``readers`` are the queries that read its logs."""
    spec = definition.spec
    deadline_us = min(deployment.deadline_us(reader) for reader in readers or (spec,))
    results = {i: log.watermark for i, log in enumerate(logs) if log.watermark is not None}
    return OrdererConfig(
        fragment=of.process,
        child=of.child,
        replica=of.replica,
        logs=tuple(log.name for log in logs),
        names=tuple(log.source for log in logs),
        grid=definition.grid,
        schedule=Schedule(time.of, deadline_us),
        policy=Policy(spec.failure_policy, spec.stabilization_policy),
        replicas=spec.replicas,
        topics=names,
        disorders_us=tuple(log.disorder_us for log in logs),
        lateness=time.lateness_us,
        in_time_us=event_us(deadline_us, definition),
        results=results,
        reached=time.reached_us if results and deployment.clock == "data" else None,
        withheld=frozenset(i for i, log in enumerate(logs) if log.withheld),
        coming={log.source: log.coming for log in logs if log.coming is not None},
        lost_until=NEVER if definition.lost_until_us is None else definition.lost_until_us,
    )


def event_us(wall_us: int, definition: QueryDefinition) -> int:
    """Convert a duration of wall time (us) to event time (us); at least ``wall_us``.

    The event clock may not be published yet. The speed of a replay follows from w, which is the
    event time of a fixed duration of wall time (a shorter one in definitions of an earlier
    version).
    """
    return max(wall_us, wall_us * definition.w_us // definition.spec.bucket_us())


def operators_of(
    deployment: Deployment,
    spec: QuerySpec,
    names: Sequence[str],
    shared: SharedBuckets[list[BucketPiece]] | None = None,
) -> Operators:
    """Return the query's operators; ``names`` has the input of each log."""
    fields = deployment.input_fields(spec)
    return Operators(
        fields,
        compile_predicate(spec.where, fields, text_fields(deployment, spec))
        if spec.where
        else None,
        compile_projection(spec.select, fields) if spec.select else None,
        KeyTable(kept_keys_min=ORDERER_KEPT_KEYS_MIN),
        join=sjoin(deployment, spec, names),
        piece_bytes_max=piece_bytes_max(),
        others=len(others_of(spec.aggregate)),
        states=states_of(spec.aggregate),
        rows=spec.window is None,
        shared=shared,
    )


def sjoin(deployment: Deployment, spec: QuerySpec, names: Sequence[str]) -> SJoin | None:
    """Return the query's join, or None; ``names`` has the stream of each log."""
    join = spec.join
    if join is None:
        return None
    left, right = (deployment.streams[name].field_names for name in (join.left, join.right))
    return SJoin(join.within_us, tuple(name == join.left for name in names), left, right)


@dataclass(frozen=True, slots=True)
class SourceInput:
    """One log that the orderer reads; ``source`` is the name of its input in the deployment file.

    If the input is a query, each of its parts has two logs: one of the stable topic, with
    ``watermark`` (event time before which there is no row), and one of the tentative topic.
    ``withheld``: it is the log of a partition that the query has not taken in. ``coming``: the
    first partition of its topic that the child would read, too, if it were there.
    """

    name: str
    source: str
    disorder_us: int = 0
    results: ResultStream | None = None
    watermark: int | None = None
    withheld: bool = False
    coming: int | None = None

    def place(self, names: Names) -> Log:
        """Return the log of this input."""
        if self.results is None:
            return names.source(self.name), 0
        kind: ResultKind = "tentative" if self.watermark is None else "stable"
        return names.results(self.results.query, kind), self.results.part


def inputs(
    deployment: Deployment,
    child_logs: ChildLogs,
    child: int,
    known: RegistryView,
    definition: QueryDefinition | None = None,
) -> Iterator[SourceInput]:
    """Yield the child's logs of streams and queries, in the same order in all replicas.

    Of a query that is read, the columns are those that it had when the reading query was
    registered: ``registered`` has it, or, for a query of the deployment file, its first definition.
    All replicas then read the same columns, whatever generation of it runs when they start
    (rule-29). ``definition`` is that of the reading query: it has the number of partitions that the
    query has taken in of a topic with ``partitions: fixed`` (rule-30).
    """
    registered = None if definition is None else definition.deployment
    for source in child_logs.streams_of(child):
        if deployment.query_read(source) is not None:
            first = known.query(source)
            parts = child_logs.of_child(child, source, first.spec.parts)
            if registered is not None and (read := registered.query_read(source)) is not None:
                yield from result_logs(registered, replace(first, spec=read), parts)
            else:
                yield from result_logs(deployment, first, parts)
            continue
        spec = deployment.streams[source]
        if spec.topic is None:
            yield SourceInput(source, source, spec.disorder_us)
            continue
        # The number is the recorded one: orderers that counted the partitions at their own starts
        # would disagree on what a bucket contains (rule-30). A child has one of them at least.
        number = known.partitions(source, 1 + child_logs.there(source).index(child))
        taken_in = number
        if definition is not None and spec.topic.partitions == "fixed":
            taken_in = definition.partitions.get(source, taken_in)
        coming = child_logs.next_of(child, source, number)
        for log in child_logs.of_child(child, source, number):
            is_taken = log < taken_in and child_logs.takes_in(source, log)
            name = f"{source}.{log}"
            yield SourceInput(name, source, spec.disorder_us, withheld=not is_taken, coming=coming)


def result_logs(
    deployment: Deployment, definition: QueryDefinition, parts: Iterable[int]
) -> Iterator[SourceInput]:
    """Yield the result logs of parts: for each that of the stable topic, then the tentative one.

    All generations of a query write to the same topics, and the first one writes the first row. See
    trace-20.
    """
    spec, grid = definition.spec, definition.grid
    query, window = base_of(spec.name), spec.window
    if window is None:
        watermark = grid.bucket_start(definition.e0_us)
    else:
        # The first row is that of the first window; its event time is the window's end - 1 us.
        watermark = grid.window_end(grid.first_window_holding(definition.e0_us)) - 1
    for part in parts:
        stream = ResultStream(
            query,
            part,
            deployment.output_fields(spec),
            spec.aggregate,
            None if window is None else window.slide_us,
            generation_of(spec.name),
            Calendar(window) if window is not None and window.is_calendar else None,
            spec.of_fields,
        )
        yield SourceInput(stream.name, query, results=stream, watermark=watermark)
        yield SourceInput(f"{stream.name}/tentative", query, results=stream)
