"""Applies, pauses, resumes and deletes queries while a stack runs.

The registered definition of an applied query has all that its fragments need of a deployment file,
since the query is not in the file of the running processes. Fragments are added to running hosts
and aggregators; the other queries continue. A change is permanent once it is registered: a
restarted stack starts the queries of the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from slackwater.model.deployment import Deployment
from slackwater.runtime.local.changes import Fragments, with_query, without_queries
from slackwater.runtime.local.registration import Registration
from slackwater.runtime.local.replacing import Replacing
from slackwater.runtime.local.stack import Stack
from slackwater.runtime.service.registry import QueryDefinition, QueryState, Registry

Start = int | Literal["now", "beginning"]


class QueryChanges:
    """Changes the queries of a stack that has been started; one change at a time."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._changing = asyncio.Lock()
        self._is_settled = True
        self._replacing: Replacing | None = None
        self._to_learn: set[str] = set()
        """Streams whose proxies are to read the registry."""

    @property
    def deployment(self) -> Deployment:
        """The queries of the stack, paused ones too, and their streams."""
        return self._stack.deployment

    def registered(self) -> Mapping[str, QueryDefinition]:
        """Return all registered queries, deleted ones too; blocks."""
        return Registry(self._stack.transport).all_queries()

    async def apply(self, added: Deployment, name: str, start: Start = "now") -> bool:
        """Register and start a query that is not in the deployment file.

        Args:
            added: has the query, and all that it reads.
            name: the query's name.
            start: see ``Registration.define``.

        Returns:
            False if its start time cannot be determined yet; it is not registered then.
        """
        stack = self._stack
        async with self._changing:
            changed = with_query(stack.deployment, added, name)
            registration = stack.registration_of(changed)
            definition = await asyncio.to_thread(self._register, registration, name, start)
            if definition is None:
                return False
            stack.set_queries(changed, stack.paused)
            self._to_learn |= changed.streams.keys() & {*definition.spec.sources}
            await self._settle()
            return True

    def _register(
        self, registration: Registration, name: str, start: Start
    ) -> QueryDefinition | None:
        registration.make_topics()
        definition = registration.define(name, registration.publish_clock(), start)
        if definition is not None:
            Registry(self._stack.transport).publish_queries(definition)
        return definition

    async def change_state(self, name: str, state: QueryState) -> None:
        """Pause, resume or delete a query. The name of a deleted query is not used again."""
        stack = self._stack
        async with self._changing:
            registry = Registry(stack.transport)
            found = await asyncio.to_thread(registry.query, name)
            if found is None:
                return
            if found.state != state:
                await asyncio.to_thread(registry.publish_queries, replace(found, state=state))
            deployment, paused = stack.deployment, {*stack.paused} - {name}
            if state == "deleted":
                deployment = without_queries(deployment, {name})
            elif state == "paused":
                paused.add(name)
            stack.set_queries(deployment, paused)
            await self._settle()

    async def is_ready_to_replace(self, later: str, earlier: str) -> bool:
        """Whether a query's new generation has reached the answers of the earlier one."""
        queries, stack = self.deployment.queries, self._stack
        if self._replacing is None:
            self._replacing = Replacing(stack.transport, stack.listener)
        self._replacing.forget(queries)
        if not {later, earlier} <= queries.keys():
            return False
        return await asyncio.to_thread(self._replacing.is_ready, queries[later], queries[earlier])

    def retire(self, registered: Mapping[str, QueryDefinition]) -> None:
        """Delete the topics that only deleted queries have used, after a grace period."""
        self._stack.retire(registered)

    async def settle(self) -> None:
        """Complete a change that was registered and then failed, for example on a full disk."""
        async with self._changing:
            if not self._is_settled:
                await self._settle()

    async def _settle(self) -> None:
        self._is_settled = False
        fragments = Fragments(self._stack.supervisor, self._stack.launch)
        await fragments.settle(self._stack.running, self._stack.paused)
        fragments.learn(sorted(self._to_learn), self._stack.deployment)
        self._to_learn.clear()
        self._is_settled = True
