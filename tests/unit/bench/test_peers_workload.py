"""The readings of bench/peers satisfy the assumptions of its checker."""

import json

from bench.peers.check import windows
from bench.peers.workload import (
    BACKLOG_PER_S,
    BACKLOG_SENSORS,
    CLOSING_MS,
    SIZE_BYTES_ABOUT,
    backlog,
    message,
)

START_MS = 1_700_000_000_000


def test_a_message_holds_the_reading_exactly() -> None:
    for reading in backlog(2_000, START_MS):
        found = json.loads(message(reading))
        assert (found["ts"], found["sensor"], found["value"]) == reading
        assert abs(len(message(reading)) - SIZE_BYTES_ABOUT) <= 2


def test_times_of_the_backlog_do_not_fall() -> None:
    times = [ts for ts, _, _ in backlog(200_000, START_MS)]
    assert times == sorted(times)
    assert times[-1] < START_MS + CLOSING_MS


def test_each_window_of_the_backlog_has_as_many_readings() -> None:
    found = windows(backlog(2 * BACKLOG_PER_S, START_MS))
    assert len(found) == 2 * BACKLOG_SENSORS
    assert {figures.count for figures in found.values()} == {BACKLOG_PER_S // BACKLOG_SENSORS}
