"""A query joins the children of one that runs, through the record and the registry (trace-50).

q is applied to nodes, and then v, as by the command line. What places the children, registers v and
decides where it begins is the product's code.
"""

from __future__ import annotations

import pytest
from tests.simulator.checkers import check
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Added, Machines, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.joined.clients import ADDED
from tests.simulator.joined.definition import shared
from tests.simulator.joined.world import JoinedWorld
from tests.simulator.process import Process
from tests.simulator.queries import SimQuery
from tests.simulator.run import settle_us

from slackwater.control.control_object import ApplyQuery, DeleteQuery
from slackwater.control.control_state import CHILDREN
from slackwater.control.recorded import REGISTRATION, process_of
from slackwater.model.records import DeltaRecord
from slackwater.protocols.dpc.soutput.config import answered_by_all

MACHINES = Machines()
CONFIG = WorldConfig(
    machines=MACHINES,
    window_us=200 * MS,
    slide_us=200 * MS,
    added=Added((("s1", "s2"),), replicas=2, window_us=400 * MS, slide_us=200 * MS, joins=True),
    bound_us=300 * MS,
    margin_us=20 * MS,
    pace=0.3,
)
ORDERERS = {"orderer/q.0.a", "orderer/q.0.b"}


class Deployment:
    """A deployment on which q runs."""

    def __init__(self, kafka_is_away_s: int = 0) -> None:
        self.world = JoinedWorld(1, CONFIG, MACHINES, 90 * SECOND)
        self.world.start()
        if kafka_is_away_s:
            self.world.broker_away(kafka_is_away_s * SECOND)
        self.passes(3)

    @property
    def v(self) -> SimQuery:
        return self.world.queries[ADDED]

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(round(seconds * SECOND))

    def strike(self, what: str, whom: str = "", for_s: float = 0) -> None:
        """Inject a fault, or request an operation."""
        Fault(0, what, whom, round(for_s * SECOND)).strike(self.world)

    def apply(self) -> None:
        """Apply v."""
        self.strike("apply")
        self.passes(2)

    def joins(self) -> None:
        """Apply v, which joins."""
        self.apply()
        assert self.v.config.children_of == "q"
        assert self.is_registered(ADDED, "running")
        self.answers(self.v)

    def delete_q(self) -> None:
        """Delete q, and carry the deletion out."""
        history = self.world.history
        history.deleted_at = self.world.scheduler.now
        self.world.control.ask("a", DeleteQuery("q"), lambda _: history.deleted.append("q"))
        self.passes(2)
        assert self.is_registered("q", "deleted")

    def views_change(self) -> None:
        """Each controller is killed and restarted, so tombstones are dropped."""
        for name in MACHINES.controllers:
            self.strike("controller-kill", name, 1)
            self.passes(4)
        assert not self.world.control.state("a").has_tombstones()

    def node_dies(self, process: str) -> None:
        """Kill the node on which this runs, and start it when all has been placed elsewhere."""
        (node,) = [n for n in self.world.nodes.values() if process in n.processes]
        node.kill()
        self.passes(6)
        node.start()
        self.passes(1)

    def is_registered(self, name: str, state: str) -> bool:
        """Whether a query has this state in the registry; empty: it is not registered."""
        return self.world.registry.states.get(name, "") == state

    @property
    def why_not_registered(self) -> str:
        """Why v cannot be registered."""
        found = [note.what for note in self.world.history.notes if note.process == ADDED]
        assert len(found) == 1
        return found[0]

    @property
    def lives(self) -> dict[str, Process]:
        """What runs on all nodes, by name."""
        nodes = self.world.nodes.values()
        return {n: p for node in nodes for n, p in node.processes.items() if p.alive}

    @property
    def orderers(self) -> dict[str, Process]:
        return {n: p for n, p in self.lives.items() if n.startswith("orderer/")}

    @property
    def placed_children(self) -> set[str]:
        """The orderers of shared children that the record has."""
        placement = self.world.control.state("a").placement
        return {process_of(*key) for key in placement if key[0] == CHILDREN}

    def answered(self, query: SimQuery) -> int:
        """All windows up to here have a stable answer."""
        return answered_by_all(query.root_states()) or 0

    def answers(self, query: SimQuery) -> None:
        """It gives stable answers, and goes on."""
        before = self.answered(query)
        self.passes(1)
        assert self.answered(query) > max(before, query.start_time_us)

    def every_guarantee_holds(self) -> None:
        """Judge both queries."""
        self.world.heal()
        self.world.run(settle_us(self.world.config))
        check(self.world.finish())


