"""A machine of a run: the node's agent, and the processes that it runs.

The agent's decisions are the product's (``assignment``, ``join_all``); its shell is ``node.app``.
What survives kill -9 of a machine is the files of placement numbers and of the record that was
carried out last, and the spools.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulator.clock import MS, SECOND, Act
from tests.simulator.joined.registering import Registering
from tests.simulator.process import Fragment, Process
from tests.simulator.roots import SimRoot

from slackwater.control.control_object import ControlResponse, JoinNode
from slackwater.control.control_state import ControlState, Wanted
from slackwater.control.followed import FollowedRecord
from slackwater.control.recorded import (
    REGISTRATION,
    Assignment,
    applied_queries,
    assignment,
    deployment_of,
)
from slackwater.model.names import ONLY, OrdererName, kind_of, own_name
from slackwater.node.hand_over import HAND_OVER_S_MAX, HandOver, hand_overs
from slackwater.protocols.iads.detector import HEARTBEAT_PERIOD_US

if TYPE_CHECKING:
    from tests.simulator.aggregator import Fragment as Aggregated
    from tests.simulator.aggregator import SimAggregator
    from tests.simulator.joined.world import JoinedWorld

ROOM: Final = 40
SETTLE_US: Final = 20 * MS
REDIAL_US: Final = 500 * MS
ALONE_US: Final = 5_000 * MS
"""Wait of a node that starts for a controller's record."""
STAYS_DOWN_US: Final = (500 * MS, 2_000 * MS)
"""Pause before a fragment that stays down looks again whether its number has changed."""
LOOK_US: Final = 20 * MS
"""Mean pause before a node looks again whether the successor of a generation answers."""
UNREGISTERED_US: Final = (10 * MS, 50 * MS)
"""Pause before a fragment looks again whether its query is registered."""


class Beat(NamedTuple):
    """A heartbeat: placement numbers."""

    ready: frozenset[int]
    fenced: frozenset[int]
    ended: frozenset[int]
    answering: frozenset[int]


class Connection:
    """A life of a node's agent, as controllers see it."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.is_open = True

    def receive(self, controller: str, state: ControlState, *, is_new: bool) -> None:
        """The state of a controller's record arrives."""
        if self.is_open and not self.node.world.is_cut(self.node.name, controller):
            self.node.when_awake(self, lambda: self.node.receive(controller, state, is_new))

    def resign(self, controller: str, number: int) -> None:
        """The controller asks a copy of a part here to resign."""
        if self.is_open and not self.node.world.is_cut(self.node.name, controller):
            self.node.when_awake(self, lambda: self.node.resign(number))

    def broke(self, controller: str) -> None:
        """The controller's process has ended."""
        if self.is_open:
            self.node.when_awake(self, lambda: self.node.lost(controller))


