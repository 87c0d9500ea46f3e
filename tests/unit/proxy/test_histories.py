"""Where a history ends (trace-24): the ends of windows, also of those of readers of results."""

from __future__ import annotations

from slackwater.model.deployment import WindowSpec
from slackwater.primitives.windows import Grid
from slackwater.proxy.histories import end_of_history

S = 1_000_000
HOUR = 3_600 * S
HOURLY = Grid(S, WindowSpec(HOUR, HOUR))
DAILY = Grid(S, WindowSpec(24 * HOUR, 24 * HOUR))
ROWS = Grid(10 * S, None)


def test_the_last_window_of_any_query_ends() -> None:
    assert end_of_history("s", 90 * 60 * S, {"h": (("s",), HOURLY)}) == 2 * HOUR
    readers = {"h": (("s", "t"), HOURLY), "d": (("s",), DAILY), "other": (("t",), DAILY)}
    assert end_of_history("s", 90 * 60 * S, readers) == 24 * HOUR


def test_a_bucket_of_rows_ends() -> None:
    assert end_of_history("s", 42 * S, {"r": (("s",), ROWS)}) == 50 * S


def test_a_reading_at_the_end_of_a_window_is_in_the_next_one_but_its_row_is_not() -> None:
    assert end_of_history("s", HOUR, {"h": (("s",), HOURLY)}) == 2 * HOUR
    chain = {"d": (("h",), DAILY), "h": (("s",), HOURLY)}
    assert end_of_history("s", 23 * HOUR + 5, chain) == 24 * HOUR


def test_the_windows_of_a_whole_chain_end_in_any_order_of_registration() -> None:
    weekly = Grid(S, WindowSpec(7 * 24 * HOUR, 7 * 24 * HOUR, offset_us=4 * 24 * HOUR))
    chain = {"w": (("d",), weekly), "d": (("r",), DAILY), "r": (("s",), ROWS)}
    assert end_of_history("s", 5 * HOUR, chain) == 4 * 24 * HOUR


def test_without_a_query_there_is_no_end() -> None:
    assert end_of_history("s", 5, {}) is None
    assert end_of_history("s", 5, {"h": (("t",), HOURLY)}) is None
