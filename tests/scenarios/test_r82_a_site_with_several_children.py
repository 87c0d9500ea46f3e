"""trace-82: a silent stream of a site with several children, of which the centre lacks one."""

from __future__ import annotations

import pytest
from tests.scenarios.test_r70_a_link_that_is_cut import X_S, at_centre, story_of_sites, well
from tests.simulator.config import spread


def answers_while_s1_is_silent(children_a_site: int) -> set[tuple[str, ...]]:
    """Return what the centre's tentative answers lack; two streams, one in each child."""
    story = story_of_sites(children_a_site=children_a_site)
    story.time_passes(2)
    story.silence("s1", for_s=3)
    story.time_passes(8)
    assert story.latest_first_answer_s(since_s=1) <= X_S
    well(story)
    return {answer.missing for answer in story.tentative}


def test_the_centre_lacks_the_silent_stream_of_a_site_and_no_other_one() -> None:
    assert answers_while_s1_is_silent(children_a_site=2) == {("s1",)}
    assert answers_while_s1_is_silent(children_a_site=1) == {("s1",)}, "as if at two sites"


def test_two_sites_of_two_children_each_have_their_panes_in_their_own_logs() -> None:
    """A mutant writes each child under the number that it has at the site."""
    streams = ["s1", "s2", "s3", "s4"]
    story = story_of_sites(children=spread(streams, 4), children_a_site=2)
    assert story.config.site_children == [(0, 1), (2, 3)]
    story.time_passes(4)
    assert story.tentative == []
    for child in range(4):
        records = at_centre(story, child)
        assert records
        assert {of.pane.ref.child for of in records} == {child}
    well(story)


def test_of_the_children_of_a_site_only_one_is_failed_and_no_pane_of_the_other_is_lacked() -> None:
    """One child has no mergers for a while: the uplink goes on with the panes of the other one."""
    story = story_of_sites(children_a_site=2)
    story.time_passes(2)
    for copy in "ab":
        story.kill_for_good(f"merger/q.0.{copy}")
    before = len(at_centre(story, 1))
    story.time_passes(3)
    assert len(at_centre(story, 1)) >= before + 12, "panes of 200 ms"
    assert {answer.missing for answer in story.tentative} == {("s1",)}
    for copy in "ab":
        story.start_again(f"merger/q.0.{copy}")
    story.time_passes(4)
    well(story)


@pytest.mark.parametrize("tenth", range(0, 10, 3))
def test_an_uplink_of_two_children_dies_at_any_time(tenth: int) -> None:
    story = story_of_sites(children_a_site=2)
    story.time_passes(2 + tenth * 0.02)
    story.kill("uplink/q.0.a")
    story.time_passes(1)
    story.world.cut_link()
    story.kill("uplink/q.0.b")
    story.time_passes(2)
    story.world.truncate()
    story.world.truncate()
    story.world.heal_link()
    story.time_passes(3)
    for child in (0, 1):
        ends = [of.end for of in at_centre(story, child)]
        assert sorted(set(ends)) == [*dict.fromkeys(ends)], "in order"
    well(story)