class SimNode:
    """One machine."""

    def __init__(self, world: JoinedWorld, name: str) -> None:
        self.world, self.name, self.room = world, name, ROOM
        self.numbers: dict[str, int] = {}
        """The file of placement numbers."""
        self.record = ControlState()
        """The file of the record that was carried out last."""
        self.connection: Connection | None = None
        """None while the machine is down."""
        self.paused_until = 0
        self._deferred: list[tuple[Connection, Act]] = []
        """What arrived in a pause."""
        self.processes: dict[str, Process] = {}
        """By name: the newest life of what is placed here."""
        self._followed: FollowedRecord[str] = FollowedRecord()
        self.assigned = Assignment()
        self._starting: set[str] = set()
        self._down: dict[str, int] = {}
        """What has stayed down at its last start, with its number then."""
        self._is_joined = self._is_settling = False
        self._asked_at: dict[str, int] = {}
        self.state = ControlState()
        """What is carried out of the controllers' records."""
        self.settled = ControlState()
        """The one that ``assigned`` is a part of."""
        self.is_alone = False
        """Whether it carries out ``record`` without a controller."""
        self._registering: Registering | None = None
        self._kept: dict[str, int] = {}
        """What runs on of generations that have ended, with its numbers."""

    @property
    def is_up(self) -> bool:
        return self.connection is not None

    @property
    def is_awake(self) -> bool:
        return self.is_up and self.world.scheduler.now >= self.paused_until

    # Faults.

    def start(self) -> None:
        """Start the agent, which knows its files only."""
        if self.is_up:
            return
        connection = self.connection = Connection(self)
        self._followed, self.assigned = FollowedRecord(), Assignment()
        self.state = self.settled = ControlState()
        self._registering = Registering(self, connection)
        self._is_joined = self._is_settling = self.is_alone = False
        self._asked_at = {}
        self.world.note(self.name, "started")
        self._beat(connection)
        self.world.scheduler.after(ALONE_US, lambda: self.when_awake(connection, self._run_alone))

    def kill(self) -> None:
        """Kill -9 of all its processes."""
        if self.connection is None:
            return
        self.world.note(self.name, "killed")
        connection, self.connection = self.connection, None
        connection.is_open = False
        self.paused_until = 0
        self._deferred.clear()
        for controller in self.world.control.nodes:
            if not self.world.is_cut(self.name, controller):
                self.world.control.closed(controller, connection)
        self._kept.clear()
        for name in list(self.processes):
            self._end(name)
        self._starting.clear()
        self._down.clear()
        self._settle_aggregator()

    def pause(self, for_us: int) -> None:
        """Suspend the whole machine."""
        if not self.is_up:
            return
        until = self.world.scheduler.now + for_us
        self.paused_until = max(self.paused_until, until)
        self.world.note(self.name, f"suspended for {for_us} us")
        for process in [*self.processes.values(), *filter(None, [self.aggregator])]:
            self.world.suspend(process, for_us)

    # The agent.

    def when_awake(self, connection: Connection, act: Act) -> None:
        """Run an act of this life, after a pause if there is one; acts keep their order."""
        if self.connection is not connection:
            return
        if self.is_awake and not self._deferred:
            act()
            return
        self._deferred.append((connection, act))
        if len(self._deferred) == 1:
            self.world.scheduler.at(self.paused_until, self._wake)

    def _wake(self) -> None:
        """Run what arrived in a pause, unless it lasts longer."""
        if self.world.scheduler.now < self.paused_until:
            self.world.scheduler.at(self.paused_until, self._wake)
            return
        deferred, self._deferred = self._deferred, []
        for connection, act in deferred:
            if self.connection is connection:
                act()

    def _beat(self, connection: Connection) -> None:
        control, world = self.world.control, self.world
        numbers = self.assigned.numbers()
        ready = frozenset(numbers[name] for name in self._ready() if name in numbers)
        fenced = frozenset(n for name, n in self._down.items() if numbers.get(name) == n)
        beat = Beat(ready, fenced, self._ended(), self._answering())
        for controller in control.nodes:
            if world.is_cut(self.name, controller) or not control.works(controller):
                continue
            world.scheduler.after(
                world.link_us(),
                partial(control.beat, controller, connection, beat),
            )
            if (state := self._followed.of(controller)) and self._must_join(state):
                self._join(controller, connection)
            if (record := self._followed.to_give) is not None:
                world.scheduler.after(world.link_us(), partial(control.take, controller, record))
        world.scheduler.after(
            HEARTBEAT_PERIOD_US, lambda: self.when_awake(connection, lambda: self._beat(connection))
        )

    def _answering(self) -> frozenset[int]:
        """The copies of parts here that answer."""
        numbers = self.assigned.fragments
        return frozenset(
            numbers[name]
            for name, process in self.processes.items()
            if isinstance(process, SimRoot) and process.copy != ONLY
            if name in numbers and process.speaks and process.answers
        )

    def resign(self, number: int) -> None:
        """A copy here is to resign, if its follower is ready."""
        for name, process in self.processes.items():
            if self.assigned.fragments.get(name) == number and isinstance(process, SimRoot):
                process.hand_over()

    def _ended(self) -> frozenset[int]:
        """The registrations here that have carried out a deletion."""
        ended = frozenset[str]() if self._registering is None else self._registering.ended
        return frozenset(n for name, n in self.assigned.registrations.items() if name in ended)

    def _must_join(self, state: ControlState) -> bool:
        return not self._is_joined or self.name not in state.nodes

    def _join(self, controller: str, connection: Connection) -> None:
        now = self.world.scheduler.now
        if now - self._asked_at.get(controller, -REDIAL_US) < REDIAL_US:
            return
        self._asked_at[controller] = now

        def joined(response: ControlResponse) -> None:
            if self.connection is connection:
                assert not response.refusal, response.refusal
                self._is_joined = True

        join = JoinNode(self.name, self.room, (), max(self.numbers.values(), default=0))
        self.world.control.request(controller, join, joined)

    def receive(self, controller: str, state: ControlState, is_new: bool) -> None:
        """The record of a controller; a new one began without it."""
        self._followed.receive(controller, state, is_new=is_new)
        self._changed()

    def lost(self, controller: str) -> None:
        """The connection to a controller has ended."""
        if self._followed.lost(controller):
            self._changed()

    def _run_alone(self) -> None:
        """Run what it ran last, if no controller's record has arrived since its start."""
        if self.state == ControlState() != self.record:
            self.world.note(self.name, "runs what it ran last")
            self._followed.start_from(self.record)
            self.is_alone, self.state = True, self.record
            self.settle_soon()

    def _changed(self) -> None:
        if self._followed:
            self.is_alone = False
            self.state = self._followed.state
        self.settle_soon()

    def settle_soon(self) -> None:
        """Run what is placed here, soon."""
        connection = self.connection
        if connection is None or self._is_settling:
            return
        self._is_settling = True

        def settle() -> None:
            self._is_settling = False
            self._settle()

        self.world.scheduler.after(SETTLE_US, lambda: self.when_awake(connection, settle))

    def _settle(self) -> None:
        before, running = self.settled, self.assigned.fragments
        self.assigned, self.settled = assignment(self.state, self.name), self.state
        if not self.is_alone:
            self.record = self.state
        self._hand_over(before, running)
        if self.assigned.numbers() != self.numbers and self.assigned.numbers():
            self.numbers = self.assigned.numbers()
        wanted = {**self.assigned.proxies, **self.assigned.fragments}
        for name in [name for name in self.processes if name not in wanted.keys() | self._kept]:
            self._end(name)
        for name, number in list(self._down.items()):
            if wanted.get(name) != number:  # it starts with its new number, without a pause
                del self._down[name]
                self._starting.discard(name)
                if name in wanted:
                    self._start_soon(name, self.world.config.restart_us)
        self._settle_aggregator()
        for name in wanted:
            if name not in self.processes:
                self._start_soon(name, self.world.config.restart_us)
        assert self._registering is not None
        if not self.is_alone:  # queries may have been changed since
            self._registering.run_soon()

    def _hand_over(self, before: ControlState, running: Mapping[str, int]) -> None:
        """Let generations that have ended run on until their successors answer."""
        was, is_ = (deployment_of(applied_queries(of)) for of in (before, self.settled))
        until = self.world.scheduler.now + round(self.world.config.paced(SECOND) * HAND_OVER_S_MAX)
        for each in hand_overs(was, is_, running).values():
            self._kept |= each.fragments
            self._look_whether_over(each, until)

    def _look_whether_over(self, ended: HandOver, until: int) -> None:
        world, connection = self.world, self.connection
        if connection is None:
            return
        is_over = ended.later.name in world.queries and world.query_of(ended.later.name).answers
        if is_over or world.scheduler.now >= until:
            for name in ended.fragments:
                is_kept = self._kept.pop(name, None) is not None
                if is_kept and name in self.processes and name not in self.assigned.fragments:
                    self._end(name)
            self._settle_aggregator()
            return
        delay_us = world.scheduler.between(0, 2 * LOOK_US)
        world.scheduler.after(
            delay_us,
            lambda: self.when_awake(connection, partial(self._look_whether_over, ended, until)),
        )

    def _ready(self) -> set[str]:
        found = {name for name, process in self.processes.items() if self.world.follows(process)}
        registering, wanted = self._registering, self.assigned.registered
        if registering is None:
            return found
        waiting = {n for n, of in wanted.items() if of is Wanted.DELETED} - registering.ended
        return found | {f"{REGISTRATION}/{query}" for query in registering.done - waiting}

    # Processes.

    def _start_soon(self, name: str, between_us: tuple[int, int]) -> None:
        connection = self.connection
        if connection is None or name in self._starting:
            return
        self._starting.add(name)

        def start() -> None:
            self._starting.discard(name)
            number = {**self._kept, **self.assigned.proxies, **self.assigned.fragments}.get(name)
            before = self.processes.get(name)
            if number is None or (before is not None and before.alive):
                return
            if not self.world.is_registered(name):
                self._start_soon(name, UNREGISTERED_US)
                return
            process = self.processes[name] = self.world.make(self, name, number)
            self.world.begins(process)
            self._settle_aggregator()

        delay = self.world.scheduler.between(*between_us)
        self.world.scheduler.after(delay, lambda: self.when_awake(connection, start))

    def ended(self, process: Process) -> None:
        """A process has ended by itself: it is started again."""
        if self.processes.get(process.name) is process:
            self._start_soon(process.name, self.world.config.restart_us)

    def rebuild(self, process: Process) -> None:
        """Make a session again that has ended by itself in its host, which runs on."""
        name = process.name
        number = {**self._kept, **self.assigned.fragments}.get(name)
        if self.processes.get(name) is process and number is not None:
            self.processes[name] = self.world.make(self, name, number)
            self.world.begins(self.processes[name])

    def stays_down(self, process: Process) -> None:
        """A greater number was there: it looks again later."""
        if self.processes.get(process.name) is process:
            assert isinstance(process, Fragment)
            self._down[process.name] = process.placement
            self._start_soon(process.name, STAYS_DOWN_US)

    def works(self, process: Process) -> None:
        """A process has completed its start."""
        if self.processes.get(process.name) is process:
            self._down.pop(process.name, None)

    def _end(self, name: str) -> None:
        process = self.processes.pop(name)
        self._down.pop(name, None)
        if process.alive:
            self.world.end(process)

    # The aggregator runs the fragments of the orderers that are placed here.

    @property
    def aggregator(self) -> SimAggregator | None:
        return self.world.aggregators.get(f"aggregator/{self.name}")

    def _settle_aggregator(self) -> None:
        wanted = self._aggregated() if self.is_up else []
        running = self.aggregator
        if running is not None and running.alive and not wanted:
            self.world.end(running)
        elif wanted and (running is None or not running.alive):
            self.world.begins(self.world.make_aggregator(self, wanted))
        elif running is not None and wanted:
            for fragment in [each for each in running.fragments if each not in wanted]:
                running.remove(fragment)
            for fragment in wanted:
                if fragment not in running.fragments:
                    running.add(fragment)

    def restart_aggregator(self) -> None:
        """Start it again, soon."""
        connection = self.connection
        assert connection is not None
        delay = self.world.scheduler.between(*self.world.config.restart_us)
        self.world.scheduler.after(
            delay, lambda: self.when_awake(connection, self._settle_aggregator)
        )

    def _aggregated(self) -> list[Aggregated]:
        found = []
        for name in {**self._kept, **self.assigned.fragments}:
            if kind_of(name) == "orderer" and self.world.is_registered(name):
                of = OrdererName.parse(own_name(name))
                query = self.world.query_of(of.query)
                if not query.config.rows:
                    found.append((query, of.child, of.replica))
        return found
