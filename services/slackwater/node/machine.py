"""The processes of a machine: hosts, aggregators and proxies of the fragments placed on it.

This is the only thing that starts the processes of a deployment, on a node as under
`slackwater up`: the processes read a file that is written from the record. What differs is the
machine's *place* (``NodePlace``, and under `up` ``stack/place.py``): names, the broker, and where
placement numbers come from.

If any query has a window, the first aggregator runs even without a fragment: a JVM takes seconds to
start, which would delay a take-over. The aggregators of a machine start one after the other: the
start of one takes seven seconds of CPU time, and one replica suffices for exact answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from slackwater.control.control_state import Wanted
from slackwater.control.recorded import Assignment
from slackwater.machine.background import Background
from slackwater.machine.changes import Fragments, fragments_to_hosts
from slackwater.machine.kept_process import ProcessEvent
from slackwater.machine.layout import aggregator_spec
from slackwater.machine.processes import Processes
from slackwater.model.deployment import Deployment
from slackwater.model.kinds import HOST, KINDS
from slackwater.model.names import AGGREGATOR, kind_of, own_name, stream_of
from slackwater.node.hand_over import HAND_OVER_S_MAX, HandOver, hand_overs
from slackwater.node.place import Place
from slackwater.protocols.flux.pair import ANSWERS
from slackwater.registration.begins import Begins
from slackwater.registration.registering import Registering
from slackwater.registration.truncation import Truncation
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.heartbeat_view import HeartbeatView
from slackwater.runtime.service.parts import LEARN, RESIGN
from slackwater.runtime.service.registry import Registry
from slackwater.runtime.service.settings import settings

AGGREGATOR_S_MAX: Final = 12.0
"""Longest delay of an aggregator by the start of the one before it."""
_LOOK_S: Final = 0.1


class FragmentRunner(Protocol):
    """Starts and ends fragments and proxies on one machine, for the agent of a node."""

    def open(self) -> None:
        """Begin; ``EnvironmentProblem`` if the machine cannot be used."""
        ...

    def registering(self) -> Registering | None:
        """What registers queries in Kafka; None before the first query is known."""
        ...

    def numbers_seen(self) -> Mapping[str, int]:
        """The placement numbers that the machine was given last, by the names of fragments."""
        ...

    async def settle(
        self, assigned: Assignment, deployment: Deployment, registered: Collection[str]
    ) -> None:
        """Start the assigned fragments and proxies, and end all others; idempotent.

        Args:
            assigned: what this machine is to run.
            deployment: all recorded queries.
            registered: the queries that are known to be registered.
        """
        ...

    def learn(self, streams: Iterable[str]) -> None:
        """Make the proxies of these streams that run here read the registry."""
        ...

    def ready(self) -> frozenset[str]:
        """The names of assigned fragments and proxies that run here and report ready."""
        ...

    def answering(self) -> frozenset[str]:
        """The names of the copies of parts here that answer."""
        ...

    def resign(self, fragment: str) -> None:
        """Let the other copy of a part take over, if it could at once; this one then follows."""
        ...

    def superseded(self) -> frozenset[str]:
        """The names of fragments that stay down, since another copy has a greater number."""
        ...

    async def close(self) -> None:
        """End what the machine has started; allowed at any time."""
        ...


class NodeMachine:
    """The processes of one machine; for one event loop. ``close`` in every case.

    Args:
        place: where they run.
        clock: the present time.
    """

    def __init__(self, place: Place, clock: SystemClock | None = None) -> None:
        self._place, self._clock = place, clock
        self._processes: Processes | None = None
        self._deployment = Deployment("wall", {}, {})
        self._assigned = Assignment()
        self._registered: Collection[str] = ()
        self._numbers: Mapping[str, int] = {}
        """The placement numbers that were written last."""
        self._ended: dict[str, HandOver] = {}
        """Generations that have ended, and run here until their successors answer."""
        self._settling = asyncio.Lock()
        self._aggregated: dict[str, list[str]] = {}
        self._wanted: Mapping[str, Sequence[str]] = {}
        """The aggregators that are to run, with their fragments."""
        self._aggregating = asyncio.Lock()
        self._others: asyncio.Task[None] | None = None
        """The start of the aggregators after the first one."""
        self._background = Background()

    def open(self) -> None:
        """See ``FragmentRunner``."""
        self._processes = self._place.open()

    def registering(self) -> Registering | None:
        """See ``FragmentRunner``; it also truncates logs from now on."""
        if self._processes is None:
            return None
        truncation = Truncation(self._processes.transport, (), self._processes.listener)
        every_s = settings().truncate_every_s
        self._background.run("truncation of logs", partial(truncation.run, every_s))
        registry = Registry(self._processes.transport)
        begins = Begins(registry, self._processes.listener, self._clock)
        self._background.run("begins of queries", begins.run)
        return self._place.registering(truncation, begins)

    def numbers_seen(self) -> dict[str, int]:
        """See ``FragmentRunner``."""
        return {} if self._place.numbers is None else self._place.numbers.read()

    def events(self) -> list[ProcessEvent]:
        """All events of processes so far, in order."""
        return [] if self._processes is None else list(self._processes.supervisor.events)

    async def settle(
        self, assigned: Assignment, deployment: Deployment, registered: Collection[str]
    ) -> None:
        """See ``FragmentRunner``.

        An aggregator gets only the fragments of registered queries: it would wait for the
        registration of another query, and its other fragments with it.
        """
        if self._processes is None:
            if not deployment.queries:
                return
            self._processes = self._place.begin(deployment, self._background)
        async with self._settling:
            ended = hand_overs(self._deployment, deployment, self._assigned.fragments)
            if deployment.queries:
                self._deployment = deployment
            self._ended |= ended
            await self._settle(assigned, deployment, registered)
        for name, each in ended.items():
            self._background.run(f"end of {name}", partial(self._end, name, each))

    async def _end(self, name: str, ended: HandOver) -> None:
        """End a generation here when its successor answers."""

        def is_over(view: HeartbeatView) -> bool:
            return ended.is_over(view.latest)

        await asyncio.to_thread(self._of_processes.listener.wait_for, is_over, HAND_OVER_S_MAX)
        async with self._settling:
            self._ended.pop(name, None)
            await self._settle(self._assigned, self._deployment, self._registered)

    @property
    def _kept(self) -> dict[str, int]:
        """The fragments of generations that have ended, with their placement numbers."""
        return {name: n for each in self._ended.values() for name, n in each.fragments.items()}

    async def _settle(
        self, assigned: Assignment, deployment: Deployment, registered: Collection[str]
    ) -> None:
        paused = {n for n, wanted in assigned.registered.items() if wanted is Wanted.PAUSED}
        self._place.take(deployment, paused)
        # What stayed down, and has another number now, starts without the pause of a failure.
        again = {
            name
            for name in self.superseded()
            if assigned.fragments.get(name) != self._assigned.fragments[name]
        }
        wanted = {**self._kept, **assigned.fragments}
        numbers = {**self._kept, **assigned.numbers()}
        if numbers != self._numbers and self._place.numbers is not None:
            self._place.numbers.write(numbers)
        self._assigned, self._registered, self._numbers = assigned, registered, numbers
        await self._place.settle_proxies(assigned.proxies, self._deployment)
        await self._settle_aggregators(self._aggregators(wanted, {*registered, *self._ended}))
        if again:
            await self._fragments.settle_hosts(wanted.keys() - again)
        await self._fragments.settle_hosts(wanted)

    def learn(self, streams: Iterable[str]) -> None:
        """See ``FragmentRunner``."""
        wanted = {*streams}
        if self._processes is not None:
            supervisor = self._processes.supervisor
            for part in supervisor.names():
                if stream_of(part) in wanted:
                    supervisor.command(part, LEARN)

    def ready(self) -> frozenset[str]:
        """See ``FragmentRunner``."""
        return frozenset(
            name
            for name in (*self._assigned.fragments, *self._assigned.proxies)
            if self._of_processes.is_ready(name)
        )

    def answering(self) -> frozenset[str]:
        """See ``FragmentRunner``."""
        found = {name: self._of_processes.latest(name) for name in self._assigned.fragments}
        return frozenset(name for name, beat in found.items() if beat and beat.detail.get(ANSWERS))

    def resign(self, fragment: str) -> None:
        """See ``FragmentRunner``."""
        self._of_processes.supervisor.command(fragment, RESIGN)

    def superseded(self) -> frozenset[str]:
        """See ``FragmentRunner``.

        A fragment that has been given another number since is not among them.
        """
        if self._processes is None:
            return frozenset()
        processes = self._processes
        return frozenset(
            name
            for name, number in self._assigned.fragments.items()
            if processes.stayed_down_with(name) == number and not processes.is_ready(name)
        )

    async def close(self) -> None:
        """See ``FragmentRunner``."""
        if self._others is not None:
            self._others.cancel()
            await asyncio.gather(self._others, return_exceptions=True)
        await self._background.end()
        await self._place.close()

    @property
    def _of_processes(self) -> Processes:
        assert self._processes is not None, "nothing is assigned before the first query is known"
        return self._processes

    @property
    def _fragments(self) -> Fragments:
        return Fragments(self._of_processes.supervisor, self._of_processes.launch)

    def _aggregators(
        self, fragments: Mapping[str, int], registered: Collection[str]
    ) -> dict[str, list[str]]:
        """The aggregated fragments of each aggregator; replicas of a child are kept apart."""
        ended = {name: each.ended for name, each in self._ended.items()}
        queries = {**ended, **self._deployment.queries}
        # The query that children are named after may have been deleted, and others read them.
        # ``one.0.a`` is also the rest of the name of a root's copy.
        aggregated = {
            own_name(fragment)
            for name, query in queries.items()
            if name in registered
            for copies in KINDS[AGGREGATOR].groups(query)
            for fragment in copies
        }
        placed = fragments_to_hosts(
            [
                name
                for name in fragments
                if KINDS[kind_of(name)].is_shared and own_name(name) in aggregated
            ],
            self._aggregated,
        )
        self._aggregated = {at: has for at, has in placed.items() if has}
        if not self._aggregated and any(query.is_aggregated for query in queries.values()):
            self._aggregated = {next(iter(placed), f"{HOST}/0"): []}
        return {
            f"{AGGREGATOR}/{self._place.prefix}{own_name(at)}": [own_name(each) for each in has]
            for at, has in self._aggregated.items()
        }

    async def _settle_aggregators(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Run these aggregators; one that does not run yet starts after those that do."""
        async with self._aggregating:
            self._wanted = wanted
            running = wanted.keys() & {*self._of_processes.supervisor.processes()}
            now = running or {*[*wanted][:1]}
            await self._fragments.settle_aggregators(
                {name: has for name, has in wanted.items() if name in now}
            )
        if len(now) < len(wanted) and (self._others is None or self._others.done()):
            self._others = asyncio.create_task(self._start_others())

    async def _start_others(self) -> None:
        """Start the aggregators that do not run, each when the ones before it are ready."""
        supervisor = self._of_processes.supervisor
        while True:
            await self._await_aggregators()
            async with self._aggregating:
                left = [name for name in self._wanted if name not in supervisor.processes()]
                if not left:
                    return
                spec = aggregator_spec(left[0], self._wanted[left[0]], self._of_processes.launch)
                await supervisor.start(spec)

    async def _await_aggregators(self) -> None:
        """Wait until those that run are ready, for ``AGGREGATOR_S_MAX`` at most."""
        processes = self._of_processes
        for _ in range(round(AGGREGATOR_S_MAX / _LOOK_S)):
            running = self._wanted.keys() & {*processes.supervisor.processes()}
            if all(processes.listener.ready(name) for name in running):
                return
            await asyncio.sleep(_LOOK_S)
