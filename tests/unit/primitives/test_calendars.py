"""Windows of a calendar: laws for any zone, known days, and the judge's computation beside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.judge.calendars import LocalWindows
from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.primitives.calendars import Calendar, zone_digest
from slackwater.primitives.windows import Grid

HOUR = 3_600_000_000
DAY = 24 * HOUR
WEEK = 7 * DAY
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia",
    "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Casablanca", "America/St_Johns", "UTC",
)  # fmt: skip


def day(zone: str, offset_us: int = 0) -> WindowSpec:
    return WindowSpec(DAY, DAY, offset_us, 0, zone)


def at(text: str) -> int:
    when = datetime.fromisoformat(text)
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@st.composite
def calendars(draw: st.DrawFn) -> WindowSpec:
    zone = draw(st.sampled_from(ZONES))
    months = draw(st.sampled_from([0, 0, 0, 1, 3, 12]))
    size = 30 * DAY * months or draw(st.sampled_from([HOUR, 6 * HOUR, 8 * HOUR, DAY, DAY, WEEK]))
    offset = draw(st.integers(0, (28 * DAY if months else size) // HOUR - 1)) * HOUR
    return WindowSpec(size, size, offset, months, zone)


instants = st.integers(at("1900-01-01T00:00Z"), at("2199-12-31T00:00Z"))
near_changes = st.builds(
    lambda text, away: at(text) + away,
    st.sampled_from([
        "2024-03-31T01:00Z", "2024-10-27T01:00Z", "2024-03-10T07:00Z", "2024-11-03T06:00Z",
        "2024-04-06T15:00Z", "2024-10-05T15:30Z", "2011-12-30T10:00Z", "2018-11-04T03:00Z",
        "2011-11-06T03:31Z", "2024-03-10T02:00Z", "1995-01-01T00:00Z", "1969-12-31T23:00Z",
    ]),
    st.integers(-3 * DAY, 3 * DAY),
)  # fmt: skip
moments = st.one_of(instants, near_changes)


@given(calendars(), moments)
def test_every_instant_is_in_exactly_one_window(window: WindowSpec, e: int) -> None:
    grid = Grid(250_000, window)
    start = grid.first_window_holding(e)
    assert start == grid.last_window_holding(e)
    assert start <= e < grid.window_end(start)
    assert grid.window_end(start) == grid.later(start) == grid.first_window_from(start + 1)
    assert grid.later(grid.later(start), -1) == start
    assert grid.last_window_ending_by(e) == grid.later(start, -1)


@given(calendars(), moments, st.integers(-400, 400))
def test_windows_are_counted_as_they_are_walked(window: WindowSpec, e: int, steps: int) -> None:
    grid = Grid(250_000, window)
    walked = start = grid.first_window_holding(e)
    for _ in range(abs(steps)):
        walked = grid.window_end(walked) if steps > 0 else grid.last_window_holding(walked - 1)
    assert grid.later(start, steps) == walked
    assert grid.windows_between(start, walked) == steps
    edges = grid.edges(min(start, walked), max(start, walked))
    assert len(edges) == abs(steps) + 1
    assert (np.diff(edges) > 0).all(), "edges increase strictly"


@given(calendars(), moments)
def test_the_judge_s_own_computation_agrees(window: WindowSpec, e: int) -> None:
    grid, judge = Grid(250_000, window), LocalWindows(window)
    start = grid.first_window_holding(e)
    assert judge.first_holding(e) == start
    assert judge.later(start, 5) == grid.later(start, 5)
    assert judge.later(start, -5) == grid.later(start, -5)
    assert judge.between(start, grid.later(start, 7)) == 7


@given(calendars(), moments, st.integers(1, 3_000_000))
def test_no_bucket_crosses_an_edge(window: WindowSpec, e: int, w_us: int) -> None:
    for grid in (Grid(w_us, window), Grid(w_us, None, [window])):
        low, high = grid.bucket_start(e), grid.next_cut(e)
        assert low <= e < high <= low + w_us
        calendar = Calendar(window)
        assert calendar.at_or_before(high - 1) <= low
        assert grid.is_cut(calendar.at_or_before(e))
        assert grid.count(low, high) == 1
        assert grid.cuts(low, high).tolist() == [low, high]


@pytest.mark.parametrize(
    ("zone", "noon", "hours"),
    [
        ("Europe/Berlin", "2024-03-31T10:00Z", 23),
        ("Europe/Berlin", "2024-10-27T11:00Z", 25),
        ("Europe/Berlin", "2024-06-01T10:00Z", 24),
        ("America/New_York", "2024-03-10T16:00Z", 23),
        ("America/New_York", "2024-11-03T17:00Z", 25),
        ("Australia/Lord_Howe", "2024-04-07T01:30Z", 24.5),
        ("Australia/Lord_Howe", "2024-10-06T01:30Z", 23.5),
        ("America/Sao_Paulo", "2018-11-04T14:00Z", 23),  # it begins at 1:00
        ("Asia/Kathmandu", "1986-01-01T06:00Z", 23.75),
    ],
)
def test_days_are_as_long_as_the_zone_s(zone: str, noon: str, hours: float) -> None:
    grid = Grid(250_000, day(zone))
    start = grid.first_window_holding(at(noon))
    assert (grid.window_end(start) - start) / HOUR == hours


def test_a_day_that_does_not_exist_is_no_window() -> None:
    grid = Grid(250_000, day("Pacific/Apia"))
    start = grid.first_window_holding(at("2011-12-30T09:00Z"))
    following = grid.window_end(start)
    clock = ZoneInfo("Pacific/Apia")
    days = [datetime.fromtimestamp(e / 1e6, clock).date().isoformat() for e in (start, following)]
    assert days == ["2011-12-29", "2011-12-31"]
    assert following - start == DAY


def test_shifts_weeks_and_months_begin_at_their_local_times() -> None:
    def starts(window: WindowSpec, from_: str, number: int) -> list[str]:
        grid = Grid(250_000, window)
        found = [grid.first_window_from(at(from_))]
        for _ in range(number - 1):
            found.append(grid.window_end(found[-1]))
        clock = ZoneInfo(window.zone or "UTC")
        return [datetime.fromtimestamp(e / 1e6, clock).isoformat() for e in found]

    shifts = WindowSpec(8 * HOUR, 8 * HOUR, 6 * HOUR, 0, "Europe/Berlin")
    assert starts(shifts, "2024-10-26T12:00Z", 3) == [
        "2024-10-26T14:00:00+02:00", "2024-10-26T22:00:00+02:00", "2024-10-27T06:00:00+01:00",
    ]  # fmt: skip
    mondays = WindowSpec(WEEK, WEEK, 4 * DAY, 0, "Europe/Berlin")
    assert starts(mondays, "2024-03-20T00:00Z", 2) == [
        "2024-03-25T00:00:00+01:00", "2024-04-01T00:00:00+02:00",
    ]  # fmt: skip
    months = WindowSpec(30 * DAY, 30 * DAY, 14 * DAY, 1, "America/New_York")
    assert starts(months, "2024-01-20T00:00Z", 2) == [
        "2024-02-15T00:00:00-05:00", "2024-03-15T00:00:00-04:00",
    ]  # fmt: skip
    quarters = WindowSpec(90 * DAY, 90 * DAY, 0, 3)
    assert starts(quarters, "2024-01-01T00:00Z", 2) == [
        "2024-01-01T00:00:00+00:00", "2024-04-01T00:00:00+00:00",
    ]  # fmt: skip


@given(st.integers(-(2**62), 2**62))
def test_times_that_no_calendar_shows_are_in_windows_too(e: int) -> None:
    grid = Grid(250_000, day("Europe/Berlin"))
    start = grid.first_window_holding(e)
    assert start <= e < grid.window_end(start) <= start + 25 * HOUR


def test_ten_thousand_years_are_counted_quickly() -> None:
    grid = Grid(250_000, day("Europe/Berlin"))
    first, last = at("1970-01-02T00:00Z"), at("1970-01-02T00:00Z") + 10_000 * 365 * DAY
    start, end = grid.first_window_holding(first), grid.first_window_holding(last)
    count = grid.windows_between(start, end)
    assert abs(count - 3_650_000) <= 1
    assert grid.later(start, count) == end


@pytest.mark.parametrize("zone", ZONES)
def test_all_days_of_two_centuries_are_those_of_the_judge(zone: str) -> None:
    grid, judge = Grid(250_000, day(zone)), LocalWindows(day(zone))
    first, last = at("1890-01-01T00:00Z"), at("2090-01-01T00:00Z")
    edges = grid.edges(grid.first_window_holding(first), last).tolist()
    assert judge.later(edges[0], len(edges) - 1) == edges[-1]
    assert all(judge.first_holding(low) == low for low in edges)
    assert judge.between(edges[0], edges[-1]) == len(edges) - 1
    lengths = {high - low for low, high in pairwise(edges)}
    assert min(lengths) > 0
    assert max(lengths) <= 49 * HOUR  # Manila and Apia repeated or skipped a whole day


def test_a_fixed_window_may_have_an_offset() -> None:
    grid = Grid(250_000, WindowSpec(8 * HOUR, 4 * HOUR, 2 * HOUR))
    start = grid.first_window_holding(at("2024-01-01T03:00Z"))
    assert start == at("2023-12-31T22:00Z")
    assert grid.last_window_holding(at("2024-01-01T03:00Z")) == at("2024-01-01T02:00Z")
    assert grid.window_end(start) == at("2024-01-01T06:00Z")
    assert grid.edges(start, grid.window_end(start)).tolist() == [
        start, start + 4 * HOUR, start + 8 * HOUR,
    ]  # fmt: skip


def test_a_digest_identifies_the_rules_of_a_zone() -> None:
    found = {zone: zone_digest(zone) for zone in ZONES}
    assert len(set(found.values())) == len(ZONES)
    assert zone_digest("Europe/Berlin") == zone_digest("Arctic/Longyearbyen")  # a link since 2022b
    with pytest.raises(EnvironmentProblem, match="has no time zone Europe/Atlantis"):
        zone_digest("Europe/Atlantis")
