"""``slackwater rehearse`` of other forms of queries: a join, and queries without a window.

The checks do not depend on time, so other tests may run in parallel.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, at, rehearse, streams_yaml

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
    parts: 3
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
"""
)


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


def test_every_reading_in_order_without_a_window_and_without_spark(tmp_path: Path) -> None:
    """A silence, then a kill of a root; one query has two children and three parts (trace-21)."""
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
    assert {row["part"] for row in rows} == {1, 2}
    warm = ran.of("warm", "stable")
    assert len(warm) > 50
    assert [row["stime"] for row in warm] == sorted(row["stime"] for row in warm)
    assert all(row["window_start"] <= row["stime"] < row["window_end"] for row in rows + warm)
    assert all(set(row["fields"]) == {"f", "humidity"} for row in warm)
    runs = [line["windows"] for line in ran.lines if line["kind"] == "boundary"]
    assert max(runs) > 1, "empty buckets that become due together share a boundary"
