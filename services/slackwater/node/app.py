"""The process ``slackwater node``: runs what the controllers place on this machine.

A node is connected to every controller that it reaches. It sends heartbeats to each of them, and
receives the replicated record from each. While the network is split the records differ, and the
node follows their *join*: of two placements of a fragment, the one with the greater number counts.
Without a controller it continues to run what it runs; results do not depend on controllers. One
that starts and reaches none for ``ALONE_S`` runs what it ran last (``last_record.py``); queries are
registered, changed and deleted only once it has reached one.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from slackwater.control.applied import AppliedQuery
from slackwater.control.control_object import DeleteQuery, JoinNode
from slackwater.control.control_state import ControlState, Wanted
from slackwater.control.followed import FollowedRecord
from slackwater.control.generations import replacements
from slackwater.control.recorded import (
    REGISTRATION,
    Assignment,
    applied_queries,
    assignment,
    deleted_since,
    deployment_of,
    fragment_specs,
    not_applied,
)
from slackwater.controller.address import Address
from slackwater.controller.client import ControlClient, connect
from slackwater.controller.links import CONNECTED_ALREADY, LinkError, NodeBeat, StateFrame
from slackwater.controller.tls import LinkTls
from slackwater.model.errors import UsageError
from slackwater.node.clocks import ClockComparison
from slackwater.node.last_record import LastRecord
from slackwater.node.machine import FragmentRunner
from slackwater.node.repeating import RETRY_S_MAX, repeat
from slackwater.protocols.iads.detector import HEARTBEAT_PERIOD_US
from slackwater.registration.registering import Registering
from slackwater.runtime.service.settings import settings

_log = logging.getLogger(__name__)

CHANGING_S_MAX: Final = 1.0
"""Longest pause before registration is repeated while a query is being changed: nothing reports
that its new generation is ready."""
READINGS_S: Final = 0.2
"""The same while a query waits for its first reading."""
DIAL_S_MIN: Final = 0.1
DIAL_S_MAX: Final = 2.0
SAME_NAME_S_MAX: Final = 10.0
"""How long a node that starts is refused for its name before it ends. The name may be that of this
node's earlier process, whose connection controllers take for alive for some seconds."""
ALONE_S: Final = 5.0
"""Wait of a node that starts for the record of a controller. Controllers that start at the same
time need a second or two."""
PROBLEM_CHARS_MAX: Final = 500


@dataclass(frozen=True)
class NodeConfig:
    """Options of a node; ``room`` is the number of fragments that it can take."""

    name: str
    controllers: Sequence[Address]
    room: int
    labels: Mapping[str, str]
    secret: bytes = field(default=b"", repr=False)
    tls: LinkTls | None = None


def run_node(config: NodeConfig, machine: FragmentRunner, last: LastRecord) -> None:
    """Run until SIGTERM or SIGINT; ``last`` is what it runs if it reaches no controller.

    Raises:
        EnvironmentProblem: the data directory cannot be used.
        UsageError: the controllers refuse the node.
    """
    logging.getLogger("slackwater.node").setLevel(logging.INFO)
    asyncio.run(_run_until_stopped(Node(config, machine, last=last)))


async def _run_until_stopped(node: Node) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopping.set)
    running, ending = asyncio.create_task(node.run()), asyncio.create_task(stopping.wait())
    await asyncio.wait({running, ending}, return_when="FIRST_COMPLETED")
    for task in (running, ending):
        task.cancel()
    with suppress(asyncio.CancelledError):
        await running


def _unchanged(state: ControlState) -> ControlState:
    return state


