"""Registers queries: creates their topics, and their entries in the registry in Kafka.

The registration of a query is placed on one node, as a fragment is. It is idempotent and is
repeated after each change of the record, so another node can take it over at any point. It waits
while Kafka is unavailable.

Queries that are new together are registered together: each costs several requests to Kafka. One
that begins with the first reading in the logs waits for the proxies of its streams, for a while,
since they write what their inputs hold (trace-24).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from slackwater.control.applied import AppliedQuery
from slackwater.control.control_state import Wanted
from slackwater.control.plan import Apply, SetState, State, changes
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import SlackwaterError
from slackwater.model.names import some_of
from slackwater.registration.alert_ends import AlertEnds
from slackwater.registration.begins import Begins
from slackwater.registration.registration import Registration
from slackwater.registration.replacing import Replacing
from slackwater.registration.retired import RetiredTopics
from slackwater.registration.starts import why_other_children
from slackwater.registration.truncation import Truncation
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.service.heartbeat_view import HeartbeatView
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry

_log = logging.getLogger(__name__)

PROXIES_READY_S_MAX: Final = 5.0
"""Longest wait for proxies to read their inputs to the end before queries are registered."""
_NAMES: Final[Mapping[Wanted, State]] = {
    Wanted.RUNNING: "running",
    Wanted.PAUSED: "paused",
    Wanted.DELETED: "deleted",
}


def _is_deleted(name: str, registered: Mapping[str, QueryDefinition]) -> bool:
    return name in registered and registered[name].state == "deleted"


class Registering:
    """Registers queries in Kafka, and deletes topics that only deleted queries have used.

    Args:
        transport: to the logs of the node's Kafka cluster.
        listener: for heartbeats of all processes.
        path: the name of the deployment file in error messages.
        truncation: truncates the logs of the queries that are registered here.
        begins: records the begins of these queries; its ``run`` is the caller's.
        declared: queries of a deployment file, which has their streams.
        input_partitions: number of partitions with which missing input topics are created; None if
            they are created by others, and queries wait for them.
        speed: of a rehearsal, whose clock is published by others; None for live data.
    """

    def __init__(
        self,
        transport: KafkaTransport,
        listener: HeartbeatListener,
        path: Path,
        truncation: Truncation,
        begins: Begins,
        *,
        declared: Collection[str] = (),
        input_partitions: int | None = None,
        speed: float | None = None,
    ) -> None:
        self._transport, self._listener, self._path = transport, listener, path
        self._declared, self._input_partitions, self._speed = declared, input_partitions, speed
        self._replacing = Replacing(transport, listener)
        self._truncation, self._begins = truncation, begins
        self._retired = RetiredTopics(transport, listener)
        self._alert_ends = AlertEnds.of(transport)
        self._registered: Mapping[str, QueryDefinition] = {}
        self._waits_since: dict[str, int] = {}
        self._with_topics: set[str] = set()
        """The queries that have all topics of this version; an earlier one may have had fewer."""
        self._proxies_until_s: dict[str, float] = {}
        """By query, until when the proxies of its streams are waited for (monotonic time)."""
        self.awaits_readings = False
        """Whether a query was not registered at the last attempt for want of a first reading."""

    async def carry_out(
        self, wanted: Mapping[str, Wanted], applied: Mapping[str, AppliedQuery], all_: Deployment
    ) -> tuple[frozenset[str], str]:
        """Register queries, and change the state of registered ones, as wanted.

        Args:
            wanted: the state of each query that this node registers.
            applied: recorded queries, those of ``wanted`` too unless they are deleted.
            all_: all recorded queries.

        Returns:
            The queries that are registered in their wanted state, and why others are not. A query
            whose start depends on a first reading is in neither until the reading has arrived.

        Raises:
            SlackwaterError: Kafka does not answer.
        """
        done, why = await asyncio.to_thread(self._carry_out, wanted, applied, all_)
        registered = [all_.queries[name] for name in done if name in all_.queries]
        children = {query.child_query for query in registered}
        self._truncation.read_by(q for q in all_.queries.values() if q.child_query in children)
        self._begins.register(done & all_.queries.keys())
        self._retired.read(self._registered, all_.queries.values())
        return done, why

    async def are_ready(
        self, changes: Collection[tuple[str, str]], queries: Mapping[str, QuerySpec]
    ) -> list[tuple[str, str]]:
        """Those of the changes that can be completed now: the successor is ready (rule-29).

        Args:
            changes: changes in progress: the generation that is to end, and its successor.
            queries: all recorded queries.

        Raises:
            SlackwaterError: Kafka does not answer.
        """
        self._replacing.forget(later for _, later in changes)

        def find() -> list[tuple[str, str]]:
            is_ready = self._replacing.is_ready
            return [(e, later) for e, later in changes if is_ready(queries[later], queries[e])]

        return await asyncio.to_thread(find)

    @property
    def definitions(self) -> Mapping[str, QueryDefinition]:
        """All registered queries as last read, deleted ones too; empty at first."""
        return self._registered

    async def run(self) -> None:
        """Delete topics that only deleted queries have used, after a grace period; forever."""
        await self._retired.run()

    def registered(self) -> Mapping[str, QueryDefinition]:
        """All registered queries, deleted ones too, read from Kafka; blocks."""
        return self._all_queries()

    def _all_queries(self) -> Mapping[str, QueryDefinition]:
        """All registered queries; empty while there is no registry yet."""
        topic = self._transport.names.registry
        if not partition_counts(self._transport.cluster, {topic}):
            return {}
        return Registry(self._transport).all_queries()

    def _carry_out(
        self, wanted: Mapping[str, Wanted], applied: Mapping[str, AppliedQuery], all_: Deployment
    ) -> tuple[frozenset[str], str]:
        registry = Registry(self._transport)
        stages = {name: each.deployment.stages(name) for name, each in applied.items()}
        states = {name: _NAMES[of] for name, of in wanted.items()}
        waiting: set[str] = set()
        problems: list[str] = []
        while True:
            found = self._registered = self._all_queries()
            lost = {
                name: reason
                for name, state in states.items()
                if state != "deleted" and name in all_.queries
                if (reason := why_other_children(all_.queries[name], all_.queries, found))
            }
            to_do = [
                change
                for change in changes(states, {n: q.state for n, q in found.items()}, stages)
                if change.query not in {*waiting, *lost}
            ]
            set_ = [each for each in to_do if isinstance(each, SetState)]
            new = [each.query for each in to_do if isinstance(each, Apply)]
            if set_:
                to = {each.query: replace(found[each.query], state=each.state) for each in set_}
                registry.publish_queries(*to.values())
            if not new and not waiting:
                problems += self._complete_topics(found, states, all_)
            if new:
                waiting |= {*new}
                defined, why = self._define_all([applied[name] for name in new], all_)
                problems += why
                if defined:
                    registry.publish_queries(*defined)
                    waiting -= {each.name for each in defined}
                    _log.info("registered %s", some_of([each.name for each in defined]))
            if not to_do:
                self._complete_rules(registry, found, states, all_)
                problems += self._alert_ends.end(found)
                used = {n for n, s in states.items() if s != "deleted" and _is_deleted(n, found)}
                problems += [
                    f"query {name} has the name of a deleted one: delete it, and apply it again,"
                    " which continues the results of that one, or under another name"
                    for name in sorted(used)
                ]
                problems += [lost[name] for name in sorted({*lost} - used)]
                self.awaits_readings = bool(waiting) and not problems
                return frozenset(wanted) - waiting - used - {*lost}, "; ".join(problems)

    def _complete_rules(
        self,
        registry: Registry,
        found: Mapping[str, QueryDefinition],
        states: Mapping[str, str],
        all_: Deployment,
    ) -> None:
        """Register the rules of alerts with which `up` has been started again, if they changed."""
        changed: list[QueryDefinition] = []
        for name in states.keys() & found.keys() & all_.queries.keys():
            wanted, spec = all_.queries[name], found[name].spec
            of = (wanted.alerts, wanted.had_alerts)
            if found[name].state != "deleted" and of != (spec.alerts, spec.had_alerts):
                new = replace(spec, alerts=wanted.alerts, had_alerts=wanted.had_alerts)
                changed.append(replace(found[name], spec=new))
        if changed:
            registry.publish_queries(*changed)

    def _complete_topics(
        self, found: Collection[str], states: Mapping[str, str], all_: Deployment
    ) -> list[str]:
        """Create the topics that registered queries lack, once; return why that failed."""
        lacking = [
            name
            for name, state in states.items()
            if state != "deleted" and name in found and name in all_.queries
        ]
        if not (lacking := [name for name in lacking if name not in self._with_topics]):
            return []
        needed = all_.connected(*lacking)
        try:
            Registration(self._transport, needed, self._path).make_topics()
        except SlackwaterError as error:
            return [str(error)]
        self._with_topics.update(lacking)
        return []

    def _define_all(
        self, queries: Sequence[AppliedQuery], all_: Deployment
    ) -> tuple[list[QueryDefinition], list[str]]:
        """Return the definitions of those whose start is known, and why others have none."""
        problems: list[str] = []
        if lacking := self._lacking(queries, all_):
            problems += [f"{why}, for query {some_of(of)}" for why, of in lacking.items()]
            without = {name for of in lacking.values() for name in of}
            queries = [each for each in queries if each.query not in without]
        defined: list[QueryDefinition] = []
        try:
            defined += self._define(queries, all_)
        except SlackwaterError as error:
            if len(queries) < 2:
                return [], [*problems, str(error)]
            for each in queries:  # one that cannot be registered does not delay the others
                try:
                    defined += self._define([each], all_)
                except SlackwaterError as own:
                    problems.append(str(own))
        return defined, problems

    def _lacking(self, queries: Iterable[AppliedQuery], all_: Deployment) -> dict[str, list[str]]:
        """By what is missing, the queries that wait for topics which others are to create."""
        if self._input_partitions is not None:
            return {}
        read = {
            each.query: {
                stream.topic.name
                for stream in all_.connected(each.query).streams.values()
                if stream.topic is not None
            }
            for each in queries
        }
        found = partition_counts(self._transport.cluster, {t for of in read.values() for t in of})
        lacking: defaultdict[str, list[str]] = defaultdict(list)
        for name, topics in read.items():
            if missing := sorted(topics - found.keys()):
                some, do = ("topic", "does") if len(missing) == 1 else ("topics", "do")
                lacking[
                    f"{some} {', '.join(missing)} {do} not exist on {self._transport.bootstrap}:"
                    " create what is missing, for example with `slackwater topics --inputs 1`"
                ].append(name)
        return lacking

    def _define(self, queries: Sequence[AppliedQuery], all_: Deployment) -> list[QueryDefinition]:
        if not queries:
            return []
        needed = all_.connected(*(each.query for each in queries))
        registration = Registration(
            self._transport, needed, self._path, waits_since=self._waits_since
        )
        registration.make_topics(input_partitions=self._input_partitions)
        self._with_topics.update(needed.queries)
        self._await_proxies([each.query for each in queries if each.start == "beginning"], needed)
        return registration.define(
            {each.query: each.start for each in queries},
            None if self._speed is not None else registration.publish_clock(),
            declared=self._declared,
            speed=self._speed,
        )

    def _await_proxies(self, queries: Iterable[str], of: Deployment) -> None:
        """Wait until the proxies of these queries' streams are ready, for a while."""
        now_s = time.monotonic()
        left_s = {
            name: self._proxies_until_s.setdefault(name, now_s + PROXIES_READY_S_MAX) - now_s
            for name in queries
        }
        waiting = [name for name, s in left_s.items() if s > 0]
        if waiting:
            streams = {stream for name in waiting for stream in of.source_streams(of.queries[name])}
            proxies = [each.process for s in sorted(streams) for each in of.streams[s].proxy_names]

            def are_ready(view: HeartbeatView) -> bool:
                return all(view.ready(each, time.monotonic()) for each in proxies)

            self._listener.wait_for(are_ready, max(left_s.values()))
