"""Two copies of each part on real processes: whichever dies or is stopped, no window is late."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, Ran, at, rehearse

pytestmark = [pytest.mark.slow]

MINUTE = """\
  minute:
    from: [room-1, room-2]
    window: {size: 1m}
    aggregate: [count, avg]
    bound: 2s
    parts: 2
    copies: 2
"""
ROWS = """\
  rows:
    from: [room-1, room-2]
    where: temperature > 20
    bound: 2s
    copies: 2
"""


def rehearsed(folder: Path, queries: str, duration: str, *faults: str) -> Ran:
    """Rehearse with these faults; each query has stable answers, and agrees with the batch."""
    ran = rehearse(
        folder,
        f"{ROOMS_YAML}queries:\n{queries}",
        {room: ROOMS[room] for room in ("room-1", "room-2")},
        *("--speed", "60", "--duration", duration),
        *at(*faults),
    )
    ran.agreed()
    for name in ran.report["queries"]:
        assert ran.of(name, "stable"), name
    return ran


def stopped_in_turn(folder: Path, queries: str) -> set[str]:
    """Stop one copy, then the other one, then a host; return what was stopped."""
    faults = ["4s stop root/rows.0.a", "8s stop root/rows.0.b", "12s stop host/1"]
    if queries != ROWS:
        faults.append("6s stop root/minute.0")
    ran = rehearsed(folder, queries, "20s", *faults)
    return {process for process, event in ran.events() if event == "stopped"}


@pytest.mark.drill
def test_each_copy_is_stopped_in_turn_and_each_reading_is_answered_exactly(tmp_path: Path) -> None:
    """A host hands its parts over before it ends, a fragment before it is moved (trace-54)."""
    assert {"root/rows.0.a", "root/rows.0.b"} <= stopped_in_turn(tmp_path, ROWS)


@pytest.mark.drill
def test_the_same_with_windows_in_two_parts(tmp_path: Path) -> None:
    stopped = stopped_in_turn(tmp_path, MINUTE + ROWS)
    assert {"root/minute.0.a", "root/minute.0.b", "root/rows.0.a"} <= stopped


@pytest.mark.drill
def test_whichever_copy_dies_each_window_is_answered_exactly_and_in_time(tmp_path: Path) -> None:
    roots = "4s kill root/minute.0.a", "4s kill root/rows.0.a", "8s kill root/minute.1.b"
    ran = rehearsed(
        tmp_path, MINUTE + ROWS, "24s", *roots, "12s kill host/1", "17s pause host/0 for 3s"
    )
    for name in ("minute", "rows"):
        assert ran.report["queries"][name]["n_tentative"] == 0, name
    started = {process for process, _ in ran.events()}
    assert {"root/minute.0.a", "root/minute.0.b", "root/rows.0.b"} <= started
