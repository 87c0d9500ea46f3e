"""``slackwater sql`` on a running ``up``: a query is created, read and dropped by statements."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.support.web_up import Up, running_up

pytestmark = [pytest.mark.slow]

HALVES = """\
-- one room, in seconds
CREATE QUERY halves AS
SELECT window_start, key, count(temperature), avg(temperature),
       count(temperature / 2) AS half_count, avg(temperature / 2) AS half_avg
FROM TUMBLE(TABLE "room-1", INTERVAL '1' SECOND)
WHERE temperature > 0
GROUP BY window_start, key
EMIT WITHIN INTERVAL '2' SECOND
WITH (replicas = 1);
"""


def test_a_query_is_created_read_and_dropped(tmp_path: Path) -> None:
    with running_up(tmp_path) as (up, _):
        (tmp_path / "halves.sql").write_text(HALVES)
        begun = time.time()
        code, shown = up.slackwater("sql", "-f", str(tmp_path / "halves.sql"), "--wait")
        assert code == 0, shown
        assert "query halves is accepted" in shown
        assert "query halves runs; its event time starts at" in shown

        def read(*words: str) -> list[dict[str, Any]]:
            code, shown = up.slackwater("sql", "--format", "jsonl", *words)
            assert code == 0, shown
            return [json.loads(line) for line in shown.splitlines() if line.startswith("{")]

        final = (
            "SELECT window_start, temperature_avg, half_avg FROM halves"
            " WHERE key = 'room-1' AND temperature_count > 0 EMIT FINAL"
        )
        eventually(lambda: len(read("-e", final)) >= 3, "three windows are exact")
        rows = read("-e", final)
        assert all(row["half_avg"] == pytest.approx(row["temperature_avg"] / 2) for row in rows)
        assert len({row["window_start"] for row in rows}) == len(rows)
        assert time.time() > begun
        assert read("-e", "SELECT key FROM halves WHERE temperature_avg < 0") == []
        assert {row["query"] for row in read("-e", "SHOW QUERIES")} == {"climate", "halves"}

        _, printed = up.slackwater("sql", "-e", "SHOW CREATE QUERY halves")
        changed = printed.replace("CREATE QUERY", "CREATE OR REPLACE QUERY")
        code, shown = up.slackwater("sql", "-e", changed)
        assert (code, shown) == (0, "query halves runs already\n")
        code, shown = up.slackwater("sql", "-e", HALVES)
        assert code == 2
        assert shown.startswith("slackwater: -e:2:14: query halves is there")

        code, shown = up.slackwater("sql", "-e", "DROP QUERY halves;")
        assert (code, shown) == (0, "query halves is deleted; its results stay in their topics\n")
        eventually(lambda: "halves" not in listed(up), "it has ended")
        assert up.slackwater("sql", "-e", final)[0] == 2
        assert up.stop() == 0


def listed(up: Up) -> str:
    return up.slackwater("query", "list")[1]
