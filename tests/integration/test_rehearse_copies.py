"""Two copies of each part on real processes: whichever dies or is stopped, no window is late."""

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
    parts: 2
    copies: 2
  rows:
    from: [room-1, room-2]
    where: temperature > 20
    bound: 2s
    copies: 2
"""
)


@pytest.mark.drill
def test_whichever_copy_dies_each_window_is_answered_exactly_and_in_time(tmp_path: Path) -> None:
    ran = rehearse(
        tmp_path,
        DEPLOYMENT,
        {room: ROOMS[room] for room in ("room-1", "room-2")},
        *("--speed", "60", "--duration", "24s"),
        *at("4s kill root/minute.0.a", "4s kill root/rows.0.a", "8s kill root/minute.1.b"),
        *at("12s kill host/1", "17s pause host/0 for 3s"),
    )
    ran.agreed()
    for name in ("minute", "rows"):
        assert ran.of(name, "stable"), name
        assert ran.report["queries"][name]["n_tentative"] == 0, name
    started = {process for process, _ in ran.events()}
    assert {"root/minute.0.a", "root/minute.0.b", "root/rows.0.b"} <= started
