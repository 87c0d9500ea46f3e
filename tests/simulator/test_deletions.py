"""A query is deleted while the node that registers it fails, or Kafka is away.

The deletion has to be carried out in the registry in Kafka by a node. Until then a tombstone of the
query is in the record, whatever happens to nodes and controllers.
"""

from __future__ import annotations

import pytest
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Added, Machines, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.joined.clients import ADDED
from tests.simulator.joined.node import SimNode
from tests.simulator.joined.world import JoinedWorld

from slackwater.control.recorded import REGISTRATION

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


class Deployment:
    """A deployment on which q runs."""

    def __init__(self) -> None:
        self.world = JoinedWorld(1, CONFIG, MACHINES, 60 * SECOND)
        self.world.start()
        self.world.run(3 * SECOND)

    def apply(self) -> None:
        """Apply v."""
        self.strike("apply")
        self.world.run(1 * SECOND)

    def delete(self) -> None:
        """Delete v."""
        self.strike("delete")
        self.world.run(1 * SECOND)
        assert self.tombstones == {*MACHINES.controllers}, "the deletion is accepted"

    def kafka_goes_away(self) -> None:
        self.world.broker.go_away()

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

    def is_registered(self, state: str) -> bool:
        """Whether v has this state in the registry in Kafka; empty: it is not registered."""
        return self.world.registry.states.get(ADDED, "") == state

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
        """The node on which the registration of v is placed."""
        entry = self.world.control.state("a").placement[ADDED, REGISTRATION]
        return self.world.nodes[entry.node]


def deleted() -> Deployment:
    """Query v is deleted while Kafka is away."""
    deployment = Deployment()
    deployment.apply()
    assert deployment.is_registered("running")
    deployment.kafka_goes_away()
    deployment.delete()
    return deployment


def test_a_deletion_is_carried_out_by_another_node_if_its_node_has_died() -> None:
    deployment = deleted()
    dead = deployment.node
    dead.kill()
    deployment.world.run(4 * SECOND)
    assert deployment.node is not dead
    deployment.kafka_is_back()
    assert deployment.is_registered("deleted")


def test_a_deletion_is_carried_out_by_another_node_if_its_node_drains() -> None:
    deployment = deleted()
    drained = deployment.node
    deployment.strike("drain", drained.name, 60 * SECOND)
    deployment.world.run(4 * SECOND)
    assert deployment.node is not drained
    deployment.kafka_is_back()
    assert deployment.is_registered("deleted")


def test_a_tombstone_outlives_views_until_the_deletion_has_been_carried_out() -> None:
    deployment = deleted()
    deployment.views_change()
    assert deployment.tombstones == {*MACHINES.controllers}
    deployment.kafka_is_back()
    assert deployment.is_registered("deleted")
    deployment.world.run(1 * SECOND)
    assert deployment.tombstones == set()


def test_a_deletion_that_was_carried_out_is_forgotten_although_its_node_has_died() -> None:
    """It is placed again, and carried out again, which changes nothing."""
    deployment = deleted()
    deployment.kafka_is_back()
    assert deployment.is_registered("deleted")
    deployment.node.kill()
    deployment.views_change()
    assert deployment.tombstones == set()
    assert deployment.is_registered("deleted")


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_a_node_registers_without_knowing_of_the_deletion_is_deleted(
    is_forgotten: bool,
) -> None:
    """It hears no controller, and finds out about the deletion when it does again.

    Another node has carried out the deletion before, and has found nothing in the registry. The
    tombstone may have been dropped since.
    """
    deployment = Deployment()
    deployment.kafka_goes_away()
    deployment.apply()
    (late := deployment.node).pause(20 * SECOND)
    deployment.strike("split", late.name, 30 * SECOND)
    deployment.world.run(4 * SECOND)
    assert deployment.node is not late
    deployment.delete()
    deployment.kafka_is_back()
    if is_forgotten:
        deployment.views_change()
        assert deployment.tombstones == set()
    assert deployment.is_registered("")
    deployment.world.run(late.paused_until - deployment.world.scheduler.now + 1 * SECOND)
    assert deployment.is_registered("running"), "it is late"
    deployment.world.run(10 * SECOND)
    assert deployment.is_registered("deleted")
