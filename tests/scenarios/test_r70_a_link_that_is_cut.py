"""trace-70 to trace-72, trace-80, trace-81: each child is at a site, the root at the centre."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.simulator.clock import MS
from tests.simulator.config import spread
from tests.simulator.readings import Habits
from tests.simulator.story import Story

from slackwater.model.merged import MergedRecord
from slackwater.protocols.fargo.key_lists import carries

X_S = 0.6


def story_of_sites(seed: int = 1, **config: Any) -> Story:
    """Return a run with two sites, each with two mergers and two uplinks; panes of 200 ms."""
    given: dict[str, Any] = {
        "children": spread(["s1", "s2"], 2),
        "window_us": 800 * MS,
        "slide_us": 200 * MS,
        "w_us": 50 * MS,
        "bound_us": round(X_S * 1e6),
        "mergers": 2,
        "sites": True,
        "habits": Habits(every_us=20 * MS, keys=3),
    }
    return Story(seed, **(given | config))


def at_centre(story: Story, child: int = 0) -> list[MergedRecord]:
    """Return what has come from a site."""
    log = story.world.log_at(("centre.sw.merged.q.0", child))
    return [of for _, of in log.all_values() if isinstance(of, MergedRecord)]


def well(story: Story) -> None:
    story.all_is_well_again()
    story.every_guarantee_holds()


def test_the_centre_answers_exactly_from_merged_panes_alone() -> None:
    story = story_of_sites()
    story.time_passes(4)
    assert story.tentative == []
    assert len(story.stable) >= 10
    root = story.world.q.roots[0, -1]
    assert root.session.core.movable.records_read == 0, "the centre has no deltas"
    starts = [of.start for of in at_centre(story)]
    assert len(starts) == len(set(starts)), "each pane is on the link once"
    well(story)


@pytest.mark.parametrize("for_s", [0.25, 2.0, 8.0])
def test_while_the_link_is_cut_answers_name_both_streams_and_later_all_are_exact(
    for_s: float,
) -> None:
    story = story_of_sites()
    story.time_passes(2)
    before = len(at_centre(story))
    story.world.cut_link()
    story.time_passes(for_s)
    story.world.heal_link()
    story.time_passes(3)
    if for_s < X_S - 0.2:
        assert story.tentative == [], "it was over in time"
    else:
        assert {answer.missing for answer in story.tentative} >= {("s1", "s2")}
    assert story.latest_first_answer_s(since_s=1) <= X_S
    sent = [of.start for of in at_centre(story)][before:]
    assert len(sent) <= 1.1 * len(set(sent)) + 2, "what the centre has is not sent again"
    well(story)


@pytest.mark.parametrize("tenth", range(0, 10, 3))
def test_an_uplink_that_dies_at_any_tenth_of_a_pane_loses_and_doubles_nothing(tenth: int) -> None:
    story = story_of_sites()
    story.time_passes(2 + tenth * 0.02)
    for child in (0, 1):
        story.kill(f"uplink/q.{child}.a")
    story.time_passes(3)
    for child in (0, 1):
        ends = [of.end for of in at_centre(story, child)]
        assert sorted(set(ends)) == [*dict.fromkeys(ends)], "in order"
    well(story)


def test_all_of_a_site_restarts_while_the_link_is_cut() -> None:
    story = story_of_sites()
    story.time_passes(2)
    story.world.cut_link()
    story.time_passes(1)
    for name in story.config.names:
        if not name.startswith(("root/", "proxy/")):
            story.kill(name)
    story.time_passes(4)
    story.world.heal_link()
    story.time_passes(3)
    well(story)


def test_a_link_that_flaps() -> None:
    story = story_of_sites()
    story.time_passes(1)
    for _ in range(8):
        story.world.cut_link()
        story.time_passes(0.6)
        story.world.heal_link()
        story.time_passes(0.4)
    well(story)


def test_both_mergers_of_a_site_die_and_leave_no_pane_out() -> None:
    story = story_of_sites()
    story.time_passes(2)
    for copy in "ab":
        story.kill_for_good(f"merger/q.0.{copy}")
    story.time_passes(3)
    assert {answer.missing for answer in story.tentative} == {("s1",)}
    for copy in "ab":
        story.start_again(f"merger/q.0.{copy}")
    story.time_passes(4)
    assert story.rec_done, "all is corrected"
    well(story)


# trace-80: keys that nobody has.


def named(story: Story, child: int = 0) -> list[bool]:
    """Return of each record with rows whether its keys are only named."""
    of_rows = [of for of in at_centre(story, child) if of.pane.ref.rows]
    return [bool(of.keys_hash) and not carries(of) for of in of_rows]


def test_keys_are_on_the_link_once_for_a_few_panes() -> None:
    story = story_of_sites()
    story.time_passes(4)
    found = named(story)
    assert not any(found[:2])
    assert any(found), "a list is named for four panes in this run"
    well(story)


def test_a_root_that_restarts_has_the_keys_that_its_panes_name() -> None:
    story = story_of_sites()
    for _ in range(6):
        story.time_passes(0.5)
        story.world.truncate()
        story.world.truncate()
        story.kill("root/q.0")
    story.time_passes(1)
    well(story)


def test_an_uplink_that_follows_another_one_sends_the_keys_again() -> None:
    story = story_of_sites()
    story.time_passes(1)
    before = len(named(story))
    for copy in "ab":
        story.kill(f"uplink/q.0.{copy}")
    story.time_passes(2)
    assert not named(story)[before + 1], "it names what it has sent itself"
    well(story)


@pytest.mark.parametrize("seed", range(2))
def test_cuts_and_deaths_in_any_order(seed: int) -> None:
    random_cuts_and_deaths(seed)


def random_cuts_and_deaths(seed: int) -> None:
    """Run 20 s in which the link is cut and processes of all kinds die."""
    rng = Random(f"sites/{seed}")
    story = story_of_sites(seed, head_us=rng.choice([0, 200_000]), hosted=rng.random() < 0.5)
    story.time_passes(1)
    until_s = story.world.scheduler.now + 20_000_000
    while story.world.scheduler.now < until_s:
        match rng.randrange(5):
            case 0 if not story.world.is_link_cut:
                story.world.cut_link()
            case 1 if story.world.is_link_cut:
                story.world.heal_link()
            case 2:
                story.kill(rng.choice(story.config.uplink_names))
            case 3:
                story.kill(rng.choice([*story.config.merger_names, *story.config.root_names]))
            case 4:
                story.kill(
                    rng.choice([*story.config.orderer_names, *story.config.aggregator_names])
                )
        story.time_passes(rng.uniform(0.05, 2.0))
    if story.world.is_link_cut:
        story.world.heal_link()
    story.time_passes(3)
    well(story)
