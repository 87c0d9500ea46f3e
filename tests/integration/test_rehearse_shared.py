"""Queries over the same sources share their children; each is as exact as alone (decision 93).

The checks do not depend on time, so other tests may run in parallel.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, at, rehearse

pytestmark = [pytest.mark.slow]

DEPLOYMENT = (
    ROOMS_YAML
    + """\
queries:
  minute:
    from: [room-1, room-2]
    window: {size: 1m}
    aggregate: [count, avg]
    bound: 2s
  long:
    from: [room-1, room-2]
    window: {size: 3m, slide: 1m}
    aggregate: [min, max]
    bound: 2s
  odd:
    from: [room-1, room-2]
    window: {size: 50s, slide: 25s}
    aggregate: [count, stddev]
    bound: 2s
  warm:
    from: [room-1, room-2]
    where: temperature > 20
    window: {size: 1m}
    aggregate: [count]
    bound: 2s
"""
)


@pytest.mark.drill
def test_whatever_part_dies_each_query_is_exact(tmp_path: Path) -> None:
    """While the root of one is down, the others are answered, and it loses no input."""
    ran = rehearse(
        tmp_path,
        DEPLOYMENT,
        {room: ROOMS[room] for room in ("room-1", "room-2")},
        *("--speed", "60", "--duration", "22s"),
        *at("3s silence room-2 for 5s", "5s kill root/long.0", "9s kill aggregator/0"),
        *at(
            "10s kill root/odd.0",
            "11s kill orderer/odd.0.a",
            "14s kill aggregator",
            "15s kill root",
        ),
    )
    ran.agreed()
    assert ran.report["queries"].keys() == {"minute", "long", "odd", "warm"}
    for name in ("minute", "long", "odd", "warm"):
        assert ran.of(name, "stable"), name
        assert ran.report["queries"][name]["n_tentative"] >= 1, name
    started = {process for process, _ in ran.events()}
    assert "orderer/minute.0.a" in started, "the fault named an orderer whose children odd shares"
    assert not {"orderer/long.0.a", "orderer/odd.0.a", "orderer/odd.0.b"} & started
    for row in ran.of("odd", "stable"):
        assert set(row["fields"]["temperature"]) == {"count", "stddev"}
    for row in ran.of("long", "stable"):
        assert set(row["fields"]["temperature"]) == {"min", "max"}
