"""Registers queries: creates their topics, and their entries in the registry in Kafka.

The registration of a query is placed on one node, as a fragment is. It is idempotent and is
repeated after each change of the record, so another node can take it over at any point. It waits
while Kafka is unavailable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from slackwater.control.applied import AppliedQuery
from slackwater.control.control_state import Wanted
from slackwater.control.plan import SetState, State, changes
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.model.names import some_of
from slackwater.registration.begins import Begins
from slackwater.registration.registration import Registration
from slackwater.registration.replacing import Replacing
from slackwater.registration.retired import RetiredTopics
from slackwater.registration.truncation import Truncation
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.service.heartbeats import HeartbeatListener
from slackwater.runtime.service.registry import QueryDefinition, Registry

_log = logging.getLogger(__name__)

_NAMES: Final[Mapping[Wanted, State]] = {
    Wanted.RUNNING: "running",
    Wanted.PAUSED: "paused",
    Wanted.DELETED: "deleted",
}


class _MissingTopics(EnvironmentProblem):
    """A query waits for input topics."""


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
        input_partitions: number of partitions with which missing input topics are created; None if
            they are created by others, and queries wait for them.
    """

    def __init__(
        self,
        transport: KafkaTransport,
        listener: HeartbeatListener,
        path: Path,
        truncation: Truncation,
        begins: Begins,
        input_partitions: int | None = None,
    ) -> None:
        self._transport, self._path = transport, path
        self._input_partitions = input_partitions
        self._replacing = Replacing(transport, listener)
        self._truncation, self._begins = truncation, begins
        self._retired = RetiredTopics(transport, listener)
        self._registered: Mapping[str, QueryDefinition] = {}
        self._waits_since: dict[str, int] = {}

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
        self._truncation.read_by(all_.queries[name] for name in done if name in all_.queries)
        self._begins.register(done & all_.queries.keys())
        self._retired.read(self._registered)
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
        lacking: defaultdict[str, list[str]] = defaultdict(list)
        while True:
            found = self._registered = self._all_queries()
            to_do = [
                change
                for change in changes(states, {n: q.state for n, q in found.items()}, stages)
                if change.query not in waiting
            ]
            for change in to_do:
                if isinstance(change, SetState):
                    changed = replace(found[change.query], state=change.state)
                    registry.publish_queries(changed)
                    continue
                waiting.add(change.query)
                try:
                    definition = self._define(applied[change.query], all_)
                except _MissingTopics as error:
                    lacking[str(error)].append(change.query)
                    continue
                except SlackwaterError as error:  # does not delay the other queries
                    problems.append(str(error))
                    continue
                if definition is not None:
                    registry.publish_queries(definition)
                    waiting.discard(change.query)
                    _log.info("registered query %s", change.query)
            if not to_do:
                used = {n for n, s in states.items() if s != "deleted" and _is_deleted(n, found)}
                problems += [f"{why}, for query {some_of(q)}" for why, q in lacking.items()]
                problems += [
                    f"query {name} has the name of a deleted one: delete it, and apply it again,"
                    " which continues the results of that one, or under another name"
                    for name in sorted(used)
                ]
                return frozenset(wanted) - waiting - used, "; ".join(problems)

    def _define(self, query: AppliedQuery, all_: Deployment) -> QueryDefinition | None:
        needed = all_.connected(query.query)
        if self._input_partitions is None:
            topics = {s.topic.name for s in needed.streams.values() if s.topic is not None}
            found = partition_counts(self._transport.cluster, topics)
            if missing := sorted(topics - found.keys()):
                some, do = ("topic", "does") if len(missing) == 1 else ("topics", "do")
                raise _MissingTopics(
                    f"{some} {', '.join(missing)} {do} not exist on {self._transport.bootstrap}:"
                    " create what is missing, for example with `slackwater topics --inputs 1`"
                )
        registration = Registration(
            self._transport, needed, self._path, waits_since=self._waits_since
        )
        registration.make_topics(input_partitions=self._input_partitions)
        return registration.define(query.query, registration.publish_clock(), query.start)
