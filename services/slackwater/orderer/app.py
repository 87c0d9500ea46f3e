"""``python -m slackwater.orderer QUERY.CHILD.REPLICA``: one replica of one child's orderer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slackwater.codec.result_batches import ResultStream
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import UsageError
from slackwater.orderer.shell import OrdererShell
from slackwater.primitives.deltas import KeyTable
from slackwater.primitives.expressions import compile_predicate, compile_projection
from slackwater.protocols.dpc.join import SJoin
from slackwater.protocols.dpc.line import Policy, Schedule
from slackwater.protocols.dpc.operators import Operators
from slackwater.protocols.dpc.orderer import OrdererConfig
from slackwater.runtime.entry import Context
from slackwater.runtime.faust_worker import run_fragment
from slackwater.runtime.kafka import KafkaTransport
from slackwater.runtime.registry import AwaitedClock, QueryDefinition, Registry
from slackwater.runtime.topics import partition_count, piece_bytes_max


def main(context: Context) -> None:
    """Run the fragment until it is told to stop."""
    query, child, replica = parse_name(context.name)
    deployment, transport = context.load_deployment(), context.transport()
    registry = Registry(transport)
    definition = registry.wait_for_query(query)
    clock = AwaitedClock(registry)
    spec = definition.spec
    lateness = deployment.lateness_us(spec)
    streams = deployment.child_streams(spec, child)
    logs = list(inputs(deployment, streams, registry, transport))
    fields = deployment.input_fields(spec)
    config = OrdererConfig(
        fragment=context.process,
        child=child,
        replica=replica,
        logs=tuple(log.name for log in logs),
        names=tuple(log.source for log in logs),
        grid=definition.grid,
        schedule=Schedule(
            lambda e: clock.normal_time_us(e, lateness), deployment.deadline_us(spec, 1)
        ),
        policy=Policy(spec.failure_policy, spec.stabilization_policy),
        replicas=spec.replicas,
        disorders_us=tuple(log.disorder_us for log in logs),
        lateness_us=lateness,
        # Deadlines are wall time; w is the event time of a fixed piece of it.
        in_time_us=deployment.deadline_us(spec, 1) * definition.w_us // spec.bucket_us(),
        results={i: log.promise for i, log in enumerate(logs) if log.promise is not None},
    )
    operators = Operators(
        fields,
        compile_predicate(spec.where, fields) if spec.where else None,
        compile_projection(spec.select, fields) if spec.select else None,
        KeyTable(),
        join=sjoin(deployment, spec, config.names),
        piece_bytes_max=piece_bytes_max(),
        rows=spec.window is None,
    )
    shell = OrdererShell(
        transport,
        query,
        config,
        operators,
        e0=definition.e0_us,
        parts=spec.parts,
        end_timeout_us=spec.margin_us // 2,
        observe=clock.observe if deployment.clock == "data" else None,
        results={i: log.results for i, log in enumerate(logs) if log.results is not None},
    )
    run_fragment(
        context.process,
        context.bootstrap,
        shell.live_offsets,
        shell.on_record,
        shell.run,
        context.stopping,
        isolation=shell.isolation,
        positions=shell.positions,
    )


def sjoin(deployment: Deployment, spec: QuerySpec, names: Sequence[str]) -> SJoin | None:
    """The query's join, over inputs that belong to the streams of these names."""
    join = spec.join
    if join is None:
        return None
    left, right = (deployment.streams[name].field_names for name in (join.left, join.right))
    return SJoin(join.within_us, tuple(name == join.left for name in names), left, right)


@dataclass(frozen=True, slots=True)
class InputLog:
    """One log that the orderer reads; ``source`` is what the deployment file calls its input.

    A part of a query is two of them, its stable topic with ``promise``, and its tentative one.
    """

    name: str
    source: str
    disorder_us: int = 0
    results: ResultStream | None = None
    promise: int | None = None


def inputs(
    deployment: Deployment,
    sources: Sequence[str],
    registry: Registry,
    transport: KafkaTransport,
) -> Iterator[InputLog]:
    """The logs of streams and queries, in the order that all replicas have."""
    for source in sources:
        if source in deployment.queries:
            yield from result_logs(deployment, registry.wait_for_query(source))
            continue
        disorder_us = deployment.streams[source].disorder_us
        for log in source_logs(deployment, source, transport):
            yield InputLog(log, source, disorder_us)


def result_logs(deployment: Deployment, definition: QueryDefinition) -> Iterator[InputLog]:
    """Of each part of a query the stable and then the tentative topic (R20)."""
    spec, grid = definition.spec, definition.grid
    window = spec.window
    if window is None:
        promise = grid.bucket_start(definition.e0_us)
    else:
        # No row before the first window's, and that is at the last instant of the window.
        promise = grid.window_end(grid.first_window_holding(definition.e0_us)) - 1
    for part in range(spec.parts):
        stream = ResultStream(
            spec.name,
            part,
            deployment.output_fields(spec),
            spec.aggregate,
            None if window is None else window.slide_us,
        )
        yield InputLog(stream.name, spec.name, results=stream, promise=promise)
        yield InputLog(f"{stream.name}/tentative", spec.name, results=stream)


def source_logs(deployment: Deployment, stream: str, transport: KafkaTransport) -> list[str]:
    """The source logs of a stream: one, or one for each partition of an existing topic."""
    topic = deployment.streams[stream].topic
    if topic is None:
        return [stream]
    return [f"{stream}.{p}" for p in range(partition_count(transport.bootstrap, topic.name))]


def parse_name(name: str) -> tuple[str, int, int]:
    """``climate.0.a`` -> query, child, replica."""
    parts = name.rsplit(".", 2)
    if len(parts) != 3 or not parts[1].isdigit() or len(parts[2]) != 1:
        raise UsageError(f"{name}: an orderer is named QUERY.CHILD.REPLICA, as in climate.0.a")
    return parts[0], int(parts[1]), ord(parts[2]) - ord("a")
