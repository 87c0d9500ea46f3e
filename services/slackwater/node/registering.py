"""A node's duty to register queries: their topics, and their entries in the registry in Kafka.

The record says which node has the duty for a query. It is carried out again after each change, and
what exists is kept, so a node that takes it over goes on where the other one was. While Kafka is
away it waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from slackwater.model.deployment import Deployment
from slackwater.node.applied import AppliedQuery
from slackwater.node.plan import SetState, State, changes
from slackwater.protocols.iads.control_state import Wanted
from slackwater.runtime.local.registration import Registration
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.runtime.service.truncation import Truncation

_log = logging.getLogger(__name__)

_NAMES: Final[Mapping[Wanted, State]] = {
    Wanted.RUNNING: "running",
    Wanted.PAUSED: "paused",
    Wanted.DELETED: "deleted",
}


class Registering:
    """Registers queries in Kafka, and truncates their internal logs. ``path`` is for messages."""

    def __init__(self, transport: KafkaTransport, path: Path) -> None:
        self._transport, self._path = transport, path
        self._truncation = Truncation(transport, ())

    async def carry_out(
        self, wanted: Mapping[str, Wanted], applied: Mapping[str, AppliedQuery], all_: Deployment
    ) -> frozenset[str]:
        """Bring the registry to what is wanted.

        Args:
            wanted: the state of each query that this node registers.
            applied: recorded queries, those of ``wanted`` too unless they are deleted.
            all_: all recorded queries.

        Returns:
            The queries that are registered as they are wanted. The others wait for a reading, from
            which their start follows.

        Raises:
            SlackwaterError: Kafka does not answer, or a query cannot be registered.
        """
        done = await asyncio.to_thread(self._carry_out, wanted, applied, all_)
        self._truncation.read_by(all_.queries[name] for name in done if name in all_.queries)
        return done

    async def truncate(self, every_s: float) -> None:
        """Truncate the logs of the queries that are registered here, until cancelled."""
        await self._truncation.run(every_s)

    def registered(self) -> Collection[str]:
        """The names of all registered queries; asks Kafka."""
        return Registry(self._transport).all_queries().keys()

    def _carry_out(
        self, wanted: Mapping[str, Wanted], applied: Mapping[str, AppliedQuery], all_: Deployment
    ) -> frozenset[str]:
        registry = Registry(self._transport)
        stages = {name: each.deployment.stages(name) for name, each in applied.items()}
        states = {name: _NAMES[of] for name, of in wanted.items()}
        waiting: set[str] = set()
        while True:
            found = registry.all_queries()
            to_do = [
                change
                for change in changes(states, {n: q.state for n, q in found.items()}, stages)
                if change.query not in waiting
            ]
            for change in to_do:
                if isinstance(change, SetState):
                    changed = replace(found[change.query], state=change.state)
                    registry.publish_queries(changed)
                elif (definition := self._define(applied[change.query], all_)) is not None:
                    registry.publish_queries(definition)
                    _log.info("registered query %s", change.query)
                else:
                    waiting.add(change.query)
            if not to_do:
                return frozenset(wanted) - waiting

    def _define(self, query: AppliedQuery, all_: Deployment) -> QueryDefinition | None:
        registration = Registration(self._transport, all_, self._path)
        registration.make_topics()
        return registration.define(query.query, registration.publish_clock(), query.start)
