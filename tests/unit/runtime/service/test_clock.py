"""The clock never jumps and never goes back, whatever wall time does (trace-10, trace-12)."""

import logging
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.runtime.service.clock import SLEW_PPM_MAX, STEP_US_MIN, SlewedClock, SystemClock

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


@dataclass
class Machine:
    """Two clocks that a test sets."""

    wall_us: int = START
    monotonic_us: int = 77 * SECOND

    def advance(self, us: int, drift_ppm: int = 0) -> None:
        self.monotonic_us += us
        self.wall_us += us + us * drift_ppm // SECOND

    def clock(self, steps: list[int]) -> SystemClock:
        return SystemClock(
            on_step=steps.append,
            wall_us=lambda: self.wall_us,
            monotonic_us=lambda: self.monotonic_us,
        )


def test_without_drift_it_is_wall_time() -> None:
    machine, steps = Machine(), list[int]()
    clock = machine.clock(steps)
    for _ in range(100):
        machine.advance(123_456)
        assert clock.now_us() == machine.wall_us
    assert steps == []


def test_drift_within_the_slew_is_followed() -> None:
    machine, steps = Machine(), list[int]()
    clock = machine.clock(steps)
    for _ in range(36_000):
        machine.advance(SECOND // 10, drift_ppm=-60)
        assert abs(clock.now_us() - machine.wall_us) < 200
    assert machine.wall_us < START + 3_600 * SECOND  # the test did drift: 216 ms in the hour
    assert steps == []


@pytest.mark.parametrize("step_us", [-10 * SECOND, 3_600 * SECOND])
def test_a_step_is_reported_once_and_only_slewed(step_us: int) -> None:
    machine, steps = Machine(), list[int]()
    clock = machine.clock(steps)
    before_us = clock.now_us()
    machine.wall_us += step_us
    for _ in range(60):
        machine.advance(SECOND)
        clock.now_us()
    assert steps == [step_us]
    leaned_us = clock.now_us() - before_us - 60 * SECOND
    # The first second passes before the step is detected.
    assert abs(leaned_us) == 59 * SECOND * SLEW_PPM_MAX // SECOND
    assert (leaned_us > 0) == (step_us > 0)


def test_a_small_correction_is_made_good_exactly_and_not_reported() -> None:
    machine, steps = Machine(), list[int]()
    clock = machine.clock(steps)
    machine.wall_us += 10_000
    for _ in range(30):
        machine.advance(SECOND)
        clock.now_us()
    assert clock.now_us() == machine.wall_us
    assert steps == []


def test_two_steps_are_two_reports() -> None:
    machine, steps = Machine(), list[int]()
    clock = machine.clock(steps)
    for step_us in (5 * SECOND, -5 * SECOND):
        machine.wall_us += step_us
        machine.advance(SECOND)
        clock.now_us()
    assert steps == [5 * SECOND, -5 * SECOND]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3 * SECOND), st.integers(-100 * SECOND, 100 * SECOND), st.booleans()
        ),
        max_size=50,
    )
)
def test_time_passes_at_the_monotonic_rate_within_the_slew(
    moves: list[tuple[int, int, bool]],
) -> None:
    machine = Machine()
    clock = SlewedClock(machine.wall_us, machine.monotonic_us)
    last_us = clock.now_us(machine.monotonic_us)
    for elapsed_us, step_us, looks in moves:
        machine.advance(elapsed_us)
        machine.wall_us += step_us
        if looks:
            step = clock.observe(machine.wall_us, machine.monotonic_us)
            assert step == 0 or abs(step) > STEP_US_MIN
        now_us = clock.now_us(machine.monotonic_us)
        allowed_us = elapsed_us * SLEW_PPM_MAX // SECOND + 1  # and one for rounding
        assert abs(now_us - last_us - elapsed_us) <= allowed_us
        assert now_us >= last_us
        last_us = now_us


def test_a_deadline_is_slept_for_and_a_past_one_is_not() -> None:
    machine = Machine()
    clock = machine.clock([])
    assert clock.seconds_until(START + 1_500_000) == 1.5
    assert clock.seconds_until(START - 1) == 0


def test_by_default_a_step_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = SystemClock(wall_us=lambda: machine.wall_us, monotonic_us=lambda: machine.monotonic_us)
    machine.wall_us -= 10 * SECOND
    machine.advance(SECOND)
    with caplog.at_level(logging.WARNING):
        clock.now_us()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "stepped by -10.000 s" in caplog.text


def test_the_machines_own_clocks_are_the_default() -> None:
    first, second = SystemClock(), SystemClock()
    before, between, behind = first.now_us(), second.now_us(), first.now_us()
    assert before - SECOND < between < behind + SECOND
    earlier = first.monotonic_us()
    assert first.monotonic_us() >= earlier
