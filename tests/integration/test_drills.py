"""Drills: every kind of process is killed, at the worst times, on one running stack.

One rehearsal on real data carries all the faults, one after the other: an orderer, both orderers,
both aggregators, the root, a proxy, the broker; then a silence of three bounds in which the root
and an orderer die, and an aggregator and the root again while it is being corrected. What is
judged is what a consumer sees: stable results exact, once each, every tentative answer undone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.test_rehearse import ROOMS_YAML, agreed, rehearse, rooms

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(540)]

CLIMATE = """\
queries:
  climate:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: [count, sum, avg, min, max]
    bound: 4s
"""
FAULTS = (
    "at=4s kill orderer/climate.0.a",
    "at=9s kill orderer",
    "at=16s kill root",
    "at=21s kill proxy/room-1",
    "at=25s pause root for 1s",
    "at=28s kill broker",
    "at=45s silence room-2 for 12s",
    "at=51s kill root",
    "at=53s kill orderer/climate.0.b",
    "at=57200ms kill aggregator/0",
    "at=57600ms kill root",
    "at=66s kill aggregator",
)


def test_no_single_death_loses_or_doubles_a_window(tmp_path: Path) -> None:
    ran = rehearse(
        tmp_path,
        ROOMS_YAML + CLIMATE,
        rooms(),
        *("--speed", "60", "--duration", "80s", "--wait", "150s"),
        *(option for fault in FAULTS for option in ("--fault", fault)),
    )
    agreed(ran)
    killed = {event["process"] for event in ran.report["events"] if event["event"] == "killed"}
    kinds = {process.partition("/")[0] for process in killed}
    assert kinds == {"orderer", "root", "proxy", "broker", "aggregator"}
    tentative = [line for line in ran.lines if line.get("label") == "tentative"]
    assert any("room-2" in line["missing"] for line in tentative)
    undone = [line for line in ran.lines if line["kind"] == "undo"]
    assert undone
    last = max(line["epoch"] for line in undone)
    assert any(line["kind"] == "rec_done" and line["epoch"] == last for line in ran.lines)
