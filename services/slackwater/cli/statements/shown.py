"""Rows of SHOW, DESCRIBE and EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from slackwater.cli.statements.running import RunningDeployment
from slackwater.deployment.fragments import fragment_names
from slackwater.deployment.sharing import readers_of, share, share_applied
from slackwater.deployment.windows import describe_window
from slackwater.machine.plan import PlannedLoad, plan
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.durations import format_duration_us
from slackwater.model.row_fields import described as named_aggregates
from slackwater.registration.topics import topic_specs

QUERIES: Final = ("query", "reads", "windows", "aggregates", "bound", "state", "generation")
STREAMS: Final = ("stream", "input", "fields", "read_by")
ALERTS: Final = ("alert", "query", "when", "for", "tentative")
DESCRIBED: Final = ("column", "type", "is")
EXPLAINED: Final = ("what", "is")


def query_rows(running: RunningDeployment) -> Iterator[tuple[Any, ...]]:
    """Yield a row of SHOW QUERIES for each query."""
    for name, query in running.deployment.queries.items():
        yield (
            name,
            ", ".join(query.sources),
            "every reading" if query.window is None else describe_window(query.window),
            ", ".join(named_aggregates(query.aggregate, query.of_fields)) or None,
            format_duration_us(query.bound_us),
            "paused" if name in running.paused else "running",
            running.generation(name),
        )


def stream_rows(deployment: Deployment) -> Iterator[tuple[Any, ...]]:
    """Yield a row of SHOW STREAMS for each stream."""
    for name, stream in deployment.streams.items():
        read_by = [q.name for q in deployment.queries.values() if name in q.sources]
        yield name, _input(stream), ", ".join(stream.field_names), ", ".join(read_by)


def alert_rows(deployment: Deployment) -> Iterator[tuple[Any, ...]]:
    """Yield a row of SHOW ALERTS for each rule."""
    for name, query in deployment.queries.items():
        for spec in query.alerts:
            if spec.when is not None:
                yield spec.name, name, spec.when, f"{spec.windows} windows", spec.tentative
            else:
                missing = format_duration_us(spec.missing_us or 0)
                yield spec.name, name, f"{spec.stream} is missing", missing, None


def described(deployment: Deployment, name: str) -> Iterator[tuple[Any, ...]]:
    """Yield a row of DESCRIBE for each column of a query's results, or field of a stream."""
    if (stream := deployment.streams.get(name)) is not None:
        yield "key", "TEXT", "the key of a reading"
        for spec in stream.fields:
            what = f"{spec.source}, for WHERE only" if spec.is_text else spec.source
            yield spec.name, "TEXT" if spec.is_text else "DOUBLE", what
        return
    query = deployment.queries[name]
    selected = dict(query.select or ())
    if query.window is None:
        yield "stime", "TIMESTAMP", "the time of the reading"
        yield "key", "TEXT", "the key of the reading"
        for field in deployment.output_fields(query):
            yield field, "DOUBLE", selected.get(field, field)
        return
    yield "window_start", "TIMESTAMP", "the start of the window"
    yield "window_end", "TIMESTAMP", "its end"
    yield "key", "TEXT", "the key of the readings"
    fields = deployment.output_fields(query)
    for field, figures in query.shown(fields):
        for figure in figures:
            kind = "BIGINT" if figure in {"count", "distinct"} else "DOUBLE"
            yield f"{field}_{figure}", kind, f"{figure} of {selected.get(field, field)}"


