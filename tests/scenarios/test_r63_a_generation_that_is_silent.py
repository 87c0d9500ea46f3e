"""trace-63: the roots of a later generation, while nothing is received of the earlier one.

Query q is being changed, and its root is suspended, or restarts slowly. Generation 1 is complete
and its roots are ready, but the change is not recorded yet. If they took over, a cancelled change
would leave nobody who answers: q's roots stay down once a later generation has a state record.
"""

from __future__ import annotations

import pytest
from tests.simulator.checkers import check
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import WorldConfig
from tests.simulator.queries import SimQuery
from tests.simulator.readings import Habits
from tests.simulator.world import World

from slackwater.protocols.dpc.soutput.answers import StableWindow, TentativeWindow
from slackwater.protocols.flux.pair import PairRole

COPIES = pytest.mark.parametrize("copies", [1, 2])
LATER_MAX_US = 50 * MS


def changing(copies: int) -> tuple[World, SimQuery]:
    """A world in which q is being changed; generation 1 is ready, and nothing is recorded."""
    config = WorldConfig(
        copies=copies, children=(("s1",),), window_us=100 * MS, slide_us=100 * MS, w_us=50 * MS,
        bound_us=500 * MS, margin_us=20 * MS, pace=0.3, habits=Habits(every_us=10 * MS),
    )  # fmt: skip
    world = World(3, config)
    world.start()
    world.run(SECOND)
    world.change()
    later = world.queries["q.g1"]
    later.has_reached = lambda earlier: False  # type: ignore[method-assign]
    world.run(SECOND)
    assert later.is_followed_by_roots
    return world, later


def completed(world: World, later: SimQuery) -> None:
    """Let the change be recorded."""
    del later.has_reached
    world.run(2 * SECOND)


def first_answers(world: World) -> dict[int, tuple[int, int]]:
    """By start of the window: how late its first answer was, us, and of which transaction."""
    found: dict[int, tuple[int, int]] = {}
    for number, each in enumerate(world.history.committed):
        for effect in each.transaction.effects:
            if isinstance(effect, StableWindow | TentativeWindow):
                due = world.q.normal_time(effect.window_end)
                assert due is not None
                found.setdefault(effect.window_start, (each.at - due, number))
    return found


@COPIES
def test_a_generation_that_is_silent_has_not_ended(copies: int) -> None:
    world, later = changing(copies)
    roots = [root.name for root in world.queries["q"].roots.values()]
    for name in roots:
        world.pause(name, 2 * SECOND)
    world.run(SECOND)
    assert {root.session.pair.role for root in later.roots.values()} == {PairRole.FOLLOWING}
    assert later.root_state(0) is None
    world.run(2 * SECOND)
    before = world.queries["q"].root_state(0)
    world.run(SECOND)
    after = world.queries["q"].root_state(0)
    assert before is not None
    assert after is not None
    assert after.answered_to > before.answered_to, "q answers on, if the change is cancelled"


@COPIES
def test_the_first_answers_at_the_cut_are_as_early_as_usual(copies: int) -> None:
    world, later = changing(copies)
    usual_us = max(late for late, _ in [*first_answers(world).values()][-8:])
    cut = len(world.history.committed)
    completed(world, later)
    assert later.root_state(0) is not None
    late_us = [late for late, number in first_answers(world).values() if number >= cut]
    assert len(late_us) >= 15, "a window each 100 ms"
    assert max(late_us) < usual_us + LATER_MAX_US
    check(world.finish())


def test_the_first_copy_is_down_and_the_second_one_takes_over() -> None:
    world, later = changing(2)
    world.kill("root/q.g1.0.a", stays_down=True)
    completed(world, later)
    assert later.roots[0, 1].answers
    check(world.finish())
