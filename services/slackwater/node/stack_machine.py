"""The machine of `slackwater up`: the agent of a node adds and ends fragments in a running stack.

The stack has started the queries of its deployment file before the agent begins, in the order that
is fastest (``machine/stack.py``). The stack places fragments in processes (``layout.py``);
roots take their placement numbers from the registry in Kafka, as all fragments of the stack do.

Streams that were added with a query are not in the deployment file. Their proxies read a file that
is written from the queries (``machine/placed_proxies.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slackwater.control.control_state import Wanted
from slackwater.control.recorded import Assignment
from slackwater.deployment.fragments import aggregators_of, fragments_of, without_queries
from slackwater.machine.changes import Fragments
from slackwater.machine.stack import Stack
from slackwater.model.deployment import Deployment
from slackwater.registration.registering import Registering
from slackwater.runtime.service.registry import QueryDefinition


class StackMachine:
    """A stack that has been started, as a ``FragmentRunner``; for the stack's event loop.

    ``registered`` has all registered queries at that time, deleted ones too.
    """

    def __init__(self, stack: Stack, registered: Mapping[str, QueryDefinition]) -> None:
        self._stack, self._registered = stack, registered
        self._registering: Registering | None = None
        self._assigned = Assignment()
        self._aggregated = {*stack.deployment.queries}
        """Queries whose fragments aggregators may have."""
        self._own = {*stack.deployment.queries}
        """Queries that run as the stack has started them."""

    def open(self) -> None:
        """Do nothing: the stack has been opened."""

    async def close(self) -> None:
        """Do nothing: the stack stops itself, and runs on if the agent fails."""

    def registering(self) -> Registering:
        """See ``FragmentRunner``; the stack truncates the logs."""
        stack = self._stack
        self._registering = Registering(
            *(stack.transport, stack.listener, stack.options.deployment_path, stack.truncation),
            stack.begins,
            input_partitions=stack.options.input_partitions,
        )
        return self._registering

    @property
    def definitions(self) -> Mapping[str, QueryDefinition]:
        """All registered queries as last read, deleted ones too."""
        known = {} if self._registering is None else self._registering.definitions
        return known or self._registered

    def numbers_seen(self) -> Mapping[str, int]:
        """See ``FragmentRunner``; none, since the record's numbers are not used."""
        return {}

    async def settle(
        self, assigned: Assignment, deployment: Deployment, registered: Collection[str]
    ) -> None:
        """See ``FragmentRunner``.

        A query that the stack has started runs on as it is until the record has it, and all of it
        has been placed: the record gets the queries after the start, some perhaps much later.
        """
        stack = self._stack
        paused = {n for n, wanted in assigned.registered.items() if wanted is Wanted.PAUSED}
        recorded = without_queries(deployment, paused)
        recorded_own = self._own & recorded.queries.keys()
        self._own -= {n for n in recorded_own if _is_placed(n, recorded, paused, assigned)}
        self._own -= assigned.registered.keys() - recorded.queries.keys()
        self._own -= {n for n, query in self.definitions.items() if query.state == "deleted"}
        others = stack.deployment.queries.keys() - self._own
        own = without_queries(stack.deployment, others)
        declared = {s: stack.deployment.streams[s] for s in stack.declared_streams}
        changed = replace(
            own,
            streams={**deployment.streams, **(own.streams if own.queries else declared)},
            queries={**deployment.queries, **own.queries},
        )
        paused |= stack.paused & own.queries.keys()
        own_fragments = fragments_of(without_queries(own, paused), changed.queries.keys())
        self._assigned = assigned
        self._aggregated = (self._aggregated | {*registered}) & changed.queries.keys()
        if (changed, frozenset(paused)) != (stack.deployment, stack.paused):
            stack.set_queries(changed, paused)
        await stack.added.settle(changed)
        fragments = Fragments(stack.supervisor, stack.launch)
        # Aggregators come first, since they take longest.
        unregistered = changed.queries.keys() - self._aggregated
        running = without_queries(changed, paused | unregistered)
        await fragments.settle_aggregators(aggregators_of(running))
        await fragments.settle_hosts(dict.fromkeys([*assigned.fragments, *own_fragments]))

    def learn(self, streams: Iterable[str]) -> None:
        """See ``FragmentRunner``."""
        stack = self._stack
        present = sorted({*streams} & stack.deployment.streams.keys())
        Fragments(stack.supervisor, stack.launch).learn(present, stack.deployment)

    def ready(self) -> frozenset[str]:
        """See ``FragmentRunner``."""
        names = (*self._assigned.fragments, *self._assigned.proxies)
        return frozenset(name for name in names if self._stack.listener.ready(name))

    def superseded(self) -> frozenset[str]:
        """See ``FragmentRunner``; none, since there is one machine."""
        return frozenset()


def _is_placed(
    name: str, recorded: Deployment, paused: Collection[str], assigned: Assignment
) -> bool:
    """Whether all fragments of a running query are placed here."""
    query = recorded.queries[name]
    prefixes = (f"orderer/{query.child_query}.", f"root/{name}.")
    needed = {f for f in fragments_of(recorded, paused) if f.startswith(prefixes)}
    return needed <= assigned.fragments.keys()
