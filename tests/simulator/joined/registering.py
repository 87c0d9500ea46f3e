"""The registration of queries in Kafka, as a node carries it out, and the end of replaced ones.

What is to be done is decided by the product (``changes``, ``replacements``, ``Registration``); its
shell is ``registration.registering``. A node reads the registry, and writes some time later:
another node, in the other half of a split network, may have written meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.simulator.clock import MS, Act

from slackwater.control.applied import AppliedQuery
from slackwater.control.control_object import DeleteQuery
from slackwater.control.control_state import Wanted
from slackwater.control.generations import replacements
from slackwater.control.plan import Apply, SetState, State, changes
from slackwater.control.recorded import applied_queries, deleted_since
from slackwater.runtime.service.registry import QueryDefinition

if TYPE_CHECKING:
    from tests.simulator.joined.node import Connection, SimNode

PUBLISH_US: Final = (5 * MS, 100 * MS)
"""Time to create topics, and to write an entry."""
AGAIN_US: Final = 250 * MS


class Registering:
    """What one life of a node's agent registers."""

    def __init__(self, node: SimNode, connection: Connection) -> None:
        self._node, self._connection = node, connection
        self.done: frozenset[str] = frozenset()
        """The queries placed here that are registered in their wanted state."""
        self.ended: frozenset[str] = frozenset()
        """Those of them that are registered as deleted."""
        self._tried: dict[str, int] = {}
        """Queries that it has been to register, with the generations of their entries."""
        self._is_due = False
        """Whether it is to run soon, or writes entries: a node does one after the other."""

    def run_soon(self, delay_us: int = 0) -> None:
        """Register what is placed here."""
        if self._is_due:
            return
        self._is_due = True

        def run() -> None:
            self._is_due = False
            self._run()

        self._later(delay_us, run)

    def _later(self, delay_us: int, act: Act) -> None:
        node, connection = self._node, self._connection
        node.world.scheduler.after(delay_us, lambda: node.when_awake(connection, act))

    def _run(self) -> None:
        world, node = self._node.world, self._node
        if not world.broker.up:
            self.run_soon(AGAIN_US)
            return
        applied = applied_queries(node.settled)
        assigned: dict[str, State] = {n: of.value for n, of in node.assigned.registered.items()}
        queries = node.settled.queries
        self._tried |= {n: queries[n].generation for n, of in assigned.items() if of != "deleted"}
        left: dict[str, State] = dict.fromkeys(deleted_since(self._tried, node.settled), "deleted")
        wanted = {**left, **assigned}
        stages = {name: each.deployment.stages(name) for name, each in applied.items()}
        known = world.registry.states
        lost = {
            name: why
            for name, of in assigned.items()
            if of != "deleted" and name in applied
            if (why := world.registry.why_other_children(name, applied))
        }
        for name, why in lost.items():
            world.cannot_register(name, why)
        to_do = [each for each in changes(wanted, known, stages) if each.query not in lost]
        entries = {
            each.query: replace(world.registry.entries[each.query], state=each.state)
            for each in to_do
            if isinstance(each, SetState)
        }
        waiting: set[str] = set()
        new = [each.query for each in to_do if isinstance(each, Apply)]
        if new and not entries:
            defined, problems = world.registry.define(new, applied)
            entries = {each.name: each for each in defined}
            waiting = {*new} - entries.keys()
            for name, why in problems.items():
                world.cannot_register(name, why)
        if entries:
            delay_us = world.scheduler.between(*PUBLISH_US)
            self._is_due = True
            self._later(delay_us, lambda: self._publish(entries))
            return
        used = {n for n, s in wanted.items() if s != "deleted" and known.get(n) == "deleted"}
        self._tried = {name: of for name, of in self._tried.items() if name not in left}
        self.done = frozenset(assigned) - waiting - used - {*lost}
        self.ended = frozenset(name for name in self.done if wanted[name] == "deleted")
        is_ended = self._end_replaced(applied)
        if self.done < {*assigned} or not is_ended:
            self.run_soon(AGAIN_US)

    def _publish(self, entries: dict[str, QueryDefinition]) -> None:
        world, self._is_due = self._node.world, False
        if world.broker.up:
            world.registry.entries |= entries
            for name, entry in entries.items():
                world.note(self._node.name, f"registers {name} as {entry.state}")
                world.registered(entry)
        self.run_soon()

    def _end_replaced(self, applied: dict[str, AppliedQuery]) -> bool:
        """Request the deletion of generations whose successors are ready; False if one is not."""
        world, node = self._node.world, self._node
        running = applied.keys() & node.state.queries_wanted(Wanted.RUNNING)
        in_progress = [each for each in replacements(running) if each[1] in self.done]
        for earlier, later in in_progress:
            if world.query_of(later).has_reached(world.query_of(earlier)):
                for controller in world.control.nodes:
                    if world.control.works(controller) and not world.is_cut(node.name, controller):
                        world.note(node.name, f"replaces {earlier} by {later}")
                        world.control.ask(controller, DeleteQuery(earlier, beside=later))
                        break
        return not in_progress
