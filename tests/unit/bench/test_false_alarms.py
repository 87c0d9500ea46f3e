"""`expect_every: auto` on real readings: the number of false reports of a missing stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.false_alarms import S, alarms, of_any, read

DATA = Path(__file__).parents[2] / "data"
SAMPLES = {
    "room_climate": ("ts", "node-*"),
    "nab": ("timestamp", "*"),
}


def at(*times_s: float) -> np.ndarray:
    return (np.array(times_s) * S).astype(np.int64)


def test_a_gap_that_has_not_been_learned_is_a_false_alarm() -> None:
    found = alarms(at(*range(100), 120, 121), S)
    # Of the windows that end from 100 s to 120 s those that are due, and 1.9 s over, before 120 s.
    assert found.ends[found.false].tolist() == [t * S for t in range(100, 114)]
    assert not found.away.any()


def test_what_has_been_learned_is_waited_for() -> None:
    found = alarms(at(*range(0, 2_020, 20)), S)
    assert found.steps == ((2_001 * S, 20 * S),)
    assert found.ends[found.false][-1] < 2_001 * S
    longer = alarms(at(*range(0, 4_000, 20)), S)
    assert longer.false.sum() == found.false.sum()


def test_a_stream_that_was_away_raises_no_false_alarm() -> None:
    found = alarms(at(*range(100), *range(170, 200)), S)
    assert found.away.sum() == 71
    assert not found.false.any()


@pytest.mark.parametrize("data", SAMPLES)
def test_at_most_one_window_in_a_thousand_of_the_real_readings(data: str) -> None:
    column, pattern = SAMPLES[data]
    judged = [
        alarms(stimes, 10 * S)
        for path in sorted((DATA / data).glob(f"{pattern}.csv.gz"))
        for stimes in read(path, column).values()
    ]
    assert len(judged) > 1
    for found in judged:
        assert found.false.sum() <= 0.001 * (~found.away).sum(), "of those in which it was there"
    windows, false = of_any(judged)
    assert false <= 0.001 * windows, "one query over all of them, too"
