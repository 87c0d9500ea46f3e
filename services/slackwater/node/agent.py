"""The agent of `slackwater up`: makes the running queries equal to those of the replicated record.

An *agent* carries out the record on one machine. The agent of `slackwater node`, which runs what
controllers place on its machine, is in ``app.py``. (Faust's agents are something else.)

The record has the wanted state of each query, the registry in Kafka its present state. An empty
record, as in a data directory of an earlier version, is filled with the queries of the stack.
Recording an operation does not need Kafka: while Kafka is unavailable, operations wait in the
record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from slackwater.model.deployment import Deployment
from slackwater.model.errors import SlackwaterError
from slackwater.node.admission import RunningQueries, why_refused
from slackwater.node.applied import AppliedQuery, Start, from_text, to_text
from slackwater.node.generations import replacements
from slackwater.node.plan import Apply, SetState, State, changes
from slackwater.protocols.iads.control_object import ApplyQuery, DeleteQuery, Operation, PauseQuery
from slackwater.protocols.iads.control_state import ControlState, Wanted
from slackwater.runtime.service.registry import QueryDefinition

_log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause after a change that failed, or that waits for a first reading."""


class QueryRunner(Protocol):
    """The interface of a stack that the agent uses."""

    @property
    def deployment(self) -> Deployment:
        """Its queries, paused ones too, and their streams."""
        ...

    def registered(self) -> Mapping[str, QueryDefinition]:
        """All registered queries, deleted ones too, read from Kafka; blocks."""
        ...

    async def apply(self, added: Deployment, name: str, start: Start) -> bool:
        """Start a query; False if its start time is not known yet."""
        ...

    async def change_state(self, name: str, state: State) -> None:
        """Pause, resume or delete a query."""
        ...

    async def is_ready_to_replace(self, later: str, earlier: str) -> bool:
        """Whether a query's new generation has reached the answers of the earlier one."""
        ...

    def retire(self, registered: Mapping[str, QueryDefinition]) -> None:
        """Delete the topics that only deleted queries have used, after a grace period."""
        ...

    async def settle(self) -> None:
        """Complete a change that was registered and then failed."""
        ...


class Agent:
    """Carries out the record on one machine; for one event loop."""

    def __init__(self, machine: QueryRunner) -> None:
        self._machine = machine
        self._state = ControlState()
        self._registered: Mapping[str, QueryDefinition] = {}
        self._changed = asyncio.Event()
        self._reported = ""
        self._are_replaced = True

    async def begin(self) -> None:
        """Read the registered queries; to be called before the first request is admitted."""
        self._registered = await asyncio.to_thread(self._machine.registered)

    def imports(self, recorded: ControlState) -> list[Operation]:
        """Return the operations that add to the record the running queries that it lacks.

        A query that is recorded as deleted and still runs is not added: it will be ended.
        """
        running = self._machine.deployment
        found: list[Operation] = []
        for name in (query.name for query in running.in_order()):
            if name not in recorded.queries and name in running.queries:
                found.append(ApplyQuery(name, to_text(AppliedQuery(name, running))))
                if name in self._registered and self._registered[name].state == "paused":
                    found.append(PauseQuery(name))
        return found

    def may_forget(self, recorded: ControlState) -> bool:
        """Return whether all deletions of the record have been carried out.

        Before that the record must keep its tombstones: ``imports`` would add a deleted query that
        still runs.
        """
        return not any(
            query.state != "deleted" and recorded.queries[name].wanted == Wanted.DELETED.value
            for name, query in self._registered.items()
            if name in recorded.queries
        )

    def admit(self, operation: Operation) -> str:
        """Return why an operation is refused; empty if it is to be recorded."""
        deployment = self._machine.deployment
        queries = dict(deployment.queries)
        for name, applied in self._recorded().items():
            if name not in queries and name not in self._registered:
                queries[name] = applied.deployment.queries[name]  # recorded and not running yet
        known = RunningQueries(
            Deployment(deployment.clock, deployment.streams, queries, deployment.names),
            {name: q.first_deadline_us for name, q in self._registered.items() if name in queries},
            {name: q.spec for name, q in self._registered.items() if q.state == "deleted"},
            paused=self._state.queries_wanted(Wanted.PAUSED),
        )
        return why_refused(operation, known)

    def record(self, state: ControlState) -> None:
        """Set the newest state of the record; ``run`` carries it out."""
        self._state = state
        self._changed.set()

    async def run(self, request: Callable[[Operation], None]) -> None:
        """Carry out the record until cancelled; ``request`` requests an operation on it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not await self._carry_out(request):
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def _carry_out(self, request: Callable[[Operation], None]) -> bool:
        """Make all changes; False if some could not be made."""
        try:
            await self._machine.settle()
            self._are_replaced = await self._end_replaced(request)
            while True:
                self._registered = await asyncio.to_thread(self._machine.registered)
                applied = self._recorded()
                found = changes(self._wanted(), self._states(), _stages(applied))
                waiting = [change for change in found if not await self._make(change, applied)]
                if not found or waiting:
                    self._machine.retire(self._registered)
                    return not waiting and self._are_replaced
        except Exception as error:  # noqa: BLE001 -- it is tried again; the queries continue
            is_foreseen = isinstance(error, SlackwaterError | OSError)
            if str(error) != self._reported:
                self._reported = str(error)
                _log.warning(
                    "a change of queries waits: %s", error, exc_info=None if is_foreseen else error
                )
            return False

    async def _make(self, change: Apply | SetState, applied: Mapping[str, AppliedQuery]) -> bool:
        if isinstance(change, SetState):
            await self._machine.change_state(change.query, change.state)
            return True
        query = applied[change.query]
        return await self._machine.apply(query.deployment, change.query, query.start)

    async def _end_replaced(self, request: Callable[[Operation], None]) -> bool:
        """End the generations whose successors are ready; False if one is not."""
        are_ready = True
        for earlier, later in replacements(self._state.queries_wanted(Wanted.RUNNING)):
            is_ready = await self._machine.is_ready_to_replace(later, earlier)
            running = self._state.queries_wanted(Wanted.RUNNING)  # it may have changed meanwhile
            if is_ready and {earlier, later} <= {*running}:
                _log.info("query %s replaces %s", later, earlier)
                request(DeleteQuery(earlier))
            else:
                are_ready = False
        return are_ready

    def _recorded(self) -> dict[str, AppliedQuery]:
        """The queries of the record that this version can read."""
        found = {}
        for name in self._state.live_queries():
            try:
                found[name] = from_text(name, self._state.queries[name].definition)
            except ValueError as error:
                _log.error("query %s of the record cannot be read: %s", name, error)
        return found

    def _wanted(self) -> dict[str, State]:
        """The wanted state of each recorded query that concerns this machine.

        Live queries that were registered from the deployment file, and are no longer in the file,
        are omitted.
        """
        here = self._machine.deployment.queries
        names: dict[str, State] = {"running": "running", "paused": "paused", "deleted": "deleted"}
        return {
            name: names[entry.wanted]
            for name, entry in self._state.queries.items()
            if name in here
            or entry.wanted == "deleted"
            or name not in self._registered
            or self._registered[name].deployment is not None
        }

    def _states(self) -> dict[str, State]:
        return {name: query.state for name, query in self._registered.items()}


def _stages(applied: Mapping[str, AppliedQuery]) -> dict[str, int]:
    return {name: query.deployment.stages(name) for name, query in applied.items()}
