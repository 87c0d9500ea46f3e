"""trace-55: a report that a process has ended concerns this process alone, and may be false."""

from __future__ import annotations

from tests.simulator.clock import SECOND
from tests.simulator.story import Story


def story_of_copies() -> Story:
    story = Story(copies=2, bound_us=500_000, window_us=200_000, slide_us=200_000)
    story.time_passes(3)
    return story


def now_s(story: Story) -> float:
    return story.world.scheduler.now / SECOND


def writers(story: Story) -> list[int]:
    """Return the copies that have begun a term, in order."""
    return [term.state.copy for term in story.history.tenures]


def test_a_death_that_is_reported_costs_no_silence() -> None:
    story = story_of_copies()
    usual = story.latest_first_answer_s(since_s=1.0)
    died_at = now_s(story)
    story.kill_for_good("root/q.0.a")
    story.report_dead("root/q.0.a")
    story.time_passes(2)
    assert writers(story) == [0, 1]
    assert story.latest_first_answer_s(since_s=died_at) < usual + 0.07
    story.every_guarantee_holds()


def test_a_false_report_costs_one_exchange_of_the_roles() -> None:
    """The fence makes it safe; the copy that answered starts again, and follows."""
    story = story_of_copies()
    story.report_dead("root/q.0.a")
    story.time_passes(3)
    assert writers(story) == [0, 1]
    assert story.tentative == []
    story.every_guarantee_holds()


def test_a_report_about_a_copy_that_follows_changes_nothing() -> None:
    story = story_of_copies()
    story.report_dead("root/q.0.b")
    story.time_passes(2)
    assert writers(story) == [0]
    assert story.tentative == []
    story.every_guarantee_holds()


def test_the_death_of_a_replica_is_known_before_its_heartbeat_is_stale() -> None:
    """The other replica, which is tentative, is used at once (trace-34)."""
    story = Story(replicas=2)
    story.time_passes(3)
    story.kill_for_good("orderer/q.0.a")
    story.report_dead("orderer/q.0.a")
    root = story.root()
    story.time_passes(0.05)
    upstream = root._children[0].upstream
    assert upstream.stable(story.world.scheduler.now) == [False, True]
    story.time_passes(3)
    story.every_guarantee_holds()