def test_it_reads_the_children_that_run() -> None:
    deployment = Deployment()
    before = deployment.orderers
    assert before.keys() == ORDERERS
    requested_at = deployment.world.scheduler.now
    deployment.joins()
    assert deployment.orderers == before, "nothing has been started again"
    first = deployment.world.registry.entries[ADDED].e0_us
    assert requested_at < first <= requested_at + 1 * SECOND, "it begins at the next window"
    deployment.every_guarantee_holds()


def test_children_outlive_the_query_that_they_are_named_after() -> None:
    """Neither its end nor that of its tombstone moves or restarts anything of v."""
    deployment = Deployment()
    deployment.joins()
    before = deployment.lives
    deployment.delete_q()
    deployment.views_change()
    after = deployment.lives
    assert after.items() <= before.items()
    assert before.keys() - after.keys() == {"root/q.0"}
    deployment.answers(deployment.v)
    deployment.every_guarantee_holds()


def test_children_end_with_the_last_query_that_reads_them() -> None:
    deployment = Deployment()
    deployment.joins()
    deployment.delete_q()
    deployment.strike("delete")
    deployment.passes(2)
    assert deployment.is_registered(ADDED, "deleted")
    assert not deployment.orderers
    deployment.views_change()
    assert not deployment.placed_children
    deployment.every_guarantee_holds()


def test_a_pause_of_one_does_not_pause_the_children_of_the_other() -> None:
    deployment = Deployment()
    deployment.joins()
    before = deployment.orderers
    deployment.strike("pause-query", for_s=10)
    deployment.passes(2)
    assert "root/q.0" not in deployment.lives
    assert deployment.orderers == before
    deployment.answers(deployment.v)
    deployment.passes(10)
    deployment.answers(deployment.world.q)
    deployment.every_guarantee_holds()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_record_that_was_lost_has_the_same_children(is_deleted: bool) -> None:
    """Nodes give it back. What is placed then has greater numbers than the state records."""
    deployment = Deployment()
    deployment.joins()
    if is_deleted:
        deployment.delete_q()
        deployment.views_change()
        deployment.node_dies("root/v.0")
    before = deployment.lives
    deployment.strike("record-lost", for_s=0.5)
    deployment.passes(6)
    assert deployment.lives.keys() == before.keys()
    # What a death had brought together is balanced when there is a new view.
    assert is_deleted or deployment.lives == before
    assert deployment.placed_children == ORDERERS
    deployment.node_dies("root/v.0")
    deployment.passes(4)
    assert ORDERERS | {"root/v.0"} <= deployment.lives.keys()
    deployment.answers(deployment.v)
    assert deployment.is_registered("q", "deleted" if is_deleted else "running")
    deployment.every_guarantee_holds()


def test_it_begins_where_all_deltas_are_if_registration_takes_long() -> None:
    """Its first window is not there any more when the node that registers it comes back."""
    deployment = Deployment()
    world = deployment.world
    for node in world.nodes.values():
        node.pause(6 * SECOND)
    for process in deployment.lives.values():
        process.wake()
    for aggregator in world.aggregators.values():
        aggregator.wake()
    deployment.strike("apply")
    deployment.passes(4)
    requested_us = deployment.v.start_time_us
    for _ in range(3):
        world.truncate()
        deployment.passes(0.5)
    deployment.passes(3)
    first = world.registry.entries[ADDED].e0_us
    assert first >= requested_us + 2 * SECOND
    deltas = world.broker.log("sw.deltas.q.0:0").values()
    assert all(isinstance(d, DeltaRecord) and d.bucket_end > requested_us for _, d in deltas)
    deployment.answers(deployment.v)
    deployment.every_guarantee_holds()


