"""The configuration of an orderer's core, derived from its deployment."""

from __future__ import annotations

import pytest

from slackwater.host.orderer import event_us
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.runtime.service.registry import QueryDefinition

SPEC = QuerySpec("q", ("s",), None, None, WindowSpec(2_000_000, 1_000_000), ("count",), 2_000_000)


@pytest.mark.parametrize("speed", [1, 20, 3_600])
def test_the_event_time_of_a_deadline_follows_the_speed_of_the_clock(speed: int) -> None:
    registered = QueryDefinition("q", 0, 0, SPEC.bucket_us(speed), SPEC)
    assert event_us(1_900_000, registered) == speed * 1_900_000


def test_narrow_buckets_of_an_earlier_version_are_no_slow_clock() -> None:
    """7cba2ed registered windows with 100 ms.

    An orderer with a smaller limit would park permanently.
    """
    registered = QueryDefinition("q", 0, 0, 100_000, SPEC)
    assert event_us(1_900_000, registered) == 1_900_000
    assert registered.grid.next_cut(0) == 100_000, "they do not change"
