"""trace-26.

After a restart a join continues with the readings it looks back to, also in a chain.
"""

from __future__ import annotations

import pytest
from tests.simulator.config import Chain
from tests.simulator.readings import Habits
from tests.simulator.story import Story

WITHIN_US = 700_000
"""Longer than a state record's age, so a restart must read data before its frontier."""


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_orderer_dies_while_the_lines_are_apart(replicas: int) -> None:
    story = Story(
        replicas=replicas,
        join_us=WITHIN_US,
        bound_us=1_000_000,
        habits=Habits(every_us=20_000),
        chain=Chain(replicas=replicas),
    )
    story.time_passes(3)
    story.silence("s1", for_s=4)
    story.time_passes(2.5)
    assert story.tentative
    for name in story.config.orderer_names:
        story.kill(name)
    story.time_passes(3)
    assert {a.missing for a in story.reader.tentative} == {("s1",)}
    story.all_is_well_again()
    assert any(rows for c in story.history.committed for rows in c.keys.values())
    story.every_guarantee_holds()
