"""The whole system on machines: controllers place what runs, on a network that can be split.

Query q is applied through a controller, and perhaps changed; query v may be applied and deleted
while q runs. The nodes run what the record places on them, as in the product: an agent on each
starts and ends processes, and restarts those that end. All nodes reach Kafka, unless it is away;
the network between controllers, and between a node and a controller, can be cut. The checkers are
those of a run without machines, and ``placed`` has those of the record.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from tests.simulator.aggregator import Fragment as Aggregated
from tests.simulator.aggregator import SimAggregator
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Machines, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.history import History, Note
from tests.simulator.joined.clients import ADDED, Clients
from tests.simulator.joined.control_plane import ControlPlane
from tests.simulator.joined.node import SimNode
from tests.simulator.joined.registry import Registry
from tests.simulator.orderers import SimOrderer
from tests.simulator.process import Fragment, Process
from tests.simulator.queries import SimQuery
from tests.simulator.roots import SimRoot
from tests.simulator.sources import SimProxy
from tests.simulator.world import World

from slackwater.control.control_state import ControlState, Wanted, join_all
from slackwater.control.recorded import process_of
from slackwater.model.deployment import QuerySpec
from slackwater.model.names import (
    OrdererName,
    RootName,
    base_of,
    earlier_generations,
    generation_of,
    kind_of,
    latest_generation,
    own_name,
)
from slackwater.runtime.service.registry import QueryDefinition

FOLLOW_RECORD_US = 100 * MS


class JoinedWorld(World):
    """A deployment on nodes, with one or two queries, and generations of the first."""

    def __init__(self, seed: int, config: WorldConfig, machines: Machines, end_us: int) -> None:
        super().__init__(seed, config)
        assert config.chain is None, "queries on machines read streams alone"
        assert config.sharing is None, "queries on machines have children of their own"
        self.machines = machines
        self.nodes = {name: SimNode(self, name) for name in machines.nodes}
        self.control = ControlPlane(
            self, machines.controllers, machines.delay_us, machines.loss, end_us
        )
        self.cut_links: set[tuple[str, str]] = set()
        """Nodes and controllers that do not reach each other."""
        self.registry = Registry(self)
        self.clients = Clients(self)
        self._on: dict[int, SimNode] = {}
        """By process: its machine."""
        self._made: list[Process] = []
        """All processes ever."""
        self._were_live: set[str] = set()
        """Queries that have been recorded."""
        self._refused: set[str] = set()
        """Queries that cannot be registered."""
        for query in self.queries.values():
            query.is_registered = False

    # The machines.

    def start(self) -> None:
        """Start the controllers and the nodes, and apply the query."""
        self.control.begin()
        for node in self.nodes.values():
            self.scheduler.after(self.scheduler.between(0, 200 * MS), node.start)
        self.clients.apply_first()
        self.history.accepted.append(self.q.name)
        for name in self.config.placed_names:
            self.begin_outage(name, "not started")
        self._judge()
        self._sample()
        self._follow_record()

    # Queries.

    def query_of(self, name: str) -> SimQuery:
        """Return a query by name; a generation is made when it is needed first."""
        if name not in self.queries:
            assert base_of(name) == "q", name
            config = replace(self.config, name=name, added=None)
            query = self.queries[name] = SimQuery(self, config, self.history)
            query.lateness = config.lateness(self._learned)
            query.start_time_us = self.registry.entries[name].e0_us
            self.queries["q"].others.append(query)
        return self.queries[name]

    def begins_at(self, query: SimQuery, start_us: int) -> None:
        """Set the start of the query that is applied at run time."""
        assert self.history.reader is not None
        query.start_time_us = start_us
        query.config = replace(query.config, start_time_us=start_us)
        self.history.reader.config = query.config

    def reads_children(self, query: SimQuery, spec: QuerySpec) -> None:
        """Set the children that the query reads which is applied at run time."""
        assert self.history.reader is not None
        config = replace(query.config, children_of=spec.children_of, cut_windows=spec.cut_windows)
        query.config = self.history.reader.config = config

    def registered(self, entry: QueryDefinition) -> None:
        """An entry of the registry has been written."""
        query = self.query_of(entry.name)
        query.is_registered = entry.state != "deleted"
        for root in (root for each in self.queries.values() for root in each.roots.values()):
            if root.awaits_end and root.alive:
                root.turn_in(0)
        if entry.name == ADDED:
            self.reads_children(query, entry.spec)
            self.begins_at(query, entry.e0_us)
        self._judge()

    def cannot_register(self, name: str, why: str) -> None:
        """A query cannot be registered, and has to be deleted."""
        if name not in self._refused:
            self._refused.add(name)
            self.note(name, why)
            self.clients.give_up_added()

    def has_earlier(self, query: str) -> bool:
        """Whether the registry has an earlier generation of a query that has not ended."""
        live = (name for name, of in self.registry.entries.items() if of.state != "deleted")
        return bool(earlier_generations(query, live))

    def is_registered(self, process: str) -> bool:
        """Whether the query of a fragment is registered in Kafka; a proxy needs no query."""
        kind = kind_of(process)
        return kind == "proxy" or _query_of(process) in self.registry.entries

    def _follow_record(self) -> None:
        """Note which queries have been deleted; a merge may bring one back."""
        states = [node.object.state for node in self.control.nodes.values()]
        live = join_all(states).live_queries()
        known = list(self.queries.items())
        wanted = {each for name, query in known if name in live for each in _fragments(query)}
        self.retired -= wanted
        for name, query in known:
            if name in live:
                self._were_live.add(name)
                self.over(f"root/{name}.")
            elif name in self._were_live and not _fragments(query) - wanted <= self.retired:
                self._retire_query(query, live, wanted)
        latest = latest_generation("q", live)
        if latest is not None and latest in self.registry.entries:
            self.q = self.query_of(latest)
        self.scheduler.after(FOLLOW_RECORD_US, self._follow_record)

    def _retire_query(self, query: SimQuery, live: Collection[str], wanted: set[str]) -> None:
        ended = _fragments(query) - wanted
        for name in ended:
            self.over(name)
        self.retired |= ended
        if query.name == ADDED or self.history.deleted_at >= 0:
            # The half of a split network that has not received the deletion lacks what ends here.
            super().begin_outage(f"root/{query.name}.", "deleted")
        later = [name for name in live if query.name in earlier_generations(name, [query.name])]
        # The roots of the next one start now. One after it may not be registered yet.
        following = sorted(later, key=generation_of)[:1]
        known = [name for name in following if name in self.registry.entries]
        for root in (root for name in known for root in self.query_of(name).config.root_names):
            process = self._present(root)
            if process is None or not process.speaks:
                self.begin_outage(root, "down")

    def begin_outage(self, whom: str, what: str) -> None:
        """Begin an outage, unless it is of a query that has been deleted."""
        if whom not in self.retired:
            super().begin_outage(whom, what)

    def change(self) -> None:
        """Change q's definition at a controller (rule-29)."""
        self.clients.change()

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
            self.query_of(_query_of(name))
            query, at = self._fragment(rest)
            process = SimOrderer(query, *at, number)
        else:
            self.query_of(_query_of(name))
            query, of = self._part(rest)
            process = SimRoot(query, of.part, number, copy=of.copy, is_recorded=True)
        self._on[id(process)] = node
        self._made.append(process)
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
            process.query.roots[process.part, process.copy] = process
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

    def rebuild(self, process: Process) -> None:
        """Build a session again in its host on its node, at once and without a pause (rule-30)."""
        if not process.alive:
            return
        if self.is_present(process):
            self.begin_outage(process.name, "built again")
        process.kill()
        self._judge()
        self.node_of(process).rebuild(process)

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
            case "record-lost":
                for lost in self.machines.controllers:
                    control.lose(lost)
                    self.scheduler.after(for_us, partial(control.restart, lost))
            case "disk-lost":
                control.lose(name)
                self.scheduler.after(for_us, partial(control.restart, name))
            case "controller-pause":
                control.pause(name, for_us)
            case "split":
                self._split(frozenset(name.split()), for_us)
            case "drain":
                self.clients.drain(name, for_us)
            case "pause-query":
                self.clients.pause_query(for_us)
            case "apply":
                self.clients.apply_added()
            case "delete":
                self.clients.delete_added()
            case "delete-first":
                self.clients.delete_first()
            case _:
                fragment, _, node = name.partition(" ")
                self.clients.move(fragment, node)

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
        self._join_network()
        for name in self.machines.controllers:
            self.control.nodes[name].paused_until = 0
            self.control.restart(name)
        for node in self.nodes.values():
            node.start()
        self.clients.heal()

    @property
    def _names(self) -> list[str]:
        """The names of all processes that are there."""
        later = [query.config for name, query in self.queries.items() if generation_of(name)]
        names = [n for of in later for n in (*of.orderer_names, *of.root_names)]
        all_names = [*self.config.names, *self.aggregators, *names]
        return [name for name in all_names if self._present(name) is not None]

    def _present(self, name: str) -> Process | None:
        kind = kind_of(name)
        if kind in {"orderer", "root"}:
            query = self.queries.get(_query_of(name))
            if query is None or (kind == "orderer" and not query.has_children):
                return None
        return super()._present(name)

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
        self._finish_queries(first, state)
        live = state.live_queries()
        reports = self.control.reports(first)
        self.history.not_ready = sorted(
            f"{query}/{fragment}"
            for (query, fragment), entry in state.placement.items()
            if entry.number not in reports.ready
            and (query in live or process_of(query, fragment) in self.history.to_run)
        )
        return super().finish()

    def _finish_queries(self, first: str, state: ControlState) -> None:
        history, live = self.history, state.live_queries()
        history.recorded = [*live]
        history.registered = {**self.registry.states}
        history.tombstones = [
            name
            for name in state.queries_wanted(Wanted.DELETED)
            if state.queries[name].stamp.view_number < self.control.view_number(first)
        ]
        history.to_run = sorted(
            {name for query in live for name in self.query_of(query).config.placed_names}
        )
        history.alive = [(p.name, self.node_of(p).name) for p in self._made if p.alive]
        history.alive += [
            (query.orderer_name(child, replica), node.name)
            for node in self.nodes.values()
            if node.aggregator is not None and node.aggregator.alive
            for query, child, replica in node.aggregator.fragments
        ]
        for name in {note.process for note in history.reported_states}:
            if name not in history.to_run:
                history.reported_states.append(Note(self.scheduler.now, name, "ended"))


def _query_of(process: str) -> str:
    """The query of an orderer or a root."""
    of = OrdererName if kind_of(process) == "orderer" else RootName
    return of.parse(own_name(process)).query


def _fragments(query: SimQuery) -> set[str]:
    return {*query.config.orderer_names, *query.config.root_names}
