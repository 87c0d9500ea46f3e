"""trace-30: replicas catch up one after the other, and none blocks another for long.

1. s1 is silent for some seconds; all replicas answer tentatively. It returns.
2. All of them request the catch-up lease, and the one with the lowest id gets it first (DPC,
   section 4.4.3, Figure 9).
3. It is killed in the middle of the catch-up. If its turn lasted until it reported completion, the
   others would wait for ever, and nothing of the failure would be corrected.

A turn is therefore a lease that heartbeats renew: it saves work, and nothing depends on it.

See trace-30.
"""

from __future__ import annotations

from tests.simulator.readings import Habits
from tests.simulator.story import Story

LEASE_S = 1.0
TICK_S = 0.02
SILENT_S = 8.0


def after_a_silence(replicas: int, dead: str = "") -> Story:
    """Return a run in which a silence has just ended.

    Reading the backlog takes a replica two seconds.

    ``dead`` was killed before the end of the silence.
    """
    story = Story(
        replicas=replicas, bound_us=1_000_000, record_us=500, record_readings_max=1,
        habits=Habits(every_us=5_000),
    )  # fmt: skip
    story.time_passes(2)
    story.silence("s1", for_s=SILENT_S)
    story.time_passes(SILENT_S - 1)
    if dead:
        story.kill_for_good(dead)
    story.time_passes(1)
    return story


def turns(story: Story, for_s: float) -> list[tuple[int, ...]]:
    """Return the holders of the lease at successive times."""
    seen = []
    for _ in range(round(for_s / TICK_S)):
        story.time_passes(TICK_S)
        alive = [r for (_, r), of in story.world.q.orderers.items() if of.alive and of.core]
        seen.append(tuple(r for r in alive if story.orderer(0, r).stagger.status().holds))
    return seen


def in_order(seen: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Remove repetitions, and times without a holder."""
    busy = [at_it for at_it in seen if at_it]
    return [at_it for i, at_it in enumerate(busy) if i == 0 or at_it != busy[i - 1]]


def test_all_ask_and_the_lowest_id_goes_first() -> None:
    story = after_a_silence(replicas=2)
    seen = turns(story, 6)
    assert in_order(seen) == [(0,), (1,)], "one after the other"
    assert seen.count((0,)) * TICK_S > 1, "a lease lasts for a part of the work"
    assert seen.count((1,)) * TICK_S > 1
    story.all_is_well_again(2)
    story.every_guarantee_holds()


def test_a_holder_of_the_lease_refuses_also_a_lower_id() -> None:
    """A was down when B began; it returns while B has the lease, and must request it like B."""
    story = after_a_silence(replicas=2, dead="orderer/q.0.a")
    before = turns(story, LEASE_S + 0.3)
    story.start_again("orderer/q.0.a")
    after = turns(story, 6)
    assert before[-1] == (1,), "without a peer to grant it, it waits for a lease"
    assert in_order(after) == [(1,), (0,)]
    story.all_is_well_again(2)
    story.every_guarantee_holds()


def test_a_holder_that_ends_is_waited_for_no_longer_than_its_lease() -> None:
    """A ends permanently, and then B: C is left, and sends all corrections."""
    story = after_a_silence(replicas=3)
    story.time_passes(LEASE_S / 2)
    for dead, (name, other) in enumerate([("orderer/q.0.a", 1), ("orderer/q.0.b", 2)]):
        assert story.orderer(0, dead).stagger.status().holds
        assert story.orderer(0, dead).line.forked, "in the middle of its catch-up"
        story.kill_for_good(name)
        seen = turns(story, LEASE_S + 0.4)
        assert in_order(seen) == [(other,)]
        assert seen.count(()) * TICK_S > LEASE_S / 2, "its heartbeat might still arrive"
    story.time_passes(4)
    assert story.rec_done == [1]
    assert not story.orderer(0, 2).line.forked
    assert story.latest_first_answer_s() < 1.05
    assert not any("s2" in a.missing for a in story.tentative), "the waiting replica has it"
    story.all_is_well_again(14)  # two more have to catch up, one after the other
    story.every_guarantee_holds()
