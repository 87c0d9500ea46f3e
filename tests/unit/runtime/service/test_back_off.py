"""The supervisor's decisions: times of restarts, and targets of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.errors import UsageError
from slackwater.runtime.service.back_off import BackOff, matching

NAMES = [
    "aggregator/0",
    "aggregator/1",
    "aggregator/10",
    "broker",
    "host/0",
    "host/1",
    "host/new-1",
    "orderer/climate.0.a",
    "orderer/climate.0.b",
    "orderer/climate.1.a",
    "proxy/room-1",
    "proxy/room-10",
    "root/climate.0",
    "root/q.1.a",
    "root/q.1.b",
    "root/q.10",
    "root/q.11.a",
    "root/q2.1",
]


def test_a_first_death_costs_no_wait_and_a_second_within_the_window_does() -> None:
    back_off = BackOff(window_s=10, first_s=0.5, wait_s_max=8)
    assert [back_off.after_death(at) for at in (0, 5, 8, 12, 20, 29, 38)] == [
        0,
        0.5,
        1,
        2,
        4,
        8,
        8,
    ]
    assert back_off.after_death(48.1) == 0


@given(st.lists(st.floats(min_value=0, max_value=20), max_size=60))
def test_a_wait_is_bounded_and_needs_a_death_within_the_window(gaps: list[float]) -> None:
    back_off = BackOff(window_s=10, first_s=0.5, wait_s_max=8)
    now = 0.0
    back_off.after_death(now)
    for gap in gaps:
        before, now = now, now + gap
        wait = back_off.after_death(now)
        assert (wait == 0) == (now - before > 10)
        assert wait <= 8


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("broker", ["broker"]),
        ("orderer", ["orderer/climate.0.a", "orderer/climate.0.b", "orderer/climate.1.a"]),
        ("orderer/climate.0", ["orderer/climate.0.a", "orderer/climate.0.b"]),
        ("orderer/climate.0.b", ["orderer/climate.0.b"]),
        ("proxy/room-1", ["proxy/room-1"]),
        ("aggregator/1", ["aggregator/1"]),
        ("root/q.1", ["root/q.1.a", "root/q.1.b"]),
        ("root/q.1.a", ["root/q.1.a"]),
        ("root/q.10", ["root/q.10"]),
        ("root/q", ["root/q.1.a", "root/q.1.b", "root/q.10", "root/q.11.a"]),
        ("host", ["host/0", "host/1", "host/new-1"]),
        ("proxy/", ["proxy/room-1", "proxy/room-10"]),
        ("proxy/*", ["proxy/room-1", "proxy/room-10"]),
    ],
)
def test_a_shorter_name_means_all_that_begin_with_its_components(
    target: str, meant: list[str]
) -> None:
    assert matching(target, NAMES) == meant


@pytest.mark.parametrize(
    "target", ["order", "proxy/attic", "", "orderer/climate.0.c", "brok", "proxy/room", "root/q.1."]
)
def test_an_unknown_name_is_a_usage_error(target: str) -> None:
    with pytest.raises(UsageError, match="there is no process") as caught:
        matching(target, NAMES)
    assert caught.value.exit_code == 2
