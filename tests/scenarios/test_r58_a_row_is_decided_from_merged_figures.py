"""trace-58: which keys have a row is decided where all children's figures have been merged."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.simulator.checkers.answers import GivenAnswer, answers
from tests.simulator.readings import Habits, shared_keys
from tests.simulator.story import Story

EVERY_US = 100_000
WINDOW_US = 1_000_000


def story_with(count_min: int, **config: Any) -> Story:
    """Two streams, two children; a shared key has some five readings of each in a window."""
    return Story(
        children=(("s1",), ("s2",)), bound_us=1_000_000, window_us=WINDOW_US, slide_us=WINDOW_US,
        habits=Habits(every_us=EVERY_US, keys=1), count_min=count_min, **config,
    )  # fmt: skip


def given(story: Story, *, stable: bool) -> list[GivenAnswer]:
    return [answer for answer in answers(story.history) if answer.stable is stable]


def keys_of(found: list[GivenAnswer]) -> set[str]:
    return {key for answer in found for key, _ in answer.rows}


def most(found: list[GivenAnswer], key: str) -> float:
    """Return the largest count of a key in one answer."""
    return max(figures[0] for answer in found for k, figures in answer.rows if k == key)


@cache
def counts_without() -> dict[str, float]:
    """The largest count of each key in a window, without a condition."""
    story = story_with(0)
    story.time_passes(6)
    found = given(story, stable=True)
    return {key: most(found, key) for key in keys_of(found)}


def test_children_decide_nothing_alone() -> None:
    """A key that has enough readings of both children has a row, though it has not of either."""
    counts = counts_without()
    own = max(count for key, count in counts.items() if "/" in key)
    story = story_with(int(own) + 1)
    story.time_passes(6)
    found = keys_of(given(story, stable=True))
    assert found
    assert found <= {*shared_keys}
    assert {key for key in counts if "/" in key}, "others have readings, and no row"
    story.every_guarantee_holds()


def test_a_tentative_answer_is_decided_by_what_it_has() -> None:
    """A source is silent: keys drop below the condition, and have their rows after the UNDO."""
    story = story_with(int(max(counts_without()[key] for key in shared_keys)) - 2)
    story.time_passes(3)
    story.silence("s2", for_s=2.5)
    story.time_passes(4)
    story.all_is_well_again()
    tentative = [answer for answer in given(story, stable=False) if "s2" in answer.missing]
    assert tentative
    assert not keys_of(tentative) & {*shared_keys}
    windows = {answer.window for answer in tentative}
    replaced = [answer for answer in given(story, stable=True) if answer.window in windows]
    assert keys_of(replaced) & {*shared_keys}
    story.every_guarantee_holds()


@pytest.mark.parametrize("rule", ["copies", "parts", "replicas"])
def test_it_holds_with_several_of_everything(rule: str) -> None:
    story = story_with(4, **{rule: 2})
    story.time_passes(3)
    story.kill("root/q.0" if rule != "copies" else "root/q.0.a")
    story.time_passes(3)
    story.all_is_well_again()
    story.every_guarantee_holds()