def explained(
    name: str, deployment: Deployment, running: RunningDeployment | None, start_us: int | None
) -> Iterator[tuple[str, str]]:
    """Yield the rows of EXPLAIN.

    Args:
        name: the query that would be created.
        deployment: has it, and all that it reads.
        running: what runs; None: nothing, the queries of the text would begin together.
        start_us: the start of the query; None: with the first reading.
    """
    before, after = _shared(name, deployment, running, start_us)
    query = after.queries[name]
    yield "reads", ", ".join(query.sources)
    if (streams := after.source_streams(query)) != query.sources:
        yield "streams", ", ".join(streams)
    yield "windows", "every reading" if query.window is None else describe_window(query.window)
    aggregates = named_aggregates(query.aggregate, query.of_fields)
    yield "aggregates", ", ".join(aggregates) or "none"
    if query.having is not None:
        yield "having", query.having
    lateness = format_duration_us(after.lateness_us(query))
    yield "normal time", f"{lateness} after the end of a window (disorder and expect_every)"
    bound = after.bound_of(query)
    of = "" if bound.name == name else f", of {bound.name}, which reads it"
    yield "bound", f"{format_duration_us(bound.bound_us)} after the normal time{of}"
    yield "first deadline", f"{format_duration_us(after.deadline_us(query))} after the normal time"
    others = [r.name for r in readers_of(query.child_query, after.queries.values())]
    if query.has_children:
        more = [other for other in others if other != name]
        yield "children", f"its own{', shared with ' + ', '.join(more) if more else ''}"
    else:
        yield "children", f"those of {query.child_query}"
    had = {*fragment_names(before)}
    for fragment in fragment_names(after):
        if fragment not in had:
            yield "fragment", fragment
    topics = {topic.name: topic.partitions for topic in _topics(after)}
    known = {topic.name for topic in _topics(before)}
    for topic, partitions in topics.items():
        if topic not in known:
            yield "topic", f"{topic}, {partitions} partition{'s' if partitions > 1 else ''}"
    yield from _cost(before, after)


def _shared(
    name: str, deployment: Deployment, running: RunningDeployment | None, start_us: int | None
) -> tuple[Deployment, Deployment]:
    """Return the deployment without and with the query, and the children that each query reads."""
    if running is None or not running.applied:
        after = share(deployment)
        queries = {n: q for n, q in after.queries.items() if n != name and name not in q.sources}
        read = {s for q in queries.values() for s in after.source_streams(q)}
        streams = {n: s for n, s in after.streams.items() if n in read}
        return replace(after, streams=streams, queries=queries), after
    recorded = {n: each.deployment.queries[n] for n, each in running.applied.items()}
    before = replace(running.deployment, queries=recorded)
    starts = {n: each.start for n, each in running.applied.items() if isinstance(each.start, int)}
    without = {n: q for n, q in recorded.items() if n != name}
    declared = replace(deployment, queries={**without, name: deployment.queries[name]})
    after, _ = share_applied(declared, {name: start_us}, replace(before, queries=without), starts)
    needed = {s for q in after.queries.values() for s in after.source_streams(q)}
    after = replace(after, streams={n: s for n, s in after.streams.items() if n in needed})
    return before, after


def _topics(deployment: Deployment) -> Any:
    fed = {name: 1 for name, stream in deployment.streams.items() if stream.topic is not None}
    return topic_specs(deployment, fed)


def _cost(before: Deployment, after: Deployment) -> Iterator[tuple[str, str]]:
    load = PlannedLoad()
    planned = plan(after, load, own_broker=False)
    memory, cores = planned.memory_mb, planned.cores
    if before.queries:
        earlier = plan(before, load, own_broker=False)
        memory, cores = memory - earlier.memory_mb, cores - earlier.cores
    of_load = f"at {load.per_s:g} readings/s of each stream, {load.keys} keys"
    yield "cost", f"{max(0.0, memory):,.0f} MB, {max(0.0, cores):.2f} cores more {of_load}"


def _input(stream: StreamSpec) -> str:
    if stream.topic is not None:
        return f"topic {stream.topic.name}, {stream.topic.format}"
    if stream.mqtt is not None:
        return f"mqtt {stream.mqtt.address}, {', '.join(stream.mqtt.topics)}"
    return "http" if stream.http is not None else "files"
