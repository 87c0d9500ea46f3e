"""trace-41: two halves of a split network place one replica of a child, and each restarts its own.

A replica's last START takes over its log and ends the other one, whose node starts it again. With
placement numbers in START the one that was placed later runs, and the other one stays down.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.checkers import check
from tests.simulator.clock import SECOND
from tests.simulator.config import START_TIME_US, Machines, WorldConfig
from tests.simulator.faults import Fault
from tests.simulator.history import History
from tests.simulator.joined.world import JoinedWorld
from tests.simulator.orderers import SimOrderer
from tests.simulator.plans import Plan
from tests.simulator.run import run
from tests.simulator.story import Story

CONFIG = WorldConfig(machines=Machines())
NAME = "orderer/q.0.a"


def placed(story: Story, number: int) -> SimOrderer:
    """Start the replica with this number beside the others."""
    orderer = SimOrderer(story.world.q, 0, 0, number)
    orderer.start()
    story.time_passes(0.5)
    return orderer


def split(half: str, seconds: float) -> History:
    """Cut some controllers and nodes off from the others, 5 s after the start."""
    fault = Fault(5 * SECOND, "split", half, round(seconds * SECOND))
    outcome = run(Plan(1, CONFIG, 20 * SECOND, (fault,)))
    assert outcome.violation is None, str(outcome)
    return outcome.history


def starts(history: History, name: str, from_s: float, to_s: float) -> int:
    """How often any node has started this, and it has not stayed down."""
    begun, at = 0, START_TIME_US
    for note in history.notes:
        if note.process == name and at + from_s * SECOND <= note.at < at + to_s * SECOND:
            begun += note.what.startswith("started on ") - note.what.startswith("stays down")
    return begun


def test_the_replica_with_the_greater_number_runs() -> None:
    story = Story(replicas=1)
    story.time_passes(2)
    story.world.present(NAME).kill()

    later, earlier = placed(story, 7), placed(story, 5)

    assert later.alive
    assert not earlier.alive, "it has read the other one's START"


def test_the_state_record_has_the_number_when_retention_has_removed_start() -> None:
    story = Story(replicas=1)
    story.time_passes(2)
    story.world.present(NAME).kill()
    later = placed(story, 7)
    story.world.q.orderers[0, 0] = later
    story.time_passes(3)
    log = story.world.q.ordered_log(0, 0, 0)
    log.cut(log.end - 2)

    assert not placed(story, 5).alive
    assert later.alive


def test_the_same_placement_starts_again() -> None:
    """A node restarts what it runs with the number that it has been given."""
    story = Story(replicas=1)
    story.time_passes(2)
    story.world.present(NAME).kill()
    placed(story, 7).kill()

    assert placed(story, 7).alive


def test_without_numbers_the_last_start_takes_over() -> None:
    """One supervisor starts a replica after it has ended the other, or taken it to be dead."""
    story = Story(replicas=1)
    story.time_passes(2)
    story.world.present(NAME).kill()
    placed(story, -1).kill()

    assert placed(story, -1).alive


@pytest.mark.parametrize("half", ["a n1", "n1", "a b n1", "c n2 n3"])
def test_in_a_split_network_no_replica_starts_over_and_over(half: str) -> None:
    history = split(half, 10)
    check(history)
    for name in (*CONFIG.orderer_names, *CONFIG.root_names):
        assert starts(history, name, 5, 15) <= 2, name


def test_each_half_places_what_runs_in_the_other() -> None:
    """Otherwise the test above would show nothing."""
    assert split("a n1", 10).stayed_down > 0


@pytest.mark.parametrize("half", ["a n1", "a b n1", "c n2 n3"])
def test_nothing_moves_when_the_halves_merge(half: str) -> None:
    """The nodes of the other half are suspected at first, and the only root runs there."""
    history = split(half, 10)
    for name in CONFIG.root_names:
        assert starts(history, name, 15, 20) == 0, name


def test_a_replica_that_was_placed_again_on_its_node_is_ready() -> None:
    """It stayed down with the number before; a heartbeat must not say so of the new one."""
    plan = Plan(
        16,
        replace(CONFIG, machines=Machines(controllers=("a",))),
        20 * SECOND,
        (Fault(6 * SECOND, "split", "n1", 6 * SECOND),),
    )
    outcome = run(plan)
    assert outcome.violation is None, str(outcome)


def test_machines_are_there_only_if_the_plan_has_them() -> None:
    assert isinstance(JoinedWorld(1, CONFIG, Machines(), 1), JoinedWorld)