class Node:
    """A machine's agent; ``run`` may be called once.

    Args:
        config: its name, its controllers and what it offers.
        machine: starts and ends the processes.
        view: returns the state that this node is to carry out for a state of the record.
        known: registered queries, with the generations of their entries in the record.
        last: the record that was carried out last; None for a machine with its own controller.
        registered: is set when this node has been to register all queries of a state.
    """

    def __init__(
        self,
        config: NodeConfig,
        machine: FragmentRunner,
        *,
        view: Callable[[ControlState], ControlState] = _unchanged,
        known: Mapping[str, int] = MappingProxyType({}),
        last: LastRecord | None = None,
        registered: asyncio.Event | None = None,
    ) -> None:
        self._config = config
        self._machine = machine
        self._view = view
        self._last = last
        self._followed: FollowedRecord[Address] = FollowedRecord()
        self._clients: dict[Address, ControlClient] = {}
        self._state = ControlState()
        self._changed, self._duties_changed = asyncio.Event(), asyncio.Event()
        self._is_joined = self._has_left = self._is_changing = False
        self._assigned, self._settled = Assignment(), ControlState()
        """What this node is to run, and the record's state of which this is a part."""
        self._ran_last: ControlState | None = None
        """The state that this node carries out on its own, without a controller."""
        self._registering: Registering | None = None
        self._refused_since_s: float | None = None
        """Since when controllers refuse this node for its name."""
        self._registered: frozenset[str] = frozenset()
        self._deleted: frozenset[str] = frozenset()
        """Those of them that are registered as deleted."""
        self._tried = dict(known)
        """Queries that this node has been to register, with the generations of their entries."""
        self._known = {*known}
        """Queries that are known to be registered. The proxies here have been notified of them, and
        aggregators may get their fragments."""
        self._has_registered = registered or asyncio.Event()
        self._problem = ""
        self._clocks = ClockComparison(lambda: applied_queries(self._state))
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None]

    @property
    def waiting(self) -> frozenset[str]:
        """The recorded queries that are not known to be registered."""
        return frozenset(applied_queries(self._state).keys() - self._known)

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            EnvironmentProblem: the data directory cannot be used.
            UsageError: the controllers refuse the node.
        """
        self._failure = asyncio.get_running_loop().create_future()
        self._machine.open()
        try:
            for address in self._config.controllers:
                self._start(self._hold(address))
            self._start(self._settle_always())
            self._start(self._register_always())
            self._start(self._run_alone())
            await self._failure
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._machine.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a part of the node, also one that begins later; an error of it ends the node."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not self._failure.done():
            self._failure.set_exception(error)

    # Controllers

    async def _hold(self, address: Address) -> None:
        """Keep a connection to one controller."""
        pause_s, reason = DIAL_S_MIN, ""
        while True:
            try:
                async with connect(
                    [address],
                    self._config.secret,
                    self._config.name,
                    lambda frame: self._receive(address, frame),
                    self._config.tls,
                ) as client:
                    self._clients[address] = client
                    measuring = asyncio.create_task(self._clocks.run(client))
                    measuring.add_done_callback(self._ended)
                    try:
                        await self._report_to(client, address)
                    finally:
                        measuring.cancel()
                        del self._clients[address]
                        await asyncio.gather(measuring, return_exceptions=True)
                        self._clocks.forget(client.controller)
            except LinkError as error:
                if self._followed.of(address) or str(error) != reason:
                    reason = str(error)
                    _log.warning("%s", reason)
                self._check_name(str(error))
            if self._followed.lost(address):
                pause_s = DIAL_S_MIN
                if self._followed:
                    self._follow()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, DIAL_S_MAX)

    def _check_name(self, reason: str) -> None:
        """Raise ``UsageError`` if controllers refuse this node since another one has its name."""
        if self._is_joined or self._followed or CONNECTED_ALREADY not in reason:
            return
        now_s = asyncio.get_running_loop().time()
        self._refused_since_s = self._refused_since_s or now_s
        if now_s - self._refused_since_s > SAME_NAME_S_MAX:
            raise UsageError(
                f"another node {self._config.name} is connected to the controllers: end it, or"
                " start this one with another --name"
            )

    async def _report_to(self, client: ControlClient, address: Address) -> None:
        """Send heartbeats until the connection breaks."""
        given: ControlState | None = None
        while True:
            beat = self._beat(client.controller)
            client.beat(beat)
            if self._is_joined and (file := settings().health_file) is not None:
                self._touch_health(file, {*beat.ready})
            if (record := self._followed.to_give) is not None and record is not given:
                client.offer(record)  # before it joins: then fragments could be placed anew
                given = record
            if (state := self._followed.of(address)) is not None and self._must_join(state):
                await self._request_join(client)
            await asyncio.sleep(HEARTBEAT_PERIOD_US / 1e6)

    def _touch_health(self, file: Path, ready: Set[int]) -> None:
        """Tell the container's health check that all that is placed here is ready."""
        if is_ready(self._config.name, self._state, ready):
            with suppress(OSError):
                file.touch()

    def _must_join(self, state: ControlState) -> bool:
        """Whether this node is to join: at its start, or if a controller's record lacks it.

        It also joins again if its room or labels differ from the recorded ones. If an operator has
        removed it, it joins again only after a restart.
        """
        entry, config = state.nodes.get(self._config.name), self._config
        if not self._is_joined:
            return True
        self._has_left |= entry is not None and entry.left
        if self._has_left:
            return False
        wanted = (config.room, tuple(sorted(config.labels.items())))
        return entry is None or (entry.room, entry.labels) != wanted

    async def _request_join(self, client: ControlClient) -> None:
        config = self._config
        numbers = await asyncio.to_thread(self._machine.numbers_seen)
        operation = JoinNode(
            config.name,
            config.room,
            tuple(sorted(config.labels.items())),
            max(numbers.values(), default=0),
        )
        asking = asyncio.create_task(client.request(operation))
        try:
            while not asking.done():  # heartbeats go on while the controllers do not agree
                client.beat(self._beat(client.controller))
                await asyncio.wait({asking}, timeout=HEARTBEAT_PERIOD_US / 1e6)
        except LinkError:
            asking.cancel()
            raise
        if refusal := asking.result().response.refusal:
            raise UsageError(f"controller {client.controller} refuses this node: {refusal}")
        self._is_joined = True

    def _receive(self, address: Address, frame: StateFrame) -> None:
        if self._followed.of(address) is None:
            _log.info("connected to controller %s", frame.controller)
        self._followed.receive(address, frame.state, is_new=frame.is_new)
        self._follow()
        for name, number in self._assigned.fragments.items():
            if number in frame.resign:
                self._machine.resign(name)

    def _follow(self) -> None:
        self._state = self._view(self._followed.state)
        self._changed.set()

    async def _run_alone(self) -> None:
        """Run what this node ran last, if it has not reached a controller some time after start."""
        saved = None if self._last is None else await asyncio.to_thread(self._last.read)
        if saved is None:
            return
        await asyncio.sleep(ALONE_S)
        if self._state == ControlState():
            _log.warning("no controller can be reached: this node runs what it ran last")
            self._followed.start_from(saved)
            self._state = self._ran_last = self._view(saved)
            self._changed.set()

    def _beat(self, controller: str) -> NodeBeat:
        numbers, deleted = self._assigned.numbers(), self._deleted
        wanted = self._assigned.registered
        waiting = {name for name in wanted if wanted[name] is Wanted.DELETED} - deleted
        ready = {*self._machine.ready()}
        ready |= {f"{REGISTRATION}/{name}" for name in self._registered - waiting}
        clock = self._clocks.of(controller)
        return NodeBeat(
            self._config.name,
            tuple(sorted(numbers[name] for name in ready if name in numbers)),
            tuple(sorted(numbers[name] for name in self._machine.superseded())),
            "; ".join(filter(None, [self._problem, self._clocks.problem]))[:PROBLEM_CHARS_MAX],
            clock.offset_us,
            clock.error_us,
            tuple(sorted(n for name, n in self._assigned.registrations.items() if name in deleted)),
            tuple(sorted(numbers[name] for name in self._machine.answering() if name in numbers)),
        )

    # What is placed here. Registration waits for Kafka; processes start and end meanwhile.

    async def _settle(self) -> None:
        """Run what is placed here."""
        state = self._state
        applied = applied_queries(state)
        assigned = assignment(state, self._config.name)
        self._known &= applied.keys()
        if self._last is not None and state is not self._ran_last:
            await asyncio.to_thread(self._last.write, state)
        await self._machine.settle(assigned, deployment_of(applied), self._known)
        self._assigned, self._settled = assigned, state

    async def _register(self) -> bool:
        """Register the queries placed here, and end replaced ones; False if some work remains."""
        assigned, state = self._assigned, self._settled
        is_alone = state is self._ran_last
        if is_alone:  # queries may have been changed since
            assigned = replace(assigned, registered={}, registrations={})
        if self._registering is None:
            self._registering = self._machine.registering()
            if self._registering is None:
                return True
            self._start(self._registering.run())
        applied = applied_queries(state)
        # A node that did not receive a deletion has perhaps registered the query after it: another
        # node may have found that there was nothing to delete.
        self._tried |= {
            name: state.queries[name].generation
            for name, wanted in assigned.registered.items()
            if wanted is not Wanted.DELETED
        }
        tried = {} if is_alone else self._tried
        left = dict.fromkeys(deleted_since(tried, state), Wanted.DELETED)
        done, problem = await self._registering.carry_out(
            {**left, **assigned.registered}, applied, deployment_of(applied)
        )
        self._tried = {n: of for n, of in self._tried.items() if n not in left or n not in done}
        self._registered = done & assigned.registered.keys()
        self._deleted = frozenset(
            name for name in self._registered if assigned.registered[name] is Wanted.DELETED
        )
        if applied.keys() - self._known:
            found = {*await asyncio.to_thread(self._registering.registered)} & applied.keys()
            for name in found - self._known:
                query = applied[name].deployment
                self._machine.learn(query.streams.keys() & {*query.queries[name].sources})
            if found - self._known:
                self._known |= found
                self._changed.set()
        reasons = [f"query {name}: {why}" for name, why in not_applied(self._state).items()]
        self._report("; ".join([*reasons, *filter(None, [problem])]))
        is_registered = done >= {*left, *assigned.registered}
        if applied.keys() <= assigned.registered.keys():
            self._has_registered.set()
        are_ready, refusal = await self._end_replaced(self._registering, applied)
        if refusal:
            self._report("; ".join(filter(None, [self._problem, refusal])))
        return applied.keys() <= self._known and is_registered and are_ready

    async def _end_replaced(
        self, registering: Registering, applied: Mapping[str, AppliedQuery]
    ) -> tuple[bool, str]:
        """Request the deletion of generations whose successors are registered here and ready.

        Returns:
            Whether all deletions have been requested, and why the controllers refuse one.
        """
        running = applied.keys() & self._state.queries_wanted(Wanted.RUNNING)
        changes = [c for c in replacements(running) if c[1] in self._registered]
        self._is_changing = bool(changes)
        if not changes:
            return True, ""
        queries = {name: each.deployment.queries[name] for name, each in applied.items()}
        ended = await registering.are_ready(changes, queries)
        requested = 0
        for earlier, later in ended:
            for client in list(self._clients.values()):
                with suppress(LinkError):
                    deletion = DeleteQuery(earlier, beside=later)  # perhaps it has been cancelled
                    response = (await client.request(deletion)).response
                    if response.refusal:
                        return False, f"query {earlier} cannot be replaced: {response.refusal}"
                    _log.info("query %s is replaced", earlier)
                    requested += 1
                    break
        return requested == len(changes), ""

    async def _settle_always(self) -> None:
        async def settle() -> bool:
            await self._settle()
            self._duties_changed.set()
            return True

        await repeat(self._changed, settle, self._report, lambda: RETRY_S_MAX)

    async def _register_always(self) -> None:
        await repeat(self._duties_changed, self._register, self._report, lambda: self._retry_s_max)

    @property
    def _retry_s_max(self) -> float:
        if self._registering is not None and self._registering.awaits_readings:
            return READINGS_S
        return CHANGING_S_MAX if self._is_changing else RETRY_S_MAX

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem


def is_ready(node: str, state: ControlState, ready: Set[int]) -> bool:
    """Whether all that the record has placed on a node is ready there.

    A node on which nothing is placed is ready if everything is placed elsewhere. Otherwise it is
    about to get something, as after its start.

    Args:
        node: its name.
        state: the latest state of the record.
        ready: the placement numbers of what is ready on it.
    """
    if numbers := assignment(state, node).numbers():
        return ready >= {*numbers.values()}
    return all((s.query, s.fragment) in state.placement for s in fragment_specs(state))
