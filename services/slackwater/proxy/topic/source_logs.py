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

from slackwater.model.errors import DeploymentError, EnvironmentProblem
from slackwater.model.limits import NEVER
from slackwater.proxy.shell import InputContext
from slackwater.proxy.sourcelog import SourceLog
from slackwater.proxy.topic.watched import Recount, WatchedTopic
from slackwater.runtime.logs.topics import ensure_topics, topics_for
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)
RECORDED_S_MAX: Final = 2.0
"""How long a proxy that is not the first one waits for the number before it checks for its end."""


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
            topic.recount = Recount(count, partial(registry.partitions, spec.name), now_us)
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


def take_over(logs: Sequence[SourceLog], context: InputContext) -> None:
    """Take over the logs (rule-6), new ones last.

    The first watermark of a log that is added to others is the smallest of theirs. No bucket has
    been emitted beyond it without the new log, since the others' START, which tells of it, comes
    first (rule-30). If none of them has a watermark, the stream's first start was interrupted, and
    no log is added.
    """
    ends = context.transport.end_offsets([(log.topic, 0) for log in logs])
    new = [log for log in logs if not ends[log.topic, 0]]
    old = [log for log in logs if ends[log.topic, 0]]
    hints = context.spool.hints()
    for log in old:
        log.begin(hints.get(log.name))
    watermarks = [log.core.watermark for log in old]
    added_at = min(watermarks) if any(of > NEVER for of in watermarks) else None
    for log in new:
        log.begin(added_at=added_at)
