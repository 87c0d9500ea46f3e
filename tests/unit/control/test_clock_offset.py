"""The offset of a node's clock from a controller's, from exchanges whose two ways differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.definitions import apply

from slackwater.control.applied import from_text
from slackwater.control.clock_offset import ClockExchange, ClockOffset, measured, why_too_far

DELAYS_US = st.tuples(st.integers(0, 300_000), st.integers(0, 300_000))
QUERY = from_text("q", apply("q").definition).deployment.queries["q"]


def exchange(offset_us: int, there_us: int, back_us: int, at_us: int = 10**15) -> ClockExchange:
    """One with a clock that is ahead by ``offset_us``."""
    return ClockExchange(at_us + offset_us, at_us + there_us, there_us + back_us)


@given(st.integers(-(10**9), 10**9), st.lists(DELAYS_US, min_size=1, max_size=5))
def test_the_offset_is_within_the_error_however_the_ways_differ(
    offset_us: int, delays: list[tuple[int, int]]
) -> None:
    found = measured(exchange(offset_us, *each) for each in delays)
    assert abs(found.offset_us - offset_us) <= found.error_us
    assert found.error_us == (min(map(sum, delays)) + 1) // 2
    assert found.least_us <= abs(offset_us)


@pytest.mark.parametrize(
    ("offset_ms", "error_ms", "text"),
    [
        (25, 0, ""),
        (26, 0, "26ms ahead of that of controller a; more than half the margin of query q (25ms)"),
        (26, 1, ""),
        (-200, 5, "200ms behind that of controller a"),
    ],
)
def test_a_clock_is_too_far_off_when_it_certainly_takes_half_the_least_margin(
    offset_ms: int, error_ms: int, text: str
) -> None:
    clocks = {"a": ClockOffset(offset_ms * 1_000, error_ms * 1_000), "b": ClockOffset(0, 0)}
    queries = {"p": replace(QUERY, margin_us=90_000), "q": QUERY}
    found = why_too_far(clocks, queries)
    assert text in found
    assert bool(found) is bool(text)
    assert not why_too_far(clocks, {})


def test_an_offset_is_printed_in_ms_and_nothing_is_not_negative() -> None:
    assert str(ClockOffset(-1, 40)) == "+0.0 ms (± 0.0 ms)"
    assert str(ClockOffset(-200_040, 1_260)) == "-200.0 ms (± 1.3 ms)"
