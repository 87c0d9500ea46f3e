"""Machines restart while no controller runs: they run what they ran last."""

from __future__ import annotations

from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Machines, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.joined.node import ALONE_US
from tests.simulator.joined.world import JoinedWorld

from slackwater.protocols.dpc.soutput.config import answered_by_all

MACHINES = Machines()
CONFIG = WorldConfig(machines=MACHINES, bound_us=300 * MS, margin_us=20 * MS, pace=0.3)


def test_queries_are_answered_on_although_no_controller_comes_back_for_a_while() -> None:
    world = JoinedWorld(1, CONFIG, MACHINES, 60 * SECOND)
    world.start()
    world.run(3 * SECOND)

    def answered() -> int:
        """All windows up to here have a stable answer."""
        found = answered_by_all(world.q.root_states())
        assert found is not None
        return found

    for name in MACHINES.controllers:
        Fault(0, "controller-kill", name, 20 * SECOND).strike(world)
    nodes = world.nodes.values()
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start()
    world.run(ALONE_US - 100 * MS)
    assert not any(node.processes for node in nodes), "they wait for controllers"
    before = answered()
    world.run(5 * SECOND)
    assert all(node.is_alone for node in nodes)
    assert answered() > before
    world.run(15 * SECOND)
    assert not any(node.is_alone for node in nodes)
    before = answered()
    world.run(2 * SECOND)
    assert answered() > before


def test_what_was_placed_elsewhere_meanwhile_stays_down() -> None:
    world = JoinedWorld(1, CONFIG, MACHINES, 60 * SECOND)
    world.start()
    world.run(3 * SECOND)
    first = next(node for node in world.nodes.values() if node.assigned.fragments)
    had = {*first.assigned.fragments}
    first.kill()
    world.run(5 * SECOND)
    elsewhere = {
        name for node in world.nodes.values() if node is not first for name in node.processes
    }
    assert had <= elsewhere
    for name in MACHINES.controllers:
        Fault(0, "controller-kill", name, 20 * SECOND).strike(world)
    first.start()
    world.run(ALONE_US + 3 * SECOND)
    assert first.is_alone
    assert had == {*first._down}
    before = answered_by_all(world.q.root_states())
    world.run(3 * SECOND)
    after = answered_by_all(world.q.root_states())
    assert before is not None
    assert after is not None
    assert after > before
