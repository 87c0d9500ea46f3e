"""A change is cancelled at the moment at which it becomes complete (trace-44).

The new generation is ready, so its node requests the deletion of the earlier one. A user cancels
the change, which deletes the new one. One of the two deletions must be refused.
"""

from __future__ import annotations

import pytest
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Machines, WorldConfig
from tests.simulator.joined.control_plane import Then
from tests.simulator.joined.world import JoinedWorld

from slackwater.control.control_object import (
    ApplyQuery,
    ControlObject,
    DeleteQuery,
    Operation,
)
from slackwater.control.control_state import ControlState
from slackwater.model.names import base_of
from slackwater.protocols.iads.messages import Stamp

COMPLETION = DeleteQuery("q", beside="q.g1")
CANCELLATION = DeleteQuery("q.g1", beside="q")
MACHINES = Machines()
CONFIG = WorldConfig(machines=MACHINES, bound_us=300 * MS, margin_us=20 * MS, pace=0.3)
CHANGED_US = 3 * SECOND
SETTLED_US = 3 * SECOND


@pytest.mark.parametrize("first", [COMPLETION, CANCELLATION])
def test_the_first_of_the_two_deletions_counts(first: DeleteQuery) -> None:
    record = ControlObject(frozenset("a"), ControlState())
    begun = [ApplyQuery(name, "a definition") for name in ("q", "q.g1")]
    for time, operation in enumerate([*begun, first], 1):
        assert record.apply(operation, Stamp(1, time, "a")).refusal == ""
    second = CANCELLATION if first is COMPLETION else COMPLETION
    response = record.apply(second, Stamp(1, 9, "a"))
    assert response.refusal == (
        f"query {second.query} is not deleted, since {first.query} has been deleted meanwhile"
    )
    assert record.state.live_queries() == (second.query,)


def changing() -> JoinedWorld:
    """Machines on which q runs, and is being changed."""
    world = JoinedWorld(1, CONFIG, MACHINES, 60 * SECOND)
    world.start()
    world.run(CHANGED_US)
    world.change()
    return world


def remaining(world: JoinedWorld) -> str:
    """The generation that answers on."""
    world.run(SETTLED_US)
    live = [n for n in world.control.state("a").live_queries() if base_of(n) == "q"]
    assert len(live) == 1, "the query goes on with one generation"
    (name,) = live
    before = world.query_of(name).root_state(0)
    world.run(SETTLED_US)
    after = world.query_of(name).root_state(0)
    assert before is not None
    assert after is not None
    assert after.answered_to > before.answered_to, "it answers"
    return name


def cancelled_after(after_us: int) -> str:
    """The generation that remains when a change is cancelled so long after its request."""
    world = changing()
    world.run(after_us)
    world.clients.cancel_change()
    return remaining(world)


def test_whenever_a_change_is_cancelled_one_generation_answers_on() -> None:
    found = [cancelled_after(us) for us in range(0, 2 * SECOND, 200 * MS)]
    assert {*found} == {"q", "q.g1"}, "before and after the change was complete"


def test_both_deletions_are_requested_at_once_of_two_controllers() -> None:
    world = changing()
    ask, requested = world.control.ask, list[Operation]()

    def ask_both(controller: str, operation: Operation, then: Then = lambda _: None) -> None:
        if operation == COMPLETION and not requested:
            requested.append(operation)
            other = next(name for name in MACHINES.controllers if name != controller)
            ask(other, CANCELLATION)
        ask(controller, operation, then)

    world.control.ask = ask_both  # type: ignore[method-assign, assignment]
    assert remaining(world) in {"q", "q.g1"}
    assert requested
