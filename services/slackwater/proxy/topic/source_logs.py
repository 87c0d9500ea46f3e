"""The source logs of a stream that reads a topic: one for each partition that has been taken in.

Partitions are added to a topic while it is read. All readers of a stream must know the same logs:
an orderer that did not wait for a log would write stable buckets without its readings. So the
number of logs is decided once, by the stream's first proxy, and recorded in the registry, and every
START of the stream's logs carries it (rule-30). It only grows: a topic that was made again with
fewer partitions leaves logs that get no readings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from slackwater.codec import decode_source
from slackwater.model.errors import (
    DeploymentError,
    EnvironmentProblem,
    MalformedRecordError,
    SlackwaterError,
)
from slackwater.model.limits import FOREVER, NEVER
from slackwater.model.records import Kind, SourceRecord
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.topic.watched import Recount, WatchedTopic
from slackwater.runtime.logs.topics import ensure_topics, topics_for
from slackwater.runtime.logs.transport import Log, RawRecord, Transport, read_range
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)
RECORDED_S_MAX: Final = 2.0
"""How long a proxy that is not the first one waits for the number before it checks for its end."""
TELLING_RECORDS: Final = 1_000
"""Records at the end of a log that are read first, for where it tells of added ones."""


def decided_partitions(context: InputContext, topic: WatchedTopic) -> int:
    """Return the number of the stream's source logs; the first proxy decides it (rule-30).

    Raises:
        DeploymentError: the topic has fewer partitions than the stream has proxies.
        EnvironmentProblem: the stream was stopped before the number was recorded.
    """
    spec, registry = context.spec, Registry(context.transport)
    assert spec.topic is not None
    proxies, there = spec.topic.proxies, topic.state.partitions
    if there < proxies:
        raise DeploymentError(
            f"topic {spec.topic.name} has {there} partitions, too few for the {proxies}"
            f" proxies of stream {spec.name} (topic.proxies)"
        )
    called = context.transport.names
    if context.name.share:
        count = _recorded(context, registry)
        if count < there:
            now_us = context.clock.monotonic_us
            topic.recounts.append(Recount(count, partial(registry.partitions, spec.name), now_us))
        context.use_topics(called.source(f"{spec.name}.{p}") for p in range(count))
        return count
    recorded = registry.partitions(spec.name)
    count = max(there, recorded or 0)
    wanted = {called.source(f"{spec.name}.{p}") for p in range(count)}
    names = [f"{spec.name}.{p}" for p in range(count)]
    ensure_topics(context.cluster, [t for t in topics_for(names, [], called) if t.name in wanted])
    context.use_topics(wanted)
    if count != recorded:
        _record_ids(context, registry, wanted)
        if recorded is not None:
            _log.warning(
                "topic %s has %d partitions, not %d: stream %s takes them in",
                *(spec.topic.name, there, recorded, spec.name),
            )
        registry.publish_partitions(spec.name, count)
    return count


def _record_ids(context: InputContext, registry: Registry, logs: Iterable[str]) -> None:
    """Record the ids of new source logs before anyone reads them (rule-32)."""
    assert context.topics is not None
    found = {log: context.topics.describe(log) for log in {*logs} - registry.topics().keys()}
    ids = {log: state.id for log, state in found.items() if state is not None and state.id}
    if ids:
        registry.publish_topics(ids)


def _recorded(context: InputContext, registry: Registry) -> int:
    name = context.spec.name
    while not context.stop.is_set():
        try:
            return registry.wait_for_partitions(name, RECORDED_S_MAX)
        except EnvironmentProblem:
            _log.info("stream %s: its first proxy has not recorded its partitions yet", name)
    raise EnvironmentProblem(f"stream {name} was stopped before its partitions were recorded")


def take_over(
    logs: Sequence[SourceLog], context: InputContext, topic: WatchedTopic
) -> list[SourceLog]:
    """Take over the logs (rule-6), new ones last; return those that cannot begin yet.

    The stream has begun if one of them has a record after START, which follows the START of all
    logs that the stream had then. A log without any record is therefore added, and begins at the
    largest watermark that another log of the stream had when it began to tell of the added one. A
    child may have any of the logs, and has emitted no bucket beyond it without the new one
    (trace-59). As long as a log of another proxy does not tell of it, it does not begin: ``topic``
    is then served anew when all do. A proxy without such a log may be the first one of its
    partitions: the stream's first log shows which ones are added.

    Raises:
        SlackwaterError: none of the logs can begin.
    """
    transport = context.transport
    ends = transport.end_offsets([(log.topic, 0) for log in logs])
    new = [log for log in logs if not ends[log.topic, 0]]
    old = [log for log in logs if ends[log.topic, 0]]
    hints = context.spool.hints()
    for log in old:
        log.begin(hints.get(log.name))
    begun = [log for log in old if log.scan.positions or log.core.watermark > NEVER]
    unread = [log for log in old if not log.scan.positions and not log.was_added]
    if begun:
        added = {*new, *_added(unread, transport, [log.topic for log in begun])}
    else:
        first = transport.names.source(f"{context.spec.name}.0")
        added = _added([*unread, *new], transport, [first] if context.name.share else [])
    for log in new:
        if log not in added:
            log.begin()
    for log in added.intersection(unread):
        log.was_added = True
    later = [log for log in new if log in added]
    before = _Before(later, transport)
    if (why := before.why_not_yet()) is not None:
        if len(later) == len(logs):
            raise SlackwaterError(why)
        _log.warning("stream %s: %s, its log begins later", context.spec.name, why)
        is_known = partial(before.known, len(logs))
        topic.recounts.append(Recount(len(logs) - 1, is_known, context.clock.monotonic_us))
        return later
    added_at = max(before.watermarks, default=NEVER)
    for log in later:
        log.begin(added_at=added_at)
    return []


class _Before:
    """The logs of a stream before some added ones, and their watermarks where they tell of these.

    Those of this proxy tell at once. If it waits for others, they go on: their present watermarks
    would make late what comes to the added partitions meanwhile.
    """

    def __init__(self, added: Sequence[SourceLog], transport: Transport) -> None:
        of = added[0].name.rpartition(".")[0] if added else ""
        first = min(map(_number, added), default=0)
        self._logs = [transport.names.source(f"{of}.{number}") for number in range(first)]
        self._added, self._transport = added, transport
        self.watermarks: list[int] = []

    def why_not_yet(self) -> str | None:
        """Find the watermarks; return which log does not tell of the added ones."""
        for log in self._logs[len(self.watermarks) :]:
            found = _watermark_before(self._transport, log, self._added)
            if found is None:
                return f"{log} does not tell of partition {max(map(_number, self._added))} yet"
            self.watermarks.append(found)
        return None

    def known(self, logs: int) -> int | None:
        """Return this number when all logs tell of the added ones, for a ``Recount``."""
        return logs if self.why_not_yet() is None else None


def _added(
    logs: Sequence[SourceLog], transport: Transport, others: Sequence[str]
) -> set[SourceLog]:
    """Return those that the stream did not have when it began, as its ``others`` show."""
    if not logs:
        return set()
    count = min((_partitions_at_beginning(transport, (of, 0)) for of in others), default=FOREVER)
    return {log for log in logs if _number(log) >= count}


def _number(log: SourceLog) -> int:
    return int(log.name.rpartition(".")[2])


def _partitions_at_beginning(transport: Transport, at: Log) -> int:
    """Return how many partitions the stream had when it began in a log.

    Its first record after START tells, or START, if that record has readings or is damaged. 0 if
    retention has deleted them: no partition is then known to have been there. ``FOREVER`` if the
    stream has not begun there.
    """
    inc = count = 0
    if transport.beginning_offsets([at])[at]:
        return 0
    for raw in read_range(transport, at, 0, transport.end_offsets([at])[at], idle_s_max=10.0):
        record = _decoded(raw)
        if record is None:
            return count
        if record.kind is Kind.START:
            inc, count = raw.offset, record.partitions
        elif record.inc == inc:  # others are those of an earlier writer
            return record.partitions or count
    return FOREVER


def _watermark_before(transport: Transport, other: str, new: Sequence[SourceLog]) -> int | None:
    """Return the watermark of a log where it begins to tell of the new ones, near its end.

    None if it does not tell of them.
    """
    at, number, count = (other, 0), max(map(_number, new)), TELLING_RECORDS
    beginning, end = transport.beginning_offsets([at])[at], transport.end_offsets([at])[at]
    while True:
        start = max(beginning, end - count)
        tell_less, found = False, None
        for raw in read_range(transport, at, start, end, idle_s_max=10.0):
            record = _decoded(raw)
            if record is None or not record.partitions:
                continue
            if record.partitions > number:
                found = record.boundary
                break
            tell_less = True
        if tell_less or start == beginning:
            break
        count *= 10
    return found


def _decoded(raw: RawRecord) -> SourceRecord | None:
    try:
        return decode_source(raw.value, "", raw.offset)
    except MalformedRecordError:
        return None
