"""Local times of a zone: the same instants by every input, and no choice in silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.every_input import INPUTS, MALFORMED, Outcome, by_avro, by_file, timed

from slackwater.formats.columns import time_fault, time_of, times
from slackwater.formats.localtimes import LocalTimeError, LocalTimes
from slackwater.model.deployment import Fold, TimeSpec
from slackwater.model.errors import EnvironmentProblem

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour of summer time
    "Pacific/Apia",  # 2011-12-30 does not exist
    "Europe/Dublin",  # winter time is the exception
    "Africa/Casablanca",  # the clock is set back for a month
    "Asia/Kathmandu",
    "UTC",
)
BERLIN = TimeSpec(("t",), format="%Y-%m-%d %H:%M:%S", zone="Europe/Berlin")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def possible(local_us: int, zone: str) -> list[int]:
    """Return the instants at which the zone's clocks show a time, found by trying them all."""
    found = set()
    for minutes in range(-26 * 60, 26 * 60 + 1, 15):
        instant = EPOCH + timedelta(microseconds=local_us, minutes=minutes)
        shown = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
        if (shown - EPOCH) // timedelta(microseconds=1) == local_us:
            found.add((instant - EPOCH) // timedelta(microseconds=1))
    return sorted(found)


# Offsets were not multiples of 15 minutes before 1986 (Kathmandu) and 1972 (Dublin, by seconds).
LOCAL = st.integers(us("1987-01-01T00:00:00Z"), us("2037-12-31T00:00:00Z"))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ZONES), LOCAL, st.sampled_from(["first", "second", "refuse"]))
def test_an_instant_shows_the_local_time(zone: str, local: int, fold: Fold) -> None:
    meant = possible(local, zone)
    conversion = LocalTimes(zone, fold)
    if not meant or (len(meant) > 1 and fold == "refuse"):
        with pytest.raises(LocalTimeError):
            conversion.instant_of(local)
    else:
        assert conversion.instant_of(local) == meant[-1 if fold == "second" else 0]


