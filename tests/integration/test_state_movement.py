"""A root of a long window is killed: it continues from a head, and deltas before it are gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, at, rehearse

pytestmark = [pytest.mark.slow]

LONG = """\
  long:
    from: [room-1, room-2]
    window: {size: 20m, slide: 1m}
    aggregate: [count, avg, min, max, var, distinct]
    bound: 2s
"""
CONTINUES = re.compile(r"continues from a head with (\d+) panes")


@pytest.mark.drill
@pytest.mark.parametrize("copies", [1, 2])
def test_a_killed_root_reads_what_follows_its_last_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """A window takes 20 s. The heads are stored every 5 s, and logs are truncated meanwhile."""
    monkeypatch.setenv("SLACKWATER_REREAD_S_MAX", "0.001")
    monkeypatch.setenv("SLACKWATER_TRUNCATE_EVERY_S", "3")
    data = tmp_path / "data"
    ran = rehearse(
        tmp_path,
        f"{ROOMS_YAML}queries:\n{LONG}    copies: {copies}\n",
        {room: ROOMS[room] for room in ("room-1", "room-2")},
        *("--speed", "60", "--duration", "50s", "--data-dir", str(data)),
        *at("35s kill root/long.0" if copies == 1 else "35s kill root/long.0.a"),
    )
    ran.agreed()
    assert ran.of("long", "stable")
    logs = [path.read_text(errors="replace") for path in data.rglob("*.log*")]
    found = [int(panes) for text in logs for panes in CONTINUES.findall(text)]
    assert found, "the killed root has continued from a head"
    assert max(found) >= 15, "of a window's 20 panes"
