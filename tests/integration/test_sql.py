"""``slackwater sql`` on a running deployment: a query is created, read and dropped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.counted_sender import Sender
from tests.support.shared_deployment import ROOM, SharedDeployment
from tests.support.waiting import eventually

from slackwater.runtime.logs.transport import read_to_end

pytestmark = [pytest.mark.slow]

HALVES = f"""\
-- one room, in seconds
CREATE QUERY halves AS
SELECT window_start, key, count(x), avg(x),
       count(x / 2) AS half_count, avg(x / 2) AS half_avg
FROM TUMBLE(TABLE "{ROOM}", INTERVAL '1' SECOND)
WHERE x > 0
GROUP BY window_start, key
EMIT WITHIN INTERVAL '2' SECOND
WITH (replicas = 1);
"""


def test_a_query_is_created_read_and_dropped(shared: SharedDeployment, tmp_path: Path) -> None:
    before = shared.queries()
    shared.will_have("halves")
    sender = Sender(shared.bootstrap, f"{ROOM}-readings")
    try:
        (tmp_path / "halves.sql").write_text(HALVES)
        begun = time.time()
        code, shown = shared.slackwater("sql", "-f", str(tmp_path / "halves.sql"), "--wait")
        assert code == 0, shown
        assert "query halves is accepted" in shown
        assert "query halves runs; its event time starts at" in shown

        def read(*words: str) -> list[dict[str, Any]]:
            code, shown = shared.slackwater("sql", "--format", "jsonl", *words)
            assert code == 0, shown
            return [json.loads(line) for line in shown.splitlines() if line.startswith("{")]

        final = (
            "SELECT window_start, x_avg, half_avg FROM halves"
            " WHERE key = 'm' AND x_count > 0 EMIT FINAL"
        )
        stable = (shared.transport.names.results("halves", "stable"), 0)

        def are_exact() -> bool:
            return len([*read_to_end(shared.transport, stable, isolation="read_committed")]) >= 8

        # Without the command, which takes a second of CPU time.
        eventually(are_exact, "four windows are exact, each a row and a boundary")
        rows = read("-e", final)
        assert len(rows) >= 3
        assert all(row["half_avg"] == pytest.approx(row["x_avg"] / 2) for row in rows)
        assert len({row["window_start"] for row in rows}) == len(rows)
        assert time.time() > begun
        assert read("-e", "SELECT key FROM halves WHERE x_avg < 0") == []
        assert {row["query"] for row in read("-e", "SHOW QUERIES")} == before | {"halves"}

        _, printed = shared.slackwater("sql", "-e", "SHOW CREATE QUERY halves")
        changed = printed.replace("CREATE QUERY", "CREATE OR REPLACE QUERY")
        code, shown = shared.slackwater("sql", "-e", changed)
        assert (code, shown) == (0, "query halves runs already\n")
        code, shown = shared.slackwater("sql", "-e", HALVES)
        assert code == 2
        assert shown.startswith("slackwater: -e:2:14: query halves is there")

        code, shown = shared.slackwater("sql", "-e", "DROP QUERY halves;")
        assert (code, shown) == (0, "query halves is deleted; its results stay in their topics\n")
        eventually(lambda: "halves" not in shared.queries(), "it has ended")
        assert "halves" not in shared.slackwater("query", "list")[1]
        assert shared.slackwater("sql", "-e", final)[0] == 2
    finally:
        sender.stop()
