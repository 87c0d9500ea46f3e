"""``slackwater rehearse`` of other forms of queries: a join, and queries without a window.

The checks do not depend on time, so other tests may run in parallel.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, at, rehearse, streams_yaml

from slackwater.client import part_of

pytestmark = [pytest.mark.slow]

TWO_ROOMS = {room: ROOMS[room] for room in ("room-1", "room-2")}

READINGS_YAML = (
    ROOMS_YAML
    + """\
queries:
  warm:
    from: [room-1, room-2]
    where: temperature > 20
    select: {f: temperature * 1.8 + 32, humidity: humidity}
    bound: 1s
    replicas: 1
  humid:
    from: [room-1, room-2]
    bound: 1s
    children: 2
    parts: 4
    replicas: 1
"""
)
# Readings of one key are joined: both rooms have the key of one house.
JOIN_YAML = (
    streams_yaml(TWO_ROOMS, key="value: house")
    + """\
queries:
  draught:
    from: [room-1, room-2]
    join: {left: room-1, right: room-2, within: 20s}
    where: left_humidity > 0
    select: {difference: left_temperature - right_temperature, humidity: right_humidity}
    window: {size: 1m}
    aggregate: [count, avg, min, max]
    bound: 2s
    replicas: 1
"""
)


# In `make test` test_backfill.py joins two streams on real processes.
@pytest.mark.drill
def test_two_rooms_joined_while_a_room_is_silent_and_an_orderer_dies(tmp_path: Path) -> None:
    """The join looks 20 s back: a restarted orderer must read that much again."""
    ran = rehearse(
        tmp_path,
        JOIN_YAML,
        TWO_ROOMS,
        *("--speed", "60", "--duration", "16s"),
        *at("4s silence room-2 for 5s", "7s kill orderer/draught.0.a", "12s kill orderer"),
    )
    ran.agreed()
    assert ran.report["queries"]["draught"]["n_tentative"] >= 1
    rows = ran.of("draught", "stable")
    assert len(rows) > 10
    assert all(set(row["fields"]) == {"difference", "humidity"} for row in rows)
    pairs = [row["fields"]["difference"]["count"] for row in rows]
    assert max(pairs) > 6, "a reading joins several others"


@pytest.mark.drill
def test_every_reading_in_order_without_a_window_and_without_spark(tmp_path: Path) -> None:
    """A silence, then a kill of a root; one query has two children and four parts (trace-21)."""
    ran = rehearse(
        tmp_path,
        READINGS_YAML,
        TWO_ROOMS,
        *("--speed", "60", "--duration", "14s"),
        *at("2s silence room-2 for 6s", "10s kill root/humid.1"),
    )
    ran.agreed()
    assert not [process for process, _ in ran.events() if process.startswith("aggregator")]
    assert ran.report["queries"]["warm"]["n_tentative"] >= 3
    rows = ran.of("humid", "stable")
    assert {(row["key"], row["part"]) for row in rows} == {(k, part_of(k, 4)) for k in ("1", "2")}
    assert {row["part"] for row in rows} == {0, 1}
    warm = ran.of("warm", "stable")
    assert len(warm) > 50
    assert [row["stime"] for row in warm] == sorted(row["stime"] for row in warm)
    assert all(row["window_start"] <= row["stime"] < row["window_end"] for row in rows + warm)
    assert all(set(row["fields"]) == {"f", "humidity"} for row in warm)
    runs = [line["windows"] for line in ran.lines if line["kind"] == "boundary"]
    assert max(runs) > 1, "empty buckets that become due together share a boundary"


DAYS_YAML = """\
apiVersion: slackwater/v1
streams:
  hall: &local
    key: {column: node}
    time: {column: at, format: "%Y-%m-%d %H:%M:%S", zone: Europe/Berlin}
    fields: [t]
  yard: *local
queries:
  days:
    from: [hall, yard]
    window: {size: 1d, zone: Europe/Berlin}
    aggregate: [count, avg, min, max]
    bound: 2s
    replicas: 1
  shifts:
    from: [hall, yard]
    window: {size: 8h, offset: 6h, zone: Europe/Berlin}
    aggregate: [count, sum]
    bound: 2s
    replicas: 1
  weeks:
    from: [days]
    where: t_count > 0
    select: {readings: t_count}
    window: {size: 1w, zone: Europe/Berlin}
    aggregate: [count, sum]
    bound: 3s
    replicas: 1
"""
SPRING = datetime(2026, 3, 26, tzinfo=ZoneInfo("Europe/Berlin"))
QUARTER = timedelta(minutes=15)


def quarters(path: Path, node: str, days: int) -> Path:
    """Write a reading for each quarter of an hour, with the local time, across 29 March."""
    zone, first = SPRING.tzinfo, SPRING.astimezone(UTC)
    times = [(first + i * QUARTER).astimezone(zone) for i in range(days * 96)]
    rows = (f"{node},{t:%Y-%m-%d %H:%M:%S},{i % 7}.5" for i, t in enumerate(times))
    path.write_text("node,at,t\n" + "\n".join(rows) + "\n")
    return path


# Its short form: tests/unit/primitives/test_calendars.py, over the same change of clocks.
@pytest.mark.drill
def test_local_days_shifts_and_weeks_over_a_day_of_23_hours(tmp_path: Path) -> None:
    """A yard is silent across the change of clocks, and an aggregator dies."""
    files = {name: quarters(tmp_path / f"{name}.csv", name, 12) for name in ("hall", "yard")}
    ran = rehearse(
        tmp_path,
        DAYS_YAML,
        files,
        *("--speed", "57600"),
        *at("4s silence yard for 4s", "9s kill aggregator"),
    )
    ran.agreed()
    assert ran.report["queries"]["days"]["n_tentative"] >= 1
    counts = {
        row["window_start"]: row["fields"]["t"]["count"]
        for row in ran.of("days", "stable")
        if row["key"] == "hall"
    }
    assert counts["2026-03-27T23:00:00.000000Z"] == 96
    assert counts["2026-03-28T23:00:00.000000Z"] == 92, "the day of 23 hours"
    assert counts["2026-03-29T22:00:00.000000Z"] == 96
    shifts = {line["window_start"][11:16] for line in ran.of("shifts", "stable")}
    assert shifts == {"05:00", "13:00", "21:00", "04:00", "12:00", "20:00"}
    weeks = {line["window_start"][:16] for line in ran.of("weeks", "stable")}
    # The row of a day has the day's end as its time: that of Sunday is in the week after.
    assert weeks == {"2026-03-22T23:00", "2026-03-29T22:00", "2026-04-05T22:00"}