def test_it_has_children_of_its_own_if_the_others_ended_meanwhile() -> None:
    """A request that was made from an earlier record is refused, so the client makes another."""
    deployment = Deployment()
    world, answers = deployment.world, list[str]()
    start_us = world.scheduler.now // SECOND * SECOND + SECOND
    _, text = shared(deployment.v.config, start_us, world.control.state("a"))
    deployment.delete_q()
    world.control.ask("a", ApplyQuery(ADDED, text), lambda r: answers.append(r.refusal))
    deployment.passes(1)
    (refusal,) = answers
    assert "no query runs that reads them" in refusal
    assert ADDED not in world.control.state("a").queries
    deployment.apply()
    assert deployment.v.has_children
    assert deployment.orderers.keys() == {"orderer/v.0.a", "orderer/v.0.b"}
    deployment.answers(deployment.v)
    deployment.every_guarantee_holds()


def test_it_is_not_registered_if_the_query_with_the_children_never_was() -> None:
    """All three operations are recorded while Kafka is away."""
    deployment = Deployment(kafka_is_away_s=10)
    world = deployment.world
    deployment.apply()
    assert world.history.accepted == ["q", ADDED]
    deployment.strike("delete-first")
    deployment.passes(5)
    assert not world.registry.states
    deployment.passes(3)
    assert "are not there any more" in deployment.why_not_registered
    deployment.passes(3)
    assert world.history.deleted == ["q", ADDED], "its client deletes it"
    deployment.every_guarantee_holds()


def test_it_is_given_up_if_it_is_registered_with_other_children() -> None:
    """One half of a split network has accepted it as q ran; in the other one q was deleted."""
    deployment = Deployment()
    world, answers = deployment.world, list[str]()
    declared, start_us = deployment.v.config, world.scheduler.now // SECOND * SECOND + SECOND
    state = world.control.state("a")
    registers = state.placement["q", REGISTRATION].node
    deployment.strike("split", f"a {registers}", 11)
    deployment.passes(7)
    history = world.history
    history.deleted_at = world.scheduler.now
    world.control.ask("b", DeleteQuery("q"), lambda _: history.deleted.append("q"))
    deployment.passes(0.1)
    for controller in "ab":  # each half has its own record
        _, text = shared(declared, start_us, world.control.state(controller))
        operation = ApplyQuery(ADDED, text)
        world.control.ask(controller, operation, lambda r: answers.append(r.refusal))
        deployment.passes(1.5)
    assert answers == ["", ""]
    history.accepted.append(ADDED)
    deployment.passes(3)
    assert world.registry.entries[ADDED].spec.children_of == "q"
    why = deployment.why_not_registered
    assert "with the children of query q, and recorded with those of query v" in why
    deployment.passes(6)
    assert history.deleted == ["q", ADDED], "its client deletes it"
    deployment.every_guarantee_holds()


def test_it_is_not_registered_if_its_children_have_lost_their_last_reader() -> None:
    """Both operations are carried out when Kafka is back; deltas may be missing by then."""
    deployment = Deployment()
    world = deployment.world
    world.broker_away(5 * SECOND)
    deployment.apply()
    assert world.history.accepted == ["q", ADDED]
    deployment.strike("delete-first")
    deployment.passes(2.8)
    entry = world.control.state("a").placement[ADDED, REGISTRATION]
    world.nodes[entry.node].pause(1 * SECOND)
    deployment.passes(2.2)
    assert deployment.is_registered("q", "deleted")
    assert deployment.is_registered(ADDED, "")
    assert "are not there any more" in deployment.why_not_registered
    deployment.passes(5)
    assert world.history.deleted == ["q", ADDED], "its client deletes it"
    deployment.every_guarantee_holds()