def changes(zone: str) -> list[int]:
    """Return the changes of a zone's offset since 2005, as instants in us, by bisection."""
    where, found = ZoneInfo(zone), []
    start, end = int(datetime(2005, 1, 1, tzinfo=UTC).timestamp()), 1_900_000_000

    def offset(second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, where).utcoffset()

    for day in range(start, end, 86_400):
        low, high = day, day + 86_400
        if offset(low) == offset(high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
        found.append(high * 1_000_000)
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("fold", ["first", "second", "refuse"])
def test_columns_agree_with_the_definition_around_every_change(zone: str, fold: Fold) -> None:
    conversion = LocalTimes(zone, fold)
    around = np.concatenate([np.arange(-27, 28) * 1_800_000_000, [-1, 1, 3_599_999_999]])
    local = np.concatenate([np.zeros(1, np.int64), *(at + around for at in changes(zone))])
    instants, refused = conversion.instants_of(local)
    for one, instant, is_refused in zip(local.tolist(), instants.tolist(), refused, strict=True):
        try:
            assert conversion.instant_of(one) == instant
            assert not is_refused
        except LocalTimeError:
            assert is_refused
    assert refused.any() == (zone not in ("UTC", "Asia/Kathmandu"))


def test_the_ends_of_the_calendar_are_refused_or_converted() -> None:
    for text, is_time in (("0001-01-01 00:00:00", False), ("9999-12-31 23:59:59", True)):
        values, bad = times(pa.array([text] * 30), BERLIN)
        assert (time_of(text, BERLIN) is not None) == is_time
        assert bad.tolist() == [not is_time] * 30
        assert not is_time or set(values.tolist()) == {time_of(text, BERLIN)}


DAY = [
    {"k": "a", "t": "2026-07-01 12:00:00", "v": 1.5},
    {"k": "a", "t": "2026-10-25 01:59:59", "v": 1.5},
    {"k": "a", "t": "2026-10-25 02:30:00", "v": 1.5},
    {"k": "b", "t": "2026-10-25 03:00:00", "v": 1.5},
    {"k": "b", "t": "2026-03-29 02:30:00", "v": 1.5},
    {"k": "b", "t": "2026-03-29 03:00:00", "v": 1.5},
]
TWICE = "time: 2026-10-25 02:30:00 occurs twice in Europe/Berlin: declare fold: first or second"
NEVER = "time: 2026-03-29 02:30:00 does not exist in Europe/Berlin"


def wanted(fold: Fold) -> list[Outcome]:
    doubled: dict[Fold, Outcome] = {
        "first": ("a", us("2026-10-25T00:30:00Z")),
        "second": ("a", us("2026-10-25T01:30:00Z")),
        "refuse": TWICE,
    }
    return [
        ("a", us("2026-07-01T10:00:00Z")),
        ("a", us("2026-10-24T23:59:59Z")),
        doubled[fold],
        ("b", us("2026-10-25T02:00:00Z")),
        NEVER,
        ("b", us("2026-03-29T01:00:00Z")),
    ]


@pytest.mark.parametrize("by", INPUTS)
@pytest.mark.parametrize("form", ["iso", "format"])
@pytest.mark.parametrize("fold", ["first", "second", "refuse"])
@pytest.mark.parametrize("copies", [1, 9])
def test_every_input_reads_local_times_alike(by: str, form: str, fold: Fold, copies: int) -> None:
    time = TimeSpec(("t",), unit="iso") if form == "iso" else TimeSpec(("t",), format=BERLIN.format)
    time = TimeSpec(("t",), None, time.unit, time.format, "Europe/Berlin", fold)
    found = INPUTS[by](timed(time), DAY * copies)
    expected = wanted(fold) * copies
    if by == "judge":
        expected = [MALFORMED if isinstance(one, str) else one for one in expected]
    assert found == expected


def test_an_offset_in_the_text_holds_in_place_of_the_zone() -> None:
    time = TimeSpec(("t",), unit="iso", zone="Europe/Berlin")
    row = {"k": "a", "t": "2026-10-25T02:30:00+02:00", "v": 1.5}
    for by, read in INPUTS.items():
        assert read(timed(time), [row] * 30) == [("a", us(row["t"]))] * 30, by  # type: ignore[arg-type]


def test_without_a_zone_a_time_is_utc() -> None:
    found = by_file(timed(TimeSpec(("t",), format=BERLIN.format)), DAY[2:3])
    assert found == [("a", us("2026-10-25T02:30:00Z"))]


@pytest.mark.parametrize("copies", [1, 40])
def test_local_timestamps_of_avro_are_of_the_zone_and_others_are_instants(copies: int) -> None:
    spec = timed(TimeSpec(("t",), unit="iso", zone="Europe/Berlin"))
    local, twice = us("2026-07-01T12:00:00Z"), us("2026-10-25T02:30:00Z")
    for name, factor in (("millis", 1_000), ("micros", 1), ("nanos", None)):
        rows = [
            {"k": "a", "t": t // factor if factor else t * 1_000, "v": 1.5} for t in (local, twice)
        ] * copies
        kind = {"type": "long", "logicalType": f"local-timestamp-{name}"}
        assert by_avro(spec, rows, {"t": kind}) == [("a", local - 7_200_000_000), TWICE] * copies
        instants = by_avro(spec, rows, {"t": kind | {"logicalType": f"timestamp-{name}"}})
        assert instants == [("a", local), ("a", twice)] * copies


def test_a_machine_without_the_zone_is_an_error_with_a_remedy() -> None:
    with pytest.raises(EnvironmentProblem, match=r"no time zone Europe/Atlantis: install .*tzdata"):
        LocalTimes("Europe/Atlantis", "refuse")


def test_the_detail_of_other_faults_is_as_before() -> None:
    assert time_fault("soon", BERLIN) == "time"
