"""The lag that a reading ahead of the clock is taken to have (trace-45)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.limits import NEVER
from slackwater.protocols.dpc.source.lag import READINGS_MIN, Lags

AHEAD = 60


def see(lags: Lags, stimes: list[int], now: int, wrong: int | None = None) -> None:
    """Note readings; those after ``wrong`` are ahead of the clock."""
    times = np.array(stimes, np.int64)
    lags.see(times, times <= (now if wrong is None else wrong), now)


def test_it_is_the_largest_of_the_readings_in_order() -> None:
    lags = Lags(AHEAD)
    assert lags.us == 0
    see(lags, [90, 95, 91], 100)
    assert lags.us == 10
    see(lags, [92, 97], 101)
    assert lags.us == 10, "92 is older than another one before it"
    see(lags, [98], 110)
    assert lags.us == 12


def test_a_reading_that_is_ahead_has_none_and_is_not_the_newest() -> None:
    lags = Lags(AHEAD)
    see(lags, [130, 90], 100)
    assert lags.us == 10


def test_a_reading_that_was_refused_has_none() -> None:
    lags = Lags(AHEAD)
    see(lags, [NEVER, 95, NEVER], 100)
    assert lags.us == 5


def test_a_lag_above_ahead_is_one_of_a_wrong_clock_or_a_backlog() -> None:
    lags = Lags(AHEAD)
    see(lags, [100 - AHEAD - 1], 100)
    assert lags.us == 0
    see(lags, [100 - AHEAD], 100)
    assert lags.us == AHEAD


def test_it_becomes_less_after_200_readings_at_most() -> None:
    lags = Lags(AHEAD)
    see(lags, [50], 100)
    for now in range(101, 100 + 2 * READINGS_MIN):
        see(lags, [now - 3], now)
    assert lags.us == 3


def test_of_many_that_are_read_together_the_last_ones_count() -> None:
    lags = Lags(AHEAD)
    see(lags, list(range(1_000, 1_000 + 5 * READINGS_MIN)), 1_000 + 5 * READINGS_MIN)
    assert lags.us == AHEAD
    see(lags, [2_000] * (2 * READINGS_MIN), 2_001)
    see(lags, [2_000] * READINGS_MIN, 2_001)
    assert lags.us == 1


@given(st.lists(st.tuples(st.lists(st.integers(-80, 90), max_size=9), st.integers(0, 20))))
def test_it_is_that_of_a_plain_computation(turns: list[tuple[list[int], int]]) -> None:
    """Fewer readings than are forgotten: the largest lag of all that are in order."""
    lags, now, newest, expected = Lags(AHEAD), 1_000, NEVER, 0
    seen = 0
    for offsets, later in turns:
        now += later
        stimes = [now + offset for offset in offsets]
        if not stimes or seen + len(stimes) >= READINGS_MIN:
            continue
        seen += len(stimes)
        see(lags, stimes, now, now + 5)
        for stime in stimes:
            if newest <= stime <= now + 5:
                newest = stime
                expected = max(expected, now - stime if now - stime <= AHEAD else 0)
    assert lags.us == expected
