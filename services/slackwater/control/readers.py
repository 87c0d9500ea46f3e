"""What a change of a query must leave as it is for the queries that read its results. Pure.

The results of all generations of a query are one sequence under one name, so a reader goes on
across the change. Its own definition is fixed: the columns that it reads, the normal times of its
windows, and the deadline by which it needs the answers. A change that does not fit these is refused
(rule-29, trace-43).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.durations import format_duration_us
from slackwater.model.names import base_of

_REMEDY: Final = "or give the new query another name"


def readers_through(query: str, deployment: Deployment) -> list[QuerySpec]:
    """The queries that read a query's results, also through other queries, in topological order."""
    found = {query}
    readers = []
    for each in deployment.in_order():
        if not found.isdisjoint(each.sources):
            found.add(base_of(each.name))
            readers.append(each)
    return readers


def serves(view: Deployment, other: Deployment, source: str) -> bool:
    """Whether the results of a query have what a reader needs that was defined with another one.

    Args:
        view: the reader's deployment, with the query as it was then.
        other: the query as it is now, and all that it reads.
        source: the query's name in the reader's sources.
    """
    known, now = view.query_read(source), other.query_read(source)
    if known is None or now is None:
        return False
    is_continued = (known.window, known.parts) == (now.window, now.parts)
    return is_continued and {*view.fields_of(source)} <= {*other.fields_of(source)}


def in_circles(queries: Iterable[QuerySpec]) -> set[str]:
    """The queries that read their own results, and those that read such queries.

    Of a source's generations all count.
    """
    left = list(queries)
    while left:
        waiting = {base_of(query.name) for query in left}
        rest = [query for query in left if not waiting.isdisjoint(query.sources)]
        if len(rest) == len(left):
            break
        left = rest
    return {query.name for query in left}


def why_not_read_on(changed: QuerySpec, added: Deployment, running: Deployment) -> Iterator[str]:
    """Yield the reasons why the readers of a query cannot go on with a new generation.

    Args:
        changed: the new generation.
        added: has the new generation, and all that it reads.
        running: the queries that run, without the new generation.
    """
    query = base_of(changed.name)
    readers = readers_through(query, running)
    if not readers:
        return
    streams = {**added.streams, **running.streams}
    earlier = {name for name in running.queries if base_of(name) == query}
    rest = {name: each for name, each in running.queries.items() if name not in earlier}
    before = replace(running, streams=streams)
    after = replace(before, queries={**rest, changed.name: changed})
    if circle := _reads_itself(changed, after):
        yield f"query {query} would read query {circle}, which reads {query}"
        return
    if any(before.query_read(s) is None and s not in streams for s in changed.sources):
        return  # a query that is not there, which is reported elsewhere
    yield from _columns(query, before, after, readers)
    for reader in readers:
        yield from _times(query, reader, before, after)
    yield from _deadline(changed, {**before.queries, changed.name: changed}, before)


def _reads_itself(changed: QuerySpec, after: Deployment) -> str:
    """A query that the new generation reads and that reads it, through others too; empty if none.

    It is checked first: no other property of a circle is defined.
    """
    query = base_of(changed.name)
    for source in changed.sources:
        seen, waiting = set(), [source]
        while waiting:
            name = waiting.pop()
            if base_of(name) == query:
                return source
            read = after.query_read(name)
            if read is not None and name not in seen:
                seen.add(name)
                waiting += read.sources
    return ""


def _columns(
    query: str, before: Deployment, after: Deployment, readers: list[QuerySpec]
) -> Iterator[str]:
    needed, has = before.fields_of(query), after.fields_of(query)
    direct = [reader for reader in readers if query in reader.sources]
    names = ", ".join(reader.name for reader in direct)
    if lacking := [field for field in needed if field not in has]:
        yield (
            f"query {query} is read by {names}, which needs {', '.join(lacking)}: keep this in the"
            f" results, {_REMEDY}"
        )
        return
    for reader in direct:
        if before.output_fields(reader) != after.output_fields(reader):
            added = [field for field in has if field not in needed]
            what = f"would have {', '.join(added)} too" if added else "would have another order"
            yield (
                f"query {query} is read by {reader.name}, which has no `select`, so its fields"
                f" {what}: apply {reader.name} with a `select` under another name, {_REMEDY}"
            )


def _times(query: str, reader: QuerySpec, before: Deployment, after: Deployment) -> Iterator[str]:
    """The normal time of a reader depends on the streams that it reads through the query."""
    was_us, is_us = before.lateness_us(reader), after.lateness_us(reader)
    if was_us != is_us:
        yield (
            f"query {query} is read by {reader.name}, whose lateness would change from"
            f" {format_duration_us(was_us)} to {format_duration_us(is_us)}, and the normal times of"
            f" its windows with it: give the streams of {query} `disorder` and `expect_every` with"
            f" the same greatest sum, {_REMEDY}"
        )
    elif learning := sorted(_learning(reader, before) ^ _learning(reader, after)):
        yield (
            f"query {query} is read by {reader.name}, whose lateness would change with that of"
            f" {', '.join(learning)}, which is learned (`expect_every: auto`): keep the stream,"
            f" {_REMEDY}"
        )


def _learning(query: QuerySpec, deployment: Deployment) -> set[str]:
    return {s for s in deployment.source_streams(query) if deployment.streams[s].learns_gaps}


def _deadline(
    changed: QuerySpec, queries: dict[str, QuerySpec], before: Deployment
) -> Iterator[str]:
    """The answers must reach the readers by their first deadlines."""
    both = replace(before, queries=queries)
    first_us = both.deadline_us(changed)
    if first_us < 0:
        by, query = both.bound_at(changed), base_of(changed.name)
        left_us = max(first_us + 2 * changed.margin_us, 0)
        yield (
            f"query {query} is read by {by.name}, whose bound of"
            f" {format_duration_us(by.bound_us)} leaves {format_duration_us(left_us)} for the"
            f" answers of {query}, and its 2 stages with a margin of"
            f" {format_duration_us(changed.margin_us)} need"
            f" {format_duration_us(2 * changed.margin_us)}: give {query} a margin of at most"
            f" {format_duration_us(left_us // 2)}, {_REMEDY}"
        )
