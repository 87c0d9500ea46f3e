"""The event clocks: adjoint roundings, a function of the boundaries alone, bounded memory."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.primitives.eventclock import (
    AnchoredClock,
    DataClock,
    EventClock,
    WallClock,
    clock_from_json,
    normal_time_us,
)

times = st.integers(-(10**16), 10**16)
speeds = st.one_of(st.sampled_from([1, 60, 0.5, 0.1, 1e6]), st.floats(1e-3, 1e7))
anchored = st.builds(AnchoredClock, times, times, speeds.map(float))


@given(st.one_of(anchored, st.just(WallClock())), times, times)
def test_due_by_wall_time_is_due_by_event_time(
    clock: AnchoredClock | WallClock, e: int, wall: int
) -> None:
    assert (clock.wall(e) <= wall) == (e <= clock.event(wall))


@given(anchored, times)
def test_wall_is_exact_up_to_one_rounding(clock: AnchoredClock, e: int) -> None:
    exact = clock.anchor_wall_us + (e - clock.anchor_event_us) / Fraction(clock.speed)
    assert 0 <= clock.wall(e) - exact < 1


def test_sixty_times_as_fast() -> None:
    clock = AnchoredClock(anchor_wall_us=1_000, anchor_event_us=0, speed=60)
    assert clock.wall(0) == 1_000
    assert clock.wall(60_000_000) == 1_001_000
    assert clock.wall(1) == 1_001  # not before
    assert clock.event(1_001_000) == 60_000_000
    assert clock.wall(-60_000_000) == -999_000
    assert normal_time_us(clock, 30_000_000, 30_000_000) == 1_001_000


def test_beyond_the_end_of_a_replay_nothing_is_ever_due() -> None:
    clock = AnchoredClock(1_000, 0, 60, end_event_us=30_000_000)
    assert normal_time_us(clock, 30_000_000, 30_000_000) == 1_001_000
    assert normal_time_us(clock, 30_000_001, 0) is None
    assert clock_from_json(clock.to_json()) == clock


@given(st.one_of(anchored, st.just(WallClock())))
def test_json_gives_the_same_clock(clock: EventClock) -> None:
    assert clock_from_json(json.loads(json.dumps(clock.to_json()))) == clock


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "lunar"},
        {"kind": "anchored"},
        {"kind": "anchored", "anchor_wall_us": 0, "anchor_event_us": 0, "speed": 0},
        {"kind": "anchored", "anchor_wall_us": "0", "anchor_event_us": 0, "speed": 1.0},
    ],
)
def test_what_is_no_clock_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not an event clock"):
        clock_from_json(data)


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(AssertionError):
        AnchoredClock(0, 0, 0.0)


observations = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 3)), max_size=60)


def by_definition(history: list[tuple[int, int]], e: int) -> int | None:
    return next((now for boundary, now in history if boundary >= e), None)


def feed(clock: DataClock, steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    now, history = 0, []
    for boundary, pause in steps:
        now += pause
        clock.observe(boundary, now)
        history.append((boundary, now))
    return history


@given(observations, st.integers(-60, 60))
def test_data_clock_is_the_first_boundary_that_reached(
    steps: list[tuple[int, int]], e: int
) -> None:
    clock = DataClock()
    history = feed(clock, steps)
    assert clock.wall(e) == by_definition(history, e)


@given(observations, st.integers(-5, 200))
def test_data_clock_shows_the_largest_boundary(steps: list[tuple[int, int]], wall: int) -> None:
    clock = DataClock()
    history = feed(clock, steps)
    assert clock.event(wall) == max((b for b, now in history if now <= wall), default=None)


@given(observations, st.integers(-60, 60))
def test_a_small_memory_is_never_early(steps: list[tuple[int, int]], e: int) -> None:
    clock = DataClock(observations_max=4)
    history = feed(clock, steps)
    assert len(clock) <= 4
    exact, remembered = by_definition(history, e), clock.wall(e)
    assert (exact is None) == (remembered is None)
    if exact is not None and remembered is not None:
        assert exact <= remembered


def test_memory_is_bounded_and_the_recent_past_exact() -> None:
    clock = DataClock(observations_max=64)
    for i in range(10_000):
        clock.observe(i * 10, i)
        assert len(clock) <= 64
    assert [clock.wall(e * 10) for e in range(9_970, 10_000)] == list(range(9_970, 10_000))


def test_a_clock_set_back_does_not_turn_the_order() -> None:
    clock = DataClock()
    clock.observe(10, 100)
    clock.observe(20, 90)
    clock.observe(30, 110)
    assert [clock.wall(e) for e in (10, 20, 30, 31)] == [100, 100, 110, None]


def test_the_data_clock_travels_without_its_observations() -> None:
    clock = DataClock()
    clock.observe(1, 1)
    copy = clock_from_json(clock.to_json())
    assert isinstance(copy, DataClock)
    assert len(copy) == 0
