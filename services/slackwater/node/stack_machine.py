"""The machine of `slackwater up`: the agent of a node adds and ends fragments in a running stack.

The stack has started the queries of its deployment file before the agent begins, in the order that
is fastest (``runtime/local/stack.py``). The stack places fragments in processes (``layout.py``);
roots take their placement numbers from the registry in Kafka, as all fragments of the stack do.

Streams that were added with a query are not in the deployment file. Their proxies read a file that
is written from the record, as on a node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from slackwater.deployment.stored import SUFFIX, to_text
from slackwater.model.deployment import Deployment
from slackwater.model.names import ProxyName, own_name
from slackwater.node.placed_proxies import PlacedProxies
from slackwater.node.recorded import Assignment
from slackwater.node.registering import Registering
from slackwater.protocols.iads.control_state import Wanted
from slackwater.runtime.local.changes import Fragments
from slackwater.runtime.local.layout import aggregators_of, fragments_of
from slackwater.runtime.local.stack import Stack
from slackwater.runtime.security.private import write_atomically
from slackwater.runtime.service.registry import QueryDefinition

FILE: Final = f"added{SUFFIX}"


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
        self._has_begun = False
        self._unrecorded = set(stack.late.names)
        """Queries that the stack had not registered at its start, and that the record lacks."""
        self._file = stack.data_dir / FILE
        launch = replace(stack.launch, deployment_path=self._file)
        self._proxies = PlacedProxies(stack.supervisor, launch, "added")
        self._added = Deployment(stack.deployment.clock, {}, {})
        """The deployment in the file."""

    def open(self) -> None:
        """Do nothing: the stack has been opened."""

    async def close(self) -> None:
        """Do nothing: the stack stops itself, and runs on if the agent fails."""

    def registering(self) -> Registering:
        """See ``FragmentRunner``; the stack truncates the logs."""
        stack = self._stack
        self._registering = Registering(
            stack.transport, stack.listener, stack.path, stack.truncation
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

        What the stack runs is left as it is until all of it has been placed: at the start the
        record gets the queries, and the controller then places their fragments one after the other.
        Queries that the stack could not register yet are not in the record, and run.
        """
        stack = self._stack
        self._unrecorded -= {*deployment.queries, *assigned.registered}
        own = {n: q for n, q in stack.deployment.queries.items() if n in self._unrecorded}
        unrecorded = fragments_of(_only(stack.deployment, own))
        paused = {n for n, wanted in assigned.registered.items() if wanted is Wanted.PAUSED}
        declared = {s: stack.deployment.streams[s] for s in stack.declared_streams}
        changed = replace(
            stack.deployment,
            streams={**deployment.streams, **declared},
            queries={**deployment.queries, **own},
        )
        running = _only(changed, changed.queries.keys() - paused)
        wanted = [*dict.fromkeys([*assigned.fragments, *unrecorded])]
        self._has_begun |= {*fragments_of(running, paused)} <= {*wanted}
        if not self._has_begun:
            return
        self._assigned = assigned
        self._aggregated = (self._aggregated | {*registered}) & changed.queries.keys()
        if (changed, frozenset(paused)) != (stack.deployment, stack.paused):
            stack.set_queries(changed, paused)
        await self._settle_proxies(assigned.proxies, changed)
        fragments = Fragments(stack.supervisor, stack.launch)
        # Aggregators come first, since they take longest.
        aggregated = _only(running, self._aggregated)
        await fragments.settle_aggregators(aggregators_of(aggregated))
        await fragments.settle_hosts(wanted)

    async def _settle_proxies(self, assigned: Iterable[str], changed: Deployment) -> None:
        """Run the proxies of streams that the deployment file does not have."""
        own = self._stack.declared_streams
        added = [p for p in assigned if ProxyName.parse(own_name(p)).stream not in own]
        if added and changed != self._added:
            write_atomically(self._file, to_text(changed))
            self._added = changed
        await self._proxies.settle(added)

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


def _only(deployment: Deployment, names: Iterable[str]) -> Deployment:
    """The deployment with only these queries, in their order."""
    kept = {*names}
    queries = {name: query for name, query in deployment.queries.items() if name in kept}
    return replace(deployment, queries=queries)
