"""trace-54: a node is back, and its copies follow.

Two nodes run the two copies of each part. One of them dies, so the copies on the other one answer
all parts. It comes back, and its copies follow: without more it gives no answer until the other
node dies. The planner lets copies resign, one at a time, in favour of followers that are ready.
"""

from __future__ import annotations

from collections import Counter

from tests.simulator.checkers import check
from tests.simulator.clock import MS, SECOND
from tests.simulator.config import Machines, WorldConfig
from tests.simulator.joined.world import JoinedWorld
from tests.simulator.readings import Habits

from slackwater.control.node_watch import SETTLE_US
from slackwater.control.placing import RESIGNATION_US_MIN

MACHINES = Machines(controllers=("a",), nodes=("n1", "n2"))
CONFIG = WorldConfig(
    machines=MACHINES, parts=2, copies=2, bound_us=500 * MS, margin_us=20 * MS, pace=0.3,
    window_us=400 * MS, slide_us=400 * MS, w_us=200 * MS, habits=Habits(every_us=200 * MS),
)  # fmt: skip


def answering(world: JoinedWorld) -> Counter[str]:
    """How many parts each node answers."""
    roots = world.queries["q"].roots.values()
    return Counter(world.node_of(root).name for root in roots if root.speaks and root.answers)


def test_a_node_that_is_back_answers_again() -> None:
    world = JoinedWorld(1, CONFIG, MACHINES, 120 * SECOND)
    world.start()
    world.run(6 * SECOND)
    world.nodes["n1"].kill()
    world.run(4 * SECOND)
    assert answering(world) == {"n2": 2}
    world.nodes["n1"].start()
    world.run(6 * SECOND)
    assert answering(world) == {"n2": 2}, "it has to settle first"
    before = len(world.history.resigned)
    world.run(SETTLE_US)
    assert answering(world) == {"n1": 1, "n2": 1}
    assert len(world.history.resigned) == before + 1
    terms = len(world.history.tenures)
    world.run(2 * RESIGNATION_US_MIN)
    assert len(world.history.tenures) == terms, "it comes to an end"
    world.history.strikes = 2
    check(world.finish())
