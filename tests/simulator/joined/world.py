"""The whole system on machines: controllers place what runs, on a network that can be split.

Query q is applied through a controller. The nodes run what the record places on them, as in the
product: an agent on each starts and ends processes, and restarts those that end. All nodes reach
Kafka, unless it is away; the network between controllers, and between a node and a controller, can
be cut. The checkers are those of a run without machines, and ``placed`` has those of the record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.simulator.aggregator import Fragment as Aggregated
from tests.simulator.aggregator import SimAggregator
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Machines, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.history import History
from tests.simulator.joined.control_plane import ControlPlane
from tests.simulator.joined.definition import definition_of
from tests.simulator.joined.node import SimNode
from tests.simulator.orderers import SimOrderer
from tests.simulator.process import Fragment, Process
from tests.simulator.roots import SimRoot
from tests.simulator.sources import SimProxy
from tests.simulator.world import World

from slackwater.model.names import kind_of, own_name
from slackwater.node.recorded import key_of
from slackwater.protocols.iads.control_object import (
    ApplyQuery,
    ControlResponse,
    DrainNode,
    JoinNode,
    MoveFragment,
    Operation,
    PauseQuery,
    ResumeQuery,
)

FIRST_REQUEST_US = 200 * MS
MERGED_US = 3 * SECOND
"""Time until controllers that reach each other have one view."""
RETRY_US = SECOND
"""Pause of a client before it requests again."""


class JoinedWorld(World):
    """A deployment on nodes, with one query."""

    def __init__(self, seed: int, config: WorldConfig, machines: Machines, end_us: int) -> None:
        super().__init__(seed, config)
        assert config.reader is None, "one query runs on machines"
        self.machines = machines
        self.nodes = {name: SimNode(self, name) for name in machines.nodes}
        self.control = ControlPlane(
            self, machines.controllers, machines.delay_us, machines.loss, end_us
        )
        self.cut_links: set[tuple[str, str]] = set()
        """Nodes and controllers that do not reach each other."""
        self.is_registered = False
        """Whether a node has registered the query in Kafka."""
        self._on: dict[int, SimNode] = {}
        """By process: its machine."""
        self._later: list[tuple[int, Operation]] = []
        """Operations that undo others, and when."""
        self._undone: list[Operation] = []
        """All of them."""
        self._is_healed = False

    # The machines.

    def start(self) -> None:
        """Start the controllers and the nodes, and apply the query."""
        self.control.begin()
        for node in self.nodes.values():
            self.scheduler.after(self.scheduler.between(0, 200 * MS), node.start)
        self._insist(ApplyQuery(self.q.name, definition_of(self.config)))
        for name in self.config.placed_names:
            self.begin_outage(name, "not started")
        self._judge()
        self._sample()

    def _insist(self, operation: Operation, then: Callable[[], None] = lambda: None) -> None:
        """Request an operation at any controller until one responds; ``then`` follows."""
        done: list[ControlResponse] = []

        def responded(response: ControlResponse) -> None:
            done.append(response)
            if len(done) == 1:
                then()

        def ask() -> None:
            if done:
                return
            names = [name for name in self.machines.controllers if self.control.works(name)]
            if names:
                name = names[int(self.scheduler.rng.random() * len(names))]
                self.control.request(name, operation, responded)
            self.scheduler.after(RETRY_US, ask)

        self.scheduler.after(FIRST_REQUEST_US, ask)

    def _insist_for(self, operation: Operation, for_us: int, undo: Operation) -> None:
        """Request an operation, and undo it later, at the latest after the end of all faults.

        It is undone once more then: a merge may have overridden the first time.
        """
        self._undone.append(undo)
        self._insist(operation, lambda: self._later.append((self.scheduler.now + for_us, undo)))

        def look() -> None:
            due = [each for each in self._later if each[0] <= self.scheduler.now or self._is_healed]
            for each in due:
                self._later.remove(each)
                self._insist(each[1])
            self.scheduler.after(100 * MS, look)

        look()

    def is_cut(self, node: str, controller: str) -> bool:
        """Whether a node and a controller do not reach each other."""
        return (node, controller) in self.cut_links

    def link_us(self) -> int:
        """Return the delay of a message between a node and a controller."""
        return self.scheduler.between(self.machines.delay_us, 2 * self.machines.delay_us)

    # Processes.

    def node_of(self, process: Process) -> SimNode:
        """Return the machine that a process runs on."""
        return self._on[id(process)]

    def make(self, node: SimNode, name: str, number: int) -> Process:
        """Make a life of what is placed on a node."""
        kind, rest = kind_of(name), own_name(name)
        process: Process
        if kind == "proxy":
            process = self.proxies[rest] = SimProxy(self, rest)
        elif kind == "orderer":
            query, at = self._fragment(rest)
            process = SimOrderer(query, *at, number)
        else:
            query, part = self._part(rest)
            process = SimRoot(query, part, number, is_recorded=True)
        self._on[id(process)] = node
        return process

    def make_aggregator(self, node: SimNode, fragments: list[Aggregated]) -> SimAggregator:
        """Make a life of a node's aggregator."""
        name = f"aggregator/{node.name}"
        process = self.aggregators[name] = SimAggregator(self, name, fragments)
        self._on[id(process)] = node
        return process

    def begins(self, process: Process) -> None:
        """Start a process that was made."""
        self.note(process.name, f"started on {self.node_of(process).name}")
        process.start()
        self._judge()

    def end(self, process: Process) -> None:
        """End a process that is no longer placed on its node, or whose node is down."""
        process.kill()
        # An aggregator that ends has lost its orderers, too.
        if self.is_present(process) and not isinstance(process, SimAggregator):
            self.begin_outage(process.name, "down")
        self._judge()

    def works(self, process: Process) -> None:
        """A process has completed its start; it is the present one from now on."""
        before = self._present(process.name)
        if before is not None and before is not process and before.speaks:
            self._outlive(before)
        if isinstance(process, SimOrderer):
            process.query.orderers[process.child, process.replica] = process
        elif isinstance(process, SimRoot):
            process.query.roots[process.part] = process
        super().works(process)
        self.node_of(process).works(process)
        self._judge()

    def _outlive(self, zombie: Process) -> None:
        """Let a superseded process go on until it receives the other's heartbeat."""

        def sees() -> None:
            if zombie.alive:
                self.restart(zombie)

        self.scheduler.after(self.scheduler.between(*self.config.zombie_us), sees)

    def restart(self, process: Process) -> None:
        """A process ends; its node starts it again."""
        if not process.alive:
            return
        if self.is_present(process):
            self.begin_outage(process.name, "down")
        process.kill()
        self._judge()
        node = self.node_of(process)
        if isinstance(process, SimAggregator):
            node.restart_aggregator()
        else:
            node.ended(process)

    def kill(self, name: str, *, stays_down: bool = False) -> None:
        """Kill -9 of a process, wherever it runs."""
        assert not stays_down
        process = self._present(name)
        if process is not None and process.alive:
            self.restart(process)

    def pause(self, name: str, for_us: int, *, replaced: bool = False) -> None:
        """SIGSTOP of a process, and SIGCONT later."""
        assert not replaced
        process = self._present(name)
        if process is not None:
            self.suspend(process, for_us)

    def suspend(self, process: Process, for_us: int) -> None:
        """SIGSTOP of one life of a process, and SIGCONT later."""
        if not process.alive or process.paused:
            return
        if self.is_present(process):
            self.begin_outage(process.name, "down")
        process.pause()
        self.scheduler.after(for_us, partial(self._wake, process))
        self._judge()

    def _wake(self, process: Process) -> None:
        if process.alive and not self.is_present(process):
            self._outlive(process)
        process.wake()
        super().works(process)
        self._judge()

    def is_present(self, process: Process) -> bool:
        """Return whether it is the one that has completed its start last."""
        return self._present(process.name) is process

    def stays_down(self, process: Process) -> None:
        """The same fragment has a greater placement number elsewhere."""
        self.history.stayed_down += 1
        self.node_of(process).stays_down(process)

    def aggregates(self, orderer: SimOrderer) -> bool:
        """Return whether the aggregator on the orderer's node works, and has its fragment."""
        aggregator = self.node_of(orderer).aggregator
        fragment = (orderer.query, orderer.child, orderer.replica)
        return aggregator is not None and aggregator.speaks and fragment in aggregator.fragments

    @staticmethod
    def follows(process: Process) -> bool:
        """Return whether a process reads its input."""
        if not process.speaks:
            return False
        if isinstance(process, Fragment):
            return process.has_begun
        return isinstance(process, SimProxy) and process.core is not None

    # Faults.

    def on_machines(self, fault: Fault) -> None:
        """Inject a fault of machines, or an operation."""
        name, for_us, control = fault.whom, fault.for_us, self.control
        self.note("machines", f"{fault.what} {name}")
        match fault.what:
            case "node-kill":
                self.nodes[name].kill()
                self.scheduler.after(for_us, self.nodes[name].start)
            case "node-pause":
                self.nodes[name].pause(for_us)
            case "controller-kill":
                control.crash(name)
                self.scheduler.after(for_us, partial(control.restart, name))
            case "controller-pause":
                control.pause(name, for_us)
            case "split":
                self._split(frozenset(name.split()), for_us)
            case "drain":
                self._insist_for(DrainNode(name), for_us, JoinNode(name, self.nodes[name].room))
            case "pause-query":
                query = self.q.name
                self._insist_for(PauseQuery(query), for_us, ResumeQuery(query))
            case _:
                fragment, _, node = name.partition(" ")
                self._insist(MoveFragment(*key_of(fragment), node))

    def _split(self, half: frozenset[str], for_us: int) -> None:
        """Cut these controllers and nodes off from the others."""
        controllers = self.machines.controllers
        links = [(n, c) for n in self.nodes for c in controllers if (n in half) != (c in half)]
        peers = [(a, b) for a in controllers for b in controllers if a in half and b not in half]
        self.cut_links |= {*links}
        for one, other in peers:
            self.control.split(one, other)
        if self.scheduler.rng.random() < 0.5:  # the connections are closed, and not only silent
            for node, controller in links:
                self.scheduler.after(SECOND, partial(self._close, node, controller))
        self.scheduler.after(for_us, self._join_network)

    def _close(self, node: str, controller: str) -> None:
        if self.is_cut(node, controller):
            self.nodes[node].lost(controller)

    def _join_network(self) -> None:
        """Heal all cuts. What was sent meanwhile arrives now, or a new connection is made."""
        links, self.cut_links = self.cut_links, set()
        self.control.heal_network()
        for node, controller in links:
            self.control.send_again(controller, node)

    def heal(self) -> None:
        """End every fault."""
        super().heal()
        self._is_healed = True
        self._join_network()
        for name in self.machines.controllers:
            self.control.nodes[name].paused_until = 0
            self.control.restart(name)
        for node in self.nodes.values():
            node.start()
        for undo in self._undone:
            self.scheduler.after(MERGED_US, partial(self._insist, undo))

    @property
    def _names(self) -> list[str]:
        """The names of all processes that are there."""
        names = [*self.config.names, *self.aggregators]
        return [name for name in names if self._present(name) is not None]

    def finish(self) -> History:
        """Complete the history with what runs and what is placed."""
        first = min(self.machines.controllers)
        state = self.control.state(first)
        self.history.placed = {
            (name, number): node.name
            for node in self.nodes.values()
            for name, number in {**node.assigned.proxies, **node.assigned.fragments}.items()
        }
        self.history.running = [
            (process.name, node.name)
            for node in self.nodes.values()
            for process in node.processes.values()
            if self.follows(process)
        ]
        reports = self.control.reports(first)
        self.history.not_ready = sorted(
            f"{query}/{fragment}"
            for (query, fragment), entry in state.placement.items()
            if entry.number not in reports.ready
        )
        return super().finish()
