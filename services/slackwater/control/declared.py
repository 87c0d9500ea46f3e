"""The queries of a deployment file in the replicated record of `slackwater up`.

The record owns the definitions of queries; the registry in Kafka is a copy of what was carried out.
What the record lacks is added to it before a start: the new queries of the file, and what is
registered, if the record was lost. The file has the present definitions of streams, the record
perhaps earlier ones. Queries that were registered from the file, and that the file no longer has,
stay in the record and do not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slackwater.control.admission import RunningQueries, why_refused
from slackwater.control.applied import AppliedQuery, Start, to_text
from slackwater.control.control_object import (
    ApplyQuery,
    Operation,
    PauseQuery,
)
from slackwater.control.control_state import ControlState, QueryEntry, Wanted
from slackwater.control.recorded import applied_queries, deployment_of, parsed
from slackwater.model.deployment import Deployment
from slackwater.runtime.service.registry import QueryDefinition

Registered = Mapping[str, QueryDefinition]
"""All registered queries by name, deleted ones too."""


class DeclaredQueries:
    """The queries of the stack at its start.

    Args:
        deployment: its queries, paused ones and those that were applied at run time too.
        registered: all registered queries, deleted ones too.
        start: the start of new queries.
    """

    def __init__(self, deployment: Deployment, registered: Registered, start: Start) -> None:
        self._deployment = deployment
        self._texts = {
            name: to_text(AppliedQuery(name, deployment, start)) for name in deployment.queries
        }
        self._left_out = {
            name
            for name, query in registered.items()
            if query.deployment is None and query.state != "deleted" and name not in self._texts
        }

    def imports(
        self, recorded: ControlState, registered: Registered
    ) -> list[ApplyQuery | PauseQuery]:
        """Return the operations that add to the record the queries that it lacks.

        A query that is recorded as deleted and still runs is not added: it will be ended.
        """
        found: list[ApplyQuery | PauseQuery] = []
        for name in (query.name for query in self._deployment.in_order()):
            if name not in recorded.queries:
                found.append(ApplyQuery(name, self._texts[name]))
                if name in registered and registered[name].state == "paused":
                    found.append(PauseQuery(name))
        return found

    def known(self, recorded: ControlState, registered: Registered) -> dict[str, int]:
        """The registered queries of the record, with the generations of their entries."""
        queries = recorded.queries
        return {
            name: queries[name].generation
            for name, query in registered.items()
            if query.state != "deleted"
            and name in queries
            and (name not in self._left_out or _is_deleted(queries[name]))
        }

    def view(self, recorded: ControlState) -> ControlState:
        """The record as this machine carries it out, with the streams of the file."""
        queries = {}
        for name, entry in recorded.queries.items():
            if _is_deleted(entry):
                queries[name] = entry
            elif name not in self._left_out:
                text = self._texts.get(name) or self._with_streams(name, entry.definition)
                queries[name] = entry._replace(definition=text)
        return replace(recorded, queries=queries)

    def may_forget(self, recorded: ControlState, registered: Registered) -> bool:
        """Whether all deletions of the record have been carried out in the registry.

        Before that the tombstones are needed: ``imports`` would add a deleted query that still
        runs. In a record of an earlier version no node has the task to carry them out.
        """
        return not any(
            _is_deleted(entry) and name in registered and registered[name].state != "deleted"
            for name, entry in recorded.queries.items()
        )

    def _with_streams(self, name: str, definition: str) -> str:
        """The definition of a query that was recorded and not registered, with the file's streams.

        With an earlier definition of a stream it would be in conflict with the queries that run.
        """
        applied = parsed(name, definition)
        if isinstance(applied, str):
            return definition  # the reason is reported where it is carried out
        known, streams = self._deployment.streams, applied.deployment.streams
        own = {n: known.get(n, stream) for n, stream in streams.items()}
        if own == streams:
            return definition
        return to_text(replace(applied, deployment=replace(applied.deployment, streams=own)))

    def why_refused(
        self, operation: Operation, recorded: ControlState, registered: Registered
    ) -> str:
        """Return why an operation is refused; empty if it is to be recorded.

        Args:
            operation: what a client requests.
            recorded: the record.
            registered: all registered queries, deleted ones too.
        """
        state = self.view(recorded)
        applied = applied_queries(state)
        queries = {name: query.deployment.queries[name] for name, query in applied.items()}
        tombstones = {n for n in state.queries_wanted(Wanted.DELETED) if n in registered}
        deleted = {n: q.spec for n, q in registered.items() if q.state == "deleted"}
        streams = {**deployment_of(applied).streams, **self._deployment.streams}
        known = RunningQueries(
            replace(self._deployment, streams=streams, queries=queries),
            {name: q.first_deadline_us for name, q in registered.items() if name in queries},
            {**dict.fromkeys(tombstones), **deleted},
            paused=state.queries_wanted(Wanted.PAUSED),
        )
        return why_refused(operation, known)


def _is_deleted(entry: QueryEntry) -> bool:
    return entry.wanted == Wanted.DELETED.value
