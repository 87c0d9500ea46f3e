"""A query is deleted while the node that registers it fails, or Kafka is away.

The deletion has to be carried out in the registry in Kafka by a node. Until then a tombstone of the
query is in the record, whatever happens to nodes and controllers.
"""

from __future__ import annotations

from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Added, Machines, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.joined.clients import ADDED
from tests.simulator.joined.node import SimNode
from tests.simulator.joined.world import JoinedWorld

from slackwater.node.recorded import REGISTRATION

MACHINES = Machines()
CONFIG = WorldConfig(
    machines=MACHINES,
    added=Added(window_us=200 * MS, slide_us=200 * MS),
    bound_us=300 * MS,
    margin_us=20 * MS,
    pace=0.3,
)
NEW_VIEW_US = 3 * SECOND
"""By then controllers have noticed that one of them has ended or begun."""


class Deletion:
    """A deployment on which v runs, and is deleted while Kafka is away."""

    def __init__(self) -> None:
        self.world = JoinedWorld(1, CONFIG, MACHINES, 60 * SECOND)
        self.world.start()
        self.world.run(3 * SECOND)
        self.strike("apply")
        self.world.run(3 * SECOND)
        assert self.registered == "running"
        self.world.broker.go_away()
        self.strike("delete")
        self.world.run(1 * SECOND)
        assert self.tombstones == {*MACHINES.controllers}, "the deletion is accepted"

    def strike(self, what: str, whom: str = "", for_us: int = 0) -> None:
        """Inject a fault, or request an operation."""
        Fault(0, what, whom, for_us).strike(self.world)

    def kafka_is_back(self) -> None:
        self.world.broker.come_back()
        self.world.run(1 * SECOND)

    def views_change(self) -> None:
        """Each controller is killed, and restarted."""
        for name in MACHINES.controllers:
            self.strike("controller-kill", name, 1 * SECOND)
            self.world.run(1 * SECOND + NEW_VIEW_US)

    @property
    def registered(self) -> str:
        """The state of v in the registry in Kafka."""
        return self.world.registry.states[ADDED]

    @property
    def tombstones(self) -> set[str]:
        """The controllers that have a tombstone of v."""
        states = {name: self.world.control.state(name) for name in MACHINES.controllers}
        return {
            name
            for name, state in states.items()
            if ADDED in {*state.queries} - {*state.live_queries()}
        }

    @property
    def node(self) -> SimNode:
        """The node that is to carry out the deletion."""
        entry = self.world.control.state("a").placement[ADDED, REGISTRATION]
        return self.world.nodes[entry.node]


def test_a_deletion_is_carried_out_by_another_node_if_its_node_has_died() -> None:
    deletion = Deletion()
    dead = deletion.node
    dead.kill()
    deletion.world.run(4 * SECOND)
    assert deletion.node is not dead
    deletion.kafka_is_back()
    assert deletion.registered == "deleted"


def test_a_deletion_is_carried_out_by_another_node_if_its_node_drains() -> None:
    deletion = Deletion()
    drained = deletion.node
    deletion.strike("drain", drained.name, 60 * SECOND)
    deletion.world.run(4 * SECOND)
    assert deletion.node is not drained
    deletion.kafka_is_back()
    assert deletion.registered == "deleted"


def test_a_tombstone_outlives_views_until_the_deletion_has_been_carried_out() -> None:
    deletion = Deletion()
    deletion.views_change()
    assert deletion.tombstones == {*MACHINES.controllers}
    deletion.kafka_is_back()
    assert deletion.registered == "deleted"
    deletion.world.run(1 * SECOND)
    assert deletion.tombstones == set()


def test_a_deletion_that_was_carried_out_is_forgotten_although_its_node_has_died() -> None:
    """It is placed again, and carried out again, which changes nothing."""
    deletion = Deletion()
    deletion.kafka_is_back()
    assert deletion.registered == "deleted"
    deletion.node.kill()
    deletion.views_change()
    assert deletion.tombstones == set()
    assert deletion.registered == "deleted"
