"""trace-17: two controllers each place a root for one part, and each restarts its own.

Without an order the two fence each other for ever, and no transaction completes. Each placement has
a number; only one greater than the log's may fence, and a fenced root stays down until it has a
greater number.
"""

from __future__ import annotations

from tests.simulator.roots import SimRoot
from tests.simulator.story import Story

from slackwater.model.names import ONLY


def placed(story: Story, number: int) -> SimRoot:
    """The other controller starts a root with this number."""
    root = SimRoot(story.world.q, 0, number)
    root.start()
    return root


def test_a_number_that_is_not_greater_fences_nobody() -> None:
    story = Story(replicas=1)
    story.time_passes(4)
    present = story.world.q.roots[0, ONLY]

    for _ in range(5):
        assert not placed(story, present.placement).alive
        assert not placed(story, present.placement - 1).alive
        story.time_passes(0.4)
    story.time_passes(2)

    assert present.alive
    assert {c.placement for c in story.world.history.committed} == {present.placement}
    assert not story.tentative
    story.every_guarantee_holds()


def test_a_fenced_root_stays_down_until_it_has_a_greater_number() -> None:
    """The livelock ends after one exchange, because the log has the greater number."""
    story = Story(replicas=1)
    story.time_passes(4)
    first = story.world.q.roots[0, ONLY]
    story.replace("root/q.0", wakes_after_s=3)
    story.time_passes(5)
    second = story.world.q.roots[0, ONLY]

    again = placed(story, first.placement)
    story.time_passes(3)

    assert second.placement > first.placement
    assert not again.alive
    assert second.alive
    placements = [c.placement for c in story.world.history.committed]
    assert placements == sorted(placements), "the first one's answers end where the second's begin"
    story.every_guarantee_holds()
