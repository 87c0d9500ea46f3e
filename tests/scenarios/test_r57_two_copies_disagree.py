"""trace-57: two copies hold different panes; the one that follows tells, whoever is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.tenures import DISAGREES
from tests.simulator.roots import SimRoot
from tests.simulator.story import Story


def story_of_copies(**config: Any) -> Story:
    """Two copies, of which the follower compares all panes."""
    windows: dict[str, Any] = {"bound_us": 500_000, "window_us": 400_000, "slide_us": 200_000}
    return Story(copies=2, compare_us=0, **windows, **config)


def follower(story: Story) -> SimRoot:
    return story.world.q.roots[0, 1]


def alarms(story: Story) -> list[str]:
    notes = story.history.notes
    return [note.what for note in notes if note.what.startswith(DISAGREES)]


def damage(story: Story) -> Iterator[int]:
    """Change a bit of each pane that the follower holds."""
    core = follower(story).core
    assert core is not None
    for child in core._children:
        for start, pane in child.panes._panes.items():
            pane.figures.setflags(write=True)
            pane.figures.view("u8").flat[0] ^= 1
            yield start


@pytest.mark.parametrize("children", [(("s1", "s2"),), (("s1",), ("s2",))])
def test_copies_that_hold_the_same_say_nothing(children: tuple[tuple[str, ...], ...]) -> None:
    story = story_of_copies(children=children)
    story.time_passes(5)
    assert follower(story).session._copy.following.compared > 5
    assert alarms(story) == []
    story.every_guarantee_holds()


def test_a_bit_that_differs_is_told() -> None:
    story = story_of_copies()
    story.time_passes(3)
    assert list(damage(story)) != []
    story.time_passes(2)
    found = alarms(story)
    assert found != []
    assert " have the digest " in found[0]
    assert follower(story).session.report().detail["disagrees"] >= 1
    with pytest.raises(Violation, match="copies"):
        story.every_guarantee_holds()


def test_a_copy_that_disagrees_goes_on_following() -> None:
    story = story_of_copies()
    story.time_passes(3)
    assert list(damage(story)) != []
    story.time_passes(2)
    assert follower(story).session._copy.follows
    assert len(story.history.tenures) == 1
