"""trace-52: two copies of a part fence each other in turn, and no window is answered."""

from __future__ import annotations

from tests.simulator.clock import SECOND
from tests.simulator.story import Story


def test_a_copy_that_starts_follows_the_one_that_answers() -> None:
    """It has a greater placement number, which does not make it answer."""
    story = Story(copies=2)
    story.time_passes(3)
    for _ in range(3):
        story.kill("root/q.0.b")
        story.time_passes(2)
    assert [t.state.copy for t in story.history.tenures] == [0]
    story.every_guarantee_holds()


def test_a_copy_that_was_fenced_follows() -> None:
    """The zombie that was paused while it answered does not fence its successor in turn."""
    story = Story(copies=2, bound_us=1_000_000, window_us=500_000, slide_us=500_000)
    story.time_passes(3.2)
    story.pause("root/q.0.a", for_s=1)
    story.time_passes(4)
    assert [t.state.copy for t in story.history.tenures] == [0, 1]
    story.pause("root/q.0.b", for_s=1)
    story.time_passes(4)
    assert [t.state.copy for t in story.history.tenures] == [0, 1, 0]
    story.every_guarantee_holds()


def test_two_copies_that_are_stopped_in_turn_before_an_answer_wait_for_longer_each_time() -> None:
    """Windows of 20 s: no answer lies between the take-overs."""
    story = Story(copies=2, window_us=20 * SECOND, slide_us=20 * SECOND)
    story.time_passes(2)
    for _ in range(12):
        for copy in "ab":
            story.pause(f"root/q.0.{copy}", for_s=0.4)
            story.time_passes(0.5)
    terms = [t.state for t in story.history.tenures]
    assert len(terms) <= 4, "a silence of 0.4 s is soon too short for a suspicion"
    assert [state.vain for state in terms] == [1, 2, 3, 4][: len(terms)]


def test_a_placement_that_has_been_replaced_stays_down() -> None:
    """trace-17, of copies: the number of a name says who may run, the term who answers."""
    story = Story(copies=2)
    story.time_passes(3)
    story.replace("root/q.0.b", wakes_after_s=2)
    story.time_passes(5)
    assert [t.state.copy for t in story.history.tenures] == [0]
    story.every_guarantee_holds()
